// Linear layers of a decode pass: 1 to 8 activation rows times up to four matrices that share their
// input, with the input's RMS norm and its quantisation in front and bias and residual behind.
//
// Reads f32 rows and weights, overwrites y. The bits are those of reference::RmsNorm, QuantiseRow
// and Linear (N2-N5, N8), at any number of rows. Matrices whose formats share an activation group
// go into one launch; a mix takes one launch a group (float formats: one more).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.h"
#include "kernels-common/quant/cuda/card_form.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cuda {

inline constexpr std::int32_t kRowsMax = 8;
inline constexpr std::int32_t kRowsMatricesMax = 4;

// y[r][n] = residual[r][n] + (W[n] . x[r] * scale + bias[n]); what is null is left out.
struct CardMatrix {
  CardWeight weight;                // k as in RowsLinearArgs
  const float* scale = nullptr;     // one value
  const float* bias = nullptr;      // n values
  const float* residual = nullptr;  // may be y
  std::size_t residual_stride = 0;  // floats
  float* y = nullptr;               // overwritten; not x, not the other matrices' y
  std::size_t y_stride = 0;
};

struct RowsLinearArgs {
  const float* x = nullptr;  // 16-byte aligned
  std::size_t x_stride = 0;  // floats, a multiple of 4
  // RMS norm of each row before anything else; null: none.
  const float* norm_weight = nullptr;
  float eps = 0;
  std::size_t k = 0;                      // divides by 32, and by the formats' blocks
  std::int32_t rows = 0;                  // 1 to kRowsMax
  const std::int32_t* live = nullptr;     // device: rows in use, at most `rows`; null: all
  const std::int32_t* row_map = nullptr;  // device: input row of output row r; null: r itself
  std::int32_t count = 0;
  CardMatrix matrices[kRowsMatricesMax];
  // Side outputs, of output row r: the (normed) row quantised, by a group of 256 or 32 that need
  // not be the matrices' own (data null: none), and as f32, k floats a row (null: none).
  QuantisedRows normed;
  float* normed_f32 = nullptr;
};

// Once a device, before the first launch.
cudaError_t PrepareRowsLinear();
cudaError_t RowsLinear(const Launch& launch, const RowsLinearArgs& args);

}  // namespace bloomery::kernels::cuda
