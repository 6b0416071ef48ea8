// Models on this disk: <root>/<owner>/<name>/<path in the repository>. A file there is used only
// with a marker beside it, "<file>.verified", that holds its digest, size and time of writing: it
// is written after the bytes were checked, so a download that was cut, or a file changed since, is
// never taken for a model. What is being fetched is "<file>.part". One process at a time writes in
// a repository (an advisory lock). Owns no memory of what it saw: every call looks anew.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/hub/listing.h"
#include "runtime/hub/model_set.h"

namespace bloomery::hub {

// $BLOOMERY_CACHE, else $XDG_CACHE_HOME/bloomery/hf, else ~/.cache/bloomery/hf. Error(kUsage) where
// none of the three is set.
std::string CacheRoot(const std::map<std::string, std::string>& environment);

// Of the hub's own clients, for reading: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub,
// XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub; empty where none is there.
std::string OtherCacheRoot(const std::map<std::string, std::string>& environment);

struct CachedSet {
  std::string repo{};       // "owner/name"
  ModelSet set{};           // of verified files, digests from their markers
  uint64_t part_bytes = 0;  // fetched of files that are not whole yet; then `set` may be empty
};

// Held until destroyed.
class RepoLock {
 public:
  virtual ~RepoLock() = default;
};

class Cache {
 public:
  explicit Cache(std::string root) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  std::string PathOf(const std::string& repo, const std::string& path) const;

  // Whether the file is here, whole and checked against this digest.
  bool Has(const std::string& repo, const HubFile& file) const;
  // Writes the marker of a file that lies there checked.
  void Mark(const std::string& repo, const HubFile& file) const;
  void Unmark(const std::string& repo, const HubFile& file) const;

  // Every verified set and every part, sorted; of one repository where `repo` is not empty.
  std::vector<CachedSet> List(const std::string& repo = "") const;

  // Removes the files of what `reference` means (all of the repository without a quant), parts
  // too, and folders left empty. Bytes freed; Error(kNoInput) where nothing is there,
  // Error(kUnavailable) while another process writes there.
  uint64_t Remove(const Reference& reference) const;

  // Waits for another process's lock; `waiting` is called once before. Makes the folders.
  std::unique_ptr<RepoLock> Lock(const std::string& repo,
                                 const std::function<void()>& waiting) const;

 private:
  std::string root_;
};

}  // namespace bloomery::hub
