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

namespace bloomery::kernels::cpu {
namespace {

constexpr std::size_t kFewTile = 8;  // weight rows of a tile

// Sets out[l] in the 128 bits l of a vector.
__m512i Quarters(long long a, long long b, long long c, long long d) {
  return _mm512_setr_epi64(a, a, b, b, c, c, d, d);
}
__m512i Halves(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
__m512i BroadcastHalf(const void* p) { return _mm512_broadcast_i64x4(LoadInt(p)); }
__m512i LoadWide(const void* p) { return _mm512_loadu_si512(p); }

// [sum over the even half's words | odd …]: word j of each 128 bits = that of z[j] summed over
// them.
__m512i SumInQuarters(__m512i z0, __m512i z1, __m512i z2, __m512i z3) {
  const __m512i s01 =
      _mm512_add_epi32(_mm512_unpacklo_epi32(z0, z1), _mm512_unpackhi_epi32(z0, z1));
  const __m512i s23 =
      _mm512_add_epi32(_mm512_unpacklo_epi32(z2, z3), _mm512_unpackhi_epi32(z2, z3));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(s01, s23), _mm512_unpackhi_epi64(s01, s23));
}

// Lane i = the sum of the sixteen words of z[i].
__m256i SumOfEach(const __m512i* z) {
  __m512i two[4];  // z[i] in the low half, z[i + 4] in the high one
  for (std::size_t i = 0; i < 4; ++i) {
    two[i] = _mm512_add_epi32(_mm512_shuffle_i64x2(z[i], z[i + 4], 0x44),
                              _mm512_shuffle_i64x2(z[i], z[i + 4], 0xEE));
  }
  const __m512i sums = SumInQuarters(two[0], two[1], two[2], two[3]);
  return _mm256_add_epi32(_mm512_castsi512_si256(_mm512_shuffle_i32x4(sums, sums, 0x08)),
                          _mm512_castsi512_si256(_mm512_shuffle_i32x4(sums, sums, 0x0D)));
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

// The two halfs at `at` of eight blocks.
struct EightHalfs {
  alignas(32) std::uint32_t words[kFewTile];
  void Set(std::size_t i, const std::byte* p, std::size_t bytes) {
    words[i] = bytes == 4 ? LoadAs<std::uint32_t>(p) : LoadAs<std::uint16_t>(p);
  }
  __m256 low() const { return _mm256_cvtph_ps(_mm256_cvtepi32_epi16(Words())); }
  __m256 high() const {
    return _mm256_cvtph_ps(_mm256_cvtepi32_epi16(_mm256_srli_epi32(Words(), 16)));
  }

 private:
  __m256i Words() const { return _mm256_load_si256(reinterpret_cast<const __m256i*>(words)); }
};

// ---- Formats of 256.

// 256 codes, unsigned, and the scale of each pair; `mins`, or the scales of sub-blocks of 16.
struct WideStep {
  __m512i codes[4];
  __m512i scales[4];
  __m128i mins;
  __m256i scales_16;
};

// Q4_K's and Q5_K's scales and mins (SixBitPairs): bytes 4-15 of a block.
void SixBits(const std::byte* block, WideStep* step) {
  const __m128i head = LoadInt128(block);
  const __m128i low = _mm_srlv_epi32(
      _mm_shuffle_epi8(head,
                       _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15)),
      _mm_setr_epi32(0, 0, 0, 4));
  const __m128i high = _mm_srli_epi32(
      _mm_shuffle_epi8(head,
                       _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11)),
      2);
  const __m128i both = _mm_or_si128(
      _mm_and_si128(low, _mm_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F)),
      _mm_and_si128(high, _mm_set1_epi8(0x30)));
  const __m512i scales = _mm512_broadcast_i32x4(both);
  for (std::size_t j = 0; j < 4; ++j) {  // words of scale 2j low, of 2j + 1 high
    const auto word = [](std::size_t index) {
      return static_cast<long long>(0x8000800080008000U | (index * 0x0001000100010001U));
    };
    const __m512i places = Quarters(word(2 * j), word(2 * j), word(2 * j + 1), word(2 * j + 1));
    step->scales[j] = _mm512_shuffle_epi8(scales, places);
  }
  step->mins = _mm_cvtepu8_epi16(_mm_unpackhi_epi64(both, both));
}

// Vectors of 32 bytes' low nibbles and high ones.
__m512i NibbleHalves(const std::byte* bytes) {
  const __m512i moved = _mm512_srlv_epi16(BroadcastHalf(bytes),
                                          Quarters(0, 0, 0x0004000400040004, 0x0004000400040004));
  return _mm512_and_si512(moved, _mm512_set1_epi8(15));
}

template <class Format>
struct WideRows;

template <>
struct WideRows<FormatQ4K> {
  static constexpr std::size_t kScaleAt = 0;
  static void Unpack(const std::byte* block, WideStep* step) {
    SixBits(block, step);
    for (std::size_t j = 0; j < 4; ++j) {
      step->codes[j] = NibbleHalves(block + 16 + 32 * j);
    }
  }
};

template <>
struct WideRows<FormatQ5K> {
  static constexpr std::size_t kScaleAt = 0;
  static void Unpack(const std::byte* block, WideStep* step) {
    SixBits(block, step);
    const __m512i high = BroadcastHalf(block + 16);  // bit v of a byte: of vector v of 32
    for (std::size_t j = 0; j < 4; ++j) {
      const __m512i bits = Halves(_mm256_set1_epi8(static_cast<char>(1 << (2 * j))),
                                  _mm256_set1_epi8(static_cast<char>(1 << (2 * j + 1))));
      const __m512i nibbles = NibbleHalves(block + 48 + 32 * j);
      step->codes[j] = _mm512_mask_add_epi8(nibbles, _mm512_test_epi8_mask(high, bits), nibbles,
                                            _mm512_set1_epi8(16));
    }
  }
};

template <>
struct WideRows<FormatQ6K> {
  static constexpr std::size_t kScaleAt = 208;
  static void Unpack(const std::byte* block, WideStep* step) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i top = _mm512_set1_epi8(0x30);
    for (std::size_t half = 0; half < 2; ++half) {
      const __m512i both = LoadWide(block + 64 * half);
      const __m512i high = BroadcastHalf(block + 128 + 32 * half);
      const __m512i up = _mm512_sllv_epi16(high, Quarters(0x0004000400040004, 0x0004000400040004,
                                                          0x0002000200020002, 0x0002000200020002));
      const __m512i down =
          _mm512_srlv_epi16(high, Quarters(0, 0, 0x0002000200020002, 0x0002000200020002));
      step->codes[2 * half] =
          _mm512_or_si512(_mm512_and_si512(both, nibble), _mm512_and_si512(up, top));
      step->codes[2 * half + 1] = _mm512_or_si512(
          _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble), _mm512_and_si512(down, top));
    }
    const __m128i bytes = LoadInt128(block + 192);
    const __m512i scales = _mm512_broadcast_i32x4(bytes);
    for (std::size_t j = 0; j < 4; ++j) {  // sub-block 4j + l in quarter l, as high bytes
      const auto word = [](std::size_t index) {
        return static_cast<long long>(0x0080008000800080U | (index * 0x0100010001000100U));
      };
      const __m512i places =
          Quarters(word(4 * j), word(4 * j + 1), word(4 * j + 2), word(4 * j + 3));
      step->scales[j] = _mm512_srai_epi16(_mm512_shuffle_epi8(scales, places), 8);
    }
    step->scales_16 = _mm256_cvtepi8_epi16(bytes);
  }
};

// y[c] of eight weight rows and kColumns columns; lane i belongs to w[i].
template <class Format, std::size_t kColumns>
void WideDot8(const std::byte* const* w, std::size_t next_tile, const Column* columns,
              std::size_t k, __m256* y) {
  for (std::size_t c = 0; c < kColumns; ++c) {
    y[c] = _mm256_setzero_ps();
  }
  for (std::size_t step = 0; step < k / kStepValues; ++step) {
    __m512i products[kColumns][kFewTile];
    __m128i mins[kFewTile];
    EightHalfs halfs;
    for (std::size_t i = 0; i < kFewTile; ++i) {
      const std::byte* block = w[i] + step * Format::kBytes;
      for (std::size_t line = 0; line < Format::kBytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(block + next_tile + line), _MM_HINT_T0);
      }
      WideStep row;
      WideRows<Format>::Unpack(block, &row);
      halfs.Set(i, block + WideRows<Format>::kScaleAt, Format::kMins ? 4 : 2);
      for (std::size_t c = 0; c < kColumns; ++c) {
        __m512i product = _mm512_setzero_si512();
        if constexpr (!Format::kMins) {  // codes lie 32 above their value
          const __m256i sums = LoadInt(columns[c].sums + 16 * step);
          product = _mm512_zextsi256_si512(
              _mm256_sub_epi32(_mm256_setzero_si256(),
                               _mm256_slli_epi32(_mm256_madd_epi16(row.scales_16, sums), 5)));
        }
        for (std::size_t j = 0; j < 4; ++j) {
          const __m512i pairs = _mm512_maddubs_epi16(
              row.codes[j], LoadWide(columns[c].codes + kStepValues * step + 64 * j));
          product = _mm512_dpwssd_epi32(product, pairs, row.scales[j]);
        }
        products[c][i] = product;
      }
      if constexpr (Format::kMins) {
        mins[i] = row.mins;
      }
    }
    const __m256 d = halfs.low();
    for (std::size_t c = 0; c < kColumns; ++c) {
      const __m256 product = _mm256_cvtepi32_ps(SumOfEach(products[c]));
      __m256 u;
      if constexpr (Format::kMins) {  // of 32 each: |sum of 32| <= 32 * 127
        const __m256i of_32 =
            _mm256_madd_epi16(LoadInt(columns[c].sums + 16 * step), _mm256_set1_epi16(1));
        const __m256i sum = DotOfEight(mins, _mm256_cvtepi32_epi16(of_32));
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
constexpr std::make_index_sequence<kFewRowsMax> kEachRowCount;

constexpr FewRowsKernel kFewRowsKernels[] = {
    WideKernel<FormatQ4K>(kEachRowCount),   WideKernel<FormatQ5K>(kEachRowCount),
    WideKernel<FormatQ6K>(kEachRowCount),   PairKernel<FormatQ4_0>(kEachRowCount),
    PairKernel<FormatQ4_1>(kEachRowCount),  PairKernel<FormatQ5_0>(kEachRowCount),
    PairKernel<FormatQ5_1>(kEachRowCount),  PairKernel<FormatQ8_0>(kEachRowCount),
    PairKernel<FormatIq4Nl>(kEachRowCount), PairKernel<FormatMxfp4>(kEachRowCount),
};

}  // namespace
}  // namespace bloomery::kernels::cpu
