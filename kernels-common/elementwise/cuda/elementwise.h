// Elementwise steps on the card: sums, products, SwiGLU of a dense block, table rows by id, and
// gathering rows. Bits of reference::Add, SwiGlu and Embed, whatever the row count.
//
// Enqueues only (launch.h). Rows beyond the live count are not touched. All pointers are the
// device's; strides are in floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.h"
#include "kernels-common/cuda/rows.h"
#include "kernels-common/elementwise/elementwise.h"

namespace bloomery::kernels::cuda {

// y[r][i] = f(a[r][i], b[r][i]) for i < width. y may be a or b. A b_stride of 0 gives every row the
// same b (a bias, a scale vector).
struct PairRowsArgs {
  const float* a = nullptr;
  std::size_t a_stride = 0;
  const float* b = nullptr;
  std::size_t b_stride = 0;
  float* y = nullptr;
  std::size_t y_stride = 0;
  std::int32_t width = 0;
  RowBound rows;
};

cudaError_t AddRows(const Launch& launch, const PairRowsArgs& args);
cudaError_t MulRows(const Launch& launch, const PairRowsArgs& args);
// silu(a) * b (N6): a is the gate.
cudaError_t SwiGluRows(const Launch& launch, const PairRowsArgs& args);

// y[r][i] = factor * x[r][i] for i < width. y may be x.
struct ScaleRowsArgs {
  const float* x = nullptr;
  std::size_t x_stride = 0;
  float factor = 1.0F;
  float* y = nullptr;
  std::size_t y_stride = 0;
  std::int32_t width = 0;
  RowBound rows;
};
cudaError_t ScaleRows(const Launch& launch, const ScaleRowsArgs& args);

// y[r] = table row ids[r], decoded as FormatTraits::decode_row does. The table lies as in the file.
// An id outside [0, table_rows) makes zeros and sets *failed_row to the lowest such row (atomicMin;
// the caller sets it to INT32_MAX before).
struct EmbedRowsArgs {
  int ggml_type = 0;
  const void* table = nullptr;
  std::size_t row_bytes = 0;
  std::int32_t table_rows = 0;
  std::int32_t k = 0;
  const std::int32_t* ids = nullptr;
  float* y = nullptr;
  std::size_t y_stride = 0;
  RowBound rows;
  std::int32_t* failed_row = nullptr;
};

// Types EmbedRows decodes: all but the code-book types (IQ1, IQ2, IQ3) and the ternary ones.
bool CanEmbed(int ggml_type);
cudaError_t EmbedRows(const Launch& launch, const EmbedRowsArgs& args);

// y[r] = x[map[r]]; map[r] is a row of x.
struct SelectRowsArgs {
  const float* x = nullptr;
  std::size_t x_stride = 0;
  const std::int32_t* map = nullptr;
  float* y = nullptr;
  std::size_t y_stride = 0;
  std::int32_t width = 0;
  RowBound rows;
};

cudaError_t SelectRows(const Launch& launch, const SelectRowsArgs& args);

// Of each of `groups` vectors of `dim` values a row: values [first, first + count).
struct SliceRowsArgs {
  const float* x = nullptr;
  std::size_t x_stride = 0;
  float* y = nullptr;  // groups * count values a row
  std::size_t y_stride = 0;
  std::int32_t groups = 1;
  std::int32_t dim = 0;
  std::int32_t first = 0;
  std::int32_t count = 0;
  RowBound rows;
};
cudaError_t SliceRows(const Launch& launch, const SliceRowsArgs& args);

// y = x * f(gate) for rows of `groups` vectors of `dim` values, and then residual + y where there
// is one: bits of reference::Gate and Add. A row's gates lie in vectors, too, at strides of their
// own.
struct GateRowsArgs {
  const float* x = nullptr;
  std::size_t x_stride = 0;
  const float* gate = nullptr;
  std::size_t gate_stride = 0;        // from row to row
  std::size_t gate_group_stride = 0;  // from vector to vector
  bool single = false;                // one gate a row, the first
  GateFunction function = GateFunction::kSigmoid;
  const float* residual = nullptr;  // null: none
  std::size_t residual_stride = 0;
  float* y = nullptr;  // may be x or the residual
  std::size_t y_stride = 0;
  std::int32_t groups = 1;
  std::int32_t dim = 0;
  RowBound rows;
};
cudaError_t GateRows(const Launch& launch, const GateRowsArgs& args);

// Once a device, before the first launch of SliceRows and GateRows.
cudaError_t PrepareGates();

}  // namespace bloomery::kernels::cuda
