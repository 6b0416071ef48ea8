// What the kernels whose lanes are weight rows share: the transpose that puts four consecutive
// codes of each of sixteen rows in one vector, and N5's end on such lanes. Internal; include from
// files built for AVX-512 VNNI only (unnamed namespace: see unpack_avx2.h).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels-common/cpu/transpose_avx512.h"
#include "kernels-common/linear/cpu/isa_entries.h"
#include "kernels-common/linear/cpu/unpack_avx2.h"

namespace bloomery::kernels::cpu {
namespace {

constexpr std::size_t kLanes = 16;  // weight rows of a vector

// What sixteen rows of a format of 256 have beside the codes of a step. scales[s]: of sub-block s
// of 16 (of even s only, where they are of 32); side[p]: what goes with the sums of sub-blocks 2p
// and 2p+1.
struct alignas(64) KHead {
  std::int32_t scales[16][kLanes];
  std::int16_t side[8][2 * kLanes];
  float d[kLanes];
  float m[kLanes];
};

__m512i Load512(const void* p) { return _mm512_load_si512(p); }

// Where the same bytes of sixteen rows lie. Pointers to each would not fit into registers.
struct LaneBytes {
  const std::byte* first;
  std::size_t stride;  // bytes from one row to the next

  const std::byte* row(std::size_t r) const { return first + r * stride; }
};

// Sixteen bytes of rows r, r + 4, r + 8 and r + 12.
inline __m512i FourRows(const LaneBytes& rows, std::size_t r) {
  __m512i four = _mm512_castsi128_si512(LoadInt128(rows.row(r)));
  four = _mm512_inserti32x4(four, LoadInt128(rows.row(r + 4)), 1);
  four = _mm512_inserti32x4(four, LoadInt128(rows.row(r + 8)), 2);
  return _mm512_inserti32x4(four, LoadInt128(rows.row(r + 12)), 3);
}

// out[i] = word i of r[0 .. 3] in each quarter.
inline void TransposeQuarters(const __m512i* r, __m512i* out) {
  const __m512i low_01 = _mm512_unpacklo_epi32(r[0], r[1]);
  const __m512i low_23 = _mm512_unpacklo_epi32(r[2], r[3]);
  const __m512i high_01 = _mm512_unpackhi_epi32(r[0], r[1]);
  const __m512i high_23 = _mm512_unpackhi_epi32(r[2], r[3]);
  out[0] = _mm512_unpacklo_epi64(low_01, low_23);
  out[1] = _mm512_unpackhi_epi64(low_01, low_23);
  out[2] = _mm512_unpacklo_epi64(high_01, high_23);
  out[3] = _mm512_unpackhi_epi64(high_01, high_23);
}

// out[i] = word i of the sixteen bytes of every row, i < 4. Rows r, r + 4, … share a vector, and
// the transpose inside its quarters puts them in order: words are never moved between quarters.
// Inlined always: else the vectors go through memory.
[[gnu::always_inline]] inline void TransposeFour(const LaneBytes& rows, __m512i* out) {
  __m512i r[4];
  for (std::size_t i = 0; i < 4; ++i) {
    r[i] = FourRows(rows, i);
  }
  TransposeQuarters(r, out);
}

// The same of 32 bytes, i < 8: two rows share a vector, which takes fewer instructions a word but
// more of the one unit that moves words between lanes.
[[gnu::always_inline]] inline void TransposeEight(const LaneBytes& rows, __m512i* out) {
  __m512i half[2][4];  // rows 8h .. 8h + 7: word c in the even quarters, word 4 + c in the odd ones
  for (std::size_t h = 0; h < 2; ++h) {
    __m512i r[4];
    for (std::size_t i = 0; i < 4; ++i) {
      r[i] = _mm512_inserti64x4(_mm512_castsi256_si512(LoadInt(rows.row(8 * h + i))),
                                LoadInt(rows.row(8 * h + i + 4)), 1);
    }
    TransposeQuarters(r, half[h]);
  }
  for (std::size_t c = 0; c < 4; ++c) {
    out[c] = _mm512_shuffle_i32x4(half[0][c], half[1][c], 0x88);
    out[4 + c] = _mm512_shuffle_i32x4(half[0][c], half[1][c], 0xDD);
  }
}
// The same of the 64 bytes that row(i) points to, i < 16.
template <class Row>
void TransposeSixteen(const Row& row, __m512i* out) {
  for (std::size_t i = 0; i < 16; ++i) {
    out[i] = _mm512_loadu_si512(row(i));
  }
  TransposeWords(out);
}

// Sixteen rows of kBytes, a multiple of 64: emit(i, word i of every row).
template <std::size_t kBytes, class Emit>
void TransposeRows(const std::byte (*rows)[kBytes], const Emit& emit) {
  for (std::size_t at = 0; at < kBytes; at += 64) {
    __m512i words[16];
    TransposeSixteen([rows, at](std::size_t i) { return rows[i] + at; }, words);
    for (std::size_t i = 0; i < 16; ++i) {
      emit(at / 4 + i, words[i]);
    }
  }
}

// A hint, which may point past the end of the weights.
void PrefetchToL2(const std::byte* at, std::size_t bytes) {
  for (std::size_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + line), _MM_HINT_T1);
  }
}

// N5's end for sixteen weight rows from n on, the first `live` of them.
class LaneEnd {
 public:
  LaneEnd(const LinearArgs& args, std::size_t n, std::size_t live)
      : mask_(static_cast<__mmask16>((1U << live) - 1U)),
        scale_(args.scale),
        bias_(args.bias == nullptr ? nullptr : args.bias + n) {}

  void Store(float* out, __m512 y) const {
    if (scale_ != nullptr) {
      y = _mm512_mul_ps(y, _mm512_set1_ps(*scale_));
    }
    if (bias_ != nullptr) {
      y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask_, bias_));
    }
    _mm512_mask_storeu_ps(out, mask_, y);
  }

 private:
  __mmask16 mask_;
  const float* scale_;
  const float* bias_;
};

}  // namespace
}  // namespace bloomery::kernels::cpu
