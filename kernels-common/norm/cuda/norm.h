// RMS norm of any number of rows on the card, with the row quantised on the way where the next step
// is an integer linear: bits of reference::RmsNorm and reference::QuantiseRow.
//
// Enqueues only (launch.h). Rows beyond the live count are not touched. One warp makes one vector:
// lane l takes the values k mod 32 = l, as N8 orders the sum of squares.
#pragma once

#include "kernels-common/cuda/launch.h"
#include "kernels-common/cuda/rows.h"
#include "kernels-common/elementwise/elementwise.h"
#include "kernels-common/norm/norm.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cuda {

// norm.x, y and weight are device pointers. norm.y may be x; null where only `quantised` is wanted.
// quantised.data null: not wanted; else groups is 1 and quantised.k == dim, which divides by 16.
// gate null: none; else each value is multiplied by f of its gate behind the norm, as
// reference::Gate does (groups * dim gates a row, one after another).
struct RmsNormRowsArgs {
  RmsNormArgs norm;
  const float* gate = nullptr;
  std::size_t gate_stride = 0;  // floats from row to row
  GateFunction function = GateFunction::kSigmoid;
  QuantisedRows quantised;
  RowBound rows;
};

// Once a device, before the first launch.
cudaError_t PrepareNorm();
cudaError_t RmsNormRows(const Launch& launch, const RmsNormRowsArgs& args);

// Bits of reference::L2Norm. Device pointers; y may be x.
struct L2NormRowsArgs {
  L2NormArgs norm;
  RowBound rows;
};
cudaError_t L2NormRows(const Launch& launch, const L2NormRowsArgs& args);

}  // namespace bloomery::kernels::cuda
