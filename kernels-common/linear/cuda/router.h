// Linear with F32 weights for many rows in N8's order: bits of reference::Linear, whatever the row
// count. Routers of prompts use it: a router must pick the same experts in a prompt as in decode.
//
// Enqueues only (launch.h). A lane keeps the partial sums of its own k mod 32 for 8 x 8 or 8 x 16
// pairs of (row, weight row), so that a few values of each feed many fma.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.h"
#include "kernels-common/cuda/rows.h"

namespace bloomery::kernels::cuda {

// y[r*y_stride + n] = weight row n . x row r (+ bias[n]). weight is [n][k] without gaps, 16-byte
// aligned; x too, x_stride divides by 4. Any n and k.
struct RouterLinearArgs {
  const float* weight = nullptr;
  std::int32_t n = 0;
  std::int32_t k = 0;
  const float* bias = nullptr;
  const float* x = nullptr;
  std::size_t x_stride = 0;
  float* y = nullptr;
  std::size_t y_stride = 0;
  RowBound rows;
};

cudaError_t PrepareRouterLinear();
cudaError_t RouterLinear(const Launch& launch, const RouterLinearArgs& args);

}  // namespace bloomery::kernels::cuda
