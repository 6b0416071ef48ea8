// What a model holds, whatever its format: metadata, the list of tensors, and their bytes read
// lazily. A format's reader (gguf.h) checks the file and makes one ModelFile, which owns the open
// files. Immutable after that: any thread may read. Never keeps tensor data, never knows what a
// tensor means.
//
//   ModelFile model = OpenGguf(RealFileSystem(), "model.gguf");
//   const TensorInfo& t = model.tensors()[model.GetTensorIndex("output_norm.weight")];
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/model/metadata.h"
#include "runtime/model/tensor_type.h"

namespace bloomery::model {

struct TensorInfo {
  std::string name;  // valid UTF-8, not empty
  TensorType type;
  std::array<uint64_t, 4> ne;  // values along each axis, the contiguous one first; 1 past n_dims
  uint32_t n_dims;             // 1 to 4
  uint32_t file;               // which of the model's files holds the data
  uint64_t offset;             // of the data's first byte, from the start of that file
  uint64_t bytes;              // of the data; the product of ne fits 64 bits

  uint64_t rows() const { return ne[1] * ne[2] * ne[3]; }
  uint64_t row_bytes() const { return bytes / rows(); }
};

class ModelFile {
 public:
  // For format readers. Each tensor lies inside its file; names are unique. `format` is for people:
  // "GGUF v3".
  ModelFile(std::string format, Metadata metadata, std::vector<TensorInfo> tensors,
            std::vector<std::shared_ptr<const File>> files);

  const std::string& format() const { return format_; }
  // The (first) file, as it was given.
  const std::string& path() const { return files_.front()->path(); }
  std::span<const std::shared_ptr<const File>> files() const { return files_; }

  const Metadata& metadata() const { return metadata_; }

  // In file order.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  uint64_t tensor_bytes() const { return tensor_bytes_; }  // of all tensors together
  std::optional<size_t> FindTensorIndex(std::string_view name) const;
  // Throws Error(kBadModel) naming file and tensor when there is none.
  size_t GetTensorIndex(std::string_view name) const;

  // Fills `out` with the tensor's bytes from `offset` (from the tensor's start). The range must lie
  // inside the tensor (Error(kInternal) otherwise). Error(kNoInput) naming tensor, path and offset
  // when reading fails.
  void ReadTensor(size_t index, uint64_t offset, std::span<std::byte> out) const;

  // The whole tensor's bytes, read at once.
  std::vector<std::byte> ReadTensor(size_t index) const;

  // The tensor's bytes in place, or null where the file cannot be mapped. The mapping may outlive
  // this object.
  std::unique_ptr<Mapping> MapTensor(size_t index) const;

 private:
  std::string format_;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::shared_ptr<const File>> files_;
  std::map<std::string_view, size_t> index_;  // views tensors_, which never changes
  uint64_t tensor_bytes_ = 0;
};

}  // namespace bloomery::model
