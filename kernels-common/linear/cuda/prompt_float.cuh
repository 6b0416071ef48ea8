// Inside CUDA sources: the kernel under prompt_linear.h for F16 and BF16 weights.
//
// A block of four warps makes up to 64 columns of 128 weight rows (or of 64 of gate and up each), a
// pair of tiles a warp as in prompt_tile.cuh, in steps of 32 values. bf16 tensor cores
// with f32 accumulation (band): an activation is x = h + l, two bf16 parts that hold 16 bits of it,
// and a product is w*h + w*l. An F16 weight is exactly the sum of two bf16 parts, w = u + v, and a
// product is u*h + u*l + v*h; no activation overflows then, as it could in f16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels-common/linear/cuda/prompt_job.cuh"

namespace bloomery::kernels::cuda {

// Parts of the block's columns: [column][32 values]. A warp reads 16 bytes of each of 8 columns at
// once; rows of 64 bytes put any 8 neighbouring pieces into different banks.
struct FloatStage {
  alignas(16) __nv_bfloat16 high[kPromptColumns * 32];
  alignas(16) __nv_bfloat16 low[kPromptColumns * 32];
};

__device__ __forceinline__ std::uint32_t PackBf16(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Two values as packed high parts, and what is left as packed low parts. What is not finite, or
// rounds to infinity, keeps it in the high part alone.
__device__ __forceinline__ void SplitPair(float a, float b, std::uint32_t& high,
                                          std::uint32_t& low) {
  high = PackBf16(a, b);
  const float rest_a = a - __uint_as_float(high << 16);
  const float rest_b = b - __uint_as_float(high & 0xFFFF0000U);
  low = PackBf16(isfinite(rest_a) ? rest_a : 0.0F, isfinite(rest_b) ? rest_b : 0.0F);
}

__device__ __forceinline__ void MmaBf16(float (&c)[4], const std::uint32_t (&a)[4],
                                        std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Weights of a step as a lane (g, q) holds them: values 8q .. 8q+7 of rows g and g + 8 of a tile.
// As with the integer tiles, the order within the 32 is not the hardware's.
struct FloatWeights {
  uint4 row[2];
};

// Words a0..a3 of the step's first or second 16 values.
__device__ __forceinline__ void WeightWords(const FloatWeights& w, int part,
                                            std::uint32_t (&a)[4]) {
  a[0] = part == 0 ? w.row[0].x : w.row[0].z;
  a[1] = part == 0 ? w.row[1].x : w.row[1].z;
  a[2] = part == 0 ? w.row[0].y : w.row[0].w;
  a[3] = part == 0 ? w.row[1].y : w.row[1].w;
}

// F16 words to the two bf16 parts of their values.
__device__ __forceinline__ void SplitHalfWords(const std::uint32_t (&a)[4],
                                               std::uint32_t (&high)[4], std::uint32_t (&low)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&a[i]));
    SplitPair(pair.x, pair.y, high[i], low[i]);
  }
}

// The warp's weight rows: pointers to the lane's own values, null where there is no row.
struct FloatRows {
  const std::byte* row[2][2];  // [tile][half]
};

__device__ __forceinline__ void LoadFloatWeights(const FloatRows& rows, std::int32_t step,
                                                 std::int32_t k, FloatWeights (&w)[2]) {
  const bool inside = 32 * step + 8 * static_cast<std::int32_t>(threadIdx.x % 4) < k;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::byte* p = rows.row[m][half];
      w[m].row[half] = p != nullptr && inside ? __ldg(reinterpret_cast<const uint4*>(p + 64 * step))
                                              : make_uint4(0, 0, 0, 0);
    }
  }
}

// A thread's share of a step's activations: 4 values of column thread / 8 + 16 i from 4*(thread %
// 8).
template <int kN>
struct FloatInputs {
  float4 x[kN / 2];
};

template <int kN>
__device__ __forceinline__ void LoadInputs(const float* const* rows, std::int32_t step,
                                           std::int32_t k, FloatInputs<kN>& in) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int32_t first = 32 * step + 4 * (thread % 8);
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) {
    in.x[i] = first < k ? *reinterpret_cast<const float4*>(rows[thread / 8 + 16 * i] + first)
                        : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  }
}

template <int kN>
__device__ __forceinline__ void StoreInputs(const FloatInputs<kN>& in, FloatStage& stage) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) {
    const int at = (thread / 8 + 16 * i) * 32 + 4 * (thread % 8);
    uint2 high;
    uint2 low;
    SplitPair(in.x[i].x, in.x[i].y, high.x, low.x);
    SplitPair(in.x[i].z, in.x[i].w, high.y, low.y);
    *reinterpret_cast<uint2*>(stage.high + at) = high;
    *reinterpret_cast<uint2*>(stage.low + at) = low;
  }
}

template <bool kHalf, int kN>
__device__ __forceinline__ void FloatStep(const FloatWeights (&w)[2], const FloatStage& stage,
                                          float (&y)[kN][2][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  std::uint32_t a[2][2][4];  // [tile][part]
  [[maybe_unused]] std::uint32_t rest[2][2][4];
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      WeightWords(w[m], part, a[m][part]);
      if constexpr (kHalf) {
        std::uint32_t high[4];
        SplitHalfWords(a[m][part], high, rest[m][part]);
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][part][i] = high[i];
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const int at = (8 * n + lane / 4) * 32 + lane % 4 * 8;
    const uint4 high = *reinterpret_cast<const uint4*>(stage.high + at);
    const uint4 low = *reinterpret_cast<const uint4*>(stage.low + at);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      if constexpr (kHalf) {
        MmaBf16(y[n][m], rest[m][0], high.x, high.y);
        MmaBf16(y[n][m], rest[m][1], high.z, high.w);
      }
      MmaBf16(y[n][m], a[m][0], low.x, low.y);
      MmaBf16(y[n][m], a[m][1], low.z, low.w);
      MmaBf16(y[n][m], a[m][0], high.x, high.y);
      MmaBf16(y[n][m], a[m][1], high.z, high.w);
    }
  }
}

// Pointers of a lane to its rows' values 8q on.
__device__ __forceinline__ FloatRows FindFloatRows(const PromptUnit& unit, std::int32_t pair) {
  const PromptJob& job = *unit.job;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const bool gate_up = job.up != nullptr;
  FloatRows rows;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const bool up = gate_up && m == 1;
    const std::byte* bank = ExpertMatrix(job, up, unit.expert);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t n = 16 * (gate_up ? pair : 2 * pair + m) + lane / 4 + 8 * half;
      rows.row[m][half] =
          n < job.n ? bank + static_cast<std::size_t>(n) * (up ? job.up_row_bytes : job.row_bytes) +
                          lane % 4 * 16
                    : nullptr;
    }
  }
  return rows;
}

template <bool kHalf, int kN>
__device__ __forceinline__ void FloatBody(const PromptParameters& p, const PromptUnit& unit,
                                          FloatStage (&stages)[2], const float** inputs) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 8 * kN) {
    inputs[thread] = p.x_rows + PromptRow(p, unit, thread) * p.x_stride;
  }
  __syncthreads();
  const std::int32_t steps = (p.k + 31) / 32;
  const std::int32_t pair = unit.block * kFloatWarps + thread / 32;
  const FloatRows rows = FindFloatRows(unit, pair);
  FloatWeights w[2];
  FloatInputs<kN> in;
  LoadInputs<kN>(inputs, 0, p.k, in);
  LoadFloatWeights(rows, 0, p.k, w);
  float y[kN][2][4] = {};
  for (std::int32_t step = 0; step < steps; ++step) {
    FloatStage& stage = stages[step % 2];
    StoreInputs<kN>(in, stage);
    __syncthreads();  // also: all have left the stage that the next step fills
    FloatWeights next[2];
    LoadInputs<kN>(inputs, step + 1, p.k, in);
    LoadFloatWeights(rows, step + 1, p.k, next);
    FloatStep<kHalf, kN>(w, stage, y);
    w[0] = next[0];
    w[1] = next[1];
  }
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    StoreColumns(unit, pair, n, y[n]);
  }
}

template <bool kHalf>
__global__ void __launch_bounds__(kFloatThreads, 2)
    FloatPromptKernel(const __grid_constant__ PromptParameters p) {
  __shared__ FloatStage stages[2];
  __shared__ const float* inputs[kPromptColumns];
  const PromptUnit unit = FindPromptUnit(p);
  if (unit.count <= 0) {
    return;
  }
  if (unit.count <= 16) {
    FloatBody<kHalf, 2>(p, unit, stages, inputs);
  } else if (unit.count <= 32) {
    FloatBody<kHalf, 4>(p, unit, stages, inputs);
  } else {
    FloatBody<kHalf, 8>(p, unit, stages, inputs);
  }
}

}  // namespace bloomery::kernels::cuda
