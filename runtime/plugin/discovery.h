// Where plugins are looked for. Only the folders of the list are searched: each itself and its
// direct subfolders, for lib<seat>.so with <seat>.json beside it. Nothing is loaded here; a bad
// manifest, and one without its binary, is a verdict, not an error. Neither a FIFO nor a folder of
// such a name holds it up.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plugin/manifest.h"

namespace bloomery::plugin {

struct SearchFolder {
  std::string path;
  std::string
      origin;  // who listed it, for messages: "--plugin-dir", "BLOOMERY_PLUGIN_PATH", "default"
  bool named = false;  // by a flag: it must be there, and its plugins go before others (select.h)
};

// What was made of a folder or a file, in one line.
struct Verdict {
  std::string path;
  std::string text;
  bool skipped = false;  // has a plugin's name and could not be taken for one: worth a warning
};

struct Candidate {
  std::string binary;
  std::string manifest_path;
  Manifest manifest;
  bool named = false;  // lies in a folder that a flag named
};

struct Discovery {
  std::vector<SearchFolder>
      folders;  // as searched, in order; a folder listed twice is searched once
  std::vector<Candidate> candidates;  // by folder, then by name
  std::vector<Verdict> verdicts;      // every folder, and every file that is no candidate
};

// The search list: the flag's folders, the colon-separated environment value (empty: none), then
// the folder `plugins` beside the executable's folder.
std::vector<SearchFolder> SearchList(std::span<const std::string> flag_folders,
                                     std::string_view environment, const std::string& executable);

// Error(kUsage) for a named folder that cannot be read.
Discovery Discover(std::span<const SearchFolder> folders);

// The folders and verdicts as lines of text, for refusals.
std::string Describe(const Discovery& discovery);

}  // namespace bloomery::plugin
