// Device parts of what is done to one head by one warp: RMS norm, rope, and the row formats of
// planes, and where rows of planes lie. Orders and bits are those of norm.h, rope.h and quant.h.
// All lanes of the warp call.
#pragma once

#include <cuda_fp16.h>

#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/exact_math/trig.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cuda {

inline constexpr int kWarpLanes = 32;
inline constexpr int kQ8Values = 32;
inline constexpr int kQ8Bytes = 34;

// Bytes of `values` values of a plane row.
template <KvType kType>
__host__ __device__ constexpr int PlaneBytes(int values) {
  if (kType == KvType::kF32) return values * 4;
  if (kType == KvType::kF16) return values * 2;
  return values / kQ8Values * kQ8Bytes;
}

// The row of a plane that holds a position, among those of its slot. Positions of one block of 128
// lie one behind another.
__device__ __forceinline__ int RowOfPosition(const CardPlane& plane, int position) {
  return plane.ring_rows == 0 ? position : position % plane.ring_rows;
}

__device__ __forceinline__ std::byte* PlaneRow(const CardPlane& plane, int slot, int position) {
  return plane.base + static_cast<std::size_t>(slot) * plane.slot_bytes +
         static_cast<std::size_t>(RowOfPosition(plane, position)) * plane.row_bytes;
}

// N8's tree 16, 8, 4, 2, 1; every lane gets the sum (each step adds the same two numbers).
__device__ __forceinline__ float WarpTree(float value) {
#pragma unroll
  for (int step = kWarpLanes / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, step);
  }
  return value;
}

__device__ __forceinline__ float WarpMax(float value) {
#pragma unroll
  for (int step = kWarpLanes / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, step));
  }
  return value;
}

// In place on shared memory; lane l touches values l mod 32 only.
__device__ __forceinline__ void WarpHeadNorm(float* x, int dim, const float* weight, float eps,
                                             int lane) {
  float sum = 0.0F;
#pragma unroll 4
  for (int i = lane; i < dim; i += kWarpLanes) {
    sum = ExactFma(x[i], x[i], sum);
  }
  const float mean = WarpTree(sum) / static_cast<float>(dim);
  const float r = ExactInverseSqrt(mean + eps);
#pragma unroll 4
  for (int i = lane; i < dim; i += kWarpLanes) {
    const float scaled = x[i] * r;
    x[i] = scaled * weight[i];
  }
}

// (cosine, sine) of pair i at `position`.
__device__ __forceinline__ float2 RopeTurn(int position, double frequency, float magnitude) {
  const SinCosResult turn = ExactSinCos(static_cast<double>(position) * frequency);
  return {static_cast<float>(turn.cos) * magnitude, static_cast<float>(turn.sin) * magnitude};
}

// In place on shared memory; turns[i] for pair (i, i + n_rot/2).
__device__ __forceinline__ void WarpRope(float* x, int n_rot, const float2* turns, int lane) {
  const int half = n_rot / 2;
  for (int i = lane; i < half; i += kWarpLanes) {
    const float2 turn = turns[i];
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * turn.x - b * turn.y;
    x[i + half] = b * turn.x + a * turn.y;
  }
}

// Of a head of 32 * kParts values, lane l has values 32 * part + l: the sum of squares by its own
// part of N8's order, norm by the factor r, and rope over the whole head by turn[part] of pairs
// 32 * part + l.
template <int kParts>
__device__ __forceinline__ float SquaresOfParts(const float (&x)[kParts]) {
  float sum = 0.0F;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    sum = ExactFma(x[part], x[part], sum);
  }
  return sum;
}
template <int kParts>
__device__ __forceinline__ void NormParts(float (&x)[kParts], float r,
                                          const float (&weight)[kParts]) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const float scaled = x[part] * r;
    x[part] = scaled * weight[part];
  }
}
template <int kParts>
__device__ __forceinline__ void TurnParts(float (&x)[kParts], const float2 (&turn)[kParts / 2]) {
#pragma unroll
  for (int part = 0; part < kParts / 2; ++part) {
    const float low = x[part];
    const float high = x[part + kParts / 2];
    x[part] = low * turn[part].x - high * turn[part].y;
    x[part + kParts / 2] = high * turn[part].x + low * turn[part].y;
  }
}

// One q8_0 block from the 32 values of the lanes. `block` is 2-byte aligned.
__device__ __forceinline__ void WarpEncodeQ8(float x, std::byte* block, int lane) {
  const bool finite = __all_sync(0xFFFFFFFFU, fabsf(x) <= 3.402823466e38F) != 0;
  const float most = WarpMax(fabsf(x));
  const std::uint16_t half =
      finite ? __half_as_ushort(__float2half_rn(fminf(most / 127.0F, 65504.0F))) : 0x7E00U;
  const float d = __half2float(__ushort_as_half(half));
  int code = 0;
  if (d > 0.0F) {
    const float r = 1.0F / d;
    code = static_cast<int>(fminf(fmaxf(rintf(x * r), -127.0F), 127.0F));
  }
  const int high = __shfl_down_sync(0xFFFFFFFFU, code, 1);
  auto* words = reinterpret_cast<std::uint16_t*>(block);
  if (lane == 0) {
    words[0] = half;
  }
  if (lane % 2 == 0) {
    words[1 + lane / 2] = static_cast<std::uint16_t>((code & 0xFF) | ((high & 0xFF) << 8));
  }
}

// 32 values, one a lane, to their bytes of a plane row.
template <KvType kType>
__device__ __forceinline__ void WarpEncodeLane(float x, std::byte* row, int lane) {
  if constexpr (kType == KvType::kF32) {
    reinterpret_cast<float*>(row)[lane] = x;
  } else if constexpr (kType == KvType::kF16) {
    reinterpret_cast<__half*>(row)[lane] = __float2half_rn(x);
  } else {
    WarpEncodeQ8(x, row, lane);
  }
}

// `values` values to a plane row's bytes.
template <KvType kType>
__device__ __forceinline__ void WarpEncode(const float* x, int values, std::byte* row, int lane) {
  for (int i = lane; i < values; i += kWarpLanes) {
    WarpEncodeLane<kType>(x[i], row + PlaneBytes<kType>(i / kWarpLanes * kWarpLanes), lane);
  }
}

// 32 codes and the scale of the q8_0 block at `block` (2-byte aligned) as f32 values, by one
// thread. An int8 code c is exact as (2^23 + 128 + c) - (2^23 + 128).
__device__ __forceinline__ void DecodeQ8(const std::byte* block, float* out) {
  const auto* words = reinterpret_cast<const std::uint16_t*>(block);
  const float d = __half2float(__ushort_as_half(words[0]));
#pragma unroll
  for (int i = 0; i < kQ8Values / 4; ++i) {
    const std::uint32_t codes =
        (words[1 + 2 * i] | (static_cast<std::uint32_t>(words[2 + 2 * i]) << 16U)) ^ 0x80808080U;
    float value[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t bits = __byte_perm(codes, 0x4B000000U, 0x7650U | j);
      value[j] = (__uint_as_float(bits) - 8388736.0F) * d;
    }
    *reinterpret_cast<float4*>(out + 4 * i) = {value[0], value[1], value[2], value[3]};
  }
}

// The same as pairs of halves: a half holds 1024 + 128 + c exactly, and the product with d is
// rounded once, as that of the f32 values would be.
__device__ __forceinline__ void DecodeQ8Halves(const std::byte* block, std::uint32_t* out) {
  const auto* words = reinterpret_cast<const std::uint16_t*>(block);
  const __half2 d = __half2half2(__ushort_as_half(words[0]));
  const __half2 offset = __half2half2(__ushort_as_half(0x6480));  // 1152
#pragma unroll
  for (int i = 0; i < kQ8Values / 2; ++i) {
    const std::uint32_t codes = words[1 + i] ^ 0x8080U;
    const std::uint32_t bits = __byte_perm(codes, 0x64006400U, 0x7150U);
    const __half2 pair = __hmul2(__hsub2(*reinterpret_cast<const __half2*>(&bits), offset), d);
    out[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

}  // namespace bloomery::kernels::cuda
