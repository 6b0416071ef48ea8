// Linear: y[r][n] = W[n] . x[r], then * scale, then + bias[n]. Dense linears and expert slices
// alike.
//
// Weights lie as in the file, one row of k values after another. Integer formats multiply quantised
// activation rows by N3-N5; float formats (F32, F16, BF16) multiply f32 rows by N8. Both orders
// depend on k only: one row or many, any split of n, any instruction set gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/quant/quant.h"

namespace bloomery::kernels {

// Rows of one weight matrix, or of one expert of a bank. Does not own.
struct WeightRows {
  const FormatTraits* format = nullptr;
  const std::byte* data = nullptr;  // row n at data + n*row_bytes; no alignment needed
  std::size_t row_bytes = 0;        // RowBytes(*format, k), or more
  std::size_t k = 0;                // values a row; divides by format->block_values
};

struct LinearArgs {
  WeightRows weight;
  // The activations: `x` for float formats, `quantised` (group == format->activation_group) for
  // integer ones; the other is not looked at.
  const float* x = nullptr;
  std::size_t x_stride = 0;  // floats from one activation row to the next
  QuantisedRows quantised;
  const std::int32_t* row_ids = nullptr;  // activation row of output row r; null: r itself
  std::size_t rows = 0;                   // output rows
  const float* scale = nullptr;           // one value, or null
  const float* bias = nullptr;            // one value a weight row n, or null
  float* y = nullptr;                     // overwritten at y[r*y_stride + n]
  std::size_t y_stride = 0;
};

// Splits of n that are multiples of this keep the CPU kernels at full tiles; any split is correct.
inline constexpr std::size_t kLinearTileRows = 32;

}  // namespace bloomery::kernels
