// Writes a GGUF version 3 file, little endian, in one pass and with its data only once in memory
// as the caller hands it over: first everything of the header, then the tensors' bytes in order.
// The file appears under its name when Finish returns, never before. The same calls give the same
// bytes. One thread.
//
//   GgufWriter writer("out.gguf");
//   writer.Add("general.architecture", StringValue("toy"));
//   writer.AddTensor("w", TensorType::kF32, {4});
//   writer.BeginData();
//   writer.WriteData(bytes);
//   writer.Finish();
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/output_file.h"
#include "runtime/model/metadata.h"
#include "runtime/model/tensor_type.h"

namespace bloomery::model {

// Values as Metadata holds them, made by hand.
MetadataValue U32Value(uint32_t value);
MetadataValue F32Value(float value);
MetadataValue BoolValue(bool value);
MetadataValue StringValue(std::string value);
MetadataValue StringArrayValue(std::span<const std::string> values);
MetadataValue I32ArrayValue(std::span<const int32_t> values);
MetadataValue BoolArrayValue(const std::vector<bool>& values);

class GgufWriter {
 public:
  // Throws Error(kNoInput) when the file cannot be made.
  explicit GgufWriter(const std::string& path);

  // Adds a key; one that is there already is replaced in its place. Throws Error(kUsage) for a key
  // that is empty or longer than the format allows, and for general.alignment, which the writer
  // decides. Before BeginData only.
  void Add(std::string_view key, MetadataValue value);
  // All keys of a file but those of its layout on disk (general.alignment, split.*).
  void AddAll(const Metadata& metadata);

  // The next tensor: `ne` as TensorInfo has it, 1 to 4 axes. Throws Error(kUsage) for a name that
  // is empty, too long or taken, for an empty axis, a row that is no whole number of blocks, and
  // sizes beyond 64 bits. Before BeginData only.
  void AddTensor(std::string_view name, TensorType type, std::span<const uint64_t> ne);
  // Bytes of tensor i's data.
  uint64_t TensorBytes(size_t i) const { return tensors_[i].bytes; }
  uint64_t DataBytes() const;  // of all tensors, without padding

  // Writes the header.
  void BeginData();
  // The next bytes of the tensors, in the order they were added: a call may end inside a tensor,
  // and never goes past its end (Error(kInternal)).
  void WriteData(std::span<const std::byte> bytes);
  // Throws Error(kInternal) when a tensor's bytes are missing, Error(kNoInput) as OutputFile does.
  void Finish();

 private:
  struct Tensor {
    std::string name;
    TensorType type;
    std::vector<uint64_t> ne;
    uint64_t bytes;
    uint64_t offset;  // from the start of the data section
  };

  void Pad();

  OutputFile out_;
  std::vector<std::pair<std::string, MetadataValue>> entries_;
  std::vector<Tensor> tensors_;
  uint64_t data_end_ = 0;  // offset after the last tensor, aligned
  bool in_data_ = false;
  size_t current_ = 0;         // tensor being written
  uint64_t current_done_ = 0;  // bytes of it
};

}  // namespace bloomery::model
