// Activation rows by N2 on the card: bits of reference::QuantiseRow, whatever the row count.
//
// Enqueues only (launch.h). Rows beyond the live count are not touched. One warp makes one stretch
// of 256 values: its codes, its scale (or eight of them), and its sums of 16.
#pragma once

#include "kernels-common/cuda/launch.h"
#include "kernels-common/cuda/rows.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cuda {

// out row r = x[r*x_stride, + out.k) quantised. out.k divides by 16, x_stride by 4; x is 16-byte
// and out.data 64-byte aligned.
struct QuantiseRowsArgs {
  const float* x = nullptr;  // device
  std::size_t x_stride = 0;  // floats
  QuantisedRows out;         // device memory, group 32 or 256
  RowBound rows;
};

cudaError_t QuantiseRows(const Launch& launch, const QuantiseRowsArgs& args);

}  // namespace bloomery::kernels::cuda
