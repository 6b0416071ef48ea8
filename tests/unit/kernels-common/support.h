// What the kernel tests share: seeded values, weight rows of any format, a hash of bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kernels-common/linear/cpu/linear.h"
#include "kernels-common/linear/linear.h"
#include "kernels-common/quant/cpu/quant.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::testing {

// SplitMix64: the same numbers on every machine and library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }
  std::size_t Below(std::size_t n) { return static_cast<std::size_t>(Next() % n); }
  // In [-1, 1), 24 bits.
  float Unit() {
    return static_cast<float>(static_cast<std::int64_t>(Next() >> 39U)) * 0x1p-24F - 1.0F;
  }
  std::vector<float> Values(std::size_t count, float magnitude = 1.0F) {
    std::vector<float> out(count);
    for (float& value : out) {
      value = Unit() * magnitude;
    }
    return out;
  }

 private:
  std::uint64_t state_;
};

// FNV-1a over the bits; every NaN counts as one.
inline std::uint64_t HashBits(std::span<const float> values,
                              std::uint64_t hash = 0xCBF29CE484222325ULL) {
  for (const float value : values) {
    const std::uint32_t bits = value != value ? 0x7FC00000U : std::bit_cast<std::uint32_t>(value);
    for (unsigned shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ ((bits >> shift) & 0xFFU)) * 0x100000001B3ULL;
    }
  }
  return hash;
}

// Index of the first value whose bits differ, or the size.
inline std::size_t FirstDifference(std::span<const float> a, std::span<const float> b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = a[i] != a[i] && b[i] != b[i];
    if (!both_nan && std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) {
      return i;
    }
  }
  return a.size();
}

// Bytes whose start is 64-byte aligned.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size) : size_(size), bytes_(size + 64) {}
  std::byte* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + ((at + 63) / 64 * 64 - at);
  }
  std::span<std::byte> span() { return {data(), size_}; }

 private:
  std::size_t size_;
  std::vector<std::byte> bytes_;
};

inline void PutHalf(std::byte* p, float value) {
  const std::uint16_t half = FloatToHalf(value);
  std::memcpy(p, &half, 2);
}

// Gives a block of random bytes a scale (and a min) of a usable size; where the format has room, of
// either sign.
inline void SetBlockScale(const FormatTraits& format, std::byte* block, Random& random) {
  const float value = random.Unit();
  const float scale = value * 0.01F;
  switch (format.ggml_type) {
    case 0:
      std::memcpy(block, &value, 4);
      break;
    case 1:
      PutHalf(block, value);
      break;
    case 30: {
      const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
      std::memcpy(block, &bits, 2);
      break;
    }
    case 3:   // Q4_1
    case 7:   // Q5_1
    case 12:  // Q4_K
    case 13:  // Q5_K
      PutHalf(block, scale);
      PutHalf(block + 2, random.Unit() * 0.05F);
      break;
    case 10:  // Q2_K: the scales come last
      PutHalf(block + 80, scale);
      PutHalf(block + 82, random.Unit() * 0.05F);
      break;
    case 11:  // Q3_K
    case 14:  // Q6_K
    case 34:  // TQ1_0
    case 35:  // TQ2_0
      PutHalf(block + format.block_bytes - 2, scale);
      break;
    case 29: {  // IQ1_M: a nibble of the scale on top of each of the last four words
      const std::uint16_t half = FloatToHalf(scale);
      for (std::size_t word = 0; word < 4; ++word) {
        std::byte& high = block[49 + 2 * word];
        const unsigned nibble = (static_cast<unsigned>(half) >> (4 * word)) & 15U;
        high = (high & std::byte{15}) | static_cast<std::byte>(nibble << 4U);
      }
      break;
    }
    case 39:  // MXFP4: an exponent from 2^-10 to 2^-3
      block[0] = static_cast<std::byte>(118 + random.Below(8));
      break;
    case 40:  // NVFP4: four positive scales without the code of NaN
      for (std::size_t part = 0; part < 4; ++part) {
        block[part] = static_cast<std::byte>(random.Below(0x7F));
      }
      break;
    default:
      PutHalf(block, scale);
      break;
  }
}

// `rows` rows of k weights: random codes and sub-block scales, block scales of a usable size.
inline std::vector<std::byte> RandomWeights(const FormatTraits& format, std::size_t k,
                                            std::size_t rows, Random& random) {
  std::vector<std::byte> bytes(RowBytes(format, k) * rows);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random.Next() >> 56U);
  }
  for (std::size_t at = 0; at < bytes.size(); at += format.block_bytes) {
    std::byte* block = bytes.data() + at;
    SetBlockScale(format, block, random);
  }
  return bytes;
}

// A linear with its inputs; outputs are made by the test.
struct LinearCase {
  const FormatTraits& format;
  std::size_t k;
  std::size_t n;
  std::size_t rows;
  std::vector<std::byte> weights;
  std::vector<float> x;
  AlignedBytes quantised_bytes;
  AlignedBytes scratch;

  LinearCase(const FormatTraits& f, std::size_t k_values, std::size_t weight_rows,
             std::size_t activation_rows, std::uint64_t seed)
      : format(f),
        k(k_values),
        n(weight_rows),
        rows(activation_rows),
        quantised_bytes(f.activation_group == 0
                            ? 0
                            : QuantisedRowBytes(k_values, f.activation_group) * activation_rows),
        scratch(cpu::LinearScratchBytes(k_values)) {
    Random random(seed);
    weights = RandomWeights(format, k, n, random);
    x = random.Values(rows * k, 3.0F);
    if (format.activation_group != 0) {
      cpu::QuantiseRows(Isa::kScalar, x.data(), k, Quantised(), 0, rows);
    }
  }

  QuantisedRows Quantised() {
    return MakeQuantisedRows(quantised_bytes.data(), k, format.activation_group);
  }

  LinearArgs Args(std::vector<float>& y) {
    y.assign(rows * n, NAN);
    LinearArgs args;
    args.weight = {&format, weights.data(), RowBytes(format, k), k};
    args.x = x.data();
    args.x_stride = k;
    if (format.activation_group != 0) {
      args.quantised = Quantised();
    }
    args.rows = rows;
    args.y = y.data();
    args.y_stride = n;
    return args;
  }
};

}  // namespace bloomery::kernels::testing
