#include "runtime/hub/listing.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/hub/digest.h"

namespace bloomery::hub {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= limits::kHubNameBytesMax && !text.starts_with(".") &&
         text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), IsNameCharacter);
}

[[noreturn]] void RefuseEntry(const std::string& where, const std::string& why) {
  throw Error(ErrorKind::kDownload, where + ": " + why);
}

std::string TextOf(const rapidjson::Value& object, const char* name) {
  const rapidjson::Value* value = FindNonNull(object, name);
  return value != nullptr && value->IsString()
             ? std::string(value->GetString(), value->GetStringLength())
             : std::string();
}

HubFile FileOf(const rapidjson::Value& entry, const std::string& where) {
  HubFile file;
  file.path = TextOf(entry, "path");
  if (!IsSafePath(file.path)) {
    RefuseEntry(where, "a file is listed as '" + Printable(file.path) + "', which is no safe path");
  }
  const rapidjson::Value* lfs = FindNonNull(entry, "lfs");
  const bool large = lfs != nullptr && lfs->IsObject();
  const rapidjson::Value& source = large ? *lfs : entry;
  file.digest = (large ? "sha256:" : "git:") + TextOf(source, "oid");
  // Some hubs write the kind of digest before it.
  constexpr std::string_view kTwice = "sha256:sha256:";
  if (file.digest.starts_with(kTwice)) file.digest.erase(0, kTwice.size() / 2);
  const rapidjson::Value* size = FindNonNull(source, "size");
  if (size == nullptr || !size->IsUint64() || !IsDigest(file.digest)) {
    RefuseEntry(where, "'" + Printable(file.path) + "' is listed without its size and digest");
  }
  file.bytes = size->GetUint64();
  return file;
}

}  // namespace

Reference ParseReference(std::string_view text) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kUsage,
                "'" + Printable(text) + "': " + why + "; expected owner/name or owner/name:quant");
  };
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) refuse("there is no slash in it");
  const size_t colon = text.find(':');
  Reference reference;
  reference.owner = text.substr(0, slash);
  const std::string_view rest =
      text.substr(slash + 1, colon == std::string_view::npos ? colon : colon - slash - 1);
  if (colon != std::string_view::npos && colon < slash) refuse("the colon is before the slash");
  reference.name = rest;
  if (!IsName(reference.owner)) refuse("the owner is no name of letters, digits, - _ and .");
  if (!IsName(reference.name)) refuse("the name is none of letters, digits, - _ and .");
  if (colon == std::string_view::npos) return reference;
  reference.quant = text.substr(colon + 1);
  if (!IsName(reference.quant)) refuse("the quant is no name of letters, digits, - _ and .");
  return reference;
}

std::vector<HubFile> ParseListing(std::string_view json, const std::string& where) {
  const rapidjson::Document page = ParseJson(
      json, where, {.kind = ErrorKind::kDownload, .bytes_max = limits::kHubListingBytesMax});
  if (!page.IsArray()) RefuseEntry(where, "the listing is no list of files");
  std::vector<HubFile> files;
  for (const rapidjson::Value& entry : page.GetArray()) {
    if (!entry.IsObject()) RefuseEntry(where, "the listing has an entry that is no object");
    if (TextOf(entry, "type") != "file") continue;
    files.push_back(FileOf(entry, where));
  }
  return files;
}

std::string NextPage(std::string_view link) {
  while (!link.empty()) {
    const size_t open = link.find('<');
    const size_t close = link.find('>', open == std::string_view::npos ? 0 : open);
    if (open == std::string_view::npos || close == std::string_view::npos) return "";
    const size_t end = link.find(',', close);
    const std::string_view parameters = link.substr(close + 1, end - close - 1);
    if (parameters.find("rel=\"next\"") != std::string_view::npos ||
        parameters.find("rel=next") != std::string_view::npos) {
      return std::string(link.substr(open + 1, close - open - 1));
    }
    link = end == std::string_view::npos ? std::string_view() : link.substr(end + 1);
  }
  return "";
}

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > limits::kHubPathBytesMax || !IsValidUtf8(path)) return false;
  for (const char c : path) {
    if (c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  }
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace bloomery::hub
