// How many rows a launch has: grids are made for `max` rows when a pass is captured, and the count
// that really exists is read on the card when it is replayed. Plain data; host code may include it.
#pragma once

#include <cstdint>

namespace bloomery::kernels::cuda {

// *live * each rows exist (never more than max); live null: max rows. `each` is 1, or what a row of
// the pass has many of: picks, say.
struct RowBound {
  std::int32_t max = 0;
  const std::int32_t* live = nullptr;  // device
  std::int32_t each = 1;
};

}  // namespace bloomery::kernels::cuda
