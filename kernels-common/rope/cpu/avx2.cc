#include <immintrin.h>

#include "kernels-common/cpu/lanes_avx2.h"
#include "kernels-common/rope/cpu/impl.h"
#include "kernels-common/rope/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::avx2 {
namespace {

// The sign bit of lane i where bit 1 of quadrant i is set.
__m256d SignOf(__m128i quadrant) {
  const __m128i two = _mm_and_si128(quadrant, _mm_set1_epi32(2));
  return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_cvtepi32_epi64(two), 62));
}

// ExactSinCos of four angles, the same steps.
void SinCos4(__m256d angle, __m128* sine, __m128* cosine) {
  using C = TrigConstants;
  const __m256d n = _mm256_round_pd(_mm256_mul_pd(angle, _mm256_set1_pd(C::kTwoOverPi)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256d r = _mm256_fnmadd_pd(n, _mm256_set1_pd(C::kHalfPiHigh), angle);
  r = _mm256_fnmadd_pd(n, _mm256_set1_pd(C::kHalfPiLow), r);
  const __m256d r2 = _mm256_mul_pd(r, r);
  __m256d s = _mm256_set1_pd(C::kSin[0]);
  __m256d c = _mm256_set1_pd(C::kCos[0]);
  for (int i = 1; i < 8; ++i) {
    s = _mm256_fmadd_pd(s, r2, _mm256_set1_pd(C::kSin[i]));
    c = _mm256_fmadd_pd(c, r2, _mm256_set1_pd(C::kCos[i]));
  }
  s = _mm256_fmadd_pd(_mm256_mul_pd(r, r2), s, r);
  c = _mm256_fmadd_pd(r2, c, _mm256_set1_pd(1.0));
  const __m128i quadrant = _mm256_cvtpd_epi32(n);
  const __m256d odd = _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_cvtepi32_epi64(quadrant), 63));
  const __m256d sine_lanes = _mm256_xor_pd(_mm256_blendv_pd(s, c, odd), SignOf(quadrant));
  const __m256d cosine_lanes = _mm256_xor_pd(_mm256_blendv_pd(c, s, odd),
                                             SignOf(_mm_add_epi32(quadrant, _mm_set1_epi32(1))));
  *sine = _mm256_cvtpd_ps(sine_lanes);
  *cosine = _mm256_cvtpd_ps(cosine_lanes);
}

void FillTurns4(const RopeArgs& args, double position, RopeTurns* turns) {
  const std::size_t half = args.n_rot / 2;
  const __m128 magnitude = _mm_set1_ps(args.magnitude);
  std::size_t i = 0;
  for (; i + 4 <= half; i += 4) {
    __m128 sine;
    __m128 cosine;
    SinCos4(_mm256_mul_pd(_mm256_set1_pd(position), _mm256_loadu_pd(args.frequencies + i)), &sine,
            &cosine);
    _mm_storeu_ps(turns->cos + i, _mm_mul_ps(cosine, magnitude));
    _mm_storeu_ps(turns->sin + i, _mm_mul_ps(sine, magnitude));
  }
  FillTurns(args, position, i, half, turns);
}

}  // namespace

void Rope(const RopeArgs& args, std::size_t row_begin, std::size_t row_end) {
  RopeRows<Avx2Lanes>(args, row_begin, row_end, FillTurns4);
}

}  // namespace bloomery::kernels::cpu::avx2
