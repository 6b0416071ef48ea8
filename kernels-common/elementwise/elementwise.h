// Elementwise steps: addition, SwiGLU of a dense block (N6: silu(g) * u), table rows by id
// (embedding), and gathering rows. f32 throughout; each output is one rounding of its definition.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/linear/linear.h"

namespace bloomery::kernels {

// y[r] = table row ids[r], decoded. Ids are checked by the caller: 0 <= id < rows of the table.
struct EmbedArgs {
  WeightRows table;
  const std::int32_t* ids = nullptr;
  float* y = nullptr;
  std::size_t y_stride = 0;
};

}  // namespace bloomery::kernels
