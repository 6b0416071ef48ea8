// Sixteen f32 lanes with AVX-512: those operations of lanes_scalar.h, whose comments hold here too,
// that float linears take. Include from files built for AVX-512 only.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace bloomery::kernels::cpu {
namespace {

struct Avx512Lanes {
  using F = __m512;
  static constexpr std::size_t kLanes = 16;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static F LoadFirst(const float* p, std::size_t n) { return _mm512_maskz_loadu_ps(Mask(n), p); }

  static F LoadBytes(const std::byte* p) { return _mm512_loadu_ps(p); }
  static F LoadHalf(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F LoadBf16(const std::byte* p) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
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

 private:
  static __mmask16 Mask(std::size_t n) { return static_cast<__mmask16>((1U << n) - 1U); }
};

}  // namespace
}  // namespace bloomery::kernels::cpu
