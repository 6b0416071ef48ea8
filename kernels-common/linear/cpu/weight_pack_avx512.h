// Sixteen weight rows of a format of 256 taken apart for lanes that are rows, one step at a time.
// The commonest formats are transposed as they lie in the file, and taken apart sixteen rows at
// once; the others are unpacked row by row (unpack_avx2.h) and transposed after. Internal; include
// from files built for AVX-512 VNNI only.
//
// LanePacker<Format>(w, step): w holds the sixteen rows. Head(out) writes scales, side, d and m.
// Codes(quarter, emit, between), for the quarters 0 to 3 in this order, calls emit(i, v) once for
// every i < 64, in any order: v has codes 4i..4i+3 of each row as unsigned bytes; signed codes lie
// 128 above their value. It calls between(0) to between(3) before each fourth of a quarter's, for
// work that is to run beside it; inlined always, so that these numbers are constants.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels-common/linear/cpu/unpack_avx2.h"
#include "kernels-common/linear/cpu/weight_lanes_avx512.h"

namespace bloomery::kernels::cpu {
namespace {

void StoreWords(void* p, __m512i words) { _mm512_store_si512(p, words); }

template <class Format>
class LanePacker {
 public:
  // Inlined always: else the rows it writes may be those it reads, and IQ3 takes 1.4 times as long.
  [[gnu::always_inline]] LanePacker(const std::byte* const* w, std::size_t step) {
    for (std::size_t row = 0; row < kLanes; ++row) {
      const std::byte* block = w[row] + step * Format::kBytes;
      KStep unpacked = Format::Unpack(block);
      if constexpr (Format::kSigned) {
        // KStep's order of scales back to that of the sub-blocks, times -128.
        const __m128i first = _mm256_castsi256_si128(unpacked.scales);
        const __m128i second = _mm256_extracti128_si256(unpacked.scales, 1);
        const __m256i ordered =
            _mm256_set_m128i(_mm_unpackhi_epi16(first, second), _mm_unpacklo_epi16(first, second));
        unpacked.side = _mm256_slli_epi16(_mm256_sub_epi16(_mm256_setzero_si256(), ordered), 7);
      }
      for (std::size_t j = 0; j < 8; ++j) {
        const __m256i offset = _mm256_set1_epi8(Format::kSigned ? static_cast<char>(0x80) : 0);
        _mm256_store_si256(reinterpret_cast<__m256i*>(codes_[row] + 32 * j),
                           _mm256_xor_si256(unpacked.codes[j], offset));
      }
      _mm256_store_si256(reinterpret_cast<__m256i*>(factors_[row]), unpacked.scales);
      _mm256_store_si256(reinterpret_cast<__m256i*>(factors_[row] + 32), unpacked.side);
      d_[row] = Format::D(block);
      m_[row] = Format::M(block);
    }
  }

  void Head(KHead* out) const {
    TransposeRows(factors_, [out](std::size_t i, __m512i both) {
      if (i >= 8) {
        StoreWords(out->side[i - 8], both);
        return;
      }
      // Words 2i and 2i+1 of KStep::scales: word j < 8 is of sub-block 2j, word 8+j of 2j+1.
      const std::size_t sub = i < 4 ? 4 * i : 4 * (i - 4) + 1;
      StoreWords(out->scales[sub], _mm512_srai_epi32(_mm512_slli_epi32(both, 16), 16));
      StoreWords(out->scales[sub + 2], _mm512_srai_epi32(both, 16));
    });
    _mm512_store_ps(out->d, _mm512_load_ps(d_));
    _mm512_store_ps(out->m, _mm512_load_ps(m_));
  }

  template <class Emit, class Between>
  [[gnu::always_inline]] void Codes(std::size_t quarter, const Emit& emit,
                                    const Between& between) const {
    __m512i words[16];
    TransposeSixteen([this, quarter](std::size_t row) { return codes_[row] + 64 * quarter; },
                     words);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < 16; ++i) {
      if (i % 4 == 0) {
        between(i / 4);
      }
      emit(16 * quarter + i, words[i]);
    }
  }

 private:
  alignas(64) std::byte codes_[kLanes][256];
  alignas(64) std::byte factors_[kLanes][64];  // words: scales in KStep's order, then side
  alignas(64) float d_[kLanes];
  alignas(64) float m_[kLanes];
};

// ---- Blocks as they lie.

// The sixteen rows' blocks of one step, copied where the rows do not follow one another: the last
// row stands for those past the end.
template <std::size_t kBytes>
class LaneBlocks {
 public:
  LaneBlocks(const std::byte* const* w, std::size_t step)
      : at_{w[0] + step * kBytes, static_cast<std::size_t>(w[1] - w[0])} {
    if (w[kLanes - 1] == w[0] + (kLanes - 1) * at_.stride) {
      return;
    }
    for (std::size_t row = 0; row < kLanes; ++row) {
      std::memcpy(copy_[row], w[row] + step * kBytes, kBytes);
    }
    at_ = {copy_[0], kBytes};
  }
  LaneBlocks(const LaneBlocks&) = delete;
  LaneBlocks& operator=(const LaneBlocks&) = delete;

  LaneBytes At(std::size_t offset) const { return {at_.first + offset, at_.stride}; }
  // out[j] = word j of the sixteen bytes at `offset`.
  [[gnu::always_inline]] void Words(std::size_t offset, __m512i* out) const {
    TransposeFour(At(offset), out);
  }
  // The last four bytes.
  __m512i Last() const {
    __m512i words[4];
    Words(kBytes - 16, words);
    return words[3];
  }

 private:
  LaneBytes at_;
  std::byte copy_[kLanes][kBytes];
};

// The halfs in the low and in the high words of the lanes.
__m512 LowHalfs(__m512i words) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)); }
__m512 HighHalfs(__m512i words) { return LowHalfs(_mm512_srli_epi32(words, 16)); }
__m512 Negative(__m512 a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0F)); }

// Every byte moved right (left, where negative) by kShift bits, and masked.
template <int kShift>
__m512i BitsOf(__m512i words, int mask) {
  __m512i moved = words;
  if constexpr (kShift > 0) {
    moved = _mm512_srli_epi16(words, kShift);
  } else if constexpr (kShift < 0) {
    moved = _mm512_slli_epi16(words, -kShift);
  }
  return _mm512_and_si512(moved, _mm512_set1_epi8(static_cast<char>(mask)));
}

// `mask`ed bits of every lane from bit `from` on.
__m512i LaneBits(__m512i words, std::size_t from, int mask) {
  return _mm512_and_si512(_mm512_srli_epi32(words, static_cast<unsigned>(from)),
                          _mm512_set1_epi32(mask));
}

// Two words of 16 bits in every lane.
__m512i PairOf(__m512i low, __m512i high) {
  return _mm512_mask_blend_epi16(0xAAAAAAAAU, low, _mm512_slli_epi32(high, 16));
}

// -(2^kShift) times two words.
template <int kShift>
__m512i NegativeTimes(__m512i pair) {
  return _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_slli_epi16(pair, kShift));
}

// Q4_K's and Q5_K's first sixteen bytes: d, dmin, and twelve bytes of scales and mins
// (SixBitPairs). Byte b of the lanes of scales[g], and of mins[g], is of sub-block 4g + b.
struct SixBitHead {
  __m512 d;
  __m512 m;
  __m512i scales[2];
  __m512i mins[2];

  template <std::size_t kBytes>
  explicit SixBitHead(const LaneBlocks<kBytes>& blocks) {
    __m512i words[4];
    blocks.Words(0, words);
    d = LowHalfs(words[0]);
    m = Negative(HighHalfs(words[0]));
    scales[0] = BitsOf<0>(words[1], 0x3F);
    scales[1] = _mm512_or_si512(BitsOf<0>(words[3], 0x0F), BitsOf<2>(words[1], 0x30));
    mins[0] = BitsOf<0>(words[2], 0x3F);
    mins[1] = _mm512_or_si512(BitsOf<4>(words[3], 0x0F), BitsOf<2>(words[2], 0x30));
  }

  void To(KHead* out) const {
    _mm512_store_ps(out->d, d);
    _mm512_store_ps(out->m, m);
    for (std::size_t sub = 0; sub < 8; ++sub) {
      StoreWords(out->scales[2 * sub], LaneBits(scales[sub / 4], 8 * (sub % 4), 0xFF));
      const __m512i min = LaneBits(mins[sub / 4], 8 * (sub % 4), 0xFF);
      StoreWords(out->side[sub], PairOf(min, min));
    }
  }
};

template <>
class LanePacker<FormatQ4K> {
 public:
  LanePacker(const std::byte* const* w, std::size_t step) : blocks_(w, step) {}
  void Head(KHead* out) const { SixBits().To(out); }
  SixBitHead SixBits() const { return SixBitHead(blocks_); }

  template <class Emit, class Between>
  [[gnu::always_inline]] void Codes(std::size_t quarter, const Emit& emit,
                                    const Between& between) const {
    const auto emit_high = [&emit](std::size_t i, __m512i codes) {
      emit(i, _mm512_srli_epi16(codes, 4));
    };
    Nibbles(quarter, emit, emit_high, between);
  }
  // The same, with the codes of odd sub-blocks times sixteen, as they lie, to emit_high.
  template <class Emit, class EmitHigh, class Between>
  [[gnu::always_inline]] void Nibbles(std::size_t quarter, const Emit& emit,
                                      const EmitHigh& emit_high, const Between& between) const {
    __m512i words[8];
    TransposeEight(blocks_.At(16 + 32 * quarter), words);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) {
      if (i % 2 == 0) {
        between(i / 2);
      }
      emit(16 * quarter + i, BitsOf<0>(words[i], 0x0F));
      emit_high(16 * quarter + 8 + i, BitsOf<0>(words[i], 0xF0));
    }
  }

 private:
  LaneBlocks<FormatQ4K::kBytes> blocks_;
};

template <>
class LanePacker<FormatQ5K> {
 public:
  LanePacker(const std::byte* const* w, std::size_t step) : blocks_(w, step) {}
  void Head(KHead* out) const { SixBits().To(out); }
  SixBitHead SixBits() const { return SixBitHead(blocks_); }

  template <class Emit, class Between>
  [[gnu::always_inline]] void Codes(std::size_t quarter, const Emit& emit,
                                    const Between& between) const {  // sub-blocks 2q and 2q + 1
#pragma GCC unroll 2
    for (std::size_t half = 0; half < 2; ++half) {
      __m512i words[4];
      __m512i high[4];  // bit v of a byte is of sub-block v
      blocks_.Words(48 + 32 * quarter + 16 * half, words);
      blocks_.Words(16 + 16 * half, high);
      const std::size_t first = 16 * quarter + 4 * half;
#pragma GCC unroll 4
      for (std::size_t i = 0; i < 4; ++i) {
        if (i % 2 == 0) {
          between(2 * half + i / 2);
        }
        const __m512i two = _mm512_srli_epi16(high[i], static_cast<unsigned>(2 * quarter));
        emit(first + i, _mm512_or_si512(BitsOf<0>(words[i], 15), BitsOf<-4>(two, 16)));
        emit(first + 8 + i, _mm512_or_si512(BitsOf<4>(words[i], 15), BitsOf<-3>(two, 16)));
      }
    }
  }

 private:
  LaneBlocks<FormatQ5K::kBytes> blocks_;
};

template <>
class LanePacker<FormatQ6K> {
 public:
  LanePacker(const std::byte* const* w, std::size_t step) : blocks_(w, step) {}

  void Head(KHead* out) const {
    __m512i words[4];
    ScaleBytes(words);
    for (std::size_t p = 0; p < 8; ++p) {
      const __m512i both = _mm512_slli_epi32(words[p / 2], p % 2 == 0 ? 16 : 0);
      const __m512i first = _mm512_srai_epi32(_mm512_slli_epi32(both, 8), 24);
      const __m512i second = _mm512_srai_epi32(both, 24);
      StoreWords(out->scales[2 * p], first);
      StoreWords(out->scales[2 * p + 1], second);
      StoreWords(out->side[p], NegativeTimes<5>(PairOf(first, second)));
    }
    _mm512_store_ps(out->d, D());
    _mm512_store_ps(out->m, _mm512_setzero_ps());
  }

  // Byte b of the lanes of scales[g]: of sub-block 4g + b.
  void ScaleBytes(__m512i* scales) const { blocks_.Words(192, scales); }
  __m512 D() const { return HighHalfs(blocks_.Last()); }

  template <class Emit, class Between>
  [[gnu::always_inline]] void Codes(std::size_t quarter, const Emit& emit,
                                    const Between& between) const {  // sixteen bytes of one half
    const std::size_t half = quarter / 2;
    const std::size_t at = 16 * (quarter % 2);
    __m512i a[4];
    __m512i b[4];
    __m512i high[4];
    blocks_.Words(64 * half + at, a);
    blocks_.Words(64 * half + 32 + at, b);
    blocks_.Words(128 + 32 * half + at, high);
    const std::size_t first = 32 * half + 4 * (quarter % 2);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      between(i);
      emit(first + i, _mm512_or_si512(BitsOf<0>(a[i], 15), BitsOf<-4>(high[i], 0x30)));
      emit(first + 8 + i, _mm512_or_si512(BitsOf<0>(b[i], 15), BitsOf<-2>(high[i], 0x30)));
      emit(first + 16 + i, _mm512_or_si512(BitsOf<4>(a[i], 15), BitsOf<0>(high[i], 0x30)));
      emit(first + 24 + i, _mm512_or_si512(BitsOf<4>(b[i], 15), BitsOf<2>(high[i], 0x30)));
    }
  }

 private:
  LaneBlocks<FormatQ6K::kBytes> blocks_;
};

template <>
class LanePacker<FormatQ2K> {
 public:
  LanePacker(const std::byte* const* w, std::size_t step) : blocks_(w, step) {}

  void Head(KHead* out) const {
    __m512i words[4];
    blocks_.Words(0, words);
    for (std::size_t p = 0; p < 8; ++p) {
      const __m512i both = _mm512_srli_epi32(words[p / 2], p % 2 == 0 ? 0 : 16);
      StoreWords(out->scales[2 * p], LaneBits(both, 0, 15));
      StoreWords(out->scales[2 * p + 1], LaneBits(both, 8, 15));
      StoreWords(out->side[p], PairOf(LaneBits(both, 4, 15), LaneBits(both, 12, 15)));
    }
    const __m512i halfs = blocks_.Last();
    _mm512_store_ps(out->d, LowHalfs(halfs));
    _mm512_store_ps(out->m, Negative(HighHalfs(halfs)));
  }

  template <class Emit, class Between>
  [[gnu::always_inline]] void Codes(std::size_t quarter, const Emit& emit,
                                    const Between& between) const {  // sixteen bytes of one half
    __m512i words[4];
    blocks_.Words(16 + 16 * quarter, words);
    const std::size_t first = 32 * (quarter / 2) + 4 * (quarter % 2);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      between(i);
      emit(first + i, BitsOf<0>(words[i], 3));
      emit(first + 8 + i, BitsOf<2>(words[i], 3));
      emit(first + 16 + i, BitsOf<4>(words[i], 3));
      emit(first + 24 + i, BitsOf<6>(words[i], 3));
    }
  }

 private:
  LaneBlocks<FormatQ2K::kBytes> blocks_;
};

template <>
class LanePacker<FormatIq4Xs> {
 public:
  LanePacker(const std::byte* const* w, std::size_t step) : blocks_(w, step) {}

  void Head(KHead* out) const {
    __m512i words[4];
    blocks_.Words(0, words);
    for (std::size_t sub = 0; sub < 8; ++sub) {
      const __m512i high = _mm512_slli_epi32(LaneBits(words[0], 16 + 2 * sub, 3), 4);
      const __m512i scale = _mm512_sub_epi32(_mm512_or_si512(LaneBits(words[1], 4 * sub, 15), high),
                                             _mm512_set1_epi32(32));
      StoreWords(out->scales[2 * sub], scale);
      StoreWords(out->side[sub], NegativeTimes<7>(PairOf(scale, scale)));
    }
    _mm512_store_ps(out->d, LowHalfs(words[0]));
    _mm512_store_ps(out->m, _mm512_setzero_ps());
  }

  template <class Emit, class Between>
  [[gnu::always_inline]] void Codes(std::size_t quarter, const Emit& emit,
                                    const Between& between) const {
    const __m512i table = _mm512_xor_si512(_mm512_broadcast_i32x4(LoadInt128(kIq4Values.data())),
                                           _mm512_set1_epi8(static_cast<char>(0x80)));
#pragma GCC unroll 2
    for (std::size_t half = 0; half < 2; ++half) {
      const std::size_t sub = 2 * quarter + half;
      __m512i words[4];
      blocks_.Words(8 + 16 * sub, words);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < 4; ++i) {
        if (i % 2 == 0) {
          between(2 * half + i / 2);
        }
        emit(8 * sub + i, _mm512_shuffle_epi8(table, BitsOf<0>(words[i], 15)));
        emit(8 * sub + 4 + i, _mm512_shuffle_epi8(table, BitsOf<4>(words[i], 15)));
      }
    }
  }

 private:
  LaneBlocks<FormatIq4Xs::kBytes> blocks_;
};

}  // namespace
}  // namespace bloomery::kernels::cpu
