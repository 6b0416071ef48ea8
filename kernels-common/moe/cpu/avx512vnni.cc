#include <immintrin.h>

#include "kernels-common/moe/cpu/impl.h"
#include "kernels-common/moe/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::avx512vnni {
namespace {

__m256 Half(__m512 v, int half) {
  return half == 0 ? _mm512_castps512_ps256(v) : _mm512_extractf32x8_ps(v, 1);
}

}  // namespace

// As avx2.cc, with the conversions between f32 and int64 that AVX2 lacks: both round once, to even.
bool PickSumRow(const PickSumArgs& args, std::size_t row, std::size_t column_begin,
                std::size_t column_end) {
  const __m512 limit = _mm512_set1_ps(kPickLimit);
  __mmask16 valid = 0xFFFF;
  std::size_t i = column_begin;
  for (; i + 16 <= column_end; i += 16) {
    __m512i sums[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (std::size_t pick = 0; pick < args.top_k; ++pick) {
      const std::size_t pair = row * args.top_k + pick;
      if (args.pair_places[pair] < 0) continue;
      const float* y = args.y + static_cast<std::size_t>(args.pair_places[pair]) * args.y_stride;
      const __m512 v = _mm512_mul_ps(_mm512_set1_ps(args.weights[pair]), _mm512_loadu_ps(y + i));
      valid = _mm512_mask_cmp_ps_mask(valid, _mm512_abs_ps(v), limit, _CMP_LT_OQ);
      const __m512 scaled = _mm512_mul_ps(v, _mm512_set1_ps(0x1p32F));
      for (int half = 0; half < 2; ++half) {
        sums[half] = _mm512_add_epi64(sums[half], _mm512_cvtps_epi64(Half(scaled, half)));
      }
    }
    if (args.sums != nullptr) {
      std::int64_t* to = args.sums + row * args.dim + i;
      _mm512_storeu_si512(to, sums[0]);
      _mm512_storeu_si512(to + 8, sums[1]);
      continue;
    }
    __m512 out = _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtepi64_ps(sums[0])),
                                    _mm512_cvtepi64_ps(sums[1]), 1);
    out = _mm512_mul_ps(out, _mm512_set1_ps(0x1p-32F));
    if (args.residual != nullptr) {
      out = _mm512_add_ps(_mm512_loadu_ps(args.residual + row * args.residual_stride + i), out);
    }
    _mm512_storeu_ps(args.out + row * args.out_stride + i, out);
  }
  const bool tail = PickSumColumns(args, row, i, column_end);
  return valid == 0xFFFF && tail;
}

}  // namespace bloomery::kernels::cpu::avx512vnni
