// Eight f32 lanes with AVX2, FMA and F16C; the operations of lanes_scalar.h, whose comments hold
// here too. Include from cpu/avx2.cc files only.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bloomery::kernels::cpu {

struct Avx2Lanes {
  using F = __m256;
  static constexpr std::size_t kLanes = 8;

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set1(float x) { return _mm256_set1_ps(x); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, F a) { _mm256_storeu_ps(p, a); }
  static F LoadFirst(const float* p, std::size_t n) { return _mm256_maskload_ps(p, Mask(n)); }
  static void StoreFirst(float* p, F a, std::size_t n) { _mm256_maskstore_ps(p, Mask(n), a); }

  static F LoadBytes(const std::byte* p) {
    return _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F LoadHalf(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F SetHalf(const std::byte* p) {
    std::int16_t half = 0;
    std::memcpy(&half, p, sizeof(half));
    return _mm256_cvtph_ps(_mm_set1_epi16(half));
  }
  static F LoadBf16(const std::byte* p) {
    const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
  }
  static F LoadInt8(const std::byte* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
  static void StoreHalf(std::byte* p, F a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }
  static F Rint(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F Negate(F a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0F)); }
  static F PowerOfTwo(F n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }
  static F KeepNan(F x, F y) { return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)); }
  static F First(std::size_t n, F changed, F kept) {
    return _mm256_blendv_ps(kept, changed, _mm256_castsi256_ps(Mask(n)));
  }

  static float Reduce(F a) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float MaxOf(F a) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  static void Transpose(F* rows) {
    F pairs[8];  // of rows 4g..4g+3: columns c and c + 4 at [4g + c]
    for (std::size_t g = 0; g < 8; g += 4) {
      const F low01 = _mm256_unpacklo_ps(rows[g], rows[g + 1]);
      const F high01 = _mm256_unpackhi_ps(rows[g], rows[g + 1]);
      const F low23 = _mm256_unpacklo_ps(rows[g + 2], rows[g + 3]);
      const F high23 = _mm256_unpackhi_ps(rows[g + 2], rows[g + 3]);
      pairs[g] = _mm256_shuffle_ps(low01, low23, 0x44);
      pairs[g + 1] = _mm256_shuffle_ps(low01, low23, 0xEE);
      pairs[g + 2] = _mm256_shuffle_ps(high01, high23, 0x44);
      pairs[g + 3] = _mm256_shuffle_ps(high01, high23, 0xEE);
    }
    for (std::size_t c = 0; c < 4; ++c) {
      rows[c] = _mm256_permute2f128_ps(pairs[c], pairs[4 + c], 0x20);
      rows[4 + c] = _mm256_permute2f128_ps(pairs[c], pairs[4 + c], 0x31);
    }
  }

  static __m256i Mask(std::size_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
  }
};

}  // namespace bloomery::kernels::cpu
