// What the quantisers share: limits, and the search for the scale of a set of levels. Sums run in
// eight lanes by index so that they vectorise and are the same everywhere. Internal.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels-common/quant/quant.h"

namespace bloomery::kernels {

inline constexpr std::size_t kSearchLanes = 8;
// Blocks below this hold zeros: no f16 scale reaches them, and their products would underflow.
inline constexpr float kSmallestBlock = 0x1p-60F;

inline float SumLanes(const float* lanes) {
  float sum = 0.0F;
  for (std::size_t i = 0; i < kSearchLanes; ++i) {
    sum += lanes[i];
  }
  return sum;
}

// Index of the first value that is not finite, or k.
inline std::size_t FirstNotFinite(const float* values, std::size_t k) {
  std::size_t i = 0;
  while (i < k && std::isfinite(values[i])) {
    ++i;
  }
  return i;
}

// Index of the value of largest magnitude; the first of equals.
inline std::size_t LargestOf(const float* values, std::size_t count) {
  std::size_t largest = 0;
  for (std::size_t i = 1; i < count; ++i) {
    if (std::fabs(values[i]) > std::fabs(values[largest])) {
      largest = i;
    }
  }
  return largest;
}

inline void PutHalfAt(std::byte* p, std::uint16_t half) { std::memcpy(p, &half, 2); }
inline bool IsInfiniteHalf(std::uint16_t half) { return (half & 0x7FFFU) == 0x7C00U; }

// One block scaled to a largest magnitude of 1, with its importance (ones where none is given).
template <std::size_t kCount>
struct ScaledBlock {
  float x[kCount];
  float w[kCount];
  float magnitude;  // 0 for a block of zeros
  std::size_t largest;

  ScaledBlock(const float* values, const float* importance) {
    largest = LargestOf(values, kCount);
    magnitude = std::fabs(values[largest]);
    if (magnitude < kSmallestBlock) {
      magnitude = 0.0F;
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      x[i] = magnitude == 0.0F ? 0.0F : values[i] / magnitude;
      w[i] = importance == nullptr ? 1.0F : importance[i];
    }
  }

  // The scale as stored, and what the store makes of it in the block's own units.
  std::uint16_t Half(float scale) const { return FloatToHalf(scale * magnitude); }
  float FromHalf(std::uint16_t half) const {
    return magnitude == 0.0F ? 0.0F : HalfToFloat(half) / magnitude;
  }
};

// With q the nearest level of x/scale: sum w*x*q and sum w*q*q.
struct LevelSums {
  float xq;
  float qq;
  // Squared error at `scale`, less that of all codes zero.
  float Error(float scale) const { return scale * (scale * qq - 2.0F * xq); }
};

template <class Levels, std::size_t kCount>
LevelSums SumsAt(const float* x, const float* w, float inverse) {
  float xq[kSearchLanes] = {};
  float qq[kSearchLanes] = {};
  for (std::size_t i = 0; i < kCount; i += kSearchLanes) {
    for (std::size_t lane = 0; lane < kSearchLanes; ++lane) {
      const float q = Levels::Nearest(x[i + lane] * inverse);
      const float wq = w[i + lane] * q;
      xq[lane] += wq * x[i + lane];
      qq[lane] += wq * q;
    }
  }
  return {SumLanes(xq), SumLanes(qq)};
}

// The scale that fits kCount values to Levels best: the value of largest magnitude is put on each
// of Levels::kTargets, the codes that follow give the scale of least squares; the best of these is
// refined once from its own codes. The scale may be negative; 0 where all codes are 0.
template <class Levels, std::size_t kCount>
float SearchScale(const float* x, const float* w) {
  const float extreme = x[LargestOf(x, kCount)];
  if (std::fabs(extreme) < kSmallestBlock) {
    return 0.0F;
  }
  float best = extreme / Levels::kTargets[0];
  float best_gain = 0.0F;
  const auto consider = [&](float inverse) {
    const LevelSums sums = SumsAt<Levels, kCount>(x, w, inverse);
    // Error at xq/qq is -gain. (Not a product of two sums: that could underflow.)
    const float scale = sums.xq / sums.qq;
    const float gain = sums.xq * scale;
    if (sums.qq > 0.0F && gain > best_gain) {
      best_gain = gain;
      best = scale;
    }
  };
  for (const float target : Levels::kTargets) {
    consider(target / extreme);
  }
  consider(1.0F / best);
  return best;
}

// Whole numbers kLow..kHigh.
template <int kLow, int kHigh>
struct WholeLevels {
  static float Nearest(float v) {
    const float whole = std::rint(v);
    const float above = whole < static_cast<float>(kLow) ? static_cast<float>(kLow) : whole;
    return above > static_cast<float>(kHigh) ? static_cast<float>(kHigh) : above;
  }
};

}  // namespace bloomery::kernels
