// Elementwise steps: addition, SwiGLU of a dense block (N6: silu(g) * u), table rows by id
// (embedding), gates, and gathering rows. f32 throughout; each output is one rounding of its
// definition.
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

// y = x * f(gate), f = the sigmoid 1 / (1 + exp(-g)) or silu; one gate a value, or one a row.
enum class GateFunction { kSigmoid, kSilu };
struct GateArgs {
  const float* x = nullptr;     // [rows][width]
  const float* gate = nullptr;  // [rows][width], or [rows] where `single`
  float* y = nullptr;           // may be x or gate
  std::size_t width = 0;
  bool single = false;
  GateFunction function = GateFunction::kSigmoid;
};

}  // namespace bloomery::kernels
