// RMS norm: y = (x * (1 / sqrt(mean(x^2) + eps))) * w over the last `dim` values, in f32.
//
// Order: the sum of squares is N8's dot of x with itself (32 lanes k mod 32 by ascending fma, tree
// 16, 8, 4, 2, 1); mean = sum / F(dim); r = 1 / sqrt(mean + eps); y = (x*r)*w, each product
// rounded. An L2 norm has the sum in place of the mean, and r = scale * (1 / sqrt(sum + eps)).
#pragma once

#include <cstddef>

namespace bloomery::kernels {

// `rows` rows of `groups` consecutive vectors of `dim` values (groups = heads for a head norm, else
// 1), all under the same weight. y may be x.
struct RmsNormArgs {
  const float* x = nullptr;
  std::size_t x_stride = 0;  // floats from row to row
  float* y = nullptr;        // overwritten
  std::size_t y_stride = 0;
  std::size_t groups = 1;
  std::size_t dim = 0;
  const float* weight = nullptr;  // dim values, or null for 1
  float eps = 0;
};

struct L2NormArgs {
  const float* x = nullptr;
  std::size_t x_stride = 0;  // floats from row to row
  float* y = nullptr;        // overwritten; y may be x
  std::size_t y_stride = 0;
  std::size_t groups = 1;  // vectors of a row
  std::size_t dim = 0;
  float eps = 0;
  float scale = 1;
};

}  // namespace bloomery::kernels
