// Inside CUDA sources: CardTile<type>, a tile of the card form as one warp holds it, and the mma
// steps that take its words.
//
// A lane is (g = lane / 4, q = lane % 4). It owns rows g ("half" 0) and g + 8 (half 1) of a tile. A
// tile is cut into sub-blocks of kSpan values:
//   kSpan 32, mma.m16n8k32: words a0..a3 are values 8q..8q+3 of rows g and g + 8, then 8q+4..8q+7
//     of both, so that the B words of lane (column g, q) are the 8 consecutive bytes from 8q of an
//     activation row's sub-block. The order within the 32 is not the hardware's, which sums of
//     integers do not see.
//   kSpan 16, mma.m16n8k16: words a0, a1 are values 4q..4q+3 of rows g and g + 8; the B word is the
//     4 bytes from 4q.
// Accumulators c0..c3 are (row g, column 2q), (g, 2q+1), (g + 8, 2q), (g + 8, 2q+1).
//
// A tile's bytes: vectors of 16 bytes by lane, then planar areas with one entry a row. What each
// type keeps where is said at its CardTile; card_form.cu writes it.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "kernels-common/quant/cuda/card_tables.cuh"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cuda {

// GGUF's type ids of the formats with a card form.
enum CardType : int {
  kQ4_0 = 2,
  kQ8_0 = 8,
  kQ2K = 10,
  kQ3K = 11,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kIq2Xxs = 16,
  kIq2Xs = 17,
  kIq3Xxs = 18,
  kIq4Nl = 20,
  kIq3S = 21,
  kIq4Xs = 23,
  kMxfp4 = 39,
  kNvfp4 = 40,
};

__device__ __forceinline__ void Mma32(int (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                      std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void Mma16(int (&c)[4], const std::uint32_t (&a)[2], std::uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}

// The same with unsigned bytes of weights.
__device__ __forceinline__ void MmaUnsigned32(int (&c)[4], const std::uint32_t (&a)[4],
                                              std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void MmaUnsigned16(int (&c)[4], const std::uint32_t (&a)[2],
                                              std::uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}

// Where a tile's bytes are read from. Weights in device memory: read once a pass, never written
// while kernels run, so their loads may precede WaitForInputs. Volatile: they stay where they are
// written.
struct FromDevice {
  __device__ __forceinline__ static void Words(const void* p, std::uint32_t (&w)[4]) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "l"(p));
  }
  __device__ __forceinline__ static void Words(const void* p, std::uint32_t (&w)[2]) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];"
                 : "=r"(w[0]), "=r"(w[1])
                 : "l"(p));
  }
  __device__ __forceinline__ static void Words(const void* p, std::uint32_t (&w)[1]) {
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(w[0]) : "l"(p));
  }
  __device__ __forceinline__ static std::uint16_t Short(const void* p) {
    std::uint16_t w;
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(w) : "l"(p));
    return w;
  }
};

// A tile that was copied to shared memory.
struct FromShared {
  __device__ __forceinline__ static void Words(const void* p, std::uint32_t (&w)[4]) {
    const uint4 v = *static_cast<const uint4*>(p);
    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
  }
  __device__ __forceinline__ static void Words(const void* p, std::uint32_t (&w)[2]) {
    const uint2 v = *static_cast<const uint2*>(p);
    w[0] = v.x, w[1] = v.y;
  }
  __device__ __forceinline__ static void Words(const void* p, std::uint32_t (&w)[1]) {
    w[0] = *static_cast<const std::uint32_t*>(p);
  }
  __device__ __forceinline__ static std::uint16_t Short(const void* p) {
    return *static_cast<const std::uint16_t*>(p);
  }
};

// kVectors 16-byte vectors of a lane, from the tile's first byte on.
template <class From, int kVectors>
__device__ __forceinline__ void LoadVectors(const std::byte* from, int lane,
                                            std::uint32_t (&w)[4 * kVectors]) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    std::uint32_t part[4];
    From::Words(from + v * 512 + lane * 16, part);
#pragma unroll
    for (int i = 0; i < 4; ++i) w[4 * v + i] = part[i];
  }
}

// The planar entries of a lane's two rows.
template <int kWords>
struct RowWords {
  std::uint32_t w[2][kWords];
};
template <class From, int kWords>
__device__ __forceinline__ void LoadRows(const std::byte* area, int lane, RowWords<kWords>& rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    From::Words(area + (lane / 4 + 8 * half) * (4 * kWords), rows.w[half]);
  }
}
struct RowHalves {
  std::uint16_t d[2];
};
template <class From>
__device__ __forceinline__ void LoadRows(const std::byte* area, int lane, RowHalves& rows) {
  rows.d[0] = From::Short(area + (lane / 4) * 2);
  rows.d[1] = From::Short(area + (lane / 4 + 8) * 2);
}

__device__ __forceinline__ float HalfBits(std::uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<std::uint16_t>(bits)));
}
__device__ __forceinline__ int SignedByte(std::uint32_t word, int byte) {
  return static_cast<std::int8_t>(word >> (8 * byte));
}
// Subtracts `offset` from each byte; bytes below 128, no borrow between them.
__device__ __forceinline__ std::uint32_t LowerBytes(std::uint32_t word, std::uint32_t offset) {
  return ((word | 0x80808080U) - offset * 0x01010101U) ^ 0x80808080U;
}
// Word q of four, q known at run time, without an indexed register.
__device__ __forceinline__ std::uint32_t PickWord(const std::uint32_t (&w)[4], int q) {
  const std::uint32_t low = (q & 1) != 0 ? w[1] : w[0];
  const std::uint32_t high = (q & 1) != 0 ? w[3] : w[2];
  return (q & 2) != 0 ? high : low;
}

// The codes of the eight nibbles of a word, by a table of 16 bytes: those of the low nibbles in
// `low`, of the high ones in `high`.
__device__ __forceinline__ void NibbleTable(std::uint32_t nibbles, const std::uint32_t (&table)[4],
                                            std::uint32_t& low, std::uint32_t& high) {
  const std::uint32_t index = nibbles & 0x77777777U;
  const std::uint32_t upper = (nibbles & 0x88888888U) >> 1;  // 4 where the table's second half
  const std::uint32_t first =
      __byte_perm(__byte_perm(table[0], table[1], index), __byte_perm(table[2], table[3], index),
                  (upper & 0xFFFFU) + 0x3210U);
  const std::uint32_t second =
      __byte_perm(__byte_perm(table[0], table[1], index >> 16),
                  __byte_perm(table[2], table[3], index >> 16), (upper >> 16) + 0x3210U);
  low = __byte_perm(first, second, 0x6420);
  high = __byte_perm(first, second, 0x7531);
}

// Nibbles of a tile in sub-blocks of 32: 4 vectors; vector p is a0..a3 of sub-blocks 2p (low
// nibbles) and 2p + 1 (high).
__device__ __forceinline__ std::uint32_t Nibble32(const std::uint32_t (&w)[16], int s, int i) {
  return (w[4 * (s / 2) + i] >> (4 * (s % 2))) & 0x0F0F0F0FU;
}
// In sub-blocks of 16: word 2p + half has sub-blocks 2p (low nibbles) and 2p + 1 (high) of a half.
__device__ __forceinline__ std::uint32_t Nibble16(const std::uint32_t (&w)[16], int s, int half) {
  return (w[2 * (s / 2) + half] >> (4 * (s % 2))) & 0x0F0F0F0FU;
}
// Bit pairs in sub-blocks of 16: word 2h + half has sub-blocks 4h .. 4h+3, at bits 2*(s % 4) of
// each byte.
__device__ __forceinline__ std::uint32_t Pair16(const std::uint32_t (&w)[8], int s, int half) {
  return (w[2 * (s / 4) + half] >> (2 * (s % 4))) & 0x03030303U;
}

// Bytes of four codes made negative where a bit of `signs` (of 4) is set; codes are not 0.
__device__ __forceinline__ std::uint32_t SignBytes(std::uint32_t codes, std::uint32_t signs) {
  const std::uint32_t ones = (signs * 0x00204081U) & 0x01010101U;
  return (codes ^ (ones * 0xFFU)) + ones;
}
// The eight signs of a 7-bit index: the eighth makes the count of ones even.
__device__ __forceinline__ std::uint32_t EvenSignBits(std::uint32_t index) {
  return index | ((__popc(index) & 1U) << 7);
}

// Types with kOffset: RaisedCodes are that much above the codes, so not negative, and ScaleWord has
// the scales of sub-blocks 4q..4q+3 as bytes, which makes the difference two mma steps with the
// sums of activations.
template <int kType>
struct CardTile;

// 4-bit codes with 6-bit scales and mins: 4 vectors of nibbles, then 16 bytes a row as in the
// file's block (d, dmin, 12 bytes of scales and mins).
struct SixBitRows {
  RowWords<4> rows;

  __device__ __forceinline__ int Scale(int s, int half) const {
    const std::uint32_t(&w)[4] = rows.w[half];
    const std::uint32_t four =
        s < 4 ? w[1] & 0x3F3F3F3FU : (w[3] & 0x0F0F0F0FU) | ((w[1] >> 2) & 0x30303030U);
    return static_cast<int>((four >> (8 * (s % 4))) & 0xFFU);
  }
  __device__ __forceinline__ std::uint32_t Mins(int half, int q) const {
    const std::uint32_t(&w)[4] = rows.w[half];
    const std::uint32_t first = w[2] & 0x3F3F3F3FU;
    const std::uint32_t second = ((w[3] >> 4) & 0x0F0F0F0FU) | ((w[2] >> 2) & 0x30303030U);
    return __byte_perm((q & 2) != 0 ? second : first, 0, (q & 1) != 0 ? 0x3322 : 0x1100);
  }
  __device__ __forceinline__ float D(int half) const { return HalfBits(rows.w[half][0]); }
  __device__ __forceinline__ float M(int half) const { return -HalfBits(rows.w[half][0] >> 16); }
};

template <>
struct CardTile<kQ4K> {
  static constexpr int kSpan = 32;
  static constexpr int kGroup = 256;
  static constexpr BlockForm kForm = BlockForm::kScaleMin;
  static constexpr std::size_t kBytes = 2048 + 16 * 16;
  struct Raw {
    std::uint32_t nibbles[16];
    SixBitRows rows;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 4>(tile, lane, raw.nibbles);
    LoadRows<From>(tile + 2048, lane, raw.rows.rows);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = Nibble32(raw.nibbles, s, i);
  }
  // Codes as they lie in their bytes, unsigned: 16 times as large in odd sub-blocks.
  __device__ __forceinline__ static void BytesInPlace(const Raw& raw, int s,
                                                      std::uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = raw.nibbles[4 * (s / 2) + i] & (s % 2 == 0 ? 0x0F0F0F0FU : 0xF0F0F0F0U);
    }
  }
  __device__ __forceinline__ static int Scale(const Raw& raw, int s, int half) {
    return raw.rows.Scale(s, half);
  }
  __device__ __forceinline__ static std::uint32_t Mins(const Raw& raw, int half, int q) {
    return raw.rows.Mins(half, q);
  }
  __device__ __forceinline__ static float D(const Raw& raw, int half) { return raw.rows.D(half); }
  __device__ __forceinline__ static float M(const Raw& raw, int half) { return raw.rows.M(half); }
};

// As Q4_K, with a vector of fifth bits after the nibbles: word i, bit 8*byte + s.
template <>
struct CardTile<kQ5K> {
  static constexpr int kSpan = 32;
  static constexpr int kGroup = 256;
  static constexpr BlockForm kForm = BlockForm::kScaleMin;
  static constexpr std::size_t kBytes = 2048 + 512 + 16 * 16;
  struct Raw {
    std::uint32_t nibbles[16];
    std::uint32_t high[4];
    SixBitRows rows;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 4>(tile, lane, raw.nibbles);
    LoadVectors<From, 1>(tile + 2048, lane, raw.high);
    LoadRows<From>(tile + 2560, lane, raw.rows.rows);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = Nibble32(raw.nibbles, s, i) | (((raw.high[i] >> s) & 0x01010101U) << 4);
    }
  }
  __device__ __forceinline__ static int Scale(const Raw& raw, int s, int half) {
    return raw.rows.Scale(s, half);
  }
  __device__ __forceinline__ static std::uint32_t Mins(const Raw& raw, int half, int q) {
    return raw.rows.Mins(half, q);
  }
  __device__ __forceinline__ static float D(const Raw& raw, int half) { return raw.rows.D(half); }
  __device__ __forceinline__ static float M(const Raw& raw, int half) { return raw.rows.M(half); }
};

// 4 vectors of low nibbles, 2 of high bit pairs; 16 int8 scales a row; f16 d a row.
template <>
struct CardTile<kQ6K> {
  static constexpr int kSpan = 16;
  static constexpr int kGroup = 256;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static constexpr std::size_t kBytes = 2048 + 1024 + 16 * 16 + 16 * 2;
  struct Raw {
    std::uint32_t nibbles[16];
    std::uint32_t pairs[8];
    RowWords<4> scales;
    RowHalves d;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 4>(tile, lane, raw.nibbles);
    LoadVectors<From, 2>(tile + 2048, lane, raw.pairs);
    LoadRows<From>(tile + 3072, lane, raw.scales);
    LoadRows<From>(tile + 3328, lane, raw.d);
  }
  static constexpr int kOffset = 32;
  __device__ __forceinline__ static void RaisedCodes(const Raw& raw, int s, std::uint32_t (&a)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t pairs = raw.pairs[2 * (s / 4) + i];
      const std::uint32_t high =
          s % 4 < 2 ? pairs << (4 - 2 * (s % 4)) : pairs >> (2 * (s % 4) - 4);
      a[i] = Nibble16(raw.nibbles, s, i) | (high & 0x30303030U);
    }
  }
  __device__ __forceinline__ static std::uint32_t ScaleWord(const Raw& raw, int half, int q) {
    return PickWord(raw.scales.w[half], q);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[2]) {
    RaisedCodes(raw, s, a);
    a[0] = LowerBytes(a[0], kOffset);
    a[1] = LowerBytes(a[1], kOffset);
  }
  __device__ __forceinline__ static int Scale(const Raw& raw, int s, int half) {
    return SignedByte(raw.scales.w[half][s / 4], s % 4);
  }
  __device__ __forceinline__ static float D(const Raw& raw, int half) {
    return HalfBits(raw.d.d[half]);
  }
};

// 2 vectors of bit pairs; 16 bytes of scale (low) and min (high nibble) a row; f16 d, dmin a row.
template <>
struct CardTile<kQ2K> {
  static constexpr int kSpan = 16;
  static constexpr int kGroup = 256;
  static constexpr BlockForm kForm = BlockForm::kScaleMin;
  static constexpr std::size_t kBytes = 1024 + 16 * 16 + 16 * 4;
  struct Raw {
    std::uint32_t pairs[8];
    RowWords<4> scales;
    RowWords<1> d;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 2>(tile, lane, raw.pairs);
    LoadRows<From>(tile + 1024, lane, raw.scales);
    LoadRows<From>(tile + 1280, lane, raw.d);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) a[i] = Pair16(raw.pairs, s, i);
  }
  __device__ __forceinline__ static int Scale(const Raw& raw, int s, int half) {
    return static_cast<int>((raw.scales.w[half][s / 4] >> (8 * (s % 4))) & 15U);
  }
  __device__ __forceinline__ static std::uint32_t Mins(const Raw& raw, int half, int q) {
    return (PickWord(raw.scales.w[half], q) >> 4) & 0x0F0F0F0FU;
  }
  __device__ __forceinline__ static float D(const Raw& raw, int half) {
    return HalfBits(raw.d.w[half][0]);
  }
  __device__ __forceinline__ static float M(const Raw& raw, int half) {
    return -HalfBits(raw.d.w[half][0] >> 16);
  }
};

// 2 vectors of bit pairs; a vector of third bits (word 2*(s / 8) + half, bit 8*byte + s % 8); 16
// int8 scales a row; f16 d a row.
template <>
struct CardTile<kQ3K> {
  static constexpr int kSpan = 16;
  static constexpr int kGroup = 256;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static constexpr std::size_t kBytes = 1024 + 512 + 16 * 16 + 16 * 2;
  struct Raw {
    std::uint32_t pairs[8];
    std::uint32_t high[4];
    RowWords<4> scales;
    RowHalves d;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 2>(tile, lane, raw.pairs);
    LoadVectors<From, 1>(tile + 1024, lane, raw.high);
    LoadRows<From>(tile + 1536, lane, raw.scales);
    LoadRows<From>(tile + 1792, lane, raw.d);
  }
  static constexpr int kOffset = 4;
  __device__ __forceinline__ static void RaisedCodes(const Raw& raw, int s, std::uint32_t (&a)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t high = (raw.high[2 * (s / 8) + i] >> (s % 8)) & 0x01010101U;
      a[i] = Pair16(raw.pairs, s, i) | (high << 2);
    }
  }
  __device__ __forceinline__ static std::uint32_t ScaleWord(const Raw& raw, int half, int q) {
    return PickWord(raw.scales.w[half], q);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[2]) {
    RaisedCodes(raw, s, a);
    a[0] = LowerBytes(a[0], kOffset);
    a[1] = LowerBytes(a[1], kOffset);
  }
  __device__ __forceinline__ static int Scale(const Raw& raw, int s, int half) {
    return SignedByte(raw.scales.w[half][s / 4], s % 4);
  }
  __device__ __forceinline__ static float D(const Raw& raw, int half) {
    return HalfBits(raw.d.d[half]);
  }
};

// The values of a nibble, four a word: IQ4 and twice E2M1.
struct Iq4Table {
  static constexpr std::uint32_t kWords[4] = {0xBFAD9881U, 0xF6EADDCFU, 0x26190D01U, 0x71594535U};
};
struct Fp4Table {
  static constexpr std::uint32_t kWords[4] = {0x03020100U, 0x0C080604U, 0xFDFEFF00U, 0xF4F8FAFCU};
};
template <class Table>
__device__ __forceinline__ std::uint32_t TableNibbles(std::uint32_t word, int high_half) {
  constexpr std::uint32_t kWords[4] = {Table::kWords[0], Table::kWords[1], Table::kWords[2],
                                       Table::kWords[3]};
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  NibbleTable(word, kWords, low, high);
  return high_half != 0 ? high : low;
}

// 4 vectors of nibbles; 8 int8 scales a row; f16 d a row.
template <>
struct CardTile<kIq4Xs> {
  static constexpr int kSpan = 32;
  static constexpr int kGroup = 256;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static constexpr std::size_t kBytes = 2048 + 16 * 8 + 16 * 2;
  struct Raw {
    std::uint32_t nibbles[16];
    RowWords<2> scales;
    RowHalves d;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 4>(tile, lane, raw.nibbles);
    LoadRows<From>(tile + 2048, lane, raw.scales);
    LoadRows<From>(tile + 2176, lane, raw.d);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = TableNibbles<Iq4Table>(raw.nibbles[4 * (s / 2) + i], s % 2);
  }
  __device__ __forceinline__ static int Scale(const Raw& raw, int s, int half) {
    return SignedByte(raw.scales.w[half][s / 4], s % 4);
  }
  __device__ __forceinline__ static float D(const Raw& raw, int half) {
    return HalfBits(raw.d.d[half]);
  }
};

// IQ2_XXS and IQ2_XS keep 16 bits for 8 values: a 9-bit index and a 7-bit sign index, row g's in
// the low half of a word, row g + 8's in the high one.
__device__ __forceinline__ std::uint32_t Iq2Codes(const std::uint64_t* book, std::uint32_t word,
                                                  int half, int part) {
  const std::uint32_t entry = (word >> (16 * half)) & 0xFFFFU;
  const auto codes = static_cast<std::uint32_t>(__ldg(book + (entry & 511U)) >> (32 * part));
  return SignBytes(codes, (EvenSignBits(entry >> 9) >> (4 * part)) & 15U);
}
// 2s + 1 of the s-th nibble.
template <int kWords>
__device__ __forceinline__ int OddScale(const RowWords<kWords>& rows, int s, int half) {
  return static_cast<int>(2U * ((rows.w[half][s / 8] >> (4 * (s % 8))) & 15U) + 1U);
}

// 2 vectors, word s for sub-block s; 8 nibbles of scales a row; f16 d a row.
template <>
struct CardTile<kIq2Xxs> {
  static constexpr int kSpan = 32;
  static constexpr int kGroup = 256;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static constexpr std::size_t kBytes = 1024 + 16 * 4 + 16 * 2;
  struct Raw {
    std::uint32_t entries[8];
    RowWords<1> scales;
    RowHalves d;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 2>(tile, lane, raw.entries);
    LoadRows<From>(tile + 1024, lane, raw.scales);
    LoadRows<From>(tile + 1088, lane, raw.d);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = Iq2Codes(kIq2XxsBook.entry, raw.entries[s], i % 2, i / 2);
    }
  }
  __device__ __forceinline__ static int Scale(const Raw& raw, int s, int half) {
    return OddScale(raw.scales, s, half);
  }
  __device__ __forceinline__ static float D(const Raw& raw, int half) {
    return HalfBits(raw.d.d[half]) * 0.125F;
  }
};

// 4 vectors of 256 bytes, one 16 bytes for each (g, q / 2): word s is the entry of values 8*(q / 2)
// of sub-block s; 16 nibbles of scales a row; f16 d a row.
template <>
struct CardTile<kIq2Xs> {
  static constexpr int kSpan = 16;
  static constexpr int kGroup = 256;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static constexpr std::size_t kBytes = 1024 + 16 * 8 + 16 * 2;
  struct Raw {
    std::uint32_t entries[16];
    RowWords<2> scales;
    RowHalves d;
    int part;  // of an entry: q % 2
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      std::uint32_t words[4];
      From::Words(tile + v * 256 + lane / 2 * 16, words);
#pragma unroll
      for (int i = 0; i < 4; ++i) raw.entries[4 * v + i] = words[i];
    }
    LoadRows<From>(tile + 1024, lane, raw.scales);
    LoadRows<From>(tile + 1152, lane, raw.d);
    raw.part = lane & 1;
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) a[i] = Iq2Codes(kIq2XsBook.entry, raw.entries[s], i, raw.part);
  }
  __device__ __forceinline__ static int Scale(const Raw& raw, int s, int half) {
    return OddScale(raw.scales, s, half);
  }
  __device__ __forceinline__ static float D(const Raw& raw, int half) {
    return HalfBits(raw.d.d[half]) * 0.125F;
  }
};

// IQ3_XXS and IQ3_S: 2 vectors of index bytes, word s: the two of row g's 8 values (the first four
// in the low byte), then those of row g + 8; a vector of sign bytes, byte 2s + half.
template <>
struct CardTile<kIq3Xxs> {
  static constexpr int kSpan = 32;
  static constexpr int kGroup = 256;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static constexpr std::size_t kBytes = 1024 + 512 + 16 * 4 + 16 * 2;
  struct Raw {
    std::uint32_t indices[8];
    std::uint32_t signs[4];
    RowWords<1> scales;
    RowHalves d;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 2>(tile, lane, raw.indices);
    LoadVectors<From, 1>(tile + 1024, lane, raw.signs);
    LoadRows<From>(tile + 1536, lane, raw.scales);
    LoadRows<From>(tile + 1600, lane, raw.d);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i % 2;
      const int part = i / 2;
      const std::uint32_t index = (raw.indices[s] >> (16 * half + 8 * part)) & 255U;
      const std::uint32_t signs = raw.signs[s / 2] >> (16 * (s % 2) + 8 * half + 4 * part);
      a[i] = SignBytes(__ldg(kIq3XxsBook.entry + index), signs & 15U);
    }
  }
  __device__ __forceinline__ static int Scale(const Raw& raw, int s, int half) {
    return OddScale(raw.scales, s, half);
  }
  __device__ __forceinline__ static float D(const Raw& raw, int half) {
    return HalfBits(raw.d.d[half]) * 0.25F;
  }
};

// As IQ3_XXS, with a word a lane of ninth index bits after the signs: bit 4s + 2*half + part.
template <>
struct CardTile<kIq3S> {
  static constexpr int kSpan = 32;
  static constexpr int kGroup = 256;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static constexpr std::size_t kBytes = 1024 + 512 + 128 + 16 * 4 + 16 * 2;
  struct Raw {
    std::uint32_t indices[8];
    std::uint32_t signs[4];
    std::uint32_t high;
    RowWords<1> scales;
    RowHalves d;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 2>(tile, lane, raw.indices);
    LoadVectors<From, 1>(tile + 1024, lane, raw.signs);
    std::uint32_t high[1];
    From::Words(tile + 1536 + lane * 4, high);
    raw.high = high[0];
    LoadRows<From>(tile + 1664, lane, raw.scales);
    LoadRows<From>(tile + 1728, lane, raw.d);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i % 2;
      const int part = i / 2;
      const std::uint32_t index = ((raw.indices[s] >> (16 * half + 8 * part)) & 255U) |
                                  (((raw.high >> (4 * s + i / 2 + 2 * half)) & 1U) << 8);
      const std::uint32_t signs = raw.signs[s / 2] >> (16 * (s % 2) + 8 * half + 4 * part);
      a[i] = SignBytes(__ldg(kIq3SBook.entry + index), signs & 15U);
    }
  }
  __device__ __forceinline__ static int Scale(const Raw& raw, int s, int half) {
    return OddScale(raw.scales, s, half);
  }
  __device__ __forceinline__ static float D(const Raw& raw, int half) {
    return HalfBits(raw.d.d[half]);
  }
};

// Types with one float scale for 32 values: Scale is 1 and D takes the sub-block. f16 d: 16 bytes a
// row.
struct HalfScaleRows {
  RowWords<4> rows;
  __device__ __forceinline__ float D(int s, int half) const {
    return HalfBits(rows.w[half][s / 2] >> (16 * (s % 2)));
  }
};

// 8 vectors of codes, one a sub-block; the scales.
template <>
struct CardTile<kQ8_0> {
  static constexpr int kSpan = 32;
  static constexpr int kGroup = 32;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static constexpr std::size_t kBytes = 4096 + 16 * 16;
  struct Raw {
    std::uint32_t codes[32];
    HalfScaleRows d;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 8>(tile, lane, raw.codes);
    LoadRows<From>(tile + 4096, lane, raw.d.rows);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = raw.codes[4 * s + i];
  }
  __device__ __forceinline__ static float D(const Raw& raw, int s, int half) {
    return raw.d.D(s, half);
  }
};

template <>
struct CardTile<kQ4_0> {
  static constexpr int kSpan = 32;
  static constexpr int kGroup = 32;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static constexpr std::size_t kBytes = 2048 + 16 * 16;
  struct Raw {
    std::uint32_t nibbles[16];
    HalfScaleRows d;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 4>(tile, lane, raw.nibbles);
    LoadRows<From>(tile + 2048, lane, raw.d.rows);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = LowerBytes(Nibble32(raw.nibbles, s, i), 8);
  }
  __device__ __forceinline__ static float D(const Raw& raw, int s, int half) {
    return raw.d.D(s, half);
  }
};

template <>
struct CardTile<kIq4Nl> {
  static constexpr int kSpan = 32;
  static constexpr int kGroup = 32;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static constexpr std::size_t kBytes = 2048 + 16 * 16;
  using Raw = CardTile<kQ4_0>::Raw;
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    CardTile<kQ4_0>::Load<From>(tile, lane, raw);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = TableNibbles<Iq4Table>(raw.nibbles[4 * (s / 2) + i], s % 2);
  }
  __device__ __forceinline__ static float D(const Raw& raw, int s, int half) {
    return raw.d.D(s, half);
  }
};

// 4 vectors of nibbles; 8 exponent bytes a row.
template <>
struct CardTile<kMxfp4> {
  static constexpr int kSpan = 32;
  static constexpr int kGroup = 32;
  static constexpr BlockForm kForm = BlockForm::kScale;
  static constexpr std::size_t kBytes = 2048 + 16 * 8;
  struct Raw {
    std::uint32_t nibbles[16];
    RowWords<2> exponents;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 4>(tile, lane, raw.nibbles);
    LoadRows<From>(tile + 2048, lane, raw.exponents);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = TableNibbles<Fp4Table>(raw.nibbles[4 * (s / 2) + i], s % 2);
  }
  // 2^(e-128), denormal below 2.
  __device__ __forceinline__ static float D(const Raw& raw, int s, int half) {
    const std::uint32_t e = (raw.exponents.w[half][s / 4] >> (8 * (s % 4))) & 255U;
    return __uint_as_float(e < 2 ? 0x00200000U << e : (e - 1U) << 23);
  }
};

// 4 vectors of nibbles in sub-blocks of 16; 16 UE4M3 scales a row, D of sub-block s.
template <>
struct CardTile<kNvfp4> {
  static constexpr int kSpan = 16;
  static constexpr int kGroup = 32;
  static constexpr BlockForm kForm = BlockForm::kPairScales;
  static constexpr std::size_t kBytes = 2048 + 16 * 16;
  struct Raw {
    std::uint32_t nibbles[16];
    RowWords<4> scales;
  };
  template <class From = FromDevice>
  __device__ __forceinline__ static void Load(const std::byte* tile, int lane, Raw& raw) {
    LoadVectors<From, 4>(tile, lane, raw.nibbles);
    LoadRows<From>(tile + 2048, lane, raw.scales);
  }
  __device__ __forceinline__ static void Codes(const Raw& raw, int s, std::uint32_t (&a)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) a[i] = TableNibbles<Fp4Table>(raw.nibbles[2 * (s / 2) + i], s % 2);
  }
  // Half of the scale's value, for codes are twice theirs: (8 + m) * 2^(e-11), or m * 2^-10 with
  // e = 0; 0 for the code of a NaN. The sign bit does not count, but for that code.
  __device__ __forceinline__ static float D(const Raw& raw, int s, int half) {
    const std::uint32_t code = (raw.scales.w[half][s / 4] >> (8 * (s % 4))) & 255U;
    const std::uint32_t exponent = (code >> 3) & 15U;
    const float mantissa = static_cast<float>(code & 7U);
    if (code == 0x7FU) return 0.0F;
    return exponent == 0 ? mantissa * 0x1p-10F
                         : (8.0F + mantissa) * __uint_as_float((exponent + 116U) << 23);
  }
};

}  // namespace bloomery::kernels::cuda
