// Rotary positions, NEOX halves: of each head the pairs (i, i + n_rot/2), i < n_rot/2, turn by
// position * frequency[i]; values from n_rot on pass through.
//
// No libm: frequencies and angles are made in f64 by exact_math/trig.h (same bits on every
// machine), cosine and sine are rounded once to f32. An angle at position 262144 is off by less
// than 2e-10, so a cosine or sine is the correctly rounded f32 of the exact angle but for rare
// near-ties. Then (a, b) -> (a*c - b*s, b*c + a*s), every product and sum rounded in f32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bloomery::kernels {

// Writes n_rot/2 frequencies theta^(-2i/n_rot). Other laws (YaRN, per-pair factors) change this
// table and `RopeArgs::magnitude`, not the kernel.
void RopeFrequencies(double theta, std::size_t n_rot, double* frequencies);

struct RopeArgs {
  const float* x = nullptr;
  std::size_t x_stride = 0;  // floats from row to row
  float* y = nullptr;        // overwritten; may be x
  std::size_t y_stride = 0;
  std::size_t heads = 0;
  std::size_t head_dim = 0;
  std::size_t n_rot = 0;                    // even, at most head_dim and kMaxRopeValues
  const double* frequencies = nullptr;      // n_rot/2 values
  const std::int32_t* positions = nullptr;  // one a row, at most 2^20 in magnitude
  float magnitude = 1.0F;                   // multiplies cosine and sine (1 unless YaRN)
};

inline constexpr std::size_t kMaxRopeValues = 512;

}  // namespace bloomery::kernels
