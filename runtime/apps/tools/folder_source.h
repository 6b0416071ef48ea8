// A safetensors folder in the form of a model file: keys and tensors by a plugin's folder map, the
// tokenizer from tokenizer.json, experts stacked. Matrices keep the type they are stored in; what
// no mix changes (norms, routers) is F32. Reads lazily; may be read from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/apps/tools/folder_map.h"
#include "runtime/apps/tools/tensor_source.h"
#include "runtime/model/safetensors_folder.h"

namespace bloomery::apps {

class FolderSource final : public TensorSource {
 public:
  // `folder` must outlive it. Throws Error(kBadModel) naming the file and the tensor that is
  // absent, of another shape than the map and the config ask for, or named by no row of the map;
  // Error(kUnsupported) for a type that is not read here and a config that `map` is not for; errors
  // of the tokenizer (folder_tokenizer.h).
  FolderSource(const model::SafetensorsFolder& folder, const FolderMap& map);

  const std::string& path() const override { return folder_.path(); }
  const model::Metadata& metadata() const override { return metadata_; }
  std::span<const SourceTensor> tensors() const override { return tensors_; }
  void ReadRows(size_t i, uint64_t first, std::span<std::byte> out) const override;

 private:
  struct Parts {
    model::TensorType stored;
    uint64_t rows;  // of each part
    std::vector<model::FolderTensor> parts;
  };

  void AddMetadata(const FolderMap& map);
  void AddTensor(const MappedTensor& mapped);
  model::FolderTensor FindPart(const std::string& name, std::span<const uint64_t> ne) const;
  void RefuseUnnamed(std::span<const MappedTensor> mapped) const;

  const model::SafetensorsFolder& folder_;
  model::Metadata metadata_;
  std::vector<SourceTensor> tensors_;
  std::vector<Parts> parts_;  // of each tensor
};

}  // namespace bloomery::apps
