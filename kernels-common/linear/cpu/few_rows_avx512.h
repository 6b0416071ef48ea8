// One to four activation rows with AVX-512 VNNI, straight from the file's bytes: eight weight rows
// at a time, lanes along k, eight rows reduced together by one transpose. Internal; include from
// avx512vnni.cc only.
//
// Formats of 256: 64 codes a vector; maddubs to pairs of int16, dpwssd with the sub-block scale of
// each pair to int32. Formats of 32: two blocks a vector; one dpbusd, and what unsigned codes add
// is taken out after the reduction. Both exact; N4 and N5 as in avx2.cc.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels-common/linear/cpu/column.h"
#include "kernels-common/linear/cpu/isa_entries.h"
#include "kernels-common/linear/cpu/unpack_avx2.h"
#include "kernels-common/linear/cpu/wide_rows_avx512.h"

namespace bloomery::kernels::cpu {
namespace {

constexpr std::size_t kFewTile = 8;  // weight rows of a tile

// [sum over the even half's words | odd …]: word j of each 128 bits = that of z[j] summed over
// them.
__m512i SumInQuarters(__m512i z0, __m512i z1, __m512i z2, __m512i z3) {
  const __m512i s01 =
      _mm512_add_epi32(_mm512_unpacklo_epi32(z0, z1), _mm512_unpackhi_epi32(z0, z1));
  const __m512i s23 =
      _mm512_add_epi32(_mm512_unpacklo_epi32(z2, z3), _mm512_unpackhi_epi32(z2, z3));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(s01, s23), _mm512_unpackhi_epi64(s01, s23));
}

// [quarter 0 + quarter 1 | quarter 2 + quarter 3]
__m256i SumOfQuarterPairs(__m512i sums) {
  return _mm256_add_epi32(_mm512_castsi512_si256(_mm512_shuffle_i32x4(sums, sums, 0x08)),
                          _mm512_castsi512_si256(_mm512_shuffle_i32x4(sums, sums, 0x0D)));
}

// Lane i = the sum of the sixteen words of z[i].
__m256i SumOfEach(const __m512i* z) {
  __m512i two[4];  // z[i] in the low half, z[i + 4] in the high one
  for (std::size_t i = 0; i < 4; ++i) {
    two[i] = _mm512_add_epi32(_mm512_shuffle_i64x2(z[i], z[i + 4], 0x44),
                              _mm512_shuffle_i64x2(z[i], z[i + 4], 0xEE));
  }
  return SumOfQuarterPairs(SumInQuarters(two[0], two[1], two[2], two[3]));
}

// Lane i = the sum of the eight words of z[i].
__m256i SumOfEach(const __m256i* z) {
  const __m512i sums =
      SumInQuarters(Halves(z[0], z[4]), Halves(z[1], z[5]), Halves(z[2], z[6]), Halves(z[3], z[7]));
  return SumOfQuarterPairs(sums);
}

// Lane i = the sum of words 0-7 of z[i], lane 8 + i that of words 8-15.
__m512i SumOfHalves(const __m512i* z) {
  const __m512i a = SumInQuarters(z[0], z[1], z[2], z[3]);
  const __m512i b = SumInQuarters(z[4], z[5], z[6], z[7]);
  const __m512i sums = _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88),   // 0 and 2 of a, of b
                                        _mm512_shuffle_i32x4(a, b, 0xDD));  // 1 and 3
  return _mm512_shuffle_i32x4(sums, sums, 0xD8);
}

// Lane i = the dot of eight words of `of` in row i with `with`.
__m256i DotOfEight(const __m128i* of, __m128i with) {
  const __m512i other = _mm512_broadcast_i32x4(with);
  __m512i products[2];
  for (std::size_t i = 0; i < 2; ++i) {
    __m512i four = _mm512_castsi128_si512(of[4 * i]);
    four = _mm512_inserti32x4(four, of[4 * i + 1], 1);
    four = _mm512_inserti32x4(four, of[4 * i + 2], 2);
    four = _mm512_inserti32x4(four, of[4 * i + 3], 3);
    products[i] = _mm512_madd_epi16(four, other);
  }
  const __m512i two = _mm512_add_epi32(_mm512_unpacklo_epi64(products[0], products[1]),
                                       _mm512_unpackhi_epi64(products[0], products[1]));
  const __m512i sums = _mm512_add_epi32(two, _mm512_shuffle_epi32(two, _MM_PERM_CDAB));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, sums));
}

// The bits of two halfs of each of eight blocks.
struct EightHalfs {
  alignas(32) std::uint32_t words[kFewTile];
  __m256 low() const { return _mm256_cvtph_ps(_mm256_cvtepi32_epi16(Words())); }
  __m256 high() const {
    return _mm256_cvtph_ps(_mm256_cvtepi32_epi16(_mm256_srli_epi32(Words(), 16)));
  }

 private:
  __m256i Words() const { return _mm256_load_si256(reinterpret_cast<const __m256i*>(words)); }
};

// ---- Formats of 256.

// The scaled products of a row's 256 codes and a column's, in sixteen words.
template <class Format>
__m512i WideProduct(const WideStep& row, const Column& column, std::size_t step) {
  constexpr WideForm kForm = WideRows<Format>::kForm;
  __m512i product = _mm512_setzero_si512();
  if constexpr (kForm == WideForm::kOffset) {  // what codes above their value add
    const __m256i sums = _mm256_madd_epi16(row.of_16, LoadInt(column.sums + 16 * step));
    product = _mm512_zextsi256_si512(_mm256_sub_epi32(
        _mm256_setzero_si256(), _mm256_slli_epi32(sums, WideRows<Format>::kOffsetBits)));
  }
  for (std::size_t j = 0; j < 4; ++j) {
    __m512i q = LoadWide(column.codes + kStepValues * step + 64 * j);
    if constexpr (kForm == WideForm::kSigns) {
      q = _mm512_mask_sub_epi8(q, row.negative[j], _mm512_setzero_si512(), q);
    }
    const __m512i pairs = _mm512_maddubs_epi16(row.codes[j], q);
    product = _mm512_dpwssd_epi32(product, pairs, row.scales[j]);
  }
  return product;
}

// The mins of eight rows.
template <WideForm kForm>
struct EightMins {
  __m128i of_32[kFewTile];
  __m256i of_16[kFewTile];

  void Set(std::size_t i, const WideStep& row) {
    if constexpr (kForm == WideForm::kMinsOf32) {
      of_32[i] = row.mins;
    } else {
      of_16[i] = row.of_16;
    }
  }
  // S of N3, in the lanes of the rows.
  __m256i Sums(__m256i sums) const {
    if constexpr (kForm == WideForm::kMinsOf32) {  // of 32 each: |sum of 32| <= 32 * 127
      const __m256i two = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
      return DotOfEight(of_32, _mm256_cvtepi32_epi16(two));
    } else {
      __m256i products[kFewTile];
      for (std::size_t i = 0; i < kFewTile; ++i) products[i] = _mm256_madd_epi16(of_16[i], sums);
      return SumOfEach(products);
    }
  }
};

// y[c] of eight weight rows and kColumns columns; lane i belongs to w[i].
template <class Format, std::size_t kColumns>
void WideDot8(const std::byte* const* w, std::size_t next_tile, const Column* columns,
              std::size_t k, __m256* y) {
  using Rows = WideRows<Format>;
  constexpr bool kMins = Format::kMins;
  for (std::size_t c = 0; c < kColumns; ++c) {
    y[c] = _mm256_setzero_ps();
  }
  for (std::size_t step = 0; step < k / kStepValues; ++step) {
    __m512i products[kColumns][kFewTile];
    EightMins<Rows::kForm> mins;
    EightHalfs halfs;
    for (std::size_t i = 0; i < kFewTile; ++i) {
      const std::byte* block = w[i] + step * Format::kBytes;
      for (std::size_t line = 0; line < Format::kBytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(block + next_tile + line), _MM_HINT_T0);
      }
      WideStep row;
      Rows::Unpack(block, &row);
      halfs.words[i] = Rows::Halfs(block);
      for (std::size_t c = 0; c < kColumns; ++c) {
        products[c][i] = WideProduct<Format>(row, columns[c], step);
      }
      if constexpr (kMins) mins.Set(i, row);
    }
    __m256 d = halfs.low();
    if constexpr (Rows::kForm == WideForm::kSigns) {  // by a power of two: exact
      d = _mm256_mul_ps(d, _mm256_set1_ps(1.0F / (1 << Rows::kDShift)));
    }
    for (std::size_t c = 0; c < kColumns; ++c) {
      const __m256 product = _mm256_cvtepi32_ps(SumOfEach(products[c]));
      __m256 u;
      if constexpr (kMins) {
        const __m256i sum = mins.Sums(LoadInt(columns[c].sums + 16 * step));
        const __m256 m = _mm256_xor_ps(halfs.high(), _mm256_set1_ps(-0.0F));
        u = _mm256_fmadd_ps(d, product, _mm256_mul_ps(m, _mm256_cvtepi32_ps(sum)));
      } else {
        u = _mm256_mul_ps(d, product);
      }
      const __m256 a = _mm256_set1_ps(columns[c].scales[step]);
      y[c] = _mm256_add_ps(y[c], _mm256_fmadd_ps(a, u, _mm256_setzero_ps()));
    }
  }
}

// ---- Formats of 32: codes of two blocks, unsigned, kOffset above their value.

// Sixteen bytes of each block to their low and high nibbles.
__m512i TwoNibbles(const std::byte* a, const std::byte* b) {
  const __m512i both =
      _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(LoadInt128(a)), 0xFF00, LoadInt128(b));
  const __m512i moved =
      _mm512_srlv_epi16(both, Quarters(0, 0x0004000400040004, 0, 0x0004000400040004));
  return _mm512_and_si512(moved, _mm512_set1_epi8(15));
}

// Adds 16 where a bit of the two words is set.
__m512i WithFifthBits(__m512i nibbles, const std::byte* a, const std::byte* b) {
  const std::uint64_t bits =
      LoadAs<std::uint32_t>(a) | (static_cast<std::uint64_t>(LoadAs<std::uint32_t>(b)) << 32U);
  return _mm512_mask_add_epi8(nibbles, bits, nibbles, _mm512_set1_epi8(16));
}

// Entries of a table of int8, 128 above their value.
__m512i LookupRaised(const std::array<std::int8_t, 16>& table, __m512i nibbles) {
  const __m512i raised = _mm512_xor_si512(_mm512_broadcast_i32x4(LoadInt128(table.data())),
                                          _mm512_set1_epi8(static_cast<char>(0x80)));
  return _mm512_shuffle_epi8(raised, nibbles);
}

template <class Format>
struct PairRows;

template <>
struct PairRows<FormatQ4_0> {
  static constexpr int kOffset = 8;
  static __m512i Codes(const std::byte* a, const std::byte* b) { return TwoNibbles(a + 2, b + 2); }
};
template <>
struct PairRows<FormatQ4_1> {
  static constexpr int kOffset = 0;
  static __m512i Codes(const std::byte* a, const std::byte* b) { return TwoNibbles(a + 4, b + 4); }
};
template <>
struct PairRows<FormatQ5_0> {
  static constexpr int kOffset = 16;
  static __m512i Codes(const std::byte* a, const std::byte* b) {
    return WithFifthBits(TwoNibbles(a + 6, b + 6), a + 2, b + 2);
  }
};
template <>
struct PairRows<FormatQ5_1> {
  static constexpr int kOffset = 0;
  static __m512i Codes(const std::byte* a, const std::byte* b) {
    return WithFifthBits(TwoNibbles(a + 8, b + 8), a + 4, b + 4);
  }
};
template <>
struct PairRows<FormatQ8_0> {
  static constexpr int kOffset = 128;
  static __m512i Codes(const std::byte* a, const std::byte* b) {
    return _mm512_xor_si512(Halves(LoadInt(a + 2), LoadInt(b + 2)),
                            _mm512_set1_epi8(static_cast<char>(0x80)));
  }
};
template <>
struct PairRows<FormatIq4Nl> {
  static constexpr int kOffset = 128;
  static __m512i Codes(const std::byte* a, const std::byte* b) {
    return LookupRaised(kIq4Values, TwoNibbles(a + 2, b + 2));
  }
};
template <>
struct PairRows<FormatMxfp4> {
  static constexpr int kOffset = 128;
  static __m512i Codes(const std::byte* a, const std::byte* b) {
    return LookupRaised(kFp4Values, TwoNibbles(a + 1, b + 1));
  }
};

// d and m of two blocks of eight rows, lanes as SumOfHalves has them.
template <class Format>
struct PairScales {
  static constexpr bool kMins = Format::kForm == BlockForm::kScaleMin;
  static constexpr bool kExponents = Format::kType == FormatMxfp4::kType;
  alignas(64) std::uint32_t words[2 * kFewTile];

  void Set(std::size_t i, const std::byte* a, const std::byte* b) {
    words[i] = Word(a);
    words[kFewTile + i] = Word(b);
  }
  __m512 d() const {
    const __m512i all = _mm512_load_si512(words);
    if constexpr (kExponents) {  // blocks_32.cc: 2^(e - 128), below e = 2 a denormal
      const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(all, _mm512_set1_epi32(1)), 23);
      const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), all);
      return _mm512_castsi512_ps(_mm512_mask_blend_epi32(
          _mm512_cmplt_epu32_mask(all, _mm512_set1_epi32(2)), normal, small));
    } else {
      return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(all));
    }
  }
  __m512 m() const {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_load_si512(words), 16)));
  }

 private:
  static std::uint32_t Word(const std::byte* p) {
    return kExponents ? ByteAt(p, 0) : kMins ? LoadAs<std::uint32_t>(p) : LoadAs<std::uint16_t>(p);
  }
};

// The sums of the codes of spans b and b + 1, or b alone, in the halves.
__m512i SpanSums(const Column& column, std::size_t b, bool second) {
  const auto sum = [&column](std::size_t span) {
    return column.sums[2 * span] + column.sums[2 * span + 1];
  };
  return Halves(_mm256_set1_epi32(sum(b)), _mm256_set1_epi32(second ? sum(b + 1) : 0));
}

// As WideDot8. Two spans at a time; a last one alone is taken twice and its copy forgotten.
template <class Format, std::size_t kColumns>
void PairDot8(const std::byte* const* w, std::size_t next_tile, const Column* columns,
              std::size_t k, __m256* y) {
  __m256 t[kColumns];
  for (std::size_t c = 0; c < kColumns; ++c) {
    y[c] = t[c] = _mm256_setzero_ps();
  }
  const std::size_t spans = k / 32;
  for (std::size_t b = 0; b < spans; b += 2) {
    const bool second = b + 1 < spans;
    __m512i products[kColumns][kFewTile];
    __m512i q[kColumns];
    PairScales<Format> scales;
    for (std::size_t c = 0; c < kColumns; ++c) {
      const std::int8_t* codes = columns[c].codes + 32 * b;
      q[c] = second ? LoadWide(codes) : BroadcastHalf(codes);
    }
    for (std::size_t i = 0; i < kFewTile; ++i) {
      const std::byte* first = w[i] + b * Format::kBytes;
      const std::byte* other = first + (second ? Format::kBytes : 0);
      _mm_prefetch(reinterpret_cast<const char*>(first + next_tile), _MM_HINT_T0);
      const __m512i row = PairRows<Format>::Codes(first, other);
      scales.Set(i, first, other);
      for (std::size_t c = 0; c < kColumns; ++c) {
        products[c][i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), row, q[c]);
      }
    }
    const __m512 d = scales.d();
    for (std::size_t c = 0; c < kColumns; ++c) {
      __m512i dots = SumOfHalves(products[c]);
      const __m512i sums = SpanSums(columns[c], b, second);
      if constexpr (PairRows<Format>::kOffset != 0) {
        dots = _mm512_sub_epi32(
            dots, _mm512_mullo_epi32(sums, _mm512_set1_epi32(PairRows<Format>::kOffset)));
      }
      __m512 u;
      if constexpr (PairScales<Format>::kMins) {
        u = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(dots),
                            _mm512_mul_ps(scales.m(), _mm512_cvtepi32_ps(sums)));
      } else {
        u = _mm512_mul_ps(d, _mm512_cvtepi32_ps(dots));
      }
      t[c] = _mm256_fmadd_ps(_mm256_set1_ps(columns[c].scales[b]), _mm512_castps512_ps256(u), t[c]);
      if (second) {
        t[c] = _mm256_fmadd_ps(_mm256_set1_ps(columns[c].scales[b + 1]),
                               _mm512_extractf32x8_ps(u, 1), t[c]);
      }
      if (b % 8 == 6 || b + 2 >= spans) {
        y[c] = _mm256_add_ps(y[c], t[c]);
        t[c] = _mm256_setzero_ps();
      }
    }
  }
}

// As PairDot8, for NVFP4: one block of four scales at a time, two to each span of 32.
template <class Format, std::size_t kColumns>
void FourScalesDot8(const std::byte* const* w, std::size_t next_tile, const Column* columns,
                    std::size_t k, __m256* y) {
  __m256 t[kColumns];
  for (std::size_t c = 0; c < kColumns; ++c) {
    y[c] = t[c] = _mm256_setzero_ps();
  }
  const __m512i table = _mm512_broadcast_i32x4(LoadInt128(kFp4Values.data()));
  const std::size_t blocks = k / 64;
  for (std::size_t b = 0; b < blocks; ++b) {
    __m512i products[kColumns][kFewTile];
    alignas(64) float scales[2][2 * kFewTile];  // of a span's first half, of its second
    for (std::size_t i = 0; i < kFewTile; ++i) {
      const std::byte* block = w[i] + b * Format::kBytes;
      _mm_prefetch(reinterpret_cast<const char*>(block + next_tile), _MM_HINT_T0);
      // Eight bytes a sub-block of 16: its first eight codes low, its others high.
      const __m512i twice = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3),
                                                     _mm512_castsi256_si512(LoadInt(block + 4)));
      const __m512i moved = _mm512_srlv_epi64(twice, _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4));
      const __m512i codes =
          _mm512_shuffle_epi8(table, _mm512_and_si512(moved, _mm512_set1_epi8(15)));
      const __m512i magnitudes = _mm512_abs_epi8(codes);
      const __mmask64 negative = _mm512_movepi8_mask(codes);
      for (std::size_t c = 0; c < kColumns; ++c) {
        const __m512i q = LoadWide(columns[c].codes + 64 * b);
        const __m512i turned = _mm512_mask_sub_epi8(q, negative, _mm512_setzero_si512(), q);
        products[c][i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), magnitudes, turned);
      }
      for (std::size_t s = 0; s < 4; ++s) {
        scales[s % 2][s / 2 * kFewTile + i] = kNvScales[ByteAt(block, s)];
      }
    }
    const __m512 first_scales = _mm512_load_ps(scales[0]);
    const __m512 second_scales = _mm512_load_ps(scales[1]);
    const __m512i order = _mm512_setr_epi64(0, 1, 4, 5, 2, 3, 6, 7);
    for (std::size_t c = 0; c < kColumns; ++c) {
      const __m512i* z = products[c];
      const __m512i low = SumInQuarters(z[0], z[1], z[2], z[3]);
      const __m512i high = SumInQuarters(z[4], z[5], z[6], z[7]);
      // Quarters 0 and 2 of both are the spans' first halves, 1 and 3 their second ones.
      const __m512i first = _mm512_permutexvar_epi64(order, _mm512_shuffle_i32x4(low, high, 0x88));
      const __m512i second = _mm512_permutexvar_epi64(order, _mm512_shuffle_i32x4(low, high, 0xDD));
      const __m512 u = _mm512_fmadd_ps(second_scales, _mm512_cvtepi32_ps(second),
                                       _mm512_mul_ps(first_scales, _mm512_cvtepi32_ps(first)));
      t[c] = _mm256_fmadd_ps(_mm256_set1_ps(columns[c].scales[2 * b]), _mm512_castps512_ps256(u),
                             t[c]);
      t[c] = _mm256_fmadd_ps(_mm256_set1_ps(columns[c].scales[2 * b + 1]),
                             _mm512_extractf32x8_ps(u, 1), t[c]);
      if (b % 4 == 3 || b + 1 == blocks) {
        y[c] = _mm256_add_ps(y[c], t[c]);
        t[c] = _mm256_setzero_ps();
      }
    }
  }
}

// ---- The walk.

using FewDot8 = void(const std::byte* const* w, std::size_t next_tile, const Column* columns,
                     std::size_t k, __m256* y);

template <std::size_t kColumns, FewDot8* kDot8>
void FewRowsWalk(const LinearArgs& args, std::size_t n_begin, std::size_t n_end) {
  Column columns[kColumns];
  for (std::size_t c = 0; c < kColumns; ++c) {
    columns[c] = ColumnOf(args, c);
  }
  const std::byte* w[kFewTile];
  for (std::size_t n = n_begin; n < n_end; n += kFewTile) {
    for (std::size_t i = 0; i < kFewTile; ++i) {  // past the end: the last row again
      w[i] = args.weight.data + std::min(n + i, n_end - 1) * args.weight.row_bytes;
    }
    __m256 y[kColumns];
    kDot8(w, kFewTile * args.weight.row_bytes, columns, args.weight.k, y);
    for (std::size_t c = 0; c < kColumns; ++c) {
      alignas(32) float lanes[kFewTile];
      _mm256_store_ps(lanes, y[c]);
      for (std::size_t i = 0; i < std::min(kFewTile, n_end - n); ++i) {
        StoreOutput(args, c, n + i, lanes[i]);
      }
    }
  }
}

using FewRowsFunction = void(const LinearArgs& args, std::size_t n_begin, std::size_t n_end);
// From five rows on the tiles of avx512vnni.cc are faster, for most formats (tests/bench).
constexpr std::size_t kFewRowsMax = 4;

struct FewRowsKernel {
  int ggml_type;
  FewRowsFunction* of_rows[kFewRowsMax];  // of one row, two, …
};

template <class Format, std::size_t... kLess>
constexpr FewRowsKernel WideKernel(std::index_sequence<kLess...> /*rows*/) {
  return {Format::kType, {FewRowsWalk<kLess + 1, WideDot8<Format, kLess + 1>>...}};
}
template <class Format, std::size_t... kLess>
constexpr FewRowsKernel PairKernel(std::index_sequence<kLess...> /*rows*/) {
  return {Format::kType, {FewRowsWalk<kLess + 1, PairDot8<Format, kLess + 1>>...}};
}
template <class Format, std::size_t... kLess>
constexpr FewRowsKernel FourScalesKernel(std::index_sequence<kLess...> /*rows*/) {
  return {Format::kType, {FewRowsWalk<kLess + 1, FourScalesDot8<Format, kLess + 1>>...}};
}
constexpr std::make_index_sequence<kFewRowsMax> kEachRowCount;

constexpr FewRowsKernel kFewRowsKernels[] = {
    WideKernel<FormatQ2K>(kEachRowCount),         WideKernel<FormatQ3K>(kEachRowCount),
    WideKernel<FormatQ4K>(kEachRowCount),         WideKernel<FormatQ5K>(kEachRowCount),
    WideKernel<FormatQ6K>(kEachRowCount),         WideKernel<FormatIq1S>(kEachRowCount),
    WideKernel<FormatIq1M>(kEachRowCount),        WideKernel<FormatIq2Xxs>(kEachRowCount),
    WideKernel<FormatIq2Xs>(kEachRowCount),       WideKernel<FormatIq2S>(kEachRowCount),
    WideKernel<FormatIq3Xxs>(kEachRowCount),      WideKernel<FormatIq3S>(kEachRowCount),
    WideKernel<FormatIq4Xs>(kEachRowCount),       PairKernel<FormatQ4_0>(kEachRowCount),
    PairKernel<FormatQ4_1>(kEachRowCount),        PairKernel<FormatQ5_0>(kEachRowCount),
    PairKernel<FormatQ5_1>(kEachRowCount),        PairKernel<FormatQ8_0>(kEachRowCount),
    PairKernel<FormatIq4Nl>(kEachRowCount),       PairKernel<FormatMxfp4>(kEachRowCount),
    FourScalesKernel<FormatNvfp4>(kEachRowCount),
};

}  // namespace
}  // namespace bloomery::kernels::cpu
