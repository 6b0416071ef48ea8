#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels-common/cpu/lanes_avx2.h"
#include "kernels-common/quant/cpu/isa_entries.h"
#include "kernels-common/quant/reference.h"

namespace bloomery::kernels::cpu::avx2 {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7F800000U;

// The largest magnitude of 16n values as bits: magnitudes order as integers, and NaN and infinity
// come last, so one integer maximum finds all three.
std::uint32_t MagnitudeBits(const float* x, std::size_t count) {
  const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i most = _mm256_setzero_si256();
  for (std::size_t i = 0; i < count; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    most = _mm256_max_epi32(most, _mm256_and_si256(bits, mask));
  }
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(four));
}

// Clamped before the conversion: a q8_0 scale may be capped, and int32 must not overflow.
__m256i CodesOf(const float* x, __m256 r) {
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), r);
  return _mm256_cvtps_epi32(
      _mm256_max_ps(_mm256_min_ps(scaled, _mm256_set1_ps(127.0F)), _mm256_set1_ps(-127.0F)));
}

// 16 values to 16 codes.
__m128i Codes16(const float* x, __m256 r) {
  const __m256i words = _mm256_packs_epi32(CodesOf(x, r), CodesOf(x + 8, r));
  const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);
  return _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
}

// The sum of 16 codes: absolute differences to -128 as bytes, less 16 times 128.
std::int16_t SumOf(__m128i codes) {
  const __m128i shifted = _mm_xor_si128(codes, _mm_set1_epi8(static_cast<char>(0x80)));
  const __m128i sums = _mm_sad_epu8(shifted, _mm_setzero_si128());
  return static_cast<std::int16_t>(_mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 2048);
}

void StoreCodes(std::int8_t* p, __m128i codes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), codes);
}

float QuantiseGroup(const float* x, std::size_t count, std::int8_t* codes, std::int16_t* sums) {
  const std::uint32_t bits = MagnitudeBits(x, count);
  const float most = std::bit_cast<float>(bits);
  if (bits >= kInfinityBits || most < 0x1p-100F) {
    std::fill_n(codes, count, std::int8_t{0});
    std::fill_n(sums, count / kSumValues, std::int16_t{0});
    return bits >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
  }
  const __m256 r = _mm256_set1_ps(127.0F / most);
  for (std::size_t i = 0; i < count; i += 16) {
    const __m128i code = Codes16(x + i, r);
    StoreCodes(codes + i, code);
    sums[i / kSumValues] = SumOf(code);
  }
  return most / 127.0F;
}

void EncodeQ8Block(const float* x, std::byte* block) {
  const std::uint32_t bits = MagnitudeBits(x, 32);
  std::uint16_t half = 0x7E00;
  std::memset(block + 2, 0, 32);
  if (bits < kInfinityBits) {
    half = FloatToHalf(std::min(std::bit_cast<float>(bits) / 127.0F, 65504.0F));
    const float d = HalfToFloat(half);
    if (d > 0.0F) {
      const __m256 r = _mm256_set1_ps(1.0F / d);
      auto* codes = reinterpret_cast<std::int8_t*>(block + 2);
      StoreCodes(codes, Codes16(x, r));
      StoreCodes(codes + 16, Codes16(x + 16, r));
    }
  }
  std::memcpy(block, &half, 2);
}

}  // namespace

void QuantiseRow(const float* x, const QuantisedRows& out, std::size_t row) {
  for (std::size_t start = 0; start < out.k; start += out.group) {
    out.scales(row)[start / out.group] =
        QuantiseGroup(x + start, std::min(out.group, out.k - start), out.codes(row) + start,
                      out.sums(row) + start / kSumValues);
  }
}

void EncodeKvRow(KvType type, const float* values, std::size_t width, std::byte* row) {
  std::size_t done = 0;
  if (type == KvType::kF16) {
    for (; done + 8 <= width; done += 8) {
      Avx2Lanes::StoreHalf(row + 2 * done, Avx2Lanes::Load(values + done));
    }
  } else if (type == KvType::kQ8_0) {
    for (; done < width; done += 32) {
      EncodeQ8Block(values + done, row + done / 32 * 34);
    }
    return;
  }
  reference::EncodeKvRow(type, values + done, width - done, row + 2 * done);
}

void DecodeKvRow(KvType type, const std::byte* row, std::size_t width, float* values) {
  std::size_t done = 0;
  if (type == KvType::kF16) {
    for (; done + 8 <= width; done += 8) {
      Avx2Lanes::Store(values + done, Avx2Lanes::LoadHalf(row + 2 * done));
    }
  } else if (type == KvType::kQ8_0) {
    for (; done < width; done += 8) {
      const std::byte* block = row + done / 32 * 34;
      std::uint16_t half = 0;
      std::memcpy(&half, block, 2);
      Avx2Lanes::Store(values + done, Avx2Lanes::Mul(Avx2Lanes::LoadInt8(block + 2 + done % 32),
                                                     Avx2Lanes::Set1(_cvtsh_ss(half))));
    }
    return;
  }
  reference::DecodeKvRow(type, row + 2 * done, width - done, values + done);
}

}  // namespace bloomery::kernels::cpu::avx2
