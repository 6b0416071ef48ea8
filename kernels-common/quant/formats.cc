// The format table: decode and the exact integer form of each type. The layouts are GGUF's (little
// endian, f16 scales unless said otherwise).
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels-common/quant/quant.h"

namespace bloomery::kernels {
namespace {

std::uint8_t Byte(const std::byte* p, std::size_t i) { return static_cast<std::uint8_t>(p[i]); }

std::uint16_t Word(const std::byte* p) {
  return static_cast<std::uint16_t>(Byte(p, 0) | (Byte(p, 1) << 8));
}

float Half(const std::byte* p) { return HalfToFloat(Word(p)); }

void DecodeF32(const std::byte* source, float* values, std::size_t k) {
  std::memcpy(values, source, k * sizeof(float));
}

void DecodeF16(const std::byte* source, float* values, std::size_t k) {
  for (std::size_t i = 0; i < k; ++i) {
    values[i] = Half(source + 2 * i);
  }
}

void DecodeBf16(const std::byte* source, float* values, std::size_t k) {
  for (std::size_t i = 0; i < k; ++i) {
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(Word(source + 2 * i)) << 16U);
  }
}

// d, 32 int8: value = q*d.
void UnpackQ8_0(const std::byte* block, IntegerBlock* out) {
  out->d = Half(block);
  out->m = 0.0F;
  std::memcpy(out->codes, block + 2, 32);
  out->scales[0] = out->scales[1] = 1;
  out->mins[0] = out->mins[1] = 0;
}

// d, dmin, 12 bytes of eight 6-bit scales and mins, 128 bytes of nibbles: each 64 weights hold
// their first 32 in the low nibbles and the next 32 in the high ones.
void UnpackQ4K(const std::byte* block, IntegerBlock* out) {
  out->d = Half(block);
  out->m = -Half(block + 2);
  const std::byte* packed = block + 4;
  for (std::size_t j = 0; j < 8; ++j) {
    int scale = 0;
    int min = 0;
    if (j < 4) {
      scale = Byte(packed, j) & 63;
      min = Byte(packed, j + 4) & 63;
    } else {
      scale = (Byte(packed, j + 4) & 15) | ((Byte(packed, j - 4) >> 6) << 4);
      min = (Byte(packed, j + 4) >> 4) | ((Byte(packed, j) >> 6) << 4);
    }
    out->scales[2 * j] = out->scales[2 * j + 1] = static_cast<std::int16_t>(scale);
    out->mins[2 * j] = out->mins[2 * j + 1] = static_cast<std::int16_t>(min);
  }
  const std::byte* nibbles = block + 16;
  for (std::size_t i = 0; i < 256; ++i) {
    const int byte = Byte(nibbles, i / 64 * 32 + i % 32);
    out->codes[i] = static_cast<std::int8_t>(i % 64 < 32 ? byte & 15 : byte >> 4);
  }
}

// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales, d. Each 128 weights own 64
// low and 32 high bytes; their groups of 32 take low, low, high, high nibbles and bit pairs 0, 2,
// 4, 6.
void UnpackQ6K(const std::byte* block, IntegerBlock* out) {
  out->d = Half(block + 208);
  out->m = 0.0F;
  for (std::size_t j = 0; j < 16; ++j) {
    const int byte = Byte(block, 192 + j);
    out->scales[j] = static_cast<std::int16_t>(byte < 128 ? byte : byte - 256);
    out->mins[j] = 0;
  }
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t half = i / 128;
    const std::size_t group = i % 128 / 32;
    const std::size_t lane = i % 32;
    const int low = Byte(block, 64 * half + 32 * (group % 2) + lane) >> (group < 2 ? 0 : 4);
    const int high = Byte(block, 128 + 32 * half + lane) >> (2 * group);
    out->codes[i] = static_cast<std::int8_t>(((low & 15) | ((high & 3) << 4)) - 32);
  }
}

// d*scale and m*min are exact in f32, so a value is rounded once (and a zero has d*scale's sign).
template <void (*unpack)(const std::byte*, IntegerBlock*), std::size_t kValues, std::size_t kBytes,
          bool kMins>
void DecodeInteger(const std::byte* source, float* values, std::size_t k) {
  IntegerBlock block;
  for (std::size_t start = 0; start < k; start += kValues, source += kBytes) {
    unpack(source, &block);
    for (std::size_t i = 0; i < kValues; ++i) {
      const std::size_t part = i / kSumValues;
      const float scale = block.d * static_cast<float>(block.scales[part]);
      const auto code = static_cast<float>(block.codes[i]);
      if constexpr (kMins) {
        const auto min = static_cast<float>(block.mins[part]);
        values[start + i] = std::fma(scale, code, min * block.m);
      } else {
        values[start + i] = scale * code;
      }
    }
  }
}

constexpr std::array<FormatTraits, 6> kFormats = {{
    {"F32", 0, 1, 4, 0, false, DecodeF32, nullptr},
    {"F16", 1, 1, 2, 0, false, DecodeF16, nullptr},
    {"Q8_0", 8, 32, 34, 32, false, DecodeInteger<UnpackQ8_0, 32, 34, false>, UnpackQ8_0},
    {"Q4_K", 12, 256, 144, 256, true, DecodeInteger<UnpackQ4K, 256, 144, true>, UnpackQ4K},
    {"Q6_K", 14, 256, 210, 256, false, DecodeInteger<UnpackQ6K, 256, 210, false>, UnpackQ6K},
    {"BF16", 30, 1, 2, 0, false, DecodeBf16, nullptr},
}};

}  // namespace

const FormatTraits* FindFormat(int ggml_type) {
  for (const FormatTraits& format : kFormats) {
    if (format.ggml_type == ggml_type) {
      return &format;
    }
  }
  return nullptr;
}

std::span<const FormatTraits> Formats() { return kFormats; }

float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  const std::uint32_t exponent = (half >> 10U) & 31U;
  const std::uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0) {  // zero or denormal: mantissa * 2^-24, exact
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const std::uint32_t quiet = mantissa != 0 ? 0x400000U : 0U;
    return std::bit_cast<float>(sign | 0x7F800000U | quiet | (mantissa << 13U));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
}

std::uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00U | ((magnitude >> 13U) & 0x3FFU);
  } else if (magnitude >= 0x47800000U) {  // 65536 and more; 65520 and more get there by rounding
    half = 0x7C00U;
  } else if (magnitude < 0x38800000U) {  // below 2^-14: a multiple of 2^-24
    half = static_cast<std::uint32_t>(std::rint(std::bit_cast<float>(magnitude) * 0x1p24F));
  } else {
    const std::uint32_t rebased = magnitude - (112U << 23U);
    half = (rebased + 0xFFFU + ((rebased >> 13U) & 1U)) >> 13U;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace bloomery::kernels
