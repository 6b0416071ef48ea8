#include "runtime/plugin/discovery.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace bloomery::plugin {
namespace {

namespace fs = std::filesystem;

// Names in a folder, sorted, so that the order does not depend on the file system. Empty with
// `error` set when the folder cannot be read.
std::vector<fs::path> Entries(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> entries;
  fs::directory_iterator it(folder, error);
  while (!error && it != fs::directory_iterator()) {
    if (entries.size() == limits::kPluginFolderEntriesMax) {
      error = std::make_error_code(std::errc::argument_list_too_long);
      break;
    }
    entries.push_back(it->path());
    it.increment(error);
  }
  if (error) entries.clear();
  std::ranges::sort(entries);
  return entries;
}

bool IsBinaryName(const std::string& name) {
  return name.size() > 6 && name.starts_with("lib") && name.ends_with(".so");
}

// Of a file that is a manifest, whose binary is not there.
bool LacksBinary(const fs::path& path) {
  std::error_code ignored;
  if (path.extension() != ".json" || path.stem().string().find('.') != std::string::npos ||
      !fs::is_regular_file(path, ignored) ||
      fs::exists(path.parent_path() / ("lib" + path.stem().string() + ".so"), ignored)) {
    return false;
  }
  try {
    ParseManifest(ReadWholeFile(RealFileSystem(), path.string(), limits::kManifestBytesMax),
                  path.string());
    return true;
  } catch (const Error&) {
    return false;  // some other JSON
  }
}

// Adds what one folder holds; returns how many candidates.
size_t SearchOne(const std::vector<fs::path>& entries, bool named, Discovery& out) {
  size_t found = 0;
  std::error_code ignored;
  for (const fs::path& path : entries) {
    const std::string name = path.filename().string();
    if (LacksBinary(path)) {
      out.verdicts.push_back(
          {path.string(), "no binary lib" + path.stem().string() + ".so beside it", true});
    }
    if (!IsBinaryName(name)) continue;
    if (!fs::is_regular_file(path, ignored)) {
      out.verdicts.push_back({path.string(), "is not a regular file: not looked at", true});
      continue;
    }
    const fs::path manifest = path.parent_path() / (name.substr(3, name.size() - 6) + ".json");
    if (!fs::exists(manifest, ignored)) {
      out.verdicts.push_back(
          {path.string(),
           "no manifest " + manifest.filename().string() + " beside it: not looked at", true});
      continue;
    }
    try {
      const std::string json =
          ReadWholeFile(RealFileSystem(), manifest.string(), limits::kManifestBytesMax);
      out.candidates.push_back(
          {path.string(), manifest.string(), ParseManifest(json, manifest.string()), named});
      ++found;
    } catch (const Error& e) {
      out.verdicts.push_back({path.string(), e.what(), true});
    }
  }
  return found;
}

void SearchFolderTree(const SearchFolder& folder, Discovery& out) {
  std::error_code error;
  const std::vector<fs::path> entries = Entries(folder.path, error);
  if (error) {
    if (folder.named) {
      throw Error(ErrorKind::kUsage, folder.origin + ": the folder '" + Printable(folder.path) +
                                         "' cannot be read: " + error.message());
    }
    out.verdicts.push_back({folder.path, error.message()});
    return;
  }
  size_t found = SearchOne(entries, folder.named, out);
  for (const fs::path& entry : entries) {
    std::error_code entry_error;
    if (!fs::is_directory(entry, entry_error)) continue;
    const std::vector<fs::path> inner = Entries(entry, entry_error);
    if (entry_error) {
      out.verdicts.push_back({entry.string(), entry_error.message()});
    } else {
      found += SearchOne(inner, folder.named, out);
    }
  }
  out.verdicts.push_back(
      {folder.path, found == 0 ? "no plugin here"
                               : std::to_string(found) + (found == 1 ? " plugin" : " plugins")});
}

}  // namespace

std::vector<SearchFolder> SearchList(std::span<const std::string> flag_folders,
                                     std::string_view environment, const std::string& executable) {
  std::vector<SearchFolder> list;
  for (const std::string& folder : flag_folders) list.push_back({folder, "--plugin-dir", true});
  while (!environment.empty()) {
    const size_t colon = std::min(environment.find(':'), environment.size());
    if (colon > 0) {
      list.push_back({std::string(environment.substr(0, colon)), "BLOOMERY_PLUGIN_PATH"});
    }
    environment.remove_prefix(std::min(colon + 1, environment.size()));
  }
  const fs::path beside = fs::path(executable).parent_path() / ".." / "plugins";
  list.push_back({beside.lexically_normal().string(), "default"});
  return list;
}

Discovery Discover(std::span<const SearchFolder> folders) {
  Discovery out;
  std::set<fs::path> seen;
  for (const SearchFolder& folder : folders) {
    std::error_code error;
    const fs::path real = fs::weakly_canonical(folder.path, error);
    if (!error && !seen.insert(real).second) continue;
    out.folders.push_back(folder);
    SearchFolderTree(folder, out);
  }
  return out;
}

std::string Describe(const Discovery& discovery) {
  std::string text = "searched:";
  for (const SearchFolder& folder : discovery.folders) {
    text += "\n  " + folder.path + " (" + folder.origin + ")";
  }
  if (discovery.folders.empty()) text += " no folder";
  text += "\nfound:";
  for (const Candidate& c : discovery.candidates) {
    text += "\n  " + c.binary + ": " + c.manifest.name + " " + c.manifest.version + " for";
    for (const std::string& arch : c.manifest.architectures) text += " " + arch;
  }
  for (const Verdict& verdict : discovery.verdicts) {
    text += "\n  " + verdict.path + ": " + verdict.text;
  }
  return text;
}

}  // namespace bloomery::plugin
