// The tensor types model files hold: name, id and block geometry of each, whether or not a kernel
// exists for it here. Ids are the numbers GGUF files store. A constant table; no type is added at
// run time. Decoding blocks is kernels-common's business.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace bloomery::model {

enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
};

struct TensorTypeInfo {
  TensorType type;
  std::string_view name;  // as model tools spell it: "Q4_K"
  uint32_t block_values;  // a row is a whole number of blocks of so many values…
  uint32_t block_bytes;   // …that take so many bytes each
};

// All types, ids ascending.
std::span<const TensorTypeInfo> TensorTypes();

// The type with this id as stored in a file, or null when there is none.
const TensorTypeInfo* FindTensorType(uint32_t id);

// The table's row for a type.
const TensorTypeInfo& Info(TensorType type);

}  // namespace bloomery::model
