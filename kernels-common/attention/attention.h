// Causal attention with grouped heads over append planes of keys and values.
//
// Order (N9 and below): for output (row, head) with index t the keys are 0..t, cut in windows of
// 128 at absolute positions. In a window: s_j = N8dot(q, k_j) * scale; m = max s_j; p_j = exp(s_j -
// m) (N6's exp); l = sum of p_j over 32 lanes j mod 32, tree 16, 8, 4, 2, 1; o[d] = ascending
// fma(p_j, v_j[d], o[d]) from +0. Windows merge ascending: M' = max(M, m), a = exp(M - M'),
// b = exp(m - M'), L' = L*a + l*b and O'[d] = O[d]*a + o[d]*b (products and sum rounded; the first
// window is taken as it is). out = O / L. So a row's bits depend on its own keys only.
//
// Sliding windows: a row sees its last `window` keys, and the first window that it looks into
// begins with the first key it sees there; lanes count from that key. Sinks: a head's sink b is
// merged last, like a window of maximum b and sum 1 that adds nothing to O: M' = max(M, b), a =
// exp(M - M'), L' = L*a + exp(b - M'), out = (O*a) / L'.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/quant/quant.h"

namespace bloomery::kernels {

inline constexpr std::size_t kAttentionWindow = 128;

// One slot's plane of keys or of values: row p lies at
// base + (blocks[p / block_rows] * block_rows + p % block_rows) * row_bytes,
// or at base + p * row_bytes where blocks is null. Does not own.
struct KvView {
  KvType type = KvType::kF32;
  std::size_t width = 0;      // values a row: kv heads * head width
  std::size_t row_bytes = 0;  // KvRowBytes(type, width), or more
  std::byte* base = nullptr;
  const std::int32_t* blocks = nullptr;
  std::size_t block_rows = 0;
  std::size_t capacity = 0;  // rows that may be addressed; index < capacity

  std::byte* Row(std::size_t position) const {
    const std::size_t row =
        blocks == nullptr ? position
                          : static_cast<std::size_t>(blocks[position / block_rows]) * block_rows +
                                position % block_rows;
    return base + row * row_bytes;
  }
};

// Append: plane row index[r] of slot slot_ids[r] = x[r]. Rows with index < 0 (padding) are skipped.
struct KvAppendArgs {
  const float* x = nullptr;
  std::size_t x_stride = 0;                // floats from row to row
  const KvView* views = nullptr;           // one a slot
  const std::int32_t* slot_ids = nullptr;  // slot of row r; null: slot 0
  const std::int32_t* index = nullptr;     // sequence index of row r
};

struct AttentionArgs {
  const float* q = nullptr;  // row r: heads * key_dim values, head-major
  std::size_t q_stride = 0;
  float* out = nullptr;  // row r: heads * value_dim values, overwritten
  std::size_t out_stride = 0;
  std::size_t heads = 0;
  std::size_t kv_heads = 0;  // head h reads kv head h / (heads / kv_heads)
  std::size_t key_dim = 0;   // for q8_0 planes both dims divide by 32
  std::size_t value_dim = 0;
  float scale = 1.0F;
  const KvView* keys = nullptr;    // one a slot
  const KvView* values = nullptr;  // one a slot
  const std::int32_t* slot_ids = nullptr;
  const std::int32_t* index = nullptr;  // keys 0..index[r] are seen; < 0: the row's output is zero
  std::size_t window = 0;               // of those, only the last so many; 0: all
  const float* sinks = nullptr;         // [heads], or null
};

// Positions [begin, end) of the keys that a row sees.
struct SeenKeys {
  std::size_t begin = 0;
  std::size_t end = 0;

  SeenKeys(const AttentionArgs& args, std::size_t row)
      : end(args.index[row] < 0 ? 0 : static_cast<std::size_t>(args.index[row]) + 1) {
    if (args.window != 0 && end > args.window) begin = end - args.window;
  }
  std::size_t count() const { return end - begin; }
};

}  // namespace bloomery::kernels
