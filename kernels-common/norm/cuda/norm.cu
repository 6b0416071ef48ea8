#include "kernels-common/norm/cuda/norm.h"

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/cuda/rows.cuh"
#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/quant/cuda/quantise.cuh"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kWarps = 4;

struct NormParameters {
  const float* x;
  std::size_t x_stride;
  float* y;
  std::size_t y_stride;
  const float* weight;
  std::int32_t groups;
  std::int32_t dim;
  float eps;
  std::int32_t parts;  // warps that share a vector: 1 or kWarps
  const float* gate;   // null: none
  std::size_t gate_stride;
  bool silu;  // the gate's function; else the sigmoid
  QuantisedView quantised;
  RowBound rows;
};

// N8's dot of x with itself, in every lane.
__device__ float SumOfSquares(const float* x, std::int32_t dim) {
  constexpr int kAhead = 16;  // loads in flight before the chain of fma needs the first
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  float sum = 0.0F;
  std::int32_t i = lane;
  for (; i + 32 * (kAhead - 1) < dim; i += 32 * kAhead) {
    float v[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      v[j] = x[i + 32 * j];
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      sum = ExactFma(v[j], v[j], sum);
    }
  }
  for (; i < dim; i += 32) {
    sum = ExactFma(x[i], x[i], sum);
  }
  // Both partners add the same two numbers: after five steps every lane has the tree's root.
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  }
  return sum;
}

// `gate` null: none.
__device__ __forceinline__ float Normed(const NormParameters& p, float x, float r,
                                        const float* gate, std::int32_t i) {
  const float scaled = x * r;
  const float normed = p.weight == nullptr ? scaled : scaled * p.weight[i];
  if (gate == nullptr) return normed;
  return normed * (p.silu ? ExactSilu(gate[i]) : ExactSigmoid(gate[i]));
}

// p.parts warps a vector: each works out the norm, then takes every parts-th stretch of 32 * kLane
// values. kLane: values that a lane reads at once, 8 or 4 where dim divides by them and all rows
// are 16-byte aligned, else 1; rows are quantised with 8.
template <int kLane>
__global__ void __launch_bounds__(32 * kWarps) RmsNormKernel(const NormParameters p) {
  WaitForInputs();
  AllowNext();
  const std::int32_t warp = static_cast<std::int32_t>(blockIdx.x * kWarps + threadIdx.x / 32);
  const std::int32_t unit = warp / p.parts;
  const std::int32_t row = unit / p.groups;
  if (row >= LiveRows(p.rows)) {
    return;
  }
  const std::int32_t group = unit % p.groups;
  const float* x = p.x + static_cast<std::size_t>(row) * p.x_stride + group * p.dim;
  float* y =
      p.y == nullptr ? nullptr : p.y + static_cast<std::size_t>(row) * p.y_stride + group * p.dim;
  const float r = ExactInverseSqrt(SumOfSquares(x, p.dim) / static_cast<float>(p.dim) + p.eps);
  const float* gate = p.gate == nullptr
                          ? nullptr
                          : p.gate + static_cast<std::size_t>(row) * p.gate_stride + group * p.dim;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  if constexpr (kLane > 1) {
    constexpr std::int32_t kStretch = 32 * kLane;
    for (std::int32_t start = kStretch * (warp % p.parts); start < p.dim;
         start += kStretch * p.parts) {
      const std::int32_t first = start + kLane * lane;
      float v[kLane] = {};
      if (first < p.dim) {
#pragma unroll
        for (int j = 0; j < kLane; j += 4) {
          const float4 in = *reinterpret_cast<const float4*>(x + first + j);
          v[j] = Normed(p, in.x, r, gate, first + j);
          v[j + 1] = Normed(p, in.y, r, gate, first + j + 1);
          v[j + 2] = Normed(p, in.z, r, gate, first + j + 2);
          v[j + 3] = Normed(p, in.w, r, gate, first + j + 3);
          if (y != nullptr) {
            *reinterpret_cast<float4*>(y + first + j) =
                make_float4(v[j], v[j + 1], v[j + 2], v[j + 3]);
          }
        }
      }
      if constexpr (kLane == 8) {
        if (p.quantised.data != nullptr) {
          std::byte* codes =
              p.quantised.data + static_cast<std::size_t>(row) * p.quantised.row_bytes;
          QuantiseStretch(v, start, p.quantised, codes);
        }
      }
    }
  } else {
    for (std::int32_t i = lane; i < p.dim; i += 32) {
      y[i] = Normed(p, x[i], r, gate, i);
    }
  }
}

// One warp a vector.
__global__ void __launch_bounds__(32 * kWarps) L2NormKernel(const L2NormRowsArgs p) {
  WaitForInputs();
  AllowNext();
  const std::size_t unit = blockIdx.x * kWarps + threadIdx.x / 32;
  const std::size_t row = unit / p.norm.groups;
  if (static_cast<std::int64_t>(row) >= LiveRows(p.rows)) {
    return;
  }
  const std::size_t at = unit % p.norm.groups * p.norm.dim;
  const float* x = p.norm.x + row * p.norm.x_stride + at;
  float* y = p.norm.y + row * p.norm.y_stride + at;
  const auto dim = static_cast<std::int32_t>(p.norm.dim);
  const float r = p.norm.scale * ExactInverseSqrt(SumOfSquares(x, dim) + p.norm.eps);
  for (auto i = static_cast<std::int32_t>(threadIdx.x % 32); i < dim; i += 32) {
    y[i] = x[i] * r;
  }
}

bool Aligned16(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

}  // namespace

cudaError_t PrepareNorm() {
  cudaError_t status = PreferShared(RmsNormKernel<8>);
  if (status == cudaSuccess) status = PreferShared(RmsNormKernel<4>);
  if (status == cudaSuccess) status = PreferShared(RmsNormKernel<1>);
  return status == cudaSuccess ? PreferShared(L2NormKernel) : status;
}

cudaError_t L2NormRows(const Launch& launch, const L2NormRowsArgs& args) {
  const std::size_t warps = args.norm.groups * static_cast<std::size_t>(args.rows.max);
  if (warps == 0) {
    return cudaSuccess;
  }
  const dim3 grid(static_cast<unsigned>((warps + kWarps - 1) / kWarps));
  return Start(launch, grid, dim3(32 * kWarps), 0, L2NormKernel, args);
}

cudaError_t RmsNormRows(const Launch& launch, const RmsNormRowsArgs& args) {
  const RmsNormArgs& n = args.norm;
  const bool vector = n.dim % 8 == 0 && n.x_stride % 4 == 0 && Aligned16(n.x) &&
                      (n.y == nullptr || (n.y_stride % 4 == 0 && Aligned16(n.y)));
  if (!vector && args.quantised.data != nullptr) {
    return cudaErrorInvalidValue;
  }
  // Long rows are shared; not in place, where one warp would write what another still reads.
  const bool shared = vector && n.dim >= 1024 && n.y != n.x;
  const NormParameters p = {n.x,
                            n.x_stride,
                            n.y,
                            n.y_stride,
                            n.weight,
                            static_cast<std::int32_t>(n.groups),
                            static_cast<std::int32_t>(n.dim),
                            n.eps,
                            shared ? kWarps : 1,
                            args.gate,
                            args.gate_stride,
                            args.function == GateFunction::kSilu,
                            View(args.quantised),
                            args.rows};
  const std::int64_t warps = static_cast<std::int64_t>(p.groups) * args.rows.max * p.parts;
  if (warps == 0) {
    return cudaSuccess;
  }
  const dim3 grid(static_cast<unsigned>((warps + kWarps - 1) / kWarps));
  // Heads too short for 8 values a lane.
  const bool heads = vector && n.dim <= 128 && args.quantised.data == nullptr;
  const auto kernel = heads ? RmsNormKernel<4> : vector ? RmsNormKernel<8> : RmsNormKernel<1>;
  return Start(launch, grid, dim3(32 * kWarps), 0, kernel, p);
}

}  // namespace bloomery::kernels::cuda
