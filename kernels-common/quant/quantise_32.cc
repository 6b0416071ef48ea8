// The types of 32-value blocks: one scale, and for Q4_1 and Q5_1 a min.
#include <algorithm>
#include <iterator>
#include <limits>

#include "kernels-common/quant/iq_tables.h"
#include "kernels-common/quant/quantise_search.h"
#include "kernels-common/quant/quantisers.h"

namespace bloomery::kernels {
namespace {

constexpr std::size_t kBlock = 32;

// Targets reach beyond the last level: cutting one value off may serve the others.
struct LevelsQ4 : WholeLevels<-8, 7> {
  static constexpr float kTargets[] = {-8.0F, -8.8F, -8.4F, -7.6F, -7.2F, -6.8F,
                                       -6.4F, 7.0F,  7.4F,  6.6F,  6.2F};
};

struct LevelsQ5 : WholeLevels<-16, 15> {
  static constexpr float kTargets[] = {-16.0F, -16.8F, -16.4F, -15.6F, -15.2F, -14.8F,
                                       -14.4F, 15.0F,  15.4F,  14.6F,  14.2F};
};

struct LinesQ4 : LineLevels<15, true> {};
struct LinesQ5 : LineLevels<31, true> {};

// Halfway points between neighbours of kIq4Values; a value on one goes to the lower level.
std::size_t Iq4Index(float v) {
  std::size_t index = 0;
  for (std::size_t i = 0; i + 1 < kIq4Values.size(); ++i) {
    const auto middle = 0.5F * static_cast<float>(kIq4Values[i] + kIq4Values[i + 1]);
    index += v > middle ? 1 : 0;
  }
  return index;
}

struct LevelsIq4 {
  static constexpr float kTargets[] = {-127.0F, -140.0F, -133.0F, -121.0F, -115.0F,
                                       -108.0F, -102.0F, 113.0F,  124.0F,  118.0F,
                                       107.0F,  101.0F,  95.0F};
  // The level of Iq4Index, by its rise from one level to the next: no look-up, so that it
  // vectorises.
  static float Nearest(float v) {
    auto level = static_cast<float>(kIq4Values[0]);
    for (std::size_t i = 0; i + 1 < kIq4Values.size(); ++i) {
      const auto middle = 0.5F * static_cast<float>(kIq4Values[i] + kIq4Values[i + 1]);
      level += v > middle ? static_cast<float>(kIq4Values[i + 1] - kIq4Values[i]) : 0.0F;
    }
    return level;
  }
};

constexpr float kFp4Middles[] = {0.5F, 1.5F, 2.5F, 3.5F, 5.0F, 7.0F, 10.0F};

// Index of the E2M1 code (doubled values) nearest to v; a value halfway goes to the smaller one.
std::size_t Fp4Index(float v) {
  const float magnitude = std::fabs(v);
  std::size_t index = 0;
  for (const float middle : kFp4Middles) {
    index += magnitude > middle ? 1 : 0;
  }
  return std::signbit(v) && index > 0 ? index + 8 : index;
}

struct LevelsFp4 {
  static float Nearest(float v) {
    const float magnitude = std::fabs(v);
    float level = 0.0F;
    for (std::size_t i = 0; i < std::size(kFp4Middles); ++i) {
      level +=
          magnitude > kFp4Middles[i] ? static_cast<float>(kFp4Values[i + 1] - kFp4Values[i]) : 0.0F;
    }
    return std::copysign(level, v);
  }
};

// Byte j: element j low, j + 16 high.
template <class Index>
void PutNibbles(std::byte* nibbles, Index index) {
  for (std::size_t j = 0; j < kBlock / 2; ++j) {
    nibbles[j] = static_cast<std::byte>(index(j) | (index(j + kBlock / 2) << 4U));
  }
}

// Runs `encode(values, importance, block)` over the blocks of a row; it returns false where the
// block's scale does not fit.
template <class Encode>
std::size_t OverBlocks(const float* values, const float* importance, std::byte* row, std::size_t k,
                       std::size_t block_bytes, Encode encode) {
  const std::size_t bad = FirstNotFinite(values, k);
  if (bad < k) {
    return bad;
  }
  for (std::size_t at = 0; at < k; at += kBlock, row += block_bytes) {
    if (!encode(values + at, importance == nullptr ? nullptr : importance + at, row)) {
      return at + LargestOf(values + at, kBlock);
    }
  }
  return k;
}

// Codes of five bits: a word of fifth bits, bit i for element i, then the nibbles.
template <class Index>
void PutFiveBits(std::byte* bits, Index index) {
  std::uint32_t high = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    high |= static_cast<std::uint32_t>(index(i) >> 4U) << i;
  }
  std::memcpy(bits, &high, sizeof(high));
  PutNibbles(bits + sizeof(high), [&](std::size_t i) { return index(i) & 15U; });
}

// f16 d by search, then what `put` makes of the codes that `index` names for a value in units of d.
template <class Levels, class Index, class Put>
bool EncodeSearched(const float* values, const float* importance, std::byte* block, Index index,
                    Put put) {
  const ScaledBlock<kBlock> scaled(values, importance);
  const std::uint16_t half = scaled.Half(SearchScale<Levels, kBlock>(scaled.x, scaled.w));
  if (IsInfiniteHalf(half)) {
    return false;
  }
  const float d = scaled.FromHalf(half);
  const float inverse = d == 0.0F ? 0.0F : 1.0F / d;
  PutHalfAt(block, half);
  put(block + 2, [&](std::size_t i) { return index(scaled.x[i] * inverse); });
  return true;
}

// f16 d and m by search, then the codes of what is stored.
template <class Levels, class Put>
bool EncodeLine(const float* values, const float* importance, std::byte* block, Put put) {
  const ScaledBlock<kBlock> scaled(values, importance);
  const Line line = SearchLine<Levels>(scaled.x, scaled.w);
  const std::uint16_t half_d = scaled.Half(line.scale);
  const std::uint16_t half_m = scaled.Half(-line.min);
  if (IsInfiniteHalf(half_d) || IsInfiniteHalf(half_m)) {
    return false;
  }
  const float d = scaled.FromHalf(half_d);
  const float m = scaled.FromHalf(half_m);
  const float inverse = d == 0.0F ? 0.0F : 1.0F / d;
  PutHalfAt(block, half_d);
  PutHalfAt(block + 2, half_m);
  put(block + 4, [&](std::size_t i) {
    return static_cast<std::size_t>(Levels::Nearest((scaled.x[i] - m) * inverse));
  });
  return true;
}

constexpr auto kPutNibbles = [](std::byte* out, auto index) { PutNibbles(out, index); };
constexpr auto kPutFiveBits = [](std::byte* out, auto index) { PutFiveBits(out, index); };

bool EncodeQ8(const float* values, const float* /*importance*/, std::byte* block) {
  const std::uint16_t half = FloatToHalf(std::fabs(values[LargestOf(values, kBlock)]) / 127.0F);
  const float d = HalfToFloat(half);
  PutHalfAt(block, half);
  for (std::size_t i = 0; i < kBlock; ++i) {
    const float code = d == 0.0F ? 0.0F : std::rint(values[i] / d);
    block[2 + i] =
        static_cast<std::byte>(static_cast<std::int8_t>(std::clamp(code, -127.0F, 127.0F)));
  }
  return !IsInfiniteHalf(half);
}

// The scale is a power of two, so all that could be best are tried: the one that just holds the
// largest value, and its neighbours.
bool EncodeMxfp4(const float* values, const float* importance, std::byte* block) {
  const ScaledBlock<kBlock> scaled(values, importance);
  if (scaled.magnitude == 0.0F) {
    std::memset(block, 0, 17);
    return true;
  }
  int exponent = 0;  // magnitude = f * 2^exponent, f in [1/2, 1)
  std::frexp(scaled.magnitude, &exponent);
  int best = -128;
  float best_error = std::numeric_limits<float>::infinity();
  for (const int down : {3, 2, 4}) {
    const int power = std::clamp(exponent - down, -128, 125);
    const float d = std::ldexp(1.0F, power) / scaled.magnitude;
    const float error = SumsAt<LevelsFp4, kBlock>(scaled.x, scaled.w, 1.0F / d).Error(d);
    if (error < best_error) {
      best_error = error;
      best = power;
    }
  }
  block[0] = static_cast<std::byte>(best + 128);
  const float inverse = scaled.magnitude / std::ldexp(1.0F, best);
  PutNibbles(block + 1, [&](std::size_t i) { return Fp4Index(scaled.x[i] * inverse); });
  return true;
}

}  // namespace

std::size_t QuantiseQ4_0(const float* values, const float* importance, std::byte* row,
                         std::size_t k) {
  const auto encode = [](const float* v, const float* w, std::byte* block) {
    return EncodeSearched<LevelsQ4>(
        v, w, block,
        [](float unit) { return static_cast<std::size_t>(LevelsQ4::Nearest(unit) + 8.0F); },
        kPutNibbles);
  };
  return OverBlocks(values, importance, row, k, 18, encode);
}

std::size_t QuantiseQ4_1(const float* values, const float* importance, std::byte* row,
                         std::size_t k) {
  const auto encode = [](const float* v, const float* w, std::byte* block) {
    return EncodeLine<LinesQ4>(v, w, block, kPutNibbles);
  };
  return OverBlocks(values, importance, row, k, 20, encode);
}

std::size_t QuantiseQ5_0(const float* values, const float* importance, std::byte* row,
                         std::size_t k) {
  const auto encode = [](const float* v, const float* w, std::byte* block) {
    return EncodeSearched<LevelsQ5>(
        v, w, block,
        [](float unit) { return static_cast<std::size_t>(LevelsQ5::Nearest(unit) + 16.0F); },
        kPutFiveBits);
  };
  return OverBlocks(values, importance, row, k, 22, encode);
}

std::size_t QuantiseQ5_1(const float* values, const float* importance, std::byte* row,
                         std::size_t k) {
  const auto encode = [](const float* v, const float* w, std::byte* block) {
    return EncodeLine<LinesQ5>(v, w, block, kPutFiveBits);
  };
  return OverBlocks(values, importance, row, k, 24, encode);
}

std::size_t QuantiseQ8_0(const float* values, const float* importance, std::byte* row,
                         std::size_t k) {
  return OverBlocks(values, importance, row, k, 34, EncodeQ8);
}

std::size_t QuantiseIq4Nl(const float* values, const float* importance, std::byte* row,
                          std::size_t k) {
  const auto encode = [](const float* v, const float* w, std::byte* block) {
    return EncodeSearched<LevelsIq4>(v, w, block, Iq4Index, kPutNibbles);
  };
  return OverBlocks(values, importance, row, k, 18, encode);
}

std::size_t QuantiseMxfp4(const float* values, const float* importance, std::byte* row,
                          std::size_t k) {
  return OverBlocks(values, importance, row, k, 17, EncodeMxfp4);
}

}  // namespace bloomery::kernels
