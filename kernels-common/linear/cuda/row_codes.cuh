// Inside CUDA sources: up to eight activation rows in shared memory as the B operand of card-form
// tiles, and what a tile makes of them. One row of the common formats has a form of its own
// (one_row.cuh).
//
// A row's codes lie in order, padded to 256 values and by 32 bytes, so that the lanes' 8-byte reads
// of eight rows meet in no bank. The sums of 16 codes are cut into two int8 (16*high + low), which
// makes S of N3 (mins, int8) two more mma steps.
#pragma once

#include <cstdint>

#include "kernels-common/cuda/cluster.cuh"
#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/linear/cuda/one_row.cuh"
#include "kernels-common/quant/cuda/card_form.cuh"
#include "kernels-common/quant/cuda/quantise.cuh"

namespace bloomery::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// The threads of a team of kWarps warps meet; barrier 0 is the block's.
template <int kWarps>
__device__ __forceinline__ void MeetTeam(int team) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(32 * kWarps) : "memory");
}

// Byte offsets into dynamic shared memory. Made on the host, so that both sides agree.
struct RowCodesLayout {
  std::int32_t k_padded;     // to 256
  std::int32_t group;        // 256 or 32
  std::int32_t code_stride;  // bytes from row to row
  std::int32_t sum_stride;
  std::int32_t scale_stride;  // floats
  std::int32_t high;
  std::int32_t low;
  std::int32_t scales;
  std::int32_t bytes;  // of all, a multiple of 16
};

inline RowCodesLayout LayOutRowCodes(std::int32_t k, std::int32_t group, std::int32_t rows) {
  RowCodesLayout layout = {};
  layout.k_padded = (k + 255) / 256 * 256;
  layout.group = group;
  layout.code_stride = layout.k_padded + 32;
  layout.sum_stride = layout.k_padded / 16 + 16;
  layout.scale_stride = layout.k_padded / group;
  layout.high = rows * layout.code_stride;
  layout.low = layout.high + rows * layout.sum_stride;
  layout.scales = layout.low + rows * layout.sum_stride;
  layout.bytes = (layout.scales + rows * layout.scale_stride * 4 + 15) / 16 * 16;
  return layout;
}

struct RowCodes {
  std::byte* memory;
  RowCodesLayout at;

  __device__ __forceinline__ std::byte* Codes(int row) const {
    return memory + row * at.code_stride;
  }
  __device__ __forceinline__ std::byte* High(int row) const {
    return memory + at.high + row * at.sum_stride;
  }
  __device__ __forceinline__ std::byte* Low(int row) const {
    return memory + at.low + row * at.sum_stride;
  }
  __device__ __forceinline__ float* Scales(int row) const {
    return reinterpret_cast<float*>(memory + at.scales) + row * at.scale_stride;
  }
};

// 16*high + low == sum, both int8 for |sum| <= 2032.
__device__ __forceinline__ void StoreSum(const RowCodes& out, int row, int index,
                                         std::int32_t sum) {
  const std::int32_t high = (sum + 8) >> 4;
  out.High(row)[index] = static_cast<std::byte>(high & 255);
  out.Low(row)[index] = static_cast<std::byte>((sum - 16 * high) & 255);
}

// Lane l holds values start + 8l .. +7 of the row (zeros beyond its end).
template <int kGroup>
__device__ __forceinline__ void StoreStretch(const float (&v)[8], const RowCodes& out, int row,
                                             int start) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const LaneCodes codes = QuantiseLane<kGroup>(v);
  const int first = start + 8 * lane;
  *reinterpret_cast<uint2*>(out.Codes(row) + first) = make_uint2(codes.words[0], codes.words[1]);
  if (lane % 2 == 0) {
    StoreSum(out, row, first / 16, codes.sum);
  }
  if (first % kGroup == 0) {
    out.Scales(row)[first / kGroup] = codes.scale;
  }
}

// A stretch that this warp stored (and met after) to the other blocks of its cluster, which have
// the same layout.
__device__ __forceinline__ void ShareStretch(const RowCodes& of, int row, int stretch) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const int size = ClusterSize();
  const int rank = ClusterRank();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::byte* from = lane < 16    ? of.Codes(row) + 256 * stretch + 16 * lane
                          : lane == 16 ? of.High(row) + 16 * stretch
                                       : of.Low(row) + 16 * stretch;
  const float* scale = of.Scales(row) + stretch;
  const uint4 bytes = lane < 18 ? *reinterpret_cast<const uint4*>(from) : uint4{};
#pragma unroll 1
  for (int i = 1; i < size; ++i) {
    const int other = rank + i < size ? rank + i : rank + i - size;
    if (lane < 18) StoreInBlock(InBlock(SharedAddress(from), other), bytes);
    if (lane == 18) StoreInBlock(InBlock(SharedAddress(scale), other), *scale);
  }
#endif
}

// Copies rows that are quantised already from device memory; the threads of the block from `first`
// on do it. k divides by 32.
__device__ __forceinline__ void CopyQuantisedRows(const QuantisedView& from, const RowCodes& out,
                                                  int rows, int first) {
  const int step = static_cast<int>(blockDim.x) - first;
  const int me = static_cast<int>(threadIdx.x) - first;
  if (me < 0) return;
  const int k = from.k;
  for (int row = 0; row < rows; ++row) {
    const std::byte* source = from.data + static_cast<std::size_t>(row) * from.row_bytes;
    for (int i = me; i < out.at.k_padded / 16; i += step) {
      const bool inside = 16 * i < k;
      reinterpret_cast<uint4*>(out.Codes(row))[i] =
          inside ? reinterpret_cast<const uint4*>(source)[i] : uint4{};
      StoreSum(out, row, i,
               inside ? reinterpret_cast<const std::int16_t*>(source + from.sums_offset)[i] : 0);
    }
    const int scales = (k + from.group - 1) / from.group;
    for (int i = me; i < out.at.scale_stride; i += step) {
      out.Scales(row)[i] =
          i < scales ? reinterpret_cast<const float*>(source + from.scales_offset)[i] : 0.0F;
    }
  }
}

// One group's codes, then their cut sums, as OneRowValue takes them; a warp's own memory.
struct OwnCodes {
  static constexpr int kHigh = 256;
  static constexpr int kLow = 272;
  static constexpr int kBytes = 288;

  __device__ __forceinline__ static void Store(std::byte* own, const std::uint32_t (&words)[2],
                                               std::int32_t sum) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    reinterpret_cast<uint2*>(own)[lane] = make_uint2(words[0], words[1]);
    if (lane % 2 == 0) {
      const std::int32_t high = (sum + 8) >> 4;
      own[kHigh + lane / 2] = static_cast<std::byte>(high & 255);
      own[kLow + lane / 2] = static_cast<std::byte>((sum - 16 * high) & 255);
    }
  }
};

// N8's tree over the lanes of a warp; every lane has the sum.
__device__ __forceinline__ float LaneTree(float sum) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, step);
  }
  return sum;
}

// The factor r of RMS norm of a row of k values (dividing by 32), by one warp.
__device__ __forceinline__ float NormFactor(const float* x, int k, float eps) {
  float sum = 0.0F;
  const float* at = x + threadIdx.x % 32;
#pragma unroll 16
  for (int i = 0; i < k / 32; ++i) {
    const float value = at[32 * i];
    sum = __fmaf_rn(value, value, sum);
  }
  const float mean = LaneTree(sum) / static_cast<float>(k);
  return ExactInverseSqrt(mean + eps);
}

// A lane's P of N8 of two rows of kK values in shared memory, by one warp; the next values are
// loaded while these are added.
template <int kK>
__device__ __forceinline__ float LaneDot(const float* x, const float* y) {
  constexpr int kSome = 16;
  static_assert(kK % (2 * 32 * kSome) == 0);
  const float* a = x + threadIdx.x % 32;
  const float* b = y + threadIdx.x % 32;
  float first[2][kSome];
  float second[2][kSome];
  const auto load = [&](int set, int from) {
#pragma unroll
    for (int i = 0; i < kSome; ++i) {
      first[set][i] = a[32 * (from + i)];
      second[set][i] = b[32 * (from + i)];
    }
  };
  float sum = 0.0F;
  load(0, 0);
#pragma unroll
  for (int from = 0; from < kK / 32; from += kSome) {
    const int set = from / kSome % 2;
    if (from + kSome < kK / 32) load(1 - set, from + kSome);
#pragma unroll
    for (int i = 0; i < kSome; ++i) sum = __fmaf_rn(first[set][i], second[set][i], sum);
  }
  return sum;
}

// The same for kK values, a power of two: its division is exact, and a correctly rounded
// reciprocal is the division by one.
template <int kK>
__device__ __forceinline__ float NormFactorOf(const float* x, float eps) {
  static_assert((kK & (kK - 1)) == 0);
  const float mean = LaneTree(LaneDot<kK>(x, x)) * (1.0F / kK);
  return __frcp_rn(__fsqrt_rn(mean + eps));
}

// Eight values of a stretch by lane, zeros beyond k; x is 16-byte aligned.
__device__ __forceinline__ void LoadStretch(const float* x, int first, int k, float (&v)[8]) {
  if (first < k) {
    const float4 a = *reinterpret_cast<const float4*>(x + first);
    const float4 b = *reinterpret_cast<const float4*>(x + first + 4);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = 0.0F;
  }
}

// Which activation rows a lane deals with: rows that do not exist are replaced by one that does.
struct LaneColumns {
  int n;   // of its B words
  int c0;  // of its accumulators
  int c1;
  __device__ __forceinline__ explicit LaneColumns(int rows) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    n = min(lane / 4, rows - 1);
    c0 = min(lane % 4 * 2, rows - 1);
    c1 = min(lane % 4 * 2 + 1, rows - 1);
  }
};

// t of N5 for a lane's four accumulators of a tile in shared memory, any number of rows.
template <int kType>
__device__ __forceinline__ void TileDotRows(const std::byte* tile, const RowCodes& x, int group,
                                            const LaneColumns& columns, float (&t)[4]) {
  using Tile = CardTile<kType>;
  typename Tile::Raw raw;
  Tile::template Load<FromShared>(tile, static_cast<int>(threadIdx.x % 32), raw);
  const int n = columns.n;
  const int c0 = columns.c0;
  const int c1 = columns.c1;
  const int q = static_cast<int>(threadIdx.x % 4);
  constexpr int kParts = 256 / Tile::kSpan;
  constexpr bool kRaised = requires { Tile::kOffset; };
  constexpr bool kInPlace = kType == kQ4K;
  const std::byte* codes = x.Codes(n) + 256 * group + (Tile::kSpan == 32 ? 8 : 4) * q;
  const auto dot = [&](int s, int(&d)[4]) {
    std::uint32_t a[Tile::kSpan / 8];
    if constexpr (kRaised) {
      Tile::RaisedCodes(raw, s, a);
    } else if constexpr (kInPlace) {
      Tile::BytesInPlace(raw, s, a);
    } else {
      Tile::Codes(raw, s, a);
    }
    if constexpr (Tile::kSpan == 32) {
      const uint2 b = *reinterpret_cast<const uint2*>(codes + 32 * s);
      if constexpr (kInPlace) {
        MmaUnsigned32(d, a, b.x, b.y);
      } else {
        Mma32(d, a, b.x, b.y);
      }
    } else {
      Mma16(d, a, *reinterpret_cast<const std::uint32_t*>(codes + 16 * s));
    }
  };
  if constexpr (Tile::kGroup == 256) {
    int sum[4] = {};
    int large[4] = {};  // of codes in place, 16 times too large
#pragma unroll
    for (int s = 0; s < kParts; ++s) {
      int d[4] = {};
      dot(s, d);
      const int scale[2] = {Tile::Scale(raw, s, 0), Tile::Scale(raw, s, 1)};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        (kInPlace && s % 2 == 1 ? large[i] : sum[i]) += scale[i / 2] * d[i];
      }
    }
    if constexpr (kInPlace) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] += large[i] >> 4;
    }
    // Sums over the activations' sums: of mins, or of scales where codes were raised.
    int mins[4] = {};
    if constexpr (Tile::kForm == BlockForm::kScaleMin || kRaised) {
      std::uint32_t a[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (kRaised) {
          a[half] = Tile::ScaleWord(raw, half, q);
        } else {
          a[half] = Tile::Mins(raw, half, q);
        }
      }
      const int at = 16 * group + 4 * q;
      Mma16(mins, a, *reinterpret_cast<const std::uint32_t*>(x.High(n) + at));
#pragma unroll
      for (int i = 0; i < 4; ++i) mins[i] *= 16;
      Mma16(mins, a, *reinterpret_cast<const std::uint32_t*>(x.Low(n) + at));
    }
    if constexpr (kRaised) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] -= Tile::kOffset * mins[i];
    }
    const float scale[2] = {x.Scales(c0)[group], x.Scales(c1)[group]};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float d = Tile::D(raw, i / 2);
      float u;
      if constexpr (Tile::kForm == BlockForm::kScaleMin) {
        u = __fmaf_rn(d, __int2float_rn(sum[i]), Tile::M(raw, i / 2) * __int2float_rn(mins[i]));
      } else {
        u = d * __int2float_rn(sum[i]);
      }
      t[i] = __fmaf_rn(scale[i % 2], u, 0.0F);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) t[i] = 0.0F;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float scale[2] = {x.Scales(c0)[8 * group + j], x.Scales(c1)[8 * group + j]};
      int d[4] = {};
      int e[4] = {};
      if constexpr (Tile::kForm == BlockForm::kPairScales) {
        dot(2 * j, d);
        dot(2 * j + 1, e);
      } else {
        dot(j, d);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float u;
        if constexpr (Tile::kForm == BlockForm::kPairScales) {
          u = __fmaf_rn(Tile::D(raw, 2 * j + 1, i / 2), __int2float_rn(e[i]),
                        Tile::D(raw, 2 * j, i / 2) * __int2float_rn(d[i]));
        } else {
          u = Tile::D(raw, j, i / 2) * __int2float_rn(d[i]);
        }
        t[i] = __fmaf_rn(scale[i % 2], u, t[i]);
      }
    }
  }
}

// What a lane of a warp makes of one tile in shared memory: t of N5 for its four accumulators (see
// card_form.cuh). kOne: one activation row; t[0] is that of row g + 8*(q % 2), the others are
// unset.
template <int kType, bool kOne>
__device__ __forceinline__ void TileDot(const std::byte* tile, const RowCodes& x, int group,
                                        const LaneColumns& columns, float (&t)[4]) {
  if constexpr (kOne) {
    const float u = OneRowValue<kType>(tile, x.Codes(0) + 256 * group, x.High(0) + 16 * group,
                                       x.Low(0) + 16 * group);
    t[0] = __fmaf_rn(x.Scales(0)[group], u, 0.0F);
  } else {
    TileDotRows<kType>(tile, x, group, columns, t);
  }
}

// A tile's t for the sum over groups: [activation row][row of the tile], 16 * rows floats.
template <bool kOne>
__device__ __forceinline__ void StoreT(const float (&t)[4], float* out, int rows) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if constexpr (kOne) {
    if (lane % 4 < 2) out[lane / 4 + lane % 4 * 8] = t[0];
    return;
  }
  const int column = lane % 4 * 2;
  out += 16 * column + lane / 4;
  if (column < rows) {
    out[0] = t[0];
    out[8] = t[2];
  }
  if (column + 1 < rows) {
    out[16] = t[1];
    out[24] = t[3];
  }
}

// N5: t of ascending groups.
__device__ __forceinline__ float SumGroups(const float* t, int groups, int stride) {
  float y = 0.0F;
#pragma unroll 8
  for (int group = 0; group < groups; ++group) y += t[group * stride];
  return y;
}

}  // namespace bloomery::kernels::cuda
