// Reads a safetensors file: a JSON header that lists tensors, then their bytes. Nothing in the file
// is believed: header size, shapes, ranges and their overlap are checked before use. Data is read
// lazily. Immutable once opened: any thread may read. Never interprets what a tensor is for.
//
//   const SafetensorsFile file(RealFileSystem(), "golden.safetensors");
//   std::vector<int32_t> ids = file.ReadI32(file.Get("eval.ids"));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"

namespace bloomery::model {

struct SafeTensor {
  std::string name;
  std::string dtype;            // as the file has it: "F32", "I32", "BF16"
  std::vector<uint64_t> shape;  // slowest axis first, as the file has it; empty: a scalar
  uint64_t offset;              // from the start of the file
  uint64_t bytes;
};

class SafetensorsFile {
 public:
  // Throws Error(kNoInput) when the file cannot be read, Error(kBadModel) naming path, tensor and
  // what is wrong.
  SafetensorsFile(const FileSystem& files, const std::string& path);

  const std::string& path() const { return file_->path(); }
  std::span<const SafeTensor> tensors() const { return tensors_; }
  const SafeTensor* Find(std::string_view name) const;
  // Throws Error(kBadModel) naming the file and the tensor when there is none.
  const SafeTensor& Get(std::string_view name) const;

  // Bytes [offset, offset + out.size()) of the tensor, which must lie inside it.
  void Read(const SafeTensor& tensor, uint64_t offset, std::span<std::byte> out) const;
  // All values; Error(kBadModel) when the tensor has another dtype.
  std::vector<int32_t> ReadI32(const SafeTensor& tensor) const;
  std::vector<float> ReadF32(const SafeTensor& tensor) const;

 private:
  template <typename T>
  std::vector<T> ReadAll(const SafeTensor& tensor, std::string_view dtype) const;

  std::shared_ptr<const File> file_;
  std::vector<SafeTensor> tensors_;
};

// The header of a file with these tensors, data in this order without gaps: 8 length bytes and the
// JSON, padded to a multiple of 8 bytes. Offsets and bytes of `tensors` are not read.
std::string SafetensorsHeader(std::span<const SafeTensor> tensors);

}  // namespace bloomery::model
