// A safetensors folder in the form of a model file: keys and tensors by a plugin's folder map, the
// tokenizer from tokenizer.json, experts stacked, blocks regrouped, values changed where the map
// says so. Matrices keep the type they are stored in; what no mix changes (norms, routers) is F32.
// Reads lazily, from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/apps/folder/folder_map.h"
#include "runtime/apps/folder/tensor_source.h"
#include "runtime/model/safetensors_folder.h"

namespace bloomery::apps {

class FolderSource final : public TensorSource {
 public:
  // `folder` must outlive it. Throws Error(kBadModel) naming the file and the tensor that is
  // absent, of another shape than the map and the config ask for, or there under two names;
  // Error(kUnsupported) for one that no row of the map names, for a type that is not read here and
  // for a config that `map` is not for; errors of the tokenizer (folder_tokenizer.h).
  FolderSource(const model::SafetensorsFolder& folder, const FolderMap& map);

  const std::string& path() const override { return folder_.path(); }
  const model::Metadata& metadata() const override { return metadata_; }
  // For a model that is made of them.
  model::Metadata TakeMetadata() { return std::move(metadata_); }
  std::span<const SourceTensor> tensors() const override { return tensors_; }
  void ReadRows(size_t i, uint64_t first, std::span<std::byte> out) const override;

 private:
  // Where a tensor's values come from. A row of a stack is one of part row / rows.
  struct Parts {
    model::TensorType stored;
    uint64_t rows = 0;    // of each part, as they come out
    uint64_t axis = 0;    // rows of the second axis: after so many the source has others between
    uint64_t stride = 0;  // rows of the source's second axis
    uint64_t first = 0;   // of them, the first that counts
    FolderChange change = FolderChange::kNone;
    std::optional<RegroupOf<uint64_t>> regroup;
    std::vector<model::FolderTensor> parts;
  };
  // Rows that lie one after the other in one part.
  struct Stretch {
    const model::FolderTensor& part;
    uint64_t row;  // of the part, in its own order
    uint64_t rows;
  };

  void NameTensors(const FolderMap& map);
  void AddMetadata(const FolderMap& map, const FolderMap::HasTensor& has);
  void AddTensor(const MappedTensor& mapped);
  model::FolderTensor FindPart(const std::string& name, std::span<const uint64_t> ne) const;
  void RefuseUnnamed(std::span<const MappedTensor> mapped) const;
  static Stretch StretchAt(const Parts& parts, uint64_t row);
  void ReadStretch(size_t i, const Stretch& stretch, std::span<std::byte> out) const;

  const model::SafetensorsFolder& folder_;
  std::map<std::string, model::FolderTensor, std::less<>> named_;  // by the map's names
  model::Metadata metadata_;
  std::vector<SourceTensor> tensors_;
  std::vector<Parts> parts_;  // of each tensor
};

}  // namespace bloomery::apps
