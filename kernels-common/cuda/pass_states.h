// The recurrent states of a pass as kernels of the card see them: which rows start and end a
// stretch of one slot, and which lane of the slot's fixed planes holds the state before it and
// takes the one behind it. Like PassRowsView the arrays are written before the program's first
// kernel starts. Plain data with device pointers; owns nothing. Host code may include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bloomery::kernels::cuda {

struct PassStatesView {
  const std::int32_t* segments = nullptr;   // one value: stretches in the pass, at most `most`
  const std::int32_t* first_row = nullptr;  // [segments] ascending; each ends where the next begins
  const std::int32_t* lane_in = nullptr;    // [rows], of a stretch's first row; -1: zeros
  const std::int32_t* lane_out = nullptr;   // [rows]; -1: the state behind that row is not kept
  std::int32_t most = 0;                    // what grids are made for
};

// Lanes of all slots: lane l of slot s lies at base + s * slot_floats + l * lane_floats. A pass
// never writes the lane that it reads.
struct StatePlane {
  float* base = nullptr;
  std::size_t slot_floats = 0;
  std::size_t lane_floats = 0;
};

}  // namespace bloomery::kernels::cuda
