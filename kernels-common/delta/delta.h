// The recurrent mixer of gated delta-net layers: a short causal convolution over channels, then a
// state matrix a value head that decays, is corrected towards the row's value, and is read by the
// row's query. f32 throughout; rows of a sequence follow each other, so a batch of rows has the
// bits of one row at a time.
#pragma once

#include <cstddef>

namespace bloomery::kernels {

// y[r][ch] = f(sum over taps i, ascending by fma from +0, of weight[ch][i] * x[r - taps + 1 +
// i][ch]) with f = silu or the identity. Rows before the call's first come from `state`: the last
// taps - 1 rows of x before it, oldest first; null: zeros.
struct ShortConvArgs {
  const float* x = nullptr;
  std::size_t x_stride = 0;  // floats from row to row
  float* y = nullptr;        // overwritten; not x
  std::size_t y_stride = 0;
  std::size_t channels = 0;
  std::size_t taps = 0;             // at most kConvTapsMax
  const float* weight = nullptr;    // [channels][taps], the newest tap last
  const float* state_in = nullptr;  // [taps - 1][channels], or null
  float* state_out = nullptr;       // the same behind the last row; may be state_in
  bool silu = true;
};
inline constexpr std::size_t kConvTapsMax = 8;

// For value head h with key head g, row by row, S [key_dim][value_dim]:
//   d = exp(decay[h] * softplus(a + dt_bias[h])), b' = 1 / (1 + exp(-b))
//   S = d * S;  m = S^T k;  u = b' * (v - m);  S = S + k u^T;  out = S^T q
// m and out are eight sums P_l over the keys l mod 8, each ascending by fma from +0, joined by the
// tree 4, 2, 1: ((P_0 + P_4) + (P_2 + P_6)) + ((P_1 + P_5) + (P_3 + P_7)). Eight lanes of a card
// share a column, and wait an eighth as long.
struct DeltaArgs {
  const float* q = nullptr;  // [rows][key_heads][key_dim]
  const float* k = nullptr;
  const float* v = nullptr;  // [rows][value_heads][value_dim]
  const float* a = nullptr;  // [rows][value_heads]
  const float* b = nullptr;
  float* out = nullptr;  // [rows][value_heads][value_dim]
  std::size_t key_heads = 0;
  std::size_t value_heads = 0;  // a multiple of key_heads
  std::size_t key_dim = 0;
  std::size_t value_dim = 0;       // at most kDeltaValuesMax
  const float* decay = nullptr;    // [value_heads], not above 0
  const float* dt_bias = nullptr;  // [value_heads]
  bool tiled = true;  // key head of value head h: h mod key_heads, else h div their ratio
  const float* state_in = nullptr;  // [value_heads][key_dim][value_dim], or null: zeros
  float* state_out = nullptr;       // may be state_in
  std::size_t KeyHead(std::size_t head) const {
    return tiled ? head % key_heads : head / (value_heads / key_heads);
  }
};
inline constexpr std::size_t kDeltaValuesMax = 512;
inline constexpr std::size_t kDeltaSums = 8;
// Rows of a chunk of the form for prompts (cpu/delta.h): 64 is a tenth slower,
// docs/measurements/cpu.md.
inline constexpr std::size_t kDeltaChunk = 32;

}  // namespace bloomery::kernels
