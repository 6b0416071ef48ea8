// The format table: one row a GGUF type, its functions from blocks_*.cc and quantise_*.cc.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels-common/quant/blocks.h"
#include "kernels-common/quant/quant.h"
#include "kernels-common/quant/quantisers.h"

namespace bloomery::kernels {
namespace {

void DecodeF32(const std::byte* source, float* values, std::size_t k) {
  std::memcpy(values, source, k * sizeof(float));
}

void DecodeF16(const std::byte* source, float* values, std::size_t k) {
  for (std::size_t i = 0; i < k; ++i) {
    values[i] = HalfAt(source + 2 * i);
  }
}

void DecodeBf16(const std::byte* source, float* values, std::size_t k) {
  for (std::size_t i = 0; i < k; ++i) {
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(WordAt(source + 2 * i)) << 16U);
  }
}

// d*scale and m*min are exact in f32, so a value is rounded once (and a zero has d*scale's sign).
template <UnpackFunction* kUnpack, std::size_t kValues, std::size_t kBytes, BlockForm kForm>
void DecodeInteger(const std::byte* source, float* values, std::size_t k) {
  IntegerBlock block;
  for (std::size_t start = 0; start < k; start += kValues, source += kBytes) {
    kUnpack(source, &block);
    for (std::size_t i = 0; i < kValues; ++i) {
      const std::size_t part = i / kSumValues;
      const auto code = static_cast<float>(block.codes[i]);
      if constexpr (kForm == BlockForm::kPairScales) {
        values[start + i] = block.pair_scales[part] * code;
      } else if constexpr (kForm == BlockForm::kScaleMin) {
        const float scale = block.d * static_cast<float>(block.scales[part]);
        const auto min = static_cast<float>(block.mins[part]);
        values[start + i] = std::fma(scale, code, min * block.m);
      } else {
        values[start + i] = block.d * static_cast<float>(block.scales[part]) * code;
      }
    }
  }
}

using DecodeFunction = void(const std::byte* source, float* values, std::size_t k);

constexpr FormatTraits Float(const char* name, int type, std::size_t bytes, DecodeFunction* decode,
                             QuantiseFunction* quantise) {
  return {name, type, 1, bytes, 0, BlockForm::kScale, decode, nullptr, quantise};
}

// Activation groups by N2: 256 for blocks of 256, 32 for those of 32 and 64.
template <UnpackFunction* kUnpack, std::size_t kValues, std::size_t kBytes,
          BlockForm kForm = BlockForm::kScale>
constexpr FormatTraits Integer(const char* name, int type, QuantiseFunction* quantise = nullptr) {
  return {name,
          type,
          kValues,
          kBytes,
          kValues == 256 ? 256 : 32,
          kForm,
          DecodeInteger<kUnpack, kValues, kBytes, kForm>,
          kUnpack,
          quantise};
}

constexpr BlockForm kMins = BlockForm::kScaleMin;

constexpr std::array kFormats = {
    Float("F32", 0, 4, DecodeF32, QuantiseF32),
    Float("F16", 1, 2, DecodeF16, QuantiseF16),
    Integer<UnpackQ4_0, 32, 18>("Q4_0", 2, QuantiseQ4_0),
    Integer<UnpackQ4_1, 32, 20, kMins>("Q4_1", 3, QuantiseQ4_1),
    Integer<UnpackQ5_0, 32, 22>("Q5_0", 6, QuantiseQ5_0),
    Integer<UnpackQ5_1, 32, 24, kMins>("Q5_1", 7, QuantiseQ5_1),
    Integer<UnpackQ8_0, 32, 34>("Q8_0", 8, QuantiseQ8_0),
    Integer<UnpackQ2K, 256, 84, kMins>("Q2_K", 10),
    Integer<UnpackQ3K, 256, 110>("Q3_K", 11),
    Integer<UnpackQ4K, 256, 144, kMins>("Q4_K", 12, QuantiseQ4K),
    Integer<UnpackQ5K, 256, 176, kMins>("Q5_K", 13, QuantiseQ5K),
    Integer<UnpackQ6K, 256, 210>("Q6_K", 14, QuantiseQ6K),
    Integer<UnpackIq2Xxs, 256, 66>("IQ2_XXS", 16),
    Integer<UnpackIq2Xs, 256, 74>("IQ2_XS", 17),
    Integer<UnpackIq3Xxs, 256, 98>("IQ3_XXS", 18),
    Integer<UnpackIq1S, 256, 50>("IQ1_S", 19),
    Integer<UnpackIq4Nl, 32, 18>("IQ4_NL", 20, QuantiseIq4Nl),
    Integer<UnpackIq3S, 256, 110>("IQ3_S", 21),
    Integer<UnpackIq2S, 256, 82>("IQ2_S", 22),
    Integer<UnpackIq4Xs, 256, 136>("IQ4_XS", 23),
    Integer<UnpackIq1M, 256, 56>("IQ1_M", 29),
    Float("BF16", 30, 2, DecodeBf16, QuantiseBf16),
    Integer<UnpackTq1, 256, 54>("TQ1_0", 34),
    Integer<UnpackTq2, 256, 66>("TQ2_0", 35),
    Integer<UnpackMxfp4, 32, 17>("MXFP4", 39, QuantiseMxfp4),
    Integer<UnpackNvfp4, 64, 36, BlockForm::kPairScales>("NVFP4", 40),
};

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
