// Steps of router and routed_experts. The latter runs as four steps over picks grouped by expert:
// group, gate/up with SwiGLU, (quantise h,) down, and the exact sum of picks with the residual
// (N7).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/ops/backend.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/step.h"

namespace bloomery::ops {

// Routes rows by their logits; a row with a logit that is not finite fails.
std::unique_ptr<Step> MakeRoute(const Backend& backend, const kernels::RouterArgs& args,
                                RowCount rows, int32_t threads);

// The experts of one bank: rows of expert 0 and the bytes from one expert to the next.
struct BankRows {
  kernels::WeightRows gate;
  kernels::WeightRows up;
  kernels::WeightRows down;
  size_t gate_expert_bytes = 0;
  size_t up_expert_bytes = 0;
  size_t down_expert_bytes = 0;
  size_t experts = 0;
  size_t ff = 0;
  size_t width = 0;
};

// How a step over the active experts is cut: the i-th active expert's weight rows in pieces of
// per_piece[i] (the last may be shorter), numbered from first[i]; first[active] counts them all.
struct ExpertCut {
  int64_t n = 0;                 // weight rows of an expert
  int64_t k = 0;                 // multiply-adds of one of them with one activation row
  int32_t* first = nullptr;      // experts + 1
  int32_t* per_piece = nullptr;  // experts
};

// Where the picks of a pass lie, and the pieces of the two steps over them. Arrays belong to the
// program. Written by the group step, read by the ones after it.
struct PickGroups : kernels::ExpertGroups {
  ExpertCut gate_up;
  ExpertCut down;
  // Rows that each expert of the bank has had, counted up by the group step; empty: nobody asks.
  std::span<std::atomic<uint64_t>> counts;
  // Where the group step leaves what each row picked, row after row; empty: nobody asks.
  std::span<uint16_t> record;
};
using Groups = std::shared_ptr<PickGroups>;

// Fills first and per_piece so that all pieces are about equal work: an expert with many rows is
// cut into many, one with few stays whole.
void CutExperts(const kernels::ExpertGroups& groups, int32_t threads, ExpertCut* cut);

// `expert_bytes`: of one expert's parts, counted for each distinct one picked.
std::unique_ptr<Step> MakeGroupPicks(const int32_t* ids, size_t used, size_t experts,
                                     uint64_t expert_bytes, Groups groups, RowCount rows,
                                     int32_t threads);

// h row of each place = silu(gate·x)·(up·x); `ff` floats a row.
std::unique_ptr<Step> MakeExpertGateUp(const Backend& backend, const BankRows& bank, Groups groups,
                                       const Activations& x, float* h, RowCount picks);

// y row of each place = down·h; `width` floats a row.
std::unique_ptr<Step> MakeExpertDown(const Backend& backend, const BankRows& bank, Groups groups,
                                     const Activations& h, float* y, RowCount picks);

// args.pair_places is taken from `groups`.
std::unique_ptr<Step> MakePickSum(const Backend& backend, const kernels::PickSumArgs& args,
                                  Groups groups, RowCount rows, int32_t threads);

}  // namespace bloomery::ops
