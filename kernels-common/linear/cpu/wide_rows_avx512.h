// How the AVX-512 kernels of one to four rows take a block of 256 apart: four vectors of 64 codes,
// the scale of each pair of them, and what goes with the sums of the activations. Internal.
//
// Code books are gathered and signs are mask registers that negate activations, so that no byte of
// a sign is ever made. Looking entries up in general registers was no faster, nor was storing them
// first for all eight rows (docs/measurements/cpu.md).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels-common/linear/cpu/unpack_avx2.h"
#include "kernels-common/quant/iq_tables.h"

namespace bloomery::kernels::cpu {
namespace {

// Sets out[l] in the 128 bits l of a vector.
__m512i Quarters(long long a, long long b, long long c, long long d) {
  return _mm512_setr_epi64(a, a, b, b, c, c, d, d);
}
__m512i Halves(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
__m512i BroadcastHalf(const void* p) { return _mm512_broadcast_i64x4(LoadInt(p)); }
__m512i LoadWide(const void* p) { return _mm512_loadu_si512(p); }

// What stands beside the scaled products of a format.
enum class WideForm {
  kMinsOf32,  // codes unsigned; eight mins
  kMinsOf16,  // codes unsigned; sixteen mins
  kOffset,    // codes lie 1 << kOffsetBits above their value; sixteen scales
  kSigns,     // codes are magnitudes, with the sign of each
};

// 256 codes and the scale of each pair of them. A format fills what its form says.
struct WideStep {
  __m512i codes[4];
  __m512i scales[4];
  __mmask64 negative[4];
  __m128i mins;   // eight words
  __m256i of_16;  // sixteen words: mins or scales
};

// A format has kForm, Halfs (the bits of d, and above them of dmin), and Unpack; with signs
// kDShift: d is 2^-kDShift times its half.
template <class Format>
struct WideRows;

// Sixteen int8 (eight of sub-blocks of 32) to the scales of all pairs.
template <std::size_t kSub>
void ScalesOf(__m128i bytes, WideStep* step) {
  const __m512i scales = _mm512_broadcast_i32x4(bytes);
  for (std::size_t j = 0; j < 4; ++j) {  // a scale's byte becomes the high one of its words
    const auto word = [j](std::size_t quarter) {
      const std::size_t index = (4 * j + quarter) * 16 / kSub;
      return static_cast<long long>(0x0080008000800080U | (index * 0x0100010001000100U));
    };
    const __m512i places = Quarters(word(0), word(1), word(2), word(3));
    step->scales[j] = _mm512_srai_epi16(_mm512_shuffle_epi8(scales, places), 8);
  }
}

// Where bit 2j of the bytes (in the low half; bit 2j + 1 in the high one) is set.
__mmask64 BitsOf(__m512i bytes, std::size_t j) {
  return _mm512_test_epi8_mask(bytes, Halves(_mm256_set1_epi8(static_cast<char>(1 << (2 * j))),
                                             _mm256_set1_epi8(static_cast<char>(2 << (2 * j)))));
}

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

// Vectors 2j and 2j + 1 of bit pairs from 64 bytes.
__m512i BitPairHalves(const std::byte* bytes, std::size_t j) {
  const auto by = static_cast<long long>(j % 2 * 0x0004000400040004U);
  const __m512i moved =
      _mm512_srlv_epi16(BroadcastHalf(bytes + 32 * (j / 2)),
                        Quarters(by, by, by + 0x0002000200020002, by + 0x0002000200020002));
  return _mm512_and_si512(moved, _mm512_set1_epi8(3));
}

template <>
struct WideRows<FormatQ2K> {
  static constexpr WideForm kForm = WideForm::kMinsOf16;
  static std::uint32_t Halfs(const std::byte* block) { return LoadAs<std::uint32_t>(block + 80); }
  static void Unpack(const std::byte* block, WideStep* step) {
    for (std::size_t j = 0; j < 4; ++j) step->codes[j] = BitPairHalves(block + 16, j);
    const __m128i bytes = LoadInt128(block);
    const __m128i low = _mm_set1_epi8(15);
    ScalesOf<16>(_mm_and_si128(bytes, low), step);
    step->of_16 = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(bytes, 4), low));
  }
};

template <>
struct WideRows<FormatQ3K> {
  static constexpr WideForm kForm = WideForm::kOffset;
  static constexpr int kOffsetBits = 2;
  static std::uint32_t Halfs(const std::byte* block) { return LoadAs<std::uint16_t>(block + 108); }
  static void Unpack(const std::byte* block, WideStep* step) {
    const __m512i high = BroadcastHalf(block);  // bit v of a byte: of vector v of 32
    for (std::size_t j = 0; j < 4; ++j) {
      const __m512i pairs = BitPairHalves(block + 32, j);
      step->codes[j] = _mm512_mask_add_epi8(pairs, BitsOf(high, j), pairs, _mm512_set1_epi8(4));
    }
    const __m128i scales = FormatQ3K::Scales(block);
    ScalesOf<16>(scales, step);
    step->of_16 = _mm256_cvtepi8_epi16(scales);
  }
};

template <>
struct WideRows<FormatQ4K> {
  static constexpr WideForm kForm = WideForm::kMinsOf32;
  static std::uint32_t Halfs(const std::byte* block) { return LoadAs<std::uint32_t>(block); }
  static void Unpack(const std::byte* block, WideStep* step) {
    SixBits(block, step);
    for (std::size_t j = 0; j < 4; ++j) {
      step->codes[j] = NibbleHalves(block + 16 + 32 * j);
    }
  }
};

template <>
struct WideRows<FormatQ5K> {
  static constexpr WideForm kForm = WideForm::kMinsOf32;
  static std::uint32_t Halfs(const std::byte* block) { return LoadAs<std::uint32_t>(block); }
  static void Unpack(const std::byte* block, WideStep* step) {
    SixBits(block, step);
    const __m512i high = BroadcastHalf(block + 16);  // bit v of a byte: of vector v of 32
    for (std::size_t j = 0; j < 4; ++j) {
      const __m512i nibbles = NibbleHalves(block + 48 + 32 * j);
      step->codes[j] =
          _mm512_mask_add_epi8(nibbles, BitsOf(high, j), nibbles, _mm512_set1_epi8(16));
    }
  }
};

template <>
struct WideRows<FormatQ6K> {
  static constexpr WideForm kForm = WideForm::kOffset;
  static constexpr int kOffsetBits = 5;
  static std::uint32_t Halfs(const std::byte* block) { return LoadAs<std::uint16_t>(block + 208); }
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
    ScalesOf<16>(bytes, step);
    step->of_16 = _mm256_cvtepi8_epi16(bytes);
  }
};

// ---- Signed tables and code books.

// 2s + 1 of eight or sixteen bytes.
__m128i Odd(__m128i bytes) { return _mm_add_epi8(_mm_add_epi8(bytes, bytes), _mm_set1_epi8(1)); }
__m128i EightBytes(std::uint64_t bytes) {
  return _mm_cvtsi64_si128(static_cast<std::int64_t>(bytes));
}

// Eight signs of seven bits each, as bytes, with the eighth bit that makes their number even.
__mmask64 EvenSigns(std::uint64_t sevens) {
  std::uint64_t parity = sevens ^ (sevens >> 4U);
  parity ^= parity >> 2U;
  parity ^= parity >> 1U;
  return sevens | (parity & 0x0101010101010101U) << 7U;
}
// The same from the low 28 bits of two words.
__mmask64 EvenSigns(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint64_t kSevens = 0x7F7F7F7F7F7F7F7FU;
  return EvenSigns(_pdep_u64((a & 0x0FFFFFFFU) | static_cast<std::uint64_t>(b) << 28U, kSevens));
}

__m512i EightEntries(const std::uint64_t* grid, __m512i indices) {
  return _mm512_i64gather_epi64(indices, grid, 8);
}
__m512i SixteenEntries(const std::uint32_t* grid, __m512i indices) {
  return _mm512_i32gather_epi32(indices, grid, 4);
}
__m512i EightIndices(const std::byte* bytes) {
  return _mm512_cvtepu8_epi64(EightBytes(LoadAs<std::uint64_t>(bytes)));
}

struct WideSigns {
  static constexpr WideForm kForm = WideForm::kSigns;
  static constexpr int kDShift = 3;
  static std::uint32_t Halfs(const std::byte* block) { return LoadAs<std::uint16_t>(block); }
};

// Signed codes as magnitudes and signs.
void SetSigned(__m512i codes, std::size_t j, WideStep* step) {
  step->negative[j] = _mm512_movepi8_mask(codes);
  step->codes[j] = _mm512_abs_epi8(codes);
}

template <>
struct WideRows<FormatIq4Xs> : WideSigns {
  static constexpr int kDShift = 0;
  static void Unpack(const std::byte* block, WideStep* step) {
    const __m512i table = _mm512_broadcast_i32x4(LoadInt128(kIq4Values.data()));
    for (std::size_t j = 0; j < 4; ++j) {  // sixteen bytes: low nibbles, then high ones
      const __m512i bytes =
          _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                   _mm512_castsi256_si512(LoadInt(block + 8 + 32 * j)));
      const __m512i nibbles =
          _mm512_srlv_epi16(bytes, Quarters(0, 0x0004000400040004, 0, 0x0004000400040004));
      SetSigned(_mm512_shuffle_epi8(table, _mm512_and_si512(nibbles, _mm512_set1_epi8(15))), j,
                step);
    }
    const __m128i scales = FormatIq4Xs::Scales(block);
    ScalesOf<32>(_mm_packs_epi16(scales, scales), step);
  }
};

template <>
struct WideRows<FormatIq2Xxs> : WideSigns {
  static void Unpack(const std::byte* block, WideStep* step) {
    std::uint64_t scales = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const auto a = LoadAs<std::uint64_t>(block + 2 + 16 * j);
      const auto b = LoadAs<std::uint64_t>(block + 10 + 16 * j);
      const std::uint64_t indices = (a & 0xFFFFFFFFU) | b << 32U;
      step->codes[j] = EightEntries(kIq2XxsGrid.data(), _mm512_cvtepu8_epi64(EightBytes(indices)));
      step->negative[j] =
          EvenSigns(static_cast<std::uint32_t>(a >> 32U), static_cast<std::uint32_t>(b >> 32U));
      scales |= (a >> 60U | b >> 60U << 8U) << (16 * j);
    }
    ScalesOf<32>(Odd(EightBytes(scales)), step);
  }
};

template <>
struct WideRows<FormatIq2Xs> : WideSigns {
  static void Unpack(const std::byte* block, WideStep* step) {
    for (std::size_t j = 0; j < 4; ++j) {
      const __m128i eight = LoadInt128(block + 2 + 16 * j);
      const __m512i indices = _mm512_cvtepu16_epi64(_mm_and_si128(eight, _mm_set1_epi16(511)));
      step->codes[j] = EightEntries(kIq2XsGrid.data(), indices);
      const __m128i signs = _mm_srli_epi16(eight, 9);
      step->negative[j] =
          EvenSigns(static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(signs, signs))));
    }
    ScalesOf<16>(OddNibbles(block + 66), step);
  }
};

template <>
struct WideRows<FormatIq2S> : WideSigns {
  static void Unpack(const std::byte* block, WideStep* step) {
    for (std::size_t j = 0; j < 4; ++j) {
      const __m512i low = EightIndices(block + 2 + 8 * j);
      const __m512i high = _mm512_srlv_epi64(
          _mm512_set1_epi64(static_cast<std::int64_t>(LoadAs<std::uint16_t>(block + 66 + 2 * j))
                            << 8),
          _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14));
      const __m512i indices =
          _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi64(0x300)));
      step->codes[j] = EightEntries(kIq2SGrid.data(), indices);
      step->negative[j] = LoadAs<std::uint64_t>(block + 34 + 8 * j);
    }
    ScalesOf<16>(OddNibbles(block + 74), step);
  }
};

template <>
struct WideRows<FormatIq3Xxs> : WideSigns {
  static constexpr int kDShift = 2;
  static void Unpack(const std::byte* block, WideStep* step) {
    std::uint64_t scales = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const __m512i indices = _mm512_cvtepu8_epi32(LoadInt128(block + 2 + 16 * j));
      step->codes[j] = SixteenEntries(kIq3XxsGrid.data(), indices);
      const auto a = LoadAs<std::uint32_t>(block + 66 + 8 * j);
      const auto b = LoadAs<std::uint32_t>(block + 70 + 8 * j);
      step->negative[j] = EvenSigns(a, b);
      scales |= static_cast<std::uint64_t>(a >> 28U | b >> 28U << 8U) << (16 * j);
    }
    ScalesOf<32>(Odd(EightBytes(scales)), step);
  }
};

template <>
struct WideRows<FormatIq3S> : WideSigns {
  static constexpr int kDShift = 0;
  static void Unpack(const std::byte* block, WideStep* step) {
    for (std::size_t j = 0; j < 4; ++j) {
      const __m512i low = _mm512_cvtepu8_epi32(LoadInt128(block + 2 + 16 * j));
      const __mmask16 high = LoadAs<std::uint16_t>(block + 66 + 2 * j);
      const __m512i indices = _mm512_mask_add_epi32(low, high, low, _mm512_set1_epi32(256));
      step->codes[j] = SixteenEntries(kIq3SGrid.data(), indices);
      step->negative[j] = LoadAs<std::uint64_t>(block + 74 + 8 * j);
    }
    const std::uint64_t nibbles =
        _pdep_u64(LoadAs<std::uint32_t>(block + 106), 0x0F0F0F0F0F0F0F0FU);
    ScalesOf<32>(Odd(EightBytes(nibbles)), step);
  }
};

// Indices of IQ1's code book: a byte, and above it the low three bits of every `kApart` of `high`.
template <std::size_t kApart>
__m512i Iq1Indices(const std::byte* low, std::uint64_t high) {
  const __m512i all = _mm512_set1_epi64(static_cast<std::int64_t>(high << 8U));
  const __m512i moved =
      _mm512_srlv_epi64(all, _mm512_setr_epi64(0, kApart, 2 * kApart, 3 * kApart, 16, 16 + kApart,
                                               16 + 2 * kApart, 16 + 3 * kApart));
  return _mm512_or_si512(EightIndices(low), _mm512_and_si512(moved, _mm512_set1_epi64(0x700)));
}
// One less where the mask says so, else one more.
__m512i Shifted(__m512i entries, __mmask8 down) {
  return _mm512_add_epi8(entries, _mm512_mask_set1_epi64(_mm512_set1_epi8(1), down, -1));
}

template <>
struct WideRows<FormatIq1S> : WideSigns {
  static void Unpack(const std::byte* block, WideStep* step) {
    std::uint64_t scales = 0;
    for (std::size_t j = 0; j < 4; ++j) {  // two words of four times three bits, a scale, a sign
      const auto words = LoadAs<std::uint32_t>(block + 34 + 4 * j);
      const __m512i indices = Iq1Indices<3>(block + 2 + 8 * j, words);
      const unsigned down = ((words & 0x8000U) != 0 ? 0x0FU : 0U) | (words >> 31U) * 0xF0U;
      SetSigned(Shifted(EightEntries(kIq1Grid.data(), indices), static_cast<__mmask8>(down)), j,
                step);
      scales |= static_cast<std::uint64_t>(_pext_u32(words, 0x70007000U)) << (6 * j);
    }
    ScalesOf<32>(Odd(EightBytes(_pdep_u64(scales, 0x0707070707070707U))), step);
  }
};

template <>
struct WideRows<FormatIq1M> : WideSigns {
  static std::uint32_t Halfs(const std::byte* block) { return FormatIq1M::Half(block); }
  static void Unpack(const std::byte* block, WideStep* step) {
    for (std::size_t j = 0; j < 4; ++j) {  // eight times three bits and a sign
      const auto high = LoadAs<std::uint32_t>(block + 32 + 4 * j);
      const __m512i indices = Iq1Indices<4>(block + 8 * j, high);
      SetSigned(Shifted(EightEntries(kIq1Grid.data(), indices),
                        static_cast<__mmask8>(_pext_u32(high, 0x88888888U))),
                j, step);
    }
    const std::uint64_t scales = _pext_u64(LoadAs<std::uint64_t>(block + 48), 0x0FFF0FFF0FFF0FFFU);
    constexpr std::uint64_t kThrees = 0x0707070707070707U;
    ScalesOf<16>(Odd(_mm_set_epi64x(static_cast<std::int64_t>(_pdep_u64(scales >> 24U, kThrees)),
                                    static_cast<std::int64_t>(_pdep_u64(scales, kThrees)))),
                 step);
  }
};

}  // namespace
}  // namespace bloomery::kernels::cpu
