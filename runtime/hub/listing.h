// What a user asks a hub for, and what the hub says it has: "owner/name[:quant]" taken apart, and
// the pages of a repository's file listing. Names and paths come from outside and become paths of
// ours, so what could lead out of a folder is refused here. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bloomery::hub {

struct Reference {
  std::string owner{};
  std::string name{};
  std::string quant{};  // empty: not said

  std::string Repo() const { return owner + "/" + name; }
  std::string Text() const { return quant.empty() ? Repo() : Repo() + ":" + quant; }
};

// Error(kUsage) naming what is wrong with it.
Reference ParseReference(std::string_view text);

struct HubFile {
  std::string path{};  // in the repository, "Q4_K_M/model-00001-of-00002.gguf"
  uint64_t bytes = 0;
  std::string digest{};  // "sha256:<hex>", or "git:<hex>" for a file that git holds itself
};

// One page of a listing. A file without size and digest, or with a path that cannot be a file's
// here, is Error(kDownload); `where` names the page.
std::vector<HubFile> ParseListing(std::string_view json, const std::string& where);

// The address of a Link header's rel="next", or empty.
std::string NextPage(std::string_view link);

// Whether the path stays inside a folder: relative, no "..", no empty part, no backslash, no
// control character, not too long.
bool IsSafePath(std::string_view path);

}  // namespace bloomery::hub
