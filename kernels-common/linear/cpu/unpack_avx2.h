// How the AVX2 and the AVX-512 kernels take a weight block apart: one struct a format. Formats of
// 256 give a KStep, formats of 32 and 64 a SmallSpan for each 32 codes. Internal.
//
// Everything here is in an unnamed namespace: files with different -m flags include it, and the
// linker must not choose one's code for the other.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels-common/quant/blocks.h"
#include "kernels-common/quant/iq_tables.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cpu {
namespace {

__m256i LoadInt(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
__m128i LoadInt128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

template <class Word>
Word LoadAs(const std::byte* p) {
  Word word{};
  std::memcpy(&word, p, sizeof(word));
  return word;
}

float LoadHalf(const std::byte* p) { return _cvtsh_ss(LoadAs<std::uint16_t>(p)); }

// A format of 256 says kBytes of a block, kSub weights that share a scale, kMins and kSigned.
//
// Step of 256 unpacked. `scales` holds the factors of vectors 0..7 of 32 codes: word j of the low
// half for the first 16 codes of vector j, word j of the high half for the others. `side` goes with
// QuantisedRows::sums: the mins, or what takes the offset of unsigned codes back out of I. Codes
// are unsigned, or signed int8 where the format says kSigned (side is 0 then).
struct KStep {
  __m256i codes[8];
  __m256i scales;
  __m256i side;
};

// Shifts every byte left (or right, where negative) by kShift bits and keeps kMask.
template <int kShift, int kMask>
__m256i Bits(__m256i bytes) {
  __m256i moved = bytes;
  if constexpr (kShift > 0) {
    moved = _mm256_slli_epi16(bytes, kShift);
  } else if constexpr (kShift < 0) {
    moved = _mm256_srli_epi16(bytes, -kShift);
  }
  return _mm256_and_si256(moved, _mm256_set1_epi8(kMask));
}

// Sixteen int8 in order of their sub-blocks to the order of KStep::scales, still as bytes.
__m128i Split(__m128i bytes) {
  return _mm_shuffle_epi8(bytes,
                          _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
}

__m256i Twice(__m128i words) { return _mm256_set_m128i(words, words); }

// Scales of sub-blocks of 16, in order.
__m256i Scales16(const std::int16_t* scales) {
  return _mm256_cvtepi8_epi16(Split(_mm_packs_epi16(LoadInt128(scales), LoadInt128(scales + 8))));
}

// Bytes to nibbles: low ones in the low half, high ones in the high half.
__m256i Nibbles(__m128i bytes) {
  const __m256i both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
  return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

__m256i Lookup(const std::array<std::int8_t, 16>& table, __m256i nibbles) {
  return _mm256_shuffle_epi8(Twice(LoadInt128(table.data())), nibbles);
}

// Twelve bytes as three words: entries 0-3 are six low bits; entries 4-7 take nibbles of the last
// word and the two top bits of the others.
void SixBitPairs(const std::byte* packed, KStep* step) {
  std::uint32_t words[3];
  std::memcpy(words, packed, 12);
  const std::uint32_t scales_low = words[0] & 0x3F3F3F3FU;
  const std::uint32_t mins_low = words[1] & 0x3F3F3F3FU;
  const std::uint32_t scales_high =
      (words[2] & 0x0F0F0F0FU) | (((words[0] >> 6U) & 0x03030303U) << 4U);
  const std::uint32_t mins_high =
      ((words[2] >> 4U) & 0x0F0F0F0FU) | (((words[1] >> 6U) & 0x03030303U) << 4U);
  const __m128i scales = _mm_cvtepu8_epi16(
      _mm_setr_epi32(static_cast<int>(scales_low), static_cast<int>(scales_high), 0, 0));
  const __m128i mins = _mm_cvtepu8_epi16(
      _mm_setr_epi32(static_cast<int>(mins_low), static_cast<int>(mins_high), 0, 0));
  step->scales = Twice(scales);
  step->side = _mm256_set_m128i(_mm_unpackhi_epi16(mins, mins), _mm_unpacklo_epi16(mins, mins));
}

// Vectors 4*half .. 4*half+3 of bit pairs from 32 bytes.
void BitPairs(__m256i bytes, __m256i* codes) {
  codes[0] = Bits<0, 3>(bytes);
  codes[1] = Bits<-2, 3>(bytes);
  codes[2] = Bits<-4, 3>(bytes);
  codes[3] = Bits<-6, 3>(bytes);
}

// Eight vectors of nibbles from 128 bytes, low and high ones in turn.
void NibblePairs(const std::byte* bytes, __m256i* codes) {
  for (std::size_t i = 0; i < 4; ++i) {
    const __m256i both = LoadInt(bytes + 32 * i);
    codes[2 * i] = Bits<0, 15>(both);
    codes[2 * i + 1] = Bits<-4, 15>(both);
  }
}

// Bit v of every byte becomes bit kTo of the codes of vector v.
template <int kTo, int... kVectors>
void AddBits(__m256i bytes, __m256i* codes, std::integer_sequence<int, kVectors...> /*vectors*/) {
  ((codes[kVectors] = _mm256_or_si256(codes[kVectors], Bits<kTo - kVectors, 1 << kTo>(bytes))),
   ...);
}
template <int kTo>
void AddBits(__m256i bytes, __m256i* codes) {
  AddBits<kTo>(bytes, codes, std::make_integer_sequence<int, 8>());
}

struct FormatQ2K {
  static constexpr int kType = 10;
  static constexpr std::size_t kBytes = 84;
  static constexpr std::size_t kSub = 16;
  static constexpr bool kMins = true;
  static constexpr bool kSigned = false;
  static float D(const std::byte* block) { return LoadHalf(block + 80); }
  static float M(const std::byte* block) { return -LoadHalf(block + 82); }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    BitPairs(LoadInt(block + 16), step.codes);
    BitPairs(LoadInt(block + 48), step.codes + 4);
    const __m128i bytes = LoadInt128(block);
    const __m128i low = _mm_set1_epi8(15);
    step.scales = _mm256_cvtepu8_epi16(Split(_mm_and_si128(bytes, low)));
    step.side = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(bytes, 4), low));
    return step;
  }
};

struct FormatQ3K {
  static constexpr int kType = 11;
  static constexpr std::size_t kBytes = 110;
  static constexpr std::size_t kSub = 16;
  static constexpr bool kMins = false;
  static constexpr bool kSigned = false;
  static float D(const std::byte* block) { return LoadHalf(block + 108); }
  static float M(const std::byte* /*block*/) { return 0.0F; }
  // Sixteen int8.
  static __m128i Scales(const std::byte* block) {
    const auto low = LoadAs<std::uint64_t>(block + 96);
    const std::uint64_t pairs = LoadAs<std::uint32_t>(block + 104);
    constexpr std::uint64_t kNibbles = 0x0F0F0F0F0F0F0F0FU;
    constexpr std::uint64_t kPairs = 0x0303030303030303U;
    const std::uint64_t first = (pairs | ((pairs >> 2U) << 32U)) & kPairs;
    const std::uint64_t second = ((pairs >> 4U) | ((pairs >> 6U) << 32U)) & kPairs;
    const __m128i six =
        _mm_set_epi64x(static_cast<std::int64_t>(((low >> 4U) & kNibbles) | (second << 4U)),
                       static_cast<std::int64_t>((low & kNibbles) | (first << 4U)));
    return _mm_sub_epi8(six, _mm_set1_epi8(32));
  }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    BitPairs(LoadInt(block + 32), step.codes);
    BitPairs(LoadInt(block + 64), step.codes + 4);
    AddBits<2>(LoadInt(block), step.codes);
    const __m128i scales = Scales(block);
    step.scales = _mm256_cvtepi8_epi16(Split(scales));
    // Codes lie 4 above their value: I = sum(s*u*q) - 4*sum(s*q).
    step.side = _mm256_slli_epi16(
        _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_cvtepi8_epi16(scales)), 2);
    return step;
  }
};

struct FormatQ4K {
  static constexpr int kType = 12;
  static constexpr std::size_t kBytes = 144;
  static constexpr std::size_t kSub = 32;
  static constexpr bool kMins = true;
  static constexpr bool kSigned = false;
  static float D(const std::byte* block) { return LoadHalf(block); }
  static float M(const std::byte* block) { return -LoadHalf(block + 2); }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    NibblePairs(block + 16, step.codes);
    SixBitPairs(block + 4, &step);
    return step;
  }
};

struct FormatQ5K {
  static constexpr int kType = 13;
  static constexpr std::size_t kBytes = 176;
  static constexpr std::size_t kSub = 32;
  static constexpr bool kMins = true;
  static constexpr bool kSigned = false;
  static float D(const std::byte* block) { return LoadHalf(block); }
  static float M(const std::byte* block) { return -LoadHalf(block + 2); }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    NibblePairs(block + 48, step.codes);
    AddBits<4>(LoadInt(block + 16), step.codes);
    SixBitPairs(block + 4, &step);
    return step;
  }
};

struct FormatQ6K {
  static constexpr int kType = 14;
  static constexpr std::size_t kBytes = 210;
  static constexpr std::size_t kSub = 16;
  static constexpr bool kMins = false;
  static constexpr bool kSigned = false;
  static float D(const std::byte* block) { return LoadHalf(block + 208); }
  static float M(const std::byte* /*block*/) { return 0.0F; }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    for (std::size_t half = 0; half < 2; ++half) {
      const __m256i a = LoadInt(block + 64 * half);
      const __m256i b = LoadInt(block + 64 * half + 32);
      const __m256i high = LoadInt(block + 128 + 32 * half);
      __m256i* codes = step.codes + 4 * half;
      codes[0] = _mm256_or_si256(Bits<0, 15>(a), Bits<4, 0x30>(high));
      codes[1] = _mm256_or_si256(Bits<0, 15>(b), Bits<2, 0x30>(high));
      codes[2] = _mm256_or_si256(Bits<-4, 15>(a), Bits<0, 0x30>(high));
      codes[3] = _mm256_or_si256(Bits<-4, 15>(b), Bits<-2, 0x30>(high));
    }
    const __m128i bytes = LoadInt128(block + 192);
    step.scales = _mm256_cvtepi8_epi16(Split(bytes));
    // Codes lie 32 above their value: I = sum(s*u*q) - 32*sum(s*q).
    step.side =
        _mm256_slli_epi16(_mm256_sub_epi16(_mm256_setzero_si256(), _mm256_cvtepi8_epi16(bytes)), 5);
    return step;
  }
};

struct FormatIq4Xs {
  static constexpr int kType = 23;
  static constexpr std::size_t kBytes = 136;
  static constexpr std::size_t kSub = 32;
  static constexpr bool kMins = false;
  static constexpr bool kSigned = true;
  static float D(const std::byte* block) { return LoadHalf(block); }
  static float M(const std::byte* /*block*/) { return 0.0F; }
  // Eight words.
  static __m128i Scales(const std::byte* block) {
    const __m256i low = _mm256_set1_epi32(LoadAs<std::int32_t>(block + 4));
    const __m256i high = _mm256_set1_epi32(LoadAs<std::uint16_t>(block + 2));
    const __m256i nibbles =
        _mm256_and_si256(_mm256_srlv_epi32(low, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)),
                         _mm256_set1_epi32(15));
    const __m256i pairs =
        _mm256_and_si256(_mm256_srlv_epi32(high, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14)),
                         _mm256_set1_epi32(3));
    const __m256i scales = _mm256_sub_epi32(_mm256_or_si256(nibbles, _mm256_slli_epi32(pairs, 4)),
                                            _mm256_set1_epi32(32));
    return _mm_packs_epi32(_mm256_castsi256_si128(scales), _mm256_extracti128_si256(scales, 1));
  }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    for (std::size_t j = 0; j < 8; ++j) {
      step.codes[j] = Lookup(kIq4Values, Nibbles(LoadInt128(block + 8 + 16 * j)));
    }
    step.scales = Twice(Scales(block));
    step.side = _mm256_setzero_si256();
    return step;
  }
};

// ---- Code books: entries and sign masks are looked up eight codes at a time.

__m256i FourWords(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  return _mm256_setr_epi64x(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b),
                            static_cast<std::int64_t>(c), static_cast<std::int64_t>(d));
}

__m256i Negated(__m256i magnitudes, __m256i mask) {
  return _mm256_sub_epi8(_mm256_xor_si256(magnitudes, mask), mask);
}

// Byte i is 0xFF where bit i of the word is set.
__m256i BitMasks(std::uint32_t word) {
  const __m256i bytes = _mm256_shuffle_epi8(
      _mm256_set1_epi32(static_cast<int>(word)),
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i one_each = _mm256_set1_epi64x(static_cast<std::int64_t>(0x8040201008040201U));
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, one_each), one_each);
}

// Masks of the four 7-bit sign indices of a word. (Their parity by arithmetic is slower.)
__m256i EvenMasks(std::uint32_t word) {
  return FourWords(kEvenSignMasks[word & 127U], kEvenSignMasks[(word >> 7U) & 127U],
                   kEvenSignMasks[(word >> 14U) & 127U], kEvenSignMasks[(word >> 21U) & 127U]);
}

std::uint64_t TwoEntries(std::uint32_t low, std::uint32_t high) {
  return low | (static_cast<std::uint64_t>(high) << 32U);
}

// 2s + 1 of sixteen nibbles in eight bytes, in order.
__m128i OddNibbles(const std::byte* bytes) {
  const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
  const __m128i nibbles =
      _mm_and_si128(_mm_unpacklo_epi8(eight, _mm_srli_epi16(eight, 4)), _mm_set1_epi8(15));
  return _mm_add_epi8(_mm_add_epi8(nibbles, nibbles), _mm_set1_epi8(1));
}

struct FormatIq {
  static constexpr bool kMins = false;
  static constexpr bool kSigned = true;
  static float M(const std::byte* /*block*/) { return 0.0F; }
};

struct FormatIq2Xxs : FormatIq {
  static constexpr int kType = 16;
  static constexpr std::size_t kBytes = 66;
  static constexpr std::size_t kSub = 32;
  static float D(const std::byte* block) { return LoadHalf(block) * 0.125F; }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    alignas(16) std::int16_t scales[8];
    for (std::size_t j = 0; j < 8; ++j) {
      const auto both = LoadAs<std::uint64_t>(block + 2 + 8 * j);
      const auto word = static_cast<std::uint32_t>(both >> 32U);
      scales[j] = static_cast<std::int16_t>(2 * (word >> 28U) + 1);
      const __m256i grid =
          FourWords(kIq2XxsGrid[both & 255U], kIq2XxsGrid[(both >> 8U) & 255U],
                    kIq2XxsGrid[(both >> 16U) & 255U], kIq2XxsGrid[(both >> 24U) & 255U]);
      step.codes[j] = Negated(grid, EvenMasks(word));
    }
    step.scales = Twice(LoadInt128(scales));
    step.side = _mm256_setzero_si256();
    return step;
  }
};

struct FormatIq2Xs : FormatIq {
  static constexpr int kType = 17;
  static constexpr std::size_t kBytes = 74;
  static constexpr std::size_t kSub = 16;
  static float D(const std::byte* block) { return LoadHalf(block) * 0.125F; }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    for (std::size_t j = 0; j < 8; ++j) {
      const auto four = LoadAs<std::uint64_t>(block + 2 + 8 * j);
      const __m256i grid =
          FourWords(kIq2XsGrid[four & 511U], kIq2XsGrid[(four >> 16U) & 511U],
                    kIq2XsGrid[(four >> 32U) & 511U], kIq2XsGrid[(four >> 48U) & 511U]);
      const __m256i masks =
          FourWords(kEvenSignMasks[(four >> 9U) & 127U], kEvenSignMasks[(four >> 25U) & 127U],
                    kEvenSignMasks[(four >> 41U) & 127U], kEvenSignMasks[four >> 57U]);
      step.codes[j] = Negated(grid, masks);
    }
    step.scales = _mm256_cvtepi8_epi16(Split(OddNibbles(block + 66)));
    step.side = _mm256_setzero_si256();
    return step;
  }
};

struct FormatIq2S : FormatIq {
  static constexpr int kType = 22;
  static constexpr std::size_t kBytes = 82;
  static constexpr std::size_t kSub = 16;
  static float D(const std::byte* block) { return LoadHalf(block) * 0.125F; }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    for (std::size_t j = 0; j < 8; ++j) {
      const auto low = LoadAs<std::uint32_t>(block + 2 + 4 * j);
      const std::uint32_t high = ByteAt(block, 66 + j);
      const __m256i grid = FourWords(kIq2SGrid[(low & 255U) | ((high & 3U) << 8U)],
                                     kIq2SGrid[((low >> 8U) & 255U) | ((high & 12U) << 6U)],
                                     kIq2SGrid[((low >> 16U) & 255U) | ((high & 48U) << 4U)],
                                     kIq2SGrid[(low >> 24U) | ((high & 192U) << 2U)]);
      step.codes[j] = Negated(grid, BitMasks(LoadAs<std::uint32_t>(block + 34 + 4 * j)));
    }
    step.scales = _mm256_cvtepi8_epi16(Split(OddNibbles(block + 74)));
    step.side = _mm256_setzero_si256();
    return step;
  }
};

struct FormatIq3Xxs : FormatIq {
  static constexpr int kType = 18;
  static constexpr std::size_t kBytes = 98;
  static constexpr std::size_t kSub = 32;
  static float D(const std::byte* block) { return LoadHalf(block) * 0.25F; }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    alignas(16) std::int16_t scales[8];
    for (std::size_t j = 0; j < 8; ++j) {
      const auto word = LoadAs<std::uint32_t>(block + 66 + 4 * j);
      scales[j] = static_cast<std::int16_t>(2 * (word >> 28U) + 1);
      const std::byte* at = block + 2 + 8 * j;
      const auto pair = [at](std::size_t i) {
        return TwoEntries(kIq3XxsGrid[ByteAt(at, i)], kIq3XxsGrid[ByteAt(at, i + 1)]);
      };
      step.codes[j] = Negated(FourWords(pair(0), pair(2), pair(4), pair(6)), EvenMasks(word));
    }
    step.scales = Twice(LoadInt128(scales));
    step.side = _mm256_setzero_si256();
    return step;
  }
};

struct FormatIq3S : FormatIq {
  static constexpr int kType = 21;
  static constexpr std::size_t kBytes = 110;
  static constexpr std::size_t kSub = 32;
  static float D(const std::byte* block) { return LoadHalf(block); }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    const std::uint32_t nibbles = LoadAs<std::uint32_t>(block + 106);
    alignas(16) std::int16_t scales[8];
    for (std::size_t j = 0; j < 8; ++j) {
      scales[j] = static_cast<std::int16_t>(2 * ((nibbles >> (4 * j)) & 15U) + 1);
      const std::byte* at = block + 2 + 8 * j;
      const unsigned high = static_cast<unsigned>(ByteAt(block, 66 + j)) << 8U;
      const auto entry = [at, high](unsigned i) {
        return kIq3SGrid[ByteAt(at, i) | ((high >> i) & 256U)];
      };
      const __m256i grid =
          FourWords(TwoEntries(entry(0), entry(1)), TwoEntries(entry(2), entry(3)),
                    TwoEntries(entry(4), entry(5)), TwoEntries(entry(6), entry(7)));
      step.codes[j] = Negated(grid, BitMasks(LoadAs<std::uint32_t>(block + 74 + 4 * j)));
    }
    step.scales = Twice(LoadInt128(scales));
    step.side = _mm256_setzero_si256();
    return step;
  }
};

// +1, or -1 where the bit is set, in every byte of an entry.
std::uint64_t Shift(unsigned bit) { return bit != 0 ? ~std::uint64_t{0} : 0x0101010101010101U; }

struct FormatIq1S : FormatIq {
  static constexpr int kType = 19;
  static constexpr std::size_t kBytes = 50;
  static constexpr std::size_t kSub = 32;
  static float D(const std::byte* block) { return LoadHalf(block) * 0.125F; }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    alignas(16) std::int16_t scales[8];
    for (std::size_t j = 0; j < 8; ++j) {
      const std::uint32_t word = LoadAs<std::uint16_t>(block + 34 + 2 * j);
      scales[j] = static_cast<std::int16_t>(2 * ((word >> 12U) & 7U) + 1);
      const std::byte* at = block + 2 + 4 * j;
      const __m256i grid = FourWords(kIq1Grid[ByteAt(at, 0) | ((word << 8U) & 0x700U)],
                                     kIq1Grid[ByteAt(at, 1) | ((word << 5U) & 0x700U)],
                                     kIq1Grid[ByteAt(at, 2) | ((word << 2U) & 0x700U)],
                                     kIq1Grid[ByteAt(at, 3) | ((word >> 1U) & 0x700U)]);
      const __m256i shift = _mm256_set1_epi8((word & 0x8000U) != 0 ? -1 : 1);
      step.codes[j] = _mm256_add_epi8(grid, shift);
    }
    step.scales = Twice(LoadInt128(scales));
    step.side = _mm256_setzero_si256();
    return step;
  }
};

struct FormatIq1M : FormatIq {
  static constexpr int kType = 29;
  static constexpr std::size_t kBytes = 56;
  static constexpr std::size_t kSub = 16;
  // The scale's bits: the top nibble of each of four words.
  static std::uint16_t Half(const std::byte* block) {
    const auto words = LoadAs<std::uint64_t>(block + 48);
    return static_cast<std::uint16_t>(((words >> 12U) & 15U) | ((words >> 24U) & 0xF0U) |
                                      ((words >> 36U) & 0xF00U) | ((words >> 48U) & 0xF000U));
  }
  static float D(const std::byte* block) { return _cvtsh_ss(Half(block)) * 0.125F; }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    const auto words = LoadAs<std::uint64_t>(block + 48);
    alignas(16) std::int16_t scales[16];
    for (unsigned j = 0; j < 16; ++j) {
      scales[j] = static_cast<std::int16_t>(2 * ((words >> (16 * (j / 4) + 3 * (j % 4))) & 7U) + 1);
    }
    for (std::size_t j = 0; j < 8; ++j) {
      const std::byte* at = block + 4 * j;
      const std::uint32_t high = LoadAs<std::uint16_t>(block + 32 + 2 * j);
      const __m256i grid = FourWords(kIq1Grid[ByteAt(at, 0) | ((high << 8U) & 0x700U)],
                                     kIq1Grid[ByteAt(at, 1) | ((high << 4U) & 0x700U)],
                                     kIq1Grid[ByteAt(at, 2) | (high & 0x700U)],
                                     kIq1Grid[ByteAt(at, 3) | ((high >> 4U) & 0x700U)]);
      const __m256i shift = FourWords(Shift(high & 8U), Shift(high & 0x80U), Shift(high & 0x800U),
                                      Shift(high & 0x8000U));
      step.codes[j] = _mm256_add_epi8(grid, shift);
    }
    step.scales = Scales16(scales);
    step.side = _mm256_setzero_si256();
    return step;
  }
};

// By the table's plain unpack function: for formats too rare for code of their own.
template <int kTypeId, UnpackFunction* kUnpack, std::size_t kBlockBytes>
struct FormatPlain : FormatIq {
  static constexpr int kType = kTypeId;
  static constexpr std::size_t kBytes = kBlockBytes;
  static constexpr std::size_t kSub = 32;
  static float D(const std::byte* block) { return LoadHalf(block + kBytes - 2); }
  static KStep Unpack(const std::byte* block) {
    IntegerBlock plain;
    kUnpack(block, &plain);
    KStep step;
    for (std::size_t j = 0; j < 8; ++j) {
      step.codes[j] = LoadInt(plain.codes + 32 * j);
    }
    step.scales = Scales16(plain.scales);
    step.side = _mm256_setzero_si256();
    return step;
  }
};
using FormatTq1 = FormatPlain<34, UnpackTq1, 54>;

struct FormatTq2 {
  static constexpr int kType = 35;
  static constexpr std::size_t kBytes = 66;
  static constexpr std::size_t kSub = 32;
  static constexpr bool kMins = false;
  static constexpr bool kSigned = false;
  static float D(const std::byte* block) { return LoadHalf(block + 64); }
  static float M(const std::byte* /*block*/) { return 0.0F; }
  static KStep Unpack(const std::byte* block) {
    KStep step;
    BitPairs(LoadInt(block), step.codes);
    BitPairs(LoadInt(block + 32), step.codes + 4);
    step.scales = _mm256_set1_epi16(1);
    step.side = _mm256_set1_epi16(-1);  // codes lie 1 above their value
    return step;
  }
};

// ---- Formats of 32 and 64: signed codes; d and m as BlockForm says, m = s1 for pair scales.

struct SmallSpan {
  __m256i codes;
  float d;
  float m;
};

// Bit i of a word to 16 in byte i.
__m256i FifthBits(const std::byte* bits) {
  return _mm256_and_si256(BitMasks(LoadAs<std::uint32_t>(bits)), _mm256_set1_epi8(16));
}

struct FormatQ4_0 {
  static constexpr int kType = 2;
  static constexpr std::size_t kBytes = 18;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static SmallSpan Unpack(const std::byte* row, std::size_t b) {
    const std::byte* block = row + b * kBytes;
    const __m256i nibbles = Nibbles(LoadInt128(block + 2));
    return {_mm256_sub_epi8(nibbles, _mm256_set1_epi8(8)), LoadHalf(block), 0.0F};
  }
};

struct FormatQ4_1 {
  static constexpr int kType = 3;
  static constexpr std::size_t kBytes = 20;
  static constexpr BlockForm kForm = BlockForm::kScaleMin;
  static SmallSpan Unpack(const std::byte* row, std::size_t b) {
    const std::byte* block = row + b * kBytes;
    return {Nibbles(LoadInt128(block + 4)), LoadHalf(block), LoadHalf(block + 2)};
  }
};

struct FormatQ5_0 {
  static constexpr int kType = 6;
  static constexpr std::size_t kBytes = 22;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static SmallSpan Unpack(const std::byte* row, std::size_t b) {
    const std::byte* block = row + b * kBytes;
    const __m256i codes = _mm256_or_si256(Nibbles(LoadInt128(block + 6)), FifthBits(block + 2));
    return {_mm256_sub_epi8(codes, _mm256_set1_epi8(16)), LoadHalf(block), 0.0F};
  }
};

struct FormatQ5_1 {
  static constexpr int kType = 7;
  static constexpr std::size_t kBytes = 24;
  static constexpr BlockForm kForm = BlockForm::kScaleMin;
  static SmallSpan Unpack(const std::byte* row, std::size_t b) {
    const std::byte* block = row + b * kBytes;
    return {_mm256_or_si256(Nibbles(LoadInt128(block + 8)), FifthBits(block + 4)), LoadHalf(block),
            LoadHalf(block + 2)};
  }
};

struct FormatQ8_0 {
  static constexpr int kType = 8;
  static constexpr std::size_t kBytes = 34;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static SmallSpan Unpack(const std::byte* row, std::size_t b) {
    const std::byte* block = row + b * kBytes;
    return {LoadInt(block + 2), LoadHalf(block), 0.0F};
  }
};

struct FormatIq4Nl {
  static constexpr int kType = 20;
  static constexpr std::size_t kBytes = 18;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static SmallSpan Unpack(const std::byte* row, std::size_t b) {
    const std::byte* block = row + b * kBytes;
    return {Lookup(kIq4Values, Nibbles(LoadInt128(block + 2))), LoadHalf(block), 0.0F};
  }
};

struct FormatMxfp4 {
  static constexpr int kType = 39;
  static constexpr std::size_t kBytes = 17;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static SmallSpan Unpack(const std::byte* row, std::size_t b) {
    const std::byte* block = row + b * kBytes;
    const std::uint32_t e = ByteAt(block, 0);
    const std::uint32_t bits = e < 2 ? 0x00200000U << e : (e - 1U) << 23U;  // blocks_32.cc
    return {Lookup(kFp4Values, Nibbles(LoadInt128(block + 1))),
            _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits)))), 0.0F};
  }
};

struct FormatNvfp4 {
  static constexpr int kType = 40;
  static constexpr std::size_t kBytes = 36;  // of 64 weights
  static constexpr BlockForm kForm = BlockForm::kPairScales;
  static SmallSpan Unpack(const std::byte* row, std::size_t b) {
    const std::byte* block = row + b / 2 * kBytes;
    const std::size_t half = b % 2;
    // Eight bytes a sub-block of 16: its first eight codes low, its others high.
    const __m128i bytes = LoadInt128(block + 4 + 16 * half);
    const __m128i low = _mm_set1_epi8(15);
    const __m128i first = _mm_and_si128(bytes, low);
    const __m128i others = _mm_and_si128(_mm_srli_epi16(bytes, 4), low);
    const __m256i nibbles =
        _mm256_set_m128i(_mm_unpackhi_epi64(first, others), _mm_unpacklo_epi64(first, others));
    return {Lookup(kFp4Values, nibbles), kNvScales[ByteAt(block, 2 * half)],
            kNvScales[ByteAt(block, 2 * half + 1)]};
  }
};

}  // namespace
}  // namespace bloomery::kernels::cpu
