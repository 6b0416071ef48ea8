// The kernels of a window with AVX-512: sixteen lanes a register, thirty-two registers. The lane
// type is local to this file, and so is every function made from it.
#include <immintrin.h>

#include <cstddef>

#include "kernels-common/attention/cpu/isa_entries.h"
#include "kernels-common/attention/cpu/window_impl.h"

namespace bloomery::kernels::cpu::avx512vnni {
namespace {

// The operations of cpu/lanes_avx2.h, whose comments hold here too, on sixteen lanes.
struct Lanes {
  using F = __m512;
  static constexpr std::size_t kLanes = 16;
  // Scores: 8 sums of the lane that is being added, 8 that wait for their partner. Values: 16 sums.
  static constexpr std::size_t kScoreQueries = 4;
  static constexpr std::size_t kValueQueries = 8;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set1(float x) { return _mm512_set1_ps(x); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static F LoadBytes(const std::byte* p) { return _mm512_loadu_ps(p); }
  static F LoadHalf(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F SetHalf(const std::byte* p) {
    short half = 0;  // NOLINT(google-runtime-int): what the intrinsic takes
    __builtin_memcpy(&half, p, sizeof(half));
    return _mm512_cvtph_ps(_mm256_set1_epi16(half));
  }
  static F LoadInt8(const std::byte* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F Rint(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT); }
  static F PowerOfTwo(F n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
  }
  static F KeepNan(F x, F y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), y, x);
  }
  static F First(std::size_t n, F changed, F kept) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>((1U << n) - 1U), kept, changed);
  }
  static float Reduce(F a) {  // the tree 8, 4, 2, 1
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

  static void Transpose(F* rows) {
    F pairs[kLanes];  // of rows 4g..4g+3: columns c, c + 4, c + 8, c + 12 at [4g + c]
    for (std::size_t g = 0; g < kLanes; g += 4) {
      const F low01 = _mm512_unpacklo_ps(rows[g], rows[g + 1]);
      const F high01 = _mm512_unpackhi_ps(rows[g], rows[g + 1]);
      const F low23 = _mm512_unpacklo_ps(rows[g + 2], rows[g + 3]);
      const F high23 = _mm512_unpackhi_ps(rows[g + 2], rows[g + 3]);
      pairs[g] = _mm512_shuffle_ps(low01, low23, 0x44);
      pairs[g + 1] = _mm512_shuffle_ps(low01, low23, 0xEE);
      pairs[g + 2] = _mm512_shuffle_ps(high01, high23, 0x44);
      pairs[g + 3] = _mm512_shuffle_ps(high01, high23, 0xEE);
    }
    for (std::size_t c = 0; c < 4; ++c) {
      const F even_low = _mm512_shuffle_f32x4(pairs[c], pairs[4 + c], 0x88);
      const F odd_low = _mm512_shuffle_f32x4(pairs[c], pairs[4 + c], 0xDD);
      const F even_high = _mm512_shuffle_f32x4(pairs[8 + c], pairs[12 + c], 0x88);
      const F odd_high = _mm512_shuffle_f32x4(pairs[8 + c], pairs[12 + c], 0xDD);
      rows[c] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
      rows[4 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
      rows[8 + c] = _mm512_shuffle_f32x4(even_low, even_high, 0xDD);
      rows[12 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xDD);
    }
  }
};

}  // namespace

const WindowKernels& Window() { return kWindowKernels<Lanes>; }

}  // namespace bloomery::kernels::cpu::avx512vnni
