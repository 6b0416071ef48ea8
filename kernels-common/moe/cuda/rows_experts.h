// Routed experts of a decode pass of 1 to 8 rows in two launches: routing, gate, up and activation;
// then down, pick weights, the exact sum of picks and the residual.
//
// The bits are those of reference::RouteRow, ExpertGateUp, QuantiseRow, Linear and PickSum. A row
// with a logit that is not finite, or a pick of |v| >= 2^26, is named in `failed_row` (the smallest
// such row, by atomicMin; the caller sets it to INT32_MAX before a pass); its results may be
// anything, those of the other rows are right.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.h"
#include "kernels-common/moe/cuda/hand_off.h"
#include "kernels-common/moe/cuda/picks.h"
#include "kernels-common/moe/moe.h"
#include "kernels-common/quant/cuda/card_form.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cuda {

struct ExpertGateUpRowsArgs {
  std::int32_t rows = 0;               // 1 to 8
  const std::int32_t* live = nullptr;  // device: rows in use, at least 1; null: all
  // Router: as RouterArgs of moe.h, all pointers to device memory.
  const float* logits = nullptr;
  std::size_t logits_stride = 0;  // floats
  std::int32_t experts = 0;       // at most kMaxExperts
  std::int32_t top_k = 0;         // at most experts and kMaxPicks
  RouterScoring scoring;
  bool renormalise = true;
  float weight_scale = 1.0F;
  std::int32_t* ids = nullptr;         // overwritten: rows * top_k
  float* weights = nullptr;            // overwritten: rows * top_k
  std::int32_t* failed_row = nullptr;  // one value
  PickCounts counts;
  FrameMap frame_of = nullptr;  // h of the host's picks is not written
  HandOff hand_off;             // where frame_of is; not for kUp
  GateUpPart part = GateUpPart::kBoth;
  // Activations: `quantised` (group as the format's, data in device memory) for integer formats, x
  // (k floats, 16-byte aligned rows) for float ones. Gate and up of one launch share the group.
  QuantisedRows quantised;
  const float* x = nullptr;
  std::size_t x_stride = 0;
  CardWeight gate;  // n = width of h, k = width of x
  CardWeight up;
  float* h = nullptr;        // overwritten (kUp: changed): row * top_k + pick, n floats each
  std::size_t h_stride = 0;  // floats, at least n, a multiple of 4
};

struct ExpertDownRowsArgs {
  std::int32_t rows = 0;
  const std::int32_t* live = nullptr;
  std::int32_t experts = 0;
  std::int32_t top_k = 0;
  const std::int32_t* ids = nullptr;  // what ExpertGateUpRows wrote
  const float* weights = nullptr;
  const float* h = nullptr;
  std::size_t h_stride = 0;
  CardWeight down;                  // n = width of out, k = width of h
  const float* residual = nullptr;  // null: out = the sum of picks alone
  std::size_t residual_stride = 0;
  float* out = nullptr;  // may be residual
  std::size_t out_stride = 0;
  std::int32_t* failed_row = nullptr;
  FrameMap frame_of = nullptr;
  HandOff hand_off;  // as ExpertGateUpRows had it
};

// Once a device, before the first launch.
cudaError_t PrepareRowsExperts();
cudaError_t ExpertGateUpRows(const Launch& launch, const ExpertGateUpRowsArgs& args);
cudaError_t ExpertDownRows(const Launch& launch, const ExpertDownRowsArgs& args);

}  // namespace bloomery::kernels::cuda
