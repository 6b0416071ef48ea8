// From the files of a repository to the one model that was asked for. A set is a GGUF file, or all
// the shards of a split one; what only goes with a model (a projector, an importance matrix, a
// draft) is none. A quant must match whole between separators, so that Q6_K does not mean Q6_K_L,
// and what is not clear is refused with the candidates. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/hub/listing.h"

namespace bloomery::hub {

struct ModelSet {
  std::string name{};            // path without shard number and ".gguf"
  std::vector<HubFile> files{};  // shards in order
  int shards = 1;                // that there must be
  bool possible = true;          // false: the shards' numbers are none of a set

  uint64_t Bytes() const;
  bool Complete() const { return possible && files.size() == static_cast<size_t>(shards); }
};

// The sets of a listing, sorted by name. Error(kDownload) for two files that claim one shard.
std::vector<ModelSet> SetsOf(std::span<const HubFile> files);

// Whether `quant` is in the set's name, whole between '.', '-' and '/', without case.
bool MatchesQuant(const ModelSet& set, std::string_view quant);

// The set that `reference` means; `file`, where not empty, is the exact path of one of its files.
// Error(kDownload) listing the candidates where none or several match, or a shard is missing.
const ModelSet& PickSet(std::span<const ModelSet> sets, const Reference& reference,
                        const std::string& file);

// The candidates: path of the first file, size and number of files, a line each, each after a line
// break.
std::string ListSets(std::span<const ModelSet> sets);

}  // namespace bloomery::hub
