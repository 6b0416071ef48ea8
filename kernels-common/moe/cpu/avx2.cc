#include <immintrin.h>

#include "kernels-common/cpu/lanes_avx2.h"
#include "kernels-common/moe/cpu/impl.h"
#include "kernels-common/moe/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::avx2 {
namespace {

// Two vectors of four int64 sums.
struct Sums {
  __m256i low;
  __m256i high;
};

__m256i Widen(__m256i words, int half) {
  return _mm256_cvtepi32_epi64(half == 0 ? _mm256_castsi256_si128(words)
                                         : _mm256_extracti128_si256(words, 1));
}

// sums += rint(v * 2^32) for |v| < 2^26. AVX2 has no f32 -> int64, so the value is cut exactly in a
// multiple of 2^28 and a rest below it; the rest alone is rounded, and 2^28 keeps the parity of
// ties.
void AddFixedPoint(__m256 v, Sums* sums) {
  const __m256 scaled = _mm256_mul_ps(v, _mm256_set1_ps(0x1p32F));
  const __m256 top = _mm256_round_ps(_mm256_mul_ps(scaled, _mm256_set1_ps(0x1p-28F)),
                                     _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __m256 rest = _mm256_sub_ps(scaled, _mm256_mul_ps(top, _mm256_set1_ps(0x1p28F)));
  const __m256i top_words = _mm256_cvtps_epi32(top);
  const __m256i rest_words = _mm256_cvtps_epi32(rest);
  sums->low = _mm256_add_epi64(
      sums->low,
      _mm256_add_epi64(_mm256_slli_epi64(Widen(top_words, 0), 28), Widen(rest_words, 0)));
  sums->high = _mm256_add_epi64(
      sums->high,
      _mm256_add_epi64(_mm256_slli_epi64(Widen(top_words, 1), 28), Widen(rest_words, 1)));
}

// f32(sum) * 2^-32 of eight sums, each rounded once.
__m256 ToFloat(const Sums& sums) {
  alignas(32) std::int64_t whole[8];
  alignas(32) float rounded[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(whole), sums.low);
  _mm256_store_si256(reinterpret_cast<__m256i*>(whole + 4), sums.high);
  for (int i = 0; i < 8; ++i) {
    rounded[i] = static_cast<float>(whole[i]);
  }
  return _mm256_mul_ps(_mm256_load_ps(rounded), _mm256_set1_ps(0x1p-32F));
}

}  // namespace

bool Softmax(const float* logits, std::size_t experts, float* p) {
  return SoftmaxRow<Avx2Lanes>(logits, experts, p);
}

bool Sigmoid(const float* logits, std::size_t experts, float* p) {
  return SigmoidRow<Avx2Lanes>(logits, experts, p);
}

bool PickSumRow(const PickSumArgs& args, std::size_t row, std::size_t column_begin,
                std::size_t column_end) {
  const __m256 limit = _mm256_set1_ps(kPickLimit);
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  __m256 valid = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  std::size_t i = column_begin;
  for (; i + 8 <= column_end; i += 8) {
    Sums sums = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (std::size_t pick = 0; pick < args.top_k; ++pick) {
      const std::size_t pair = row * args.top_k + pick;
      if (args.pair_places[pair] < 0) continue;
      const float* y = args.y + static_cast<std::size_t>(args.pair_places[pair]) * args.y_stride;
      const __m256 v = _mm256_mul_ps(_mm256_set1_ps(args.weights[pair]), _mm256_loadu_ps(y + i));
      valid = _mm256_and_ps(valid, _mm256_cmp_ps(_mm256_and_ps(v, magnitude), limit, _CMP_LT_OQ));
      AddFixedPoint(v, &sums);
    }
    if (args.sums != nullptr) {
      std::int64_t* to = args.sums + row * args.dim + i;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), sums.low);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 4), sums.high);
      continue;
    }
    __m256 out = ToFloat(sums);
    if (args.residual != nullptr) {
      out = _mm256_add_ps(_mm256_loadu_ps(args.residual + row * args.residual_stride + i), out);
    }
    _mm256_storeu_ps(args.out + row * args.out_stride + i, out);
  }
  const bool tail = PickSumColumns(args, row, i, column_end);
  return _mm256_movemask_ps(valid) == 0xFF && tail;
}

}  // namespace bloomery::kernels::cpu::avx2
