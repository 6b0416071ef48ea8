// The short convolution and the gated delta rule on the card, for all stretches of a pass in one
// launch: bits of reference::ShortConv, L2Norm and Delta, whatever the row count. States are lanes
// of fixed planes.
//
// Enqueues only (launch.h). Rows beyond the live count are not touched. All pointers are the
// device's; strides are in floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.h"
#include "kernels-common/cuda/pass_rows.h"
#include "kernels-common/cuda/pass_states.h"
#include "kernels-common/delta/delta.h"

namespace bloomery::kernels::cuda {

// As ShortConvArgs; a lane of `state` is [taps - 1][channels].
struct ShortConvRowsArgs {
  PassRowsView rows;
  PassStatesView states;
  const float* x = nullptr;
  std::size_t x_stride = 0;
  float* y = nullptr;  // overwritten; not x
  std::size_t y_stride = 0;
  std::int32_t channels = 0;
  std::int32_t taps = 0;          // 2 to kConvTapsMax
  const float* weight = nullptr;  // [channels][taps]
  bool silu = true;
  StatePlane state;
};
cudaError_t ShortConvRows(const Launch& launch, const ShortConvRowsArgs& args);

// Heads of q or k: `heads` vectors of key_dim values one after another in each row.
struct DeltaHeads {
  const float* x = nullptr;
  std::size_t stride = 0;
  // L2 norm of each head before anything else, as L2NormArgs; eps 0: none.
  float eps = 0.0F;
  float scale = 1.0F;
};

// As DeltaArgs; a lane of `state` is [value_heads][key_dim][value_dim].
struct DeltaRowsArgs {
  PassRowsView rows;
  PassStatesView states;
  DeltaHeads q;
  DeltaHeads k;
  const float* v = nullptr;
  std::size_t v_stride = 0;
  const float* a = nullptr;  // [rows][value_heads]
  const float* b = nullptr;
  float* out = nullptr;  // [rows][value_heads][value_dim]; none of the inputs
  std::int32_t key_heads = 0;
  std::int32_t value_heads = 0;
  std::int32_t key_dim = 0;    // at most kDeltaRowsKeysMax
  std::int32_t value_dim = 0;  // even
  const float* decay = nullptr;
  const float* dt_bias = nullptr;
  bool tiled = true;
  StatePlane state;
};
inline constexpr std::int32_t kDeltaRowsKeysMax = 256;

// Once a device, before the first launch.
cudaError_t PrepareDelta();
cudaError_t DeltaRows(const Launch& launch, const DeltaRowsArgs& args);

}  // namespace bloomery::kernels::cuda
