// Sixteen f32 lanes with AVX-512: those operations of lanes_scalar.h, whose comments hold here too,
// that float linears, attention and SwiGLU take. Include from files built for AVX-512 only.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels-common/cpu/transpose_avx512.h"

namespace bloomery::kernels::cpu {
namespace {

struct Avx512Lanes {
  using F = __m512;
  static constexpr std::size_t kLanes = 16;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set1(float x) { return _mm512_set1_ps(x); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static F LoadFirst(const float* p, std::size_t n) { return _mm512_maskz_loadu_ps(Mask(n), p); }
  static void StoreFirst(float* p, F a, std::size_t n) { _mm512_mask_storeu_ps(p, Mask(n), a); }

  static F LoadBytes(const std::byte* p) { return _mm512_loadu_ps(p); }
  static F LoadHalf(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F SetHalf(const std::byte* p) {
    std::int16_t half = 0;
    std::memcpy(&half, p, sizeof(half));
    return _mm512_cvtph_ps(_mm256_set1_epi16(half));
  }
  static F LoadBf16(const std::byte* p) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  }
  static F LoadInt8(const std::byte* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F Rint(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT); }
  static F Negate(F a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0F)); }
  static F PowerOfTwo(F n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
  }
  static F KeepNan(F x, F y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), y, x);
  }
  static F First(std::size_t n, F changed, F kept) {
    return _mm512_mask_mov_ps(kept, Mask(n), changed);
  }

  // Step 8 of the tree, then as eight lanes.
  static float Reduce(F a) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float MaxOf(F a) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  static void Transpose(F* rows) { TransposeWords(reinterpret_cast<__m512i*>(rows)); }

 private:
  static __mmask16 Mask(std::size_t n) { return static_cast<__mmask16>((1U << n) - 1U); }
};

}  // namespace
}  // namespace bloomery::kernels::cpu
