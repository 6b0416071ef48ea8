// What the quantisers share: limits, the search for the scale of a set of levels, and that for a
// scale and a min. Sums run in
// eight lanes by index so that they vectorise and are the same everywhere. Internal.
#pragma once

#include <algorithm>
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

// ---- Formats with a scale and a min: x = scale*q - min, q = 0..kMost, 32 values.

inline constexpr std::size_t kLineValues = 32;

// kFreeMin: the min may be negative, so that zero need not be in reach.
template <int kTop, bool kFree>
struct LineLevels : WholeLevels<0, kTop> {
  static constexpr auto kMost = static_cast<float>(kTop);
  static constexpr bool kFreeMin = kFree;
};

struct Line {
  float scale;  // not negative
  float min;
};

// With q the nearest code to (x + min)/scale; w and x do not depend on q.
struct LineSums {
  double q, qq, xq, w, x;
  double Error(double a, double b) const {
    return a * (a * qq - 2.0 * (b * q + xq)) + b * (b * w + 2.0 * x);
  }
};

template <class Levels>
LineSums LineSumsAt(const float* x, const float* w, float inverse, float min) {
  float sq[kSearchLanes] = {};
  float sqq[kSearchLanes] = {};
  float sxq[kSearchLanes] = {};
  float sw[kSearchLanes] = {};
  float sx[kSearchLanes] = {};
  for (std::size_t i = 0; i < kLineValues; i += kSearchLanes) {
    for (std::size_t lane = 0; lane < kSearchLanes; ++lane) {
      const float value = x[i + lane];
      const float weight = w[i + lane];
      const float q = Levels::Nearest((value + min) * inverse);
      sq[lane] += weight * q;
      sqq[lane] += weight * q * q;
      sxq[lane] += weight * q * value;
      sw[lane] += weight;
      sx[lane] += weight * value;
    }
  }
  return {static_cast<double>(SumLanes(sq)), static_cast<double>(SumLanes(sqq)),
          static_cast<double>(SumLanes(sxq)), static_cast<double>(SumLanes(sw)),
          static_cast<double>(SumLanes(sx))};
}

// The line of least squares of `sums`, held to what the format can say.
template <bool kFreeMin>
Line Solve(const LineSums& sums, const Line& otherwise) {
  const double det = sums.qq * sums.w - sums.q * sums.q;
  double a = det > 0.0 ? (sums.w * sums.xq - sums.q * sums.x) / det : 0.0;
  double b = det > 0.0 ? (sums.q * sums.xq - sums.qq * sums.x) / det : 0.0;
  if (!kFreeMin && (b < 0.0 || det <= 0.0)) {
    a = sums.qq > 0.0 ? sums.xq / sums.qq : 0.0;
    b = 0.0;
  }
  return a > 0.0 ? Line{static_cast<float>(a), static_cast<float>(b)} : otherwise;
}

// The best line of 32 values alone: the range stretched and shrunk, each refitted.
template <class Levels>
Line SearchLine(const float* x, const float* w) {
  const float lowest = *std::min_element(x, x + kLineValues);
  const float low = Levels::kFreeMin ? lowest : std::min(lowest, 0.0F);
  const float range = *std::max_element(x, x + kLineValues) - low;
  if (range < kSmallestBlock) {
    return {0.0F, -low};
  }
  Line best = {range / Levels::kMost, -low};
  double best_error = LineSumsAt<Levels>(x, w, 1.0F / best.scale, best.min)
                          .Error(static_cast<double>(best.scale), static_cast<double>(best.min));
  const auto consider = [&](float inverse, float min) {
    const LineSums codes = LineSumsAt<Levels>(x, w, inverse, min);
    const Line line = Solve<Levels::kFreeMin>(codes, best);
    const double error =
        codes.Error(static_cast<double>(line.scale), static_cast<double>(line.min));
    if (error < best_error) {
      best_error = error;
      best = line;
    }
  };
  for (const float more : {0.0F, -2.0F, -1.5F, -1.0F, -0.5F, 0.5F, 1.0F}) {
    consider((Levels::kMost + more) / range, -low);
  }
  consider(1.0F / best.scale, best.min);
  return best;
}

}  // namespace bloomery::kernels
