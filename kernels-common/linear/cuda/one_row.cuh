// Inside CUDA sources: one activation row times a card-form tile, for the formats that decode speed
// depends on.
//
// With one row seven of the eight columns of an mma are idle. Here column j takes sub-block j of
// the row: the B words of a sub-block are zero in every other column, so that one accumulator
// collects the sums of eight sub-blocks, each in its column, and each lane scales its own two. That
// leaves columns free to take apart codes that share bytes, which costs more than the products do:
// a byte of two nibbles, 16*h + l, goes in as it is, and the columns of h subtract l, which is an
// operand of its own, by negated activations. What comes out is 16 * sum(h*q), exact as all of it
// is.
//
// So activations lie in shared memory as B words: for each group of 256, sub-block and lane q the
// words of each mma step in which that sub-block's column is not zero, and behind them a vector of
// zeros for the other columns.
#pragma once

#include <cstdint>

#include "kernels-common/quant/cuda/card_form.cuh"

namespace bloomery::kernels::cuda {

// Bytes of a group's B words, the zeros included.
template <int kType>
inline constexpr int kOneRowGroupBytes = 0;
template <>
inline constexpr int kOneRowGroupBytes<kQ4K> = 8 * 4 * 16 + 16;
template <>
inline constexpr int kOneRowGroupBytes<kQ6K> = 16 * 4 * 32 + 32;

// -q of each byte, which is not -128.
__device__ __forceinline__ std::uint32_t NegateBytes(std::uint32_t q) {
  return (0x80808080U - (q & 0x7F7F7F7FU)) ^ (~q & 0x80808080U);
}

// Stores a lane's part of a group: codes 8*lane .. 8*lane+7 as two words. Steps of Q4_K, for each
// pair of sub-blocks: the low nibbles (even column, minus the odd one), the bytes (odd column).
__device__ __forceinline__ void StoreOneRowQ4K(std::byte* group, int lane,
                                               const std::uint32_t (&words)[2]) {
  const bool odd = lane / 4 % 2 != 0;
  uint4 entry;
  entry.x = odd ? NegateBytes(words[0]) : words[0];
  entry.y = odd ? NegateBytes(words[1]) : words[1];
  entry.z = odd ? words[0] : 0U;
  entry.w = odd ? words[1] : 0U;
  reinterpret_cast<uint4*>(group)[lane] = entry;
  if (lane == 0) reinterpret_cast<uint4*>(group)[32] = make_uint4(0, 0, 0, 0);
}

// Steps of Q6_K, for each four sub-blocks c = 0..3: low nibbles and bytes of sub-blocks 0, 1 and of
// 2, 3; then the bytes of four bit pairs up to pair c (column c, minus column c + 1).
__device__ __forceinline__ void StoreOneRowQ6K(std::byte* group, int lane,
                                               const std::uint32_t (&words)[2]) {
  const int c = lane / 2 % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t plus = words[i];
    const std::uint32_t minus = NegateBytes(plus);
    const std::uint32_t low = c % 2 == 0 ? plus : minus;
    const std::uint32_t byte = c % 2 == 0 ? 0U : plus;
    uint4* entry = reinterpret_cast<uint4*>(group) + 2 * (2 * lane + i);
    entry[0] = make_uint4(c < 2 ? low : 0U, c < 2 ? byte : 0U, c < 2 ? 0U : low, c < 2 ? 0U : byte);
    entry[1] = make_uint4(c == 0   ? plus
                          : c == 1 ? minus
                                   : 0U,
                          c == 1   ? plus
                          : c == 2 ? minus
                                   : 0U,
                          c == 2   ? plus
                          : c == 3 ? minus
                                   : 0U,
                          c == 3 ? plus : 0U);
  }
  if (lane < 2) reinterpret_cast<uint4*>(group)[128 + lane] = make_uint4(0, 0, 0, 0);
}

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
// the lane's words for rows g and g + 8, `high` and `low` the group's cut sums.
__device__ __forceinline__ int SumOfSums(const std::uint32_t (&bytes)[2], const std::byte* high,
                                         const std::byte* low) {
  const int q = static_cast<int>(threadIdx.x % 4);
  int c[4] = {};
  Mma16(c, bytes, reinterpret_cast<const std::uint32_t*>(high)[q]);
#pragma unroll
  for (int i = 0; i < 4; ++i) c[i] *= 16;
  Mma16(c, bytes, reinterpret_cast<const std::uint32_t*>(low)[q]);
  return (q & 1) != 0 ? c[2] : c[0];
}

// u of N4 of a group for row g + 8*(q % 2) of a tile in shared memory.
template <int kType>
__device__ __forceinline__ float OneRowValue(const std::byte* tile, const std::byte* group,
                                             const std::byte* high, const std::byte* low);

template <>
__device__ __forceinline__ float OneRowValue<kQ4K>(const std::byte* tile, const std::byte* group,
                                                   const std::byte* high, const std::byte* low) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int q = lane % 4;
  const int column = lane / 4;
  CardTile<kQ4K>::Raw raw;
  CardTile<kQ4K>::Load<FromShared>(tile, lane, raw);
  int d[4] = {};
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const uint4 b = reinterpret_cast<const uint4*>(group)[column / 2 == pair ? lane : 32];
    const std::uint32_t bytes[4] = {raw.nibbles[4 * pair], raw.nibbles[4 * pair + 1],
                                    raw.nibbles[4 * pair + 2], raw.nibbles[4 * pair + 3]};
    const std::uint32_t low_nibbles[4] = {bytes[0] & 0x0F0F0F0FU, bytes[1] & 0x0F0F0F0FU,
                                          bytes[2] & 0x0F0F0F0FU, bytes[3] & 0x0F0F0F0FU};
    MmaUnsigned32(d, low_nibbles, b.x, b.y);
    MmaUnsigned32(d, bytes, b.z, b.w);
  }
  // Scales of the lane's sub-blocks 2q and 2q + 1.
  int sum[2];
  std::uint32_t mins[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t(&w)[4] = raw.rows.rows.w[half];
    const std::uint32_t four =
        (q & 2) == 0 ? w[1] & 0x3F3F3F3FU : (w[3] & 0x0F0F0F0FU) | ((w[1] >> 2) & 0x30303030U);
    const std::uint32_t two = (q & 1) == 0 ? four : four >> 16;
    sum[half] = static_cast<int>(two & 255U) * d[2 * half] +
                static_cast<int>((two >> 8) & 255U) * (d[2 * half + 1] >> 4);
    mins[half] = CardTile<kQ4K>::Mins(raw, half, q);
  }
  const int products = SumOfQuad(sum[0], sum[1]);
  const int sums = SumOfSums(mins, high, low);
  const std::uint32_t scales = (q & 1) == 0 ? raw.rows.rows.w[0][0] : raw.rows.rows.w[1][0];
  return __fmaf_rn(HalfBits(scales), __int2float_rn(products),
                   -HalfBits(scales >> 16) * __int2float_rn(sums));
}

template <>
__device__ __forceinline__ float OneRowValue<kQ6K>(const std::byte* tile, const std::byte* group,
                                                   const std::byte* high, const std::byte* low) {
  using Tile = CardTile<kQ6K>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int q = lane % 4;
  const int column = lane / 4;
  Tile::Raw raw;
  Tile::Load<FromShared>(tile, lane, raw);
  int sum[2] = {};
#pragma unroll
  for (int set = 0; set < 2; ++set) {  // sub-blocks 8*set + column
    int nibbles[4] = {};
    int pairs[4] = {};
#pragma unroll
    for (int four = 0; four < 2; ++four) {
      const int entry = column / 4 == four ? (8 * set + column) * 4 + q : 64;
      const uint4 b = reinterpret_cast<const uint4*>(group)[2 * entry];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 2 * (4 * set + 2 * four + i);
        const std::uint32_t bytes[2] = {raw.nibbles[at], raw.nibbles[at + 1]};
        const std::uint32_t low_nibbles[2] = {bytes[0] & 0x0F0F0F0FU, bytes[1] & 0x0F0F0F0FU};
        MmaUnsigned16(nibbles, low_nibbles, i == 0 ? b.x : b.z);
        MmaUnsigned16(nibbles, bytes, i == 0 ? b.y : b.w);
      }
      const uint4 c = reinterpret_cast<const uint4*>(group)[2 * entry + 1];
      const int at = 2 * (2 * set + four);
      const std::uint32_t all[2] = {raw.pairs[at], raw.pairs[at + 1]};
      const std::uint32_t three[2] = {all[0] & 0x3F3F3F3FU, all[1] & 0x3F3F3F3FU};
      const std::uint32_t two[2] = {all[0] & 0x0F0F0F0FU, all[1] & 0x0F0F0F0FU};
      const std::uint32_t one[2] = {all[0] & 0x03030303U, all[1] & 0x03030303U};
      MmaUnsigned16(pairs, one, c.x);
      MmaUnsigned16(pairs, two, c.y);
      MmaUnsigned16(pairs, three, c.z);
      MmaUnsigned16(pairs, all, c.w);
    }
    // The lane's sub-blocks 8*set + 2q + i: bit pairs are 4^(sub-block % 4) too large.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t(&w)[4] = raw.scales.w[half];
      const std::uint32_t four = (q & 2) == 0 ? w[2 * set] : w[2 * set + 1];
      const std::uint32_t two = (q & 1) == 0 ? four : four >> 16;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int low_sum = i == 0 ? nibbles[2 * half] : nibbles[2 * half + 1] >> 4;
        const int high_sum = (pairs[2 * half + i] << 4) >> (4 * (q & 1) + 2 * i);
        sum[half] += SignedByte(two, i) * (low_sum + high_sum);
      }
    }
  }
  const std::uint32_t scales[2] = {Tile::ScaleWord(raw, 0, q), Tile::ScaleWord(raw, 1, q)};
  const int products = SumOfQuad(sum[0], sum[1]) - Tile::kOffset * SumOfSums(scales, high, low);
  return HalfBits((q & 1) == 0 ? raw.d.d[0] : raw.d.d[1]) * __int2float_rn(products);
}

}  // namespace bloomery::kernels::cuda
