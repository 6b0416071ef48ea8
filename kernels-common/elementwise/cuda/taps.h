// What drafts of a model's own head are made from, on the card: rows handed from one to the next of
// a slot through a lane of a fixed plane, and two values joined. They copy, so bits are those of
// the CPU's steps (runtime/ops/taps.h), whatever the row count.
//
// Enqueues only (launch.h). Rows beyond the live count are not touched. All pointers are the
// device's; strides are in floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.h"
#include "kernels-common/cuda/pass_rows.h"
#include "kernels-common/cuda/pass_states.h"
#include "kernels-common/cuda/rows.h"

namespace bloomery::kernels::cuda {

// y = a then b, row by row; y is neither.
struct ConcatRowsArgs {
  const float* a = nullptr;
  std::int32_t a_width = 0;
  const float* b = nullptr;
  std::int32_t b_width = 0;
  float* y = nullptr;  // [rows][a_width + b_width]
  RowBound rows;
};
cudaError_t ConcatRows(const Launch& launch, const ConcatRowsArgs& args);

// x and y are [rows][width]; a lane of `tap` is [width].
struct TapRowsArgs {
  PassRowsView rows;
  PassStatesView states;
  const float* x = nullptr;
  float* y = nullptr;  // not x
  std::int32_t width = 0;
  StatePlane tap;
};
// y = x of the slot's row before, the lane's that its stretch reads for the first (zeros where that
// is -1); x into the lanes that rows write.
cudaError_t PreviousRows(const Launch& launch, const TapRowsArgs& args);
// y = the lane that the row's stretch reads; x is not looked at.
cudaError_t RecallRows(const Launch& launch, const TapRowsArgs& args);
// x into the lanes that rows write; y is not.
cudaError_t KeepRows(const Launch& launch, const TapRowsArgs& args);

// Once a device, before the first launch.
cudaError_t PrepareTaps();

}  // namespace bloomery::kernels::cuda
