// What the expert launches of the card are told beside their weights: which matrices of gate and
// up a launch has, and where to count picks.
#pragma once

#include <cstdint>

namespace bloomery::kernels::cuda {

// Gate and up of one format (few rows: of one activation group) are one launch, h = silu(gate x) *
// (up x). Else they are two: kGate leaves gate x in h, then kUp makes silu(h) * (up x) of it. The
// other matrix's weight is not looked at. The bits are the same.
enum class GateUpPart { kBoth, kGate, kUp };

// Counts of one bank, which launches that see the picks of a pass add to; null: not counted. They
// wrap around.
struct PickCounts {
  std::uint32_t* experts = nullptr;   // one an expert: rows that picked it
  std::uint32_t* distinct = nullptr;  // one: experts that some row of the pass picked
};

// The frame of each expert on the card, -1 where it is the host's, in device memory; read at every
// launch. Null: expert e is in frame e. A bank's matrices then hold frames where else they hold
// experts.
using FrameMap = const std::int32_t*;

}  // namespace bloomery::kernels::cuda
