// Weight rows from and to f32 by GGUF type id, for tools that write model files: what the kernels
// decode, and what this build can encode. Pure functions over the kernels' tables: any thread, no
// allocation, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bloomery::ops {

struct RowCodec {
  // Values of one row (a whole number of blocks) from its bytes; null where no kernel decodes.
  void (*decode)(const std::byte* bytes, float* values, size_t k) = nullptr;
  // Bytes of one row from its values; null where this build does not write the type. Returns k, or
  // the index of the first value the type cannot hold (not finite, or too large for its scale).
  // `importance` weighs each value's squared error; null: all alike.
  size_t (*encode)(const float* values, const float* importance, std::byte* bytes,
                   size_t k) = nullptr;
};

RowCodec RowCodecOf(uint32_t ggml_type);

}  // namespace bloomery::ops
