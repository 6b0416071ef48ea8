// What the attention kernels of the card share: planes, the attention of a pass, and what becomes
// of q, k and v before it. Plain data with device pointers; owns nothing. The definitions are
// attention.h, norm.h and rope.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/pass_rows.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cuda {

// Keys or values of all slots: position p of slot s lies at base + s * slot_bytes + p * row_bytes;
// of a ring, which keeps the last positions alone, at base + s * slot_bytes + (p mod ring_rows) *
// row_bytes. base, slot_bytes and row_bytes divide by 16 (q8_0: row_bytes by 2), ring_rows by 128.
struct CardPlane {
  KvType type = KvType::kF16;
  std::size_t width = 0;      // values a row: kv heads * head width
  std::size_t row_bytes = 0;  // KvRowBytes(type, width), or more
  std::byte* base = nullptr;
  std::size_t slot_bytes = 0;
  std::size_t capacity = 0;    // positions of a slot
  std::int32_t ring_rows = 0;  // 0: a row for each position
};

// out[r] = attention of q[r] over keys 0..index[r] of its slot, or the last `window` of them; rows
// from `live` on are not written. Head h reads kv head h / (heads / kv_heads). Dims divide by 8
// (q8_0: by 32), strides (in floats) by 4. Rings hold the keys that rows of a pass see when all of
// its rows have been appended.
struct CardAttention {
  PassRowsView rows;
  const float* q = nullptr;  // row r: heads * key_dim values
  std::size_t q_stride = 0;
  float* out = nullptr;  // row r: heads * value_dim values
  std::size_t out_stride = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t key_dim = 0;
  std::int32_t value_dim = 0;
  float scale = 1.0F;
  CardPlane keys;
  CardPlane values;
  std::int32_t window = 0;       // 0: all keys
  const float* sinks = nullptr;  // [heads], finite; null: none
};

// Heads of k and v of a pass and what is done to heads before attention: RMS norm of each q and k
// head (weights null: none), rope of both (n_rot 0: none), and a factor on v.
struct HeadInputs {
  const float* k = nullptr;  // row r: kv_heads * key_dim values
  std::size_t k_stride = 0;
  const float* v = nullptr;  // row r: kv_heads * value_dim values
  std::size_t v_stride = 0;
  const float* q_norm = nullptr;  // key_dim values
  const float* k_norm = nullptr;
  float q_eps = 0.0F;
  float k_eps = 0.0F;
  const double* frequencies = nullptr;  // n_rot / 2 values (RopeFrequencies)
  std::int32_t n_rot = 0;               // even, at most key_dim and kMaxRopeValues
  float magnitude = 1.0F;
  float v_scale = 1.0F;
};

}  // namespace bloomery::kernels::cuda
