// The inner loops of attention with AVX-512: sixteen lanes a register, thirty-two registers. Only
// leaf functions live here, so that no code with these instructions is shared with another file.
#include <immintrin.h>

#include <cstddef>

#include "kernels-common/attention/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::avx512vnni {

namespace {

// Steps 8, 4, 2 and 1 of N8's tree for eight keys at once; sums[i] holds lanes 0-15 of key i.
__m256 Reduce8(const __m512* sums) {
  __m512 eight[4];  // [key i | key i + 4], eight lanes each
  for (int i = 0; i < 4; ++i) {
    eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(sums[i], sums[i + 4], 0x44),
                             _mm512_shuffle_f32x4(sums[i], sums[i + 4], 0xEE));
  }
  __m512 four[2];  // keys 0 4 2 6 and 1 5 3 7, four lanes each
  for (int i = 0; i < 2; ++i) {
    four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(eight[i], eight[i + 2], 0x88),
                            _mm512_shuffle_f32x4(eight[i], eight[i + 2], 0xDD));
  }
  // Keys 0 1, 4 5, 2 3, 6 7, two lanes each.
  const __m512 two = _mm512_add_ps(_mm512_shuffle_ps(four[0], four[1], 0x44),
                                   _mm512_shuffle_ps(four[0], four[1], 0xEE));
  const __m512 one = _mm512_add_ps(two, _mm512_movehdup_ps(two));
  const __m512i order = _mm512_setr_epi32(0, 2, 8, 10, 4, 6, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_castps512_ps256(_mm512_permutexvar_ps(order, one));
}

}  // namespace

void Dots8(const float* q, const float* const* keys, std::size_t dim, float scale, float* scores) {
  __m512 low[8];   // lanes 0-15 of each key's dot
  __m512 high[8];  // lanes 16-31
  for (int i = 0; i < 8; ++i) {
    low[i] = _mm512_setzero_ps();
    high[i] = _mm512_setzero_ps();
  }
  for (std::size_t k = 0; k < dim; k += 32) {
    const __m512 q_low = _mm512_loadu_ps(q + k);
    const __m512 q_high = _mm512_loadu_ps(q + k + 16);
    for (int i = 0; i < 8; ++i) {
      low[i] = _mm512_fmadd_ps(q_low, _mm512_loadu_ps(keys[i] + k), low[i]);
      high[i] = _mm512_fmadd_ps(q_high, _mm512_loadu_ps(keys[i] + k + 16), high[i]);
    }
  }
  for (int i = 0; i < 8; ++i) {
    low[i] = _mm512_add_ps(low[i], high[i]);  // step 16
  }
  _mm256_storeu_ps(scores, _mm256_mul_ps(Reduce8(low), _mm256_set1_ps(scale)));
}

void WeighPair(const float* p0, const float* p1, const float* values, std::size_t stride,
               std::size_t count, float* o0, float* o1) {
  __m512 first[4];
  __m512 second[4];
  for (int i = 0; i < 4; ++i) {
    first[i] = _mm512_setzero_ps();
    second[i] = _mm512_setzero_ps();
  }
  for (std::size_t j = 0; j < count; ++j) {
    const __m512 weight0 = _mm512_set1_ps(p0[j]);
    const __m512 weight1 = _mm512_set1_ps(p1[j]);
    for (int i = 0; i < 4; ++i) {
      const __m512 value = _mm512_loadu_ps(values + j * stride + 16 * i);
      first[i] = _mm512_fmadd_ps(weight0, value, first[i]);
      second[i] = _mm512_fmadd_ps(weight1, value, second[i]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    _mm512_storeu_ps(o0 + 16 * i, first[i]);
    _mm512_storeu_ps(o1 + 16 * i, second[i]);
  }
}

}  // namespace bloomery::kernels::cpu::avx512vnni
