// Routed experts: router, grouping of picks by expert, gate/up with SwiGLU, down, and the exact sum
// of picks.
//
// A pick is (row, rank); its pair id is row*top_k + rank. Grouping gives every pair a place: places
// of one expert are consecutive and ascend by pair id. h and y of the experts have one row a place.
// Steps: router logits (Linear, N8) -> RouteRow -> GroupPicks -> ExpertGateUp -> QuantiseRows of h
// -> ExpertDown -> PickSum.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/linear/linear.h"

namespace bloomery::kernels {

// Most picks a row may have, shared experts included: sums of 32 picks below 2^26 fit int64 (N7).
inline constexpr std::size_t kMaxPicks = 32;
inline constexpr std::size_t kMaxExperts = 1024;

// kSoftmax: p = softmax over all experts (window maximum, N6's exp, sum over 32 lanes and tree).
// kSigmoid: p = 1 / (1 + exp(-logit)), N6's exp.
enum class RouterGate { kSoftmax, kSigmoid };

// What p is and how it chooses.
struct RouterScoring {
  RouterGate gate = RouterGate::kSoftmax;
  const float* bias = nullptr;  // [experts]: picks are the largest p + bias; weights are of p alone
  float sum_min = 0.0F;         // least of what picked p are divided by
};

// Softmax, the largest p, and nothing more.
inline bool IsPlainRouter(const RouterScoring& scoring) {
  return scoring.gate == RouterGate::kSoftmax && scoring.bias == nullptr && scoring.sum_min == 0.0F;
}

struct RouterArgs : RouterScoring {
  // w = p / max(sum_min, sum of the picked p, added in pick order from +0)
  bool renormalise = true;
  float weight_scale = 1.0F;  // then w * weight_scale
  std::size_t experts = 0;    // at most kMaxExperts
  std::size_t top_k = 0;      // at most experts and kMaxPicks
  const float* logits = nullptr;
  std::size_t logits_stride = 0;
  // rows * top_k, by descending p (with its bias); of equal ones the lower id first
  std::int32_t* ids = nullptr;
  float* weights = nullptr;  // rows * top_k
};

// Where each pair lies. Arrays belong to the caller; written by GroupPicks.
struct ExpertGroups {
  std::int32_t* offsets =
      nullptr;  // experts + 1: places of expert e are [offsets[e], offsets[e+1])
  std::int32_t* place_rows = nullptr;   // rows * top_k: activation row of a place
  std::int32_t* pair_places = nullptr;  // rows * top_k: place of a pair
  std::int32_t* active = nullptr;       // experts: ids of experts with picks, ascending
  std::int32_t active_count = 0;
};

// One expert's gate and up: h[place][n] = silu(gate[n].x) * (up[n].x) for the places of a group
// (N6).
struct ExpertGateUpArgs {
  WeightRows gate;           // this expert's rows
  WeightRows up;             // same k; the format may differ, the activation group may not
  const float* x = nullptr;  // activations as in LinearArgs
  std::size_t x_stride = 0;
  QuantisedRows quantised;
  // Of the group's first place: groups.place_rows + offset. Null: activation row p of place p.
  const std::int32_t* place_rows = nullptr;
  std::size_t places = 0;  // of the group
  float* h = nullptr;      // row of the group's first place
  std::size_t h_stride = 0;
};

// One row's sum of picks (N7): v_p = w_p * y_p in f32, Q_p = rint(v_p * 2^32) in int64,
// out = residual + f32(sum Q) * 2^-32. Pairs without a place (-1) are left out: another device's.
struct PickSumArgs {
  const float* y = nullptr;  // one row a place
  std::size_t y_stride = 0;
  const std::int32_t* pair_places = nullptr;
  const float* weights = nullptr;  // rows * top_k
  std::size_t top_k = 0;
  std::size_t dim = 0;
  const float* residual = nullptr;  // null: out = the sum alone
  std::size_t residual_stride = 0;
  float* out = nullptr;  // may be residual
  std::size_t out_stride = 0;
  // CPU kernels: rows * dim; where it is given, sum Q goes here and out is not touched.
  std::int64_t* sums = nullptr;
};

// The result of PickSum when every row held |v_p| < 2^26.
inline constexpr std::int64_t kNoFailingRow = -1;

}  // namespace bloomery::kernels
