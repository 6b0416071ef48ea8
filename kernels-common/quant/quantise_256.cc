// Q4_K, Q5_K and Q6_K: sub-blocks are fitted alone, their scales become whole multiples of a common
// f16 one, then the multiples are tried against their neighbours and the common scale is refitted.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels-common/quant/quantise_search.h"
#include "kernels-common/quant/quantisers.h"

namespace bloomery::kernels {
namespace {

constexpr std::size_t kBlock = 256;

using Scaled = ScaledBlock<kBlock>;

template <class Encode>
std::size_t OverBlocks(const float* values, const float* importance, std::byte* row, std::size_t k,
                       std::size_t block_bytes, Encode encode) {
  const std::size_t bad = FirstNotFinite(values, k);
  if (bad < k) {
    return bad;
  }
  for (std::size_t at = 0; at < k; at += kBlock, row += block_bytes) {
    const Scaled scaled(values + at, importance == nullptr ? nullptr : importance + at);
    std::memset(row, 0, block_bytes);
    if (!encode(scaled, row)) {
      return at + scaled.largest;
    }
  }
  return k;
}

// ---- Q6_K: d * s * q, sixteen sub-blocks of 16.

struct LevelsQ6 : WholeLevels<-32, 31> {
  static constexpr float kTargets[] = {-32.0F, -33.0F, -31.2F, -30.4F, -29.6F, 31.0F, 30.2F, 29.4F};
};

constexpr std::size_t kSub6 = 16;

struct FitQ6 {
  std::uint16_t half;
  float d;
  int scales[kBlock / kSub6];
  float error;
};

LevelSums SubSumsQ6(const Scaled& block, std::size_t j, float scale) {
  return SumsAt<LevelsQ6, kSub6>(block.x + kSub6 * j, block.w + kSub6 * j,
                                 scale == 0.0F ? 0.0F : 1.0F / scale);
}

// The best whole scales for a stored d, around what the sub-blocks ask for.
FitQ6 FitScalesQ6(const Scaled& block, std::uint16_t half, const float* wanted) {
  FitQ6 fit = {half, block.FromHalf(half), {}, 0.0F};
  for (std::size_t j = 0; j < kBlock / kSub6 && fit.d != 0.0F; ++j) {
    const float middle = std::rint(std::clamp(wanted[j] / fit.d, -128.0F, 127.0F));
    float best = std::numeric_limits<float>::infinity();
    for (const float near : {0.0F, -1.0F, 1.0F}) {  // the middle first: a tie keeps it
      const float scale = std::clamp(middle + near, -128.0F, 127.0F);
      const float error = SubSumsQ6(block, j, fit.d * scale).Error(fit.d * scale);
      if (error < best) {
        best = error;
        fit.scales[j] = static_cast<int>(scale);
      }
    }
    fit.error += best;
  }
  return fit;
}

// d of least squares for the codes of a fit.
float RefitQ6(const Scaled& block, const FitQ6& fit) {
  double xq = 0.0;
  double qq = 0.0;
  for (std::size_t j = 0; j < kBlock / kSub6; ++j) {
    const auto scale = static_cast<float>(fit.scales[j]);
    const LevelSums sums = SubSumsQ6(block, j, fit.d * scale);
    xq += static_cast<double>(scale) * static_cast<double>(sums.xq);
    qq += static_cast<double>(scale * scale) * static_cast<double>(sums.qq);
  }
  return qq > 0.0 ? static_cast<float>(xq / qq) : fit.d;
}

bool EncodeQ6(const Scaled& block, std::byte* out) {
  float wanted[kBlock / kSub6];
  for (std::size_t j = 0; j < kBlock / kSub6; ++j) {
    wanted[j] = SearchScale<LevelsQ6, kSub6>(block.x + kSub6 * j, block.w + kSub6 * j);
  }
  const float most = wanted[LargestOf(wanted, kBlock / kSub6)];
  const std::uint16_t first = block.Half(most / -128.0F);
  FitQ6 fit = FitScalesQ6(block, first, wanted);
  const std::uint16_t refitted = block.Half(RefitQ6(block, fit));
  const FitQ6 again = FitScalesQ6(block, refitted, wanted);
  if (again.error < fit.error) {
    fit = again;
  }
  if (IsInfiniteHalf(fit.half)) {
    return false;
  }
  PutHalfAt(out + 208, fit.half);
  for (std::size_t i = 0; i < kBlock; ++i) {
    const std::size_t sub = i / kSub6;
    const float scale = fit.d * static_cast<float>(fit.scales[sub]);
    const float code = scale == 0.0F ? 0.0F : LevelsQ6::Nearest(block.x[i] * (1.0F / scale));
    const auto bits = static_cast<unsigned>(static_cast<int>(code) + 32);
    const std::size_t group = i % 128 / 32;
    out[i / 128 * 64 + 32 * (group % 2) + i % 32] |=
        static_cast<std::byte>((bits & 15U) << (group < 2 ? 0U : 4U));
    out[128 + i / 128 * 32 + i % 32] |= static_cast<std::byte>((bits >> 4U) << (2 * group));
  }
  for (std::size_t j = 0; j < kBlock / kSub6; ++j) {
    out[192 + j] = static_cast<std::byte>(static_cast<std::int8_t>(fit.scales[j]));
  }
  return true;
}

// ---- Q4_K and Q5_K: d * s * q - dmin * n, eight sub-blocks of 32.

constexpr std::size_t kSub4 = kLineValues;
constexpr std::size_t kSubs4 = kBlock / kSub4;
constexpr float kMostScale = 63.0F;

// Named here, so that each file of quantisers has the search compiled by its own flags.
template <int kMost>
struct LevelsQ4 : LineLevels<kMost, false> {};

struct FitQ4 {
  std::uint16_t half_d;
  std::uint16_t half_m;
  float d;
  float m;
  int scales[kSubs4];
  int mins[kSubs4];
  LineSums sums[kSubs4];
  double error;
};

template <int kMost>
void FitSub(const Scaled& block, std::size_t j, const Line& wanted, FitQ4* fit) {
  const float scale_middle =
      fit->d > 0.0F ? std::rint(std::min(wanted.scale / fit->d, kMostScale)) : 0.0F;
  const float min_middle =
      fit->m > 0.0F ? std::rint(std::min(wanted.min / fit->m, kMostScale)) : 0.0F;
  double best = std::numeric_limits<double>::infinity();
  constexpr float kNear[][2] = {{0, 0},  {0, -1}, {0, 1},  {-1, 0}, {-1, -1},
                                {-1, 1}, {1, 0},  {1, -1}, {1, 1}};
  for (const auto& near : kNear) {  // the middle first: a tie keeps it
    const float s = std::clamp(scale_middle + near[0], 0.0F, kMostScale);
    const float n = std::clamp(min_middle + near[1], 0.0F, kMostScale);
    const float a = fit->d * s;
    const float b = fit->m * n;
    const LineSums sums = LineSumsAt<LevelsQ4<kMost>>(block.x + kSub4 * j, block.w + kSub4 * j,
                                                      a > 0.0F ? 1.0F / a : 0.0F, b);
    const double error = sums.Error(static_cast<double>(a), static_cast<double>(b));
    if (error < best) {
      best = error;
      fit->scales[j] = static_cast<int>(s);
      fit->mins[j] = static_cast<int>(n);
      fit->sums[j] = sums;
    }
  }
  fit->error += best;
}

template <int kMost>
FitQ4 FitScalesQ4(const Scaled& block, std::uint16_t half_d, std::uint16_t half_m,
                  const Line* wanted) {
  FitQ4 fit = {half_d, half_m, block.FromHalf(half_d), block.FromHalf(half_m), {}, {}, {}, 0.0};
  for (std::size_t j = 0; j < kSubs4; ++j) {
    FitSub<kMost>(block, j, wanted[j], &fit);
  }
  return fit;
}

// d and dmin of least squares for the codes of a fit.
Line RefitQ4(const FitQ4& fit) {
  LineSums all = {};
  for (std::size_t j = 0; j < kSubs4; ++j) {
    const double s = fit.scales[j];
    const double n = fit.mins[j];
    all.qq += s * s * fit.sums[j].qq;
    all.q += s * n * fit.sums[j].q;
    all.w += n * n * fit.sums[j].w;
    all.xq += s * fit.sums[j].xq;
    all.x += n * fit.sums[j].x;
  }
  return Solve<false>(all, {fit.d, fit.m});
}

// Eight 6-bit scales and mins in twelve bytes; blocks_256.cc says how.
void PackScales(const FitQ4& fit, std::byte* packed) {
  for (std::size_t j = 0; j < 4; ++j) {
    const auto scale = static_cast<unsigned>(fit.scales[j]);
    const auto min = static_cast<unsigned>(fit.mins[j]);
    const auto scale_4 = static_cast<unsigned>(fit.scales[j + 4]);
    const auto min_4 = static_cast<unsigned>(fit.mins[j + 4]);
    packed[j] = static_cast<std::byte>(scale | ((scale_4 >> 4U) << 6U));
    packed[j + 4] = static_cast<std::byte>(min | ((min_4 >> 4U) << 6U));
    packed[j + 8] = static_cast<std::byte>((scale_4 & 15U) | ((min_4 & 15U) << 4U));
  }
}

template <int kMost>
bool EncodeQ4(const Scaled& block, std::byte* out) {
  Line wanted[kSubs4];
  Line most = {0.0F, 0.0F};
  for (std::size_t j = 0; j < kSubs4; ++j) {
    wanted[j] = SearchLine<LevelsQ4<kMost>>(block.x + kSub4 * j, block.w + kSub4 * j);
    most.scale = std::max(most.scale, wanted[j].scale);
    most.min = std::max(most.min, wanted[j].min);
  }
  FitQ4 fit = FitScalesQ4<kMost>(block, block.Half(most.scale / kMostScale),
                                 block.Half(most.min / kMostScale), wanted);
  const Line refit = RefitQ4(fit);
  const FitQ4 again =
      FitScalesQ4<kMost>(block, block.Half(refit.scale), block.Half(refit.min), wanted);
  if (again.error < fit.error) {
    fit = again;
  }
  if (IsInfiniteHalf(fit.half_d) || IsInfiniteHalf(fit.half_m)) {
    return false;
  }
  PutHalfAt(out, fit.half_d);
  PutHalfAt(out + 2, fit.half_m);
  PackScales(fit, out + 4);
  std::byte* high = out + 16;  // Q5_K: 32 bytes of fifth bits
  std::byte* nibbles = out + (kMost == 31 ? 48 : 16);
  for (std::size_t i = 0; i < kBlock; ++i) {
    const std::size_t sub = i / kSub4;
    const float a = fit.d * static_cast<float>(fit.scales[sub]);
    const float b = fit.m * static_cast<float>(fit.mins[sub]);
    const float inverse = a > 0.0F ? 1.0F / a : 0.0F;
    const auto code =
        static_cast<unsigned>(WholeLevels<0, kMost>::Nearest((block.x[i] + b) * inverse));
    nibbles[i / 64 * 32 + i % 32] |=
        static_cast<std::byte>((code & 15U) << (i % 64 < 32 ? 0U : 4U));
    if constexpr (kMost == 31) {
      high[i % 32] |= static_cast<std::byte>((code >> 4U) << (i / 32));
    }
  }
  return true;
}

}  // namespace

std::size_t QuantiseQ4K(const float* values, const float* importance, std::byte* row,
                        std::size_t k) {
  return OverBlocks(values, importance, row, k, 144, EncodeQ4<15>);
}

std::size_t QuantiseQ5K(const float* values, const float* importance, std::byte* row,
                        std::size_t k) {
  return OverBlocks(values, importance, row, k, 176, EncodeQ4<31>);
}

std::size_t QuantiseQ6K(const float* values, const float* importance, std::byte* row,
                        std::size_t k) {
  return OverBlocks(values, importance, row, k, 210, EncodeQ6);
}

}  // namespace bloomery::kernels
