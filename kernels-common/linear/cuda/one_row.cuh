// Inside CUDA sources: one activation row times a card-form tile, for the formats that decode speed
// depends on.
//
// With one row seven of the eight columns of an mma are idle. Here column j takes sub-block j of
// the row: the B words of a sub-block are zero in every other column, so that one accumulator
// collects the sums of eight sub-blocks, each in its column, and each lane scales its own two.
// Codes that share bytes are taken apart after the products, which costs less than before them: a
// byte of two nibbles, 16*h + l, goes in as it is, l alone goes to an accumulator of its own, and
// the difference is 16 * sum(h*q), exact as all of it is.
//
// Each lane makes its B words from its own column's activations, which it reads once: a selection
// is an instruction, and shared memory in decode is short of bandwidth and of room. What warps do
// at the same time makes each instruction count: 16 warps take about 1,400 clocks for a tile each.
#pragma once

#include <cstdint>

#include "kernels-common/quant/cuda/card_form.cuh"

namespace bloomery::kernels::cuda {

// Sums over the four lanes of a row: lanes q = 0, 2 get that of row g (`first`), q = 1, 3 that of
// row g + 8 (`second`).
__device__ __forceinline__ int SumOfQuad(int first, int second) {
  const bool upper = (threadIdx.x & 1U) != 0;
  int mine = upper ? second : first;
  const int other = upper ? first : second;
  mine += __shfl_xor_sync(0xFFFFFFFFU, other, 1);
  return mine + __shfl_xor_sync(0xFFFFFFFFU, mine, 2);
}

// sum over 16 parts of byte * (sum of 16 activations), of a lane's row as in SumOfQuad; `bytes` are
// the lane's words for rows g and g + 8, `sums` its word of the group's cut sums: the upper parts
// in even columns (lane / 4), the lower ones in odd columns.
__device__ __forceinline__ int SumOfSums(const std::uint32_t (&bytes)[2], std::uint32_t sums) {
  int c[4] = {};
  Mma16(c, bytes, sums);
  return (threadIdx.x & 1U) != 0 ? 16 * c[2] + c[3] : 16 * c[0] + c[1];
}
__device__ __forceinline__ int SumOfSums(const std::uint32_t (&bytes)[2], const std::byte* high,
                                         const std::byte* low) {
  const std::byte* of_column = (threadIdx.x & 4U) != 0 ? low : high;
  return SumOfSums(bytes, reinterpret_cast<const std::uint32_t*>(of_column)[threadIdx.x % 4]);
}

// Q4_K's end: what the accumulators of low nibbles and of bytes and the row entries make of u;
// `sum_of_sums` gives the sum over mins.
template <class SumsOf>
__device__ __forceinline__ float ScaleQ4K(const SixBitRows& rows, int q, const int (&nibbles)[4],
                                          const int (&bytes)[4], const SumsOf& sum_of_sums) {
  // Scales of the lane's sub-blocks 2q and 2q + 1.
  int sum[2];
  std::uint32_t mins[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t(&w)[4] = rows.rows.w[half];
    const std::uint32_t four =
        (q & 2) == 0 ? w[1] & 0x3F3F3F3FU : (w[3] & 0x0F0F0F0FU) | ((w[1] >> 2) & 0x30303030U);
    const std::uint32_t two = (q & 1) == 0 ? four : four >> 16;
    sum[half] =
        static_cast<int>(two & 255U) * nibbles[2 * half] +
        static_cast<int>((two >> 8) & 255U) * ((bytes[2 * half + 1] - nibbles[2 * half + 1]) >> 4);
    mins[half] = rows.Mins(half, q);
  }
  const int products = SumOfQuad(sum[0], sum[1]);
  const int sums = sum_of_sums(mins);
  const std::uint32_t d = (q & 1) == 0 ? rows.rows.w[0][0] : rows.rows.w[1][0];
  return __fmaf_rn(HalfBits(d), __int2float_rn(products),
                   -HalfBits(d >> 16) * __int2float_rn(sums));
}

// Q6_K's sums of a set of eight sub-blocks, each in its column. A byte of two nibbles, and one of
// four bit pairs, serves as many sub-blocks: low nibbles and bytes, and bytes up to each pair, have
// accumulators of their own, whose differences are the upper nibbles and the pairs.
struct OneRowSteps {
  int column;
  std::uint32_t own;  // the lane's B word in its own column
  int nibbles[4] = {};
  int bytes[4] = {};
  int up_to[4][4] = {};
  __device__ __forceinline__ OneRowSteps(std::uint32_t word, int of_column)
      : column(of_column), own(word) {}
  // Four sub-blocks: words of nibbles of the first and the second two, and of the bit pairs.
  __device__ __forceinline__ void Multiply(int four, const std::uint32_t (&w)[4],
                                           const std::uint32_t (&p)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t both[2] = {w[2 * i], w[2 * i + 1]};
      const std::uint32_t low[2] = {both[0] & 0x0F0F0F0FU, both[1] & 0x0F0F0F0FU};
      const std::uint32_t b = column / 2 == 2 * four + i ? own : 0U;
      MmaUnsigned16(nibbles, low, b);
      MmaUnsigned16(bytes, both, b);
    }
    const std::uint32_t b = column / 4 == four ? own : 0U;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const std::uint32_t mask = 0x01010101U * ((4U << (2 * pair)) - 1U);
      const std::uint32_t masked[2] = {p[0] & mask, p[1] & mask};
      MmaUnsigned16(up_to[pair], masked, b);
    }
  }
  // Of the lane's sub-blocks 2q and 2q + 1 for its row g + 8 * half by two int8 scales; bit pairs
  // are 4^(sub-block % 4) too large.
  __device__ __forceinline__ int Scale(std::uint32_t two_scales, int q, int half) const {
    const bool upper = (q & 1) != 0;
    const int even = 2 * half;
    const int odd = 2 * half + 1;
    const int low[2] = {nibbles[even], (bytes[odd] - nibbles[odd]) >> 4};
    const int high[2] = {upper ? up_to[2][even] - up_to[1][even] : up_to[0][even],
                         upper ? up_to[3][odd] - up_to[2][odd] : up_to[1][odd] - up_to[0][odd]};
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum += SignedByte(two_scales, i) * (low[i] + ((high[i] << 4) >> (4 * (q & 1) + 2 * i)));
    }
    return sum;
  }
};

// u of N4 for row g + 8*(q % 2) of a tile in shared memory and a group of 256 codes with its cut
// sums.
template <int kType>
__device__ __forceinline__ float OneRowValue(const std::byte* tile, const std::byte* codes,
                                             const std::byte* high, const std::byte* low);

// Loops over vectors stay rolled: the code of six kernels a layer shares an instruction cache, and
// tiles in shared memory need no registers indexed at compile time.
// Of kTiles tiles of Q4_K, `stride` apart, for the same codes.
template <int kTiles>
__device__ __forceinline__ void OneRowValuesQ4K(const std::byte* tile, int stride,
                                                const std::byte* codes, const std::byte* high,
                                                const std::byte* low, float (&u)[kTiles]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int q = lane % 4;
  const uint2 own = reinterpret_cast<const uint2*>(codes)[lane];
  int nibbles[kTiles][4] = {};
  int bytes[kTiles][4] = {};
#pragma unroll 2
  for (int pair = 0; pair < 4; ++pair) {
    const uint2 b = lane / 8 == pair ? own : make_uint2(0, 0);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      std::uint32_t all[4];
      FromShared::Words(tile + i * stride + pair * 512 + lane * 16, all);
      const std::uint32_t half[4] = {all[0] & 0x0F0F0F0FU, all[1] & 0x0F0F0F0FU,
                                     all[2] & 0x0F0F0F0FU, all[3] & 0x0F0F0F0FU};
      MmaUnsigned32(nibbles[i], half, b.x, b.y);
      MmaUnsigned32(bytes[i], all, b.x, b.y);
    }
  }
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    SixBitRows scales;
    LoadRows<FromShared>(tile + i * stride + 2048, lane, scales.rows);
    u[i] = ScaleQ4K(scales, q, nibbles[i], bytes[i],
                    [&](const std::uint32_t(&mins)[2]) { return SumOfSums(mins, high, low); });
  }
}

template <>
__device__ __forceinline__ float OneRowValue<kQ4K>(const std::byte* tile, const std::byte* codes,
                                                   const std::byte* high, const std::byte* low) {
  float u[1];
  OneRowValuesQ4K<1>(tile, 0, codes, high, low, u);
  return u[0];
}

// Codes of five bits have no bytes to spare: both sub-blocks of a pair are put together.
template <>
__device__ __forceinline__ float OneRowValue<kQ5K>(const std::byte* tile, const std::byte* codes,
                                                   const std::byte* high, const std::byte* low) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const uint2 own = reinterpret_cast<const uint2*>(codes)[lane];
  const bool odd = (lane & 4) != 0;
  std::uint32_t fifth[4];
  FromShared::Words(tile + 2048 + lane * 16, fifth);
  int sums[4] = {};
#pragma unroll 1
  for (int pair = 0; pair < 4; ++pair) {
    const bool mine = lane / 8 == pair;
    std::uint32_t a[4];
    std::uint32_t b[4];
    FromShared::Words(tile + pair * 512 + lane * 16, b);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = (b[i] & 0x0F0F0F0FU) | ((fifth[i] << 4) & 0x10101010U);
      b[i] = ((b[i] >> 4) & 0x0F0F0F0FU) | ((fifth[i] << 3) & 0x10101010U);
      fifth[i] >>= 2;
    }
    MmaUnsigned32(sums, a, mine && !odd ? own.x : 0U, mine && !odd ? own.y : 0U);
    MmaUnsigned32(sums, b, mine && odd ? own.x : 0U, mine && odd ? own.y : 0U);
  }
  // As sums of nibbles and of bytes: those of bytes less those of nibbles are 16 times an odd
  // sub-block's.
  const int nibbles[4] = {sums[0], 0, sums[2], 0};
  const int bytes[4] = {0, 16 * sums[1], 0, 16 * sums[3]};
  SixBitRows scales;
  LoadRows<FromShared>(tile + 2560, lane, scales.rows);
  return ScaleQ4K(scales, lane % 4, nibbles, bytes,
                  [&](const std::uint32_t(&mins)[2]) { return SumOfSums(mins, high, low); });
}

template <>
__device__ __forceinline__ float OneRowValue<kQ6K>(const std::byte* tile, const std::byte* codes,
                                                   const std::byte* high, const std::byte* low) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int q = lane % 4;
  const int column = lane / 4;
  const std::byte* scales = tile + 3072 + column * 16;  // of row g; row g + 8 lies 128 further
  int sum[2] = {};
#pragma unroll 1
  for (int set = 0; set < 2; ++set) {  // sub-blocks 8*set + column
    OneRowSteps steps(reinterpret_cast<const std::uint32_t*>(codes)[32 * set + lane], column);
#pragma unroll
    for (int four = 0; four < 2; ++four) {
      std::uint32_t w[4];
      std::uint32_t p[2];
      FromShared::Words(tile + (2 * set + four) * 512 + lane * 16, w);
      FromShared::Words(tile + 2048 + set * 512 + lane * 16 + four * 8, p);
      steps.Multiply(four, w, p);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto two =
          *reinterpret_cast<const std::uint16_t*>(scales + 128 * half + 8 * set + 2 * q);
      sum[half] += steps.Scale(two, q, half);
    }
  }
  const std::uint32_t words[2] = {reinterpret_cast<const std::uint32_t*>(scales)[q],
                                  reinterpret_cast<const std::uint32_t*>(scales + 128)[q]};
  const int products =
      SumOfQuad(sum[0], sum[1]) - CardTile<kQ6K>::kOffset * SumOfSums(words, high, low);
  const std::byte* d = tile + 3328 + 2 * (column + 8 * (q & 1));
  return HalfBits(FromShared::Short(d)) * __int2float_rn(products);
}

// The same from registers, for kernels in a straight line.

// Sums of 16 codes of parts 4q .. 4q+3, cut into int8: 16*high + low.
struct CutSums {
  std::uint32_t high;
  std::uint32_t low;
  __device__ __forceinline__ CutSums(std::uint32_t high_bytes, std::uint32_t low_bytes)
      : high(high_bytes), low(low_bytes) {}
  // Of four int16.
  __device__ __forceinline__ explicit CutSums(const uint2& sums) : high(0), low(0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t word = i < 2 ? sums.x : sums.y;
      const int sum = static_cast<std::int16_t>(word >> (16 * (i % 2)));
      const int cut = (sum + 8) >> 4;
      high |= static_cast<std::uint32_t>(cut & 255) << (8 * i);
      low |= static_cast<std::uint32_t>((sum - 16 * cut) & 255) << (8 * i);
    }
  }
};

// sum over 16 parts of byte * (sum of 16 activations), of a lane's row as in SumOfQuad.
__device__ __forceinline__ int SumOfSums(const std::uint32_t (&bytes)[2], const CutSums& sums) {
  return SumOfSums(bytes, (threadIdx.x & 4U) != 0 ? sums.low : sums.high);
}

// A lane's B words of a group for Q4_K, from its own 8 codes.
template <int kType>
struct OneRowB;
template <>
struct OneRowB<kQ4K> {
  uint2 words[4];  // of each pair of sub-blocks
  __device__ __forceinline__ OneRowB(const uint2& own, int lane) {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      words[pair] = lane / 8 == pair ? own : make_uint2(0, 0);
    }
  }
};

// u of N4 for row g + 8*(q % 2).
__device__ __forceinline__ float OneRowDot(const CardTile<kQ4K>::Raw& raw, const OneRowB<kQ4K>& b,
                                           const CutSums& cut) {
  const int q = static_cast<int>(threadIdx.x % 4);
  int nibbles[4] = {};
  int bytes[4] = {};
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const std::uint32_t all[4] = {raw.nibbles[4 * pair], raw.nibbles[4 * pair + 1],
                                  raw.nibbles[4 * pair + 2], raw.nibbles[4 * pair + 3]};
    const std::uint32_t half[4] = {all[0] & 0x0F0F0F0FU, all[1] & 0x0F0F0F0FU, all[2] & 0x0F0F0F0FU,
                                   all[3] & 0x0F0F0F0FU};
    MmaUnsigned32(nibbles, half, b.words[pair].x, b.words[pair].y);
    MmaUnsigned32(bytes, all, b.words[pair].x, b.words[pair].y);
  }
  return ScaleQ4K(raw.rows, q, nibbles, bytes,
                  [&](const std::uint32_t(&mins)[2]) { return SumOfSums(mins, cut); });
}

// `own`: the lane's words 4q .. 4q+3 of sub-blocks g and g + 8.
__device__ __forceinline__ float OneRowDot(const CardTile<kQ6K>::Raw& raw,
                                           const std::uint32_t (&own)[2], const CutSums& cut) {
  using Tile = CardTile<kQ6K>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int q = lane % 4;
  const int column = lane / 4;
  int sum[2] = {};
#pragma unroll
  for (int set = 0; set < 2; ++set) {
    OneRowSteps steps(own[set], column);
#pragma unroll
    for (int four = 0; four < 2; ++four) {
      const int at = 8 * set + 4 * four;
      const std::uint32_t w[4] = {raw.nibbles[at], raw.nibbles[at + 1], raw.nibbles[at + 2],
                                  raw.nibbles[at + 3]};
      const std::uint32_t p[2] = {raw.pairs[4 * set + 2 * four], raw.pairs[4 * set + 2 * four + 1]};
      steps.Multiply(four, w, p);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t four =
          (q & 2) == 0 ? raw.scales.w[half][2 * set] : raw.scales.w[half][2 * set + 1];
      sum[half] += steps.Scale((q & 1) == 0 ? four : four >> 16, q, half);
    }
  }
  const std::uint32_t scales[2] = {Tile::ScaleWord(raw, 0, q), Tile::ScaleWord(raw, 1, q)};
  const int products = SumOfQuad(sum[0], sum[1]) - Tile::kOffset * SumOfSums(scales, cut);
  return HalfBits((q & 1) == 0 ? raw.d.d[0] : raw.d.d[1]) * __int2float_rn(products);
}

}  // namespace bloomery::kernels::cuda
