// Sixteen vectors of sixteen 32-bit words to their columns. Include from files built for AVX-512
// only.
#pragma once

#include <immintrin.h>

#include <cstddef>

namespace bloomery::kernels::cpu {
namespace {

// rows[i] becomes word i of every row.
inline void TransposeWords(__m512i* rows) {
  __m512i b[16];
  for (std::size_t i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  // a[4g + c]: in each 128 bits, word 4l + c of rows 4g..4g+3.
  __m512i a[16];
  for (std::size_t g = 0; g < 16; g += 4) {
    a[g] = _mm512_unpacklo_epi64(b[g], b[g + 2]);
    a[g + 1] = _mm512_unpackhi_epi64(b[g], b[g + 2]);
    a[g + 2] = _mm512_unpacklo_epi64(b[g + 1], b[g + 3]);
    a[g + 3] = _mm512_unpackhi_epi64(b[g + 1], b[g + 3]);
  }
  for (std::size_t c = 0; c < 4; ++c) {
    const __m512i low_01 = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x44);
    const __m512i high_01 = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xEE);
    const __m512i low_23 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x44);
    const __m512i high_23 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xEE);
    rows[c] = _mm512_shuffle_i32x4(low_01, low_23, 0x88);
    rows[4 + c] = _mm512_shuffle_i32x4(low_01, low_23, 0xDD);
    rows[8 + c] = _mm512_shuffle_i32x4(high_01, high_23, 0x88);
    rows[12 + c] = _mm512_shuffle_i32x4(high_01, high_23, 0xDD);
  }
}

}  // namespace
}  // namespace bloomery::kernels::cpu
