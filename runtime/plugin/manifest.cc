#include "runtime/plugin/manifest.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"

namespace bloomery::plugin {
namespace {

constexpr std::string_view kFields[] = {"name",          "version",           "abi",
                                        "architectures", "gpu_architectures", "licence"};

class Reader {
 public:
  Reader(const rapidjson::Document& document, const std::string& path)
      : document_(document), path_(path) {}

  [[noreturn]] void Refuse(std::string_view field, const std::string& problem) const {
    throw Error(ErrorKind::kBadModel,
                "plugin manifest " + path_ + ", field '" + std::string(field) + "': " + problem);
  }

  void CheckFields() const {
    if (!document_.IsObject()) {
      throw Error(ErrorKind::kBadModel, "plugin manifest " + path_ + " is not a JSON object");
    }
    std::vector<std::string_view> seen;
    for (const auto& member : document_.GetObject()) {
      const std::string_view name(member.name.GetString(), member.name.GetStringLength());
      if (std::ranges::find(kFields, name) == std::end(kFields)) {
        Refuse(name, "not known to this version; remove it");
      }
      if (std::ranges::find(seen, name) != seen.end()) Refuse(name, "given twice");
      seen.push_back(name);
    }
  }

  std::string Text(std::string_view field) const {
    const rapidjson::Value* value = Find(field);
    if (value == nullptr) Refuse(field, "missing");
    return TextOf(*value, field);
  }

  std::vector<std::string> Texts(std::string_view field) const {
    const rapidjson::Value* value = Find(field);
    if (value == nullptr) return {};
    if (!value->IsArray()) Refuse(field, "not an array of strings");
    if (value->Size() > limits::kPluginArchitecturesMax) {
      Refuse(field, std::to_string(value->Size()) + " items, at most " +
                        std::to_string(limits::kPluginArchitecturesMax));
    }
    std::vector<std::string> texts;
    for (const auto& item : value->GetArray()) {
      std::string text = TextOf(item, field);
      if (std::ranges::find(texts, text) != texts.end()) Refuse(field, "'" + text + "' twice");
      texts.push_back(std::move(text));
    }
    return texts;
  }

 private:
  const rapidjson::Value* Find(std::string_view field) const {
    const auto it = document_.FindMember(std::string(field));
    return it == document_.MemberEnd() ? nullptr : &it->value;
  }
  std::string TextOf(const rapidjson::Value& value, std::string_view field) const {
    if (!value.IsString()) Refuse(field, "not a string");
    std::string text(value.GetString(), value.GetStringLength());
    if (text.empty()) Refuse(field, "empty");
    if (text.size() > limits::kPluginTextBytesMax) {
      Refuse(field, std::to_string(text.size()) + " bytes, at most " +
                        std::to_string(limits::kPluginTextBytesMax));
    }
    const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
    if (std::ranges::any_of(text, control)) Refuse(field, "a control character");
    return text;
  }

  const rapidjson::Document& document_;
  const std::string& path_;
};

// `count` decimal numbers joined by dots and nothing else.
template <size_t count, class Int>
std::optional<std::array<Int, count>> ParseNumbers(std::string_view text) {
  std::array<Int, count> numbers{};
  const char* at = text.data();
  const char* end = text.data() + text.size();
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) {
      if (at == end || *at != '.') return std::nullopt;
      ++at;
    }
    const auto [next, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc() || next == at) return std::nullopt;
    at = next;
  }
  return at == end ? std::optional(numbers) : std::nullopt;
}

bool IsPluginName(std::string_view name) {
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

}  // namespace

std::optional<Version> ParseVersion(std::string_view text) {
  const auto numbers = ParseNumbers<3, uint32_t>(text);
  return numbers ? std::optional(Version{*numbers}) : std::nullopt;
}

Manifest ParseManifest(std::string_view json, const std::string& path) {
  const rapidjson::Document document = ParseJson(json, "plugin manifest " + path,
                                                 {.kind = ErrorKind::kBadModel,
                                                  .bytes_max = limits::kManifestBytesMax,
                                                  .depth_max = 4,
                                                  .keep_repeated = true});
  const Reader reader(document, path);
  reader.CheckFields();

  Manifest manifest;
  manifest.name = reader.Text("name");
  if (!IsPluginName(manifest.name)) {
    reader.Refuse("name",
                  "'" + manifest.name + "' has other characters than a-z, 0-9, '_' and '-'");
  }
  manifest.version = reader.Text("version");
  const auto version = ParseVersion(manifest.version);
  if (!version) {
    reader.Refuse("version", "'" + manifest.version + "' is not three numbers such as 0.1.0");
  }
  manifest.version_parts = *version;
  const std::string abi = reader.Text("abi");
  const auto abi_parts = ParseNumbers<2, uint16_t>(abi);
  if (!abi_parts) reader.Refuse("abi", "'" + abi + "' is not two numbers such as 0.1");
  manifest.abi = {(*abi_parts)[0], (*abi_parts)[1]};
  manifest.architectures = reader.Texts("architectures");
  if (manifest.architectures.empty()) reader.Refuse("architectures", "missing or empty");
  manifest.gpu_architectures = reader.Texts("gpu_architectures");
  manifest.licence = reader.Text("licence");
  return manifest;
}

}  // namespace bloomery::plugin
