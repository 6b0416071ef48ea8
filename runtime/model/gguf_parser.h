// Parses the header of one GGUF file: metadata and tensor list, checked in themselves. What spans
// several files (split sets, duplicate and overlapping tensors) is gguf.cc's. Private to this
// module. One thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/model/byte_cursor.h"
#include "runtime/model/inventory.h"

namespace bloomery::model {

// Counts the memory that metadata takes, before it is taken.
class MetadataBudget {
 public:
  explicit MetadataBudget(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Throws Error(kNoMemory) naming the cursor's subject and place when the limit would be passed.
  void Charge(uint64_t bytes, const ByteCursor& cursor);

 private:
  uint64_t bytes_max_;
  uint64_t bytes_ = 0;  // never above bytes_max_
};

struct GgufTensor {
  TensorInfo info;
  uint64_t entry_at;  // where its entry in the tensor list begins
};

struct GgufHeader {
  uint32_t version;
  Metadata metadata;
  std::vector<GgufTensor> tensors;
};

// `file_index` goes into TensorInfo::file. Errors as OpenGguf's.
GgufHeader ParseGgufHeader(const File& file, uint32_t file_index, MetadataBudget& budget);

}  // namespace bloomery::model
