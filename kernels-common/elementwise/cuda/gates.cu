#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/cuda/rows.cuh"
#include "kernels-common/elementwise/cuda/elementwise.h"
#include "kernels-common/exact_math/exact_math.h"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// Values of a thread: four where all is 16-byte aligned.
template <bool kVector>
inline constexpr std::int32_t kEach = kVector ? 4 : 1;

template <bool kVector>
dim3 Grid(std::int32_t values, const RowBound& rows) {
  const std::int32_t items = values / kEach<kVector>;
  return {static_cast<unsigned>((items + kThreads - 1) / kThreads),
          static_cast<unsigned>(rows.max)};
}

bool Aligned(const float* p, std::size_t stride) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0 && stride % 4 == 0;
}

template <int kCount>
__device__ __forceinline__ void Load(const float* from, float (&to)[kCount]) {
  if constexpr (kCount == 4) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
  } else {
    to[0] = *from;
  }
}

template <int kCount>
__device__ __forceinline__ void Store(float* to, const float (&from)[kCount]) {
  if constexpr (kCount == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  } else {
    *to = from[0];
  }
}

// Block (values, row).
template <bool kVector>
__global__ void __launch_bounds__(kThreads) SliceKernel(const SliceRowsArgs p) {
  constexpr std::int32_t kOwn = kEach<kVector>;
  WaitForInputs();
  AllowNext();
  const std::size_t row = blockIdx.y;
  const auto i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x) * kOwn;
  if (static_cast<std::int32_t>(row) >= LiveRows(p.rows) || i >= p.groups * p.count) {
    return;
  }
  const std::int32_t group = i / p.count;
  float value[kOwn];
  Load(p.x + row * p.x_stride + static_cast<std::size_t>(group) * p.dim + p.first +
           (i - group * p.count),
       value);
  Store(p.y + row * p.y_stride + i, value);
}

// Block (values, row).
template <bool kVector>
__global__ void __launch_bounds__(kThreads) GateKernel(const GateRowsArgs p) {
  constexpr std::int32_t kOwn = kEach<kVector>;
  WaitForInputs();
  AllowNext();
  const std::size_t row = blockIdx.y;
  const auto i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x) * kOwn;
  if (static_cast<std::int32_t>(row) >= LiveRows(p.rows) || i >= p.groups * p.dim) {
    return;
  }
  const float* gates = p.gate + row * p.gate_stride;
  float gate[kOwn];
  if (p.single) {
#pragma unroll
    for (float& each : gate) each = gates[0];
  } else {
    const std::int32_t group = i / p.dim;
    Load(gates + static_cast<std::size_t>(group) * p.gate_group_stride + (i - group * p.dim), gate);
  }
  float value[kOwn];
  float residual[kOwn] = {};
  Load(p.x + row * p.x_stride + i, value);
  if (p.residual != nullptr) Load(p.residual + row * p.residual_stride + i, residual);
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    value[j] *= p.function == GateFunction::kSilu ? ExactSilu(gate[j]) : ExactSigmoid(gate[j]);
    if (p.residual != nullptr) value[j] = residual[j] + value[j];
  }
  Store(p.y + row * p.y_stride + i, value);
}

}  // namespace

cudaError_t PrepareGates() {
  cudaError_t status = PreferShared(SliceKernel<true>);
  if (status == cudaSuccess) status = PreferShared(SliceKernel<false>);
  if (status == cudaSuccess) status = PreferShared(GateKernel<true>);
  return status == cudaSuccess ? PreferShared(GateKernel<false>) : status;
}

cudaError_t SliceRows(const Launch& launch, const SliceRowsArgs& args) {
  if (args.rows.max == 0 || args.count == 0) {
    return cudaSuccess;
  }
  const bool vector = args.dim % 4 == 0 && args.first % 4 == 0 && args.count % 4 == 0 &&
                      Aligned(args.x, args.x_stride) && Aligned(args.y, args.y_stride);
  const std::int32_t values = args.groups * args.count;
  return vector ? Start(launch, Grid<true>(values, args.rows), dim3(kThreads), 0, SliceKernel<true>,
                        args)
                : Start(launch, Grid<false>(values, args.rows), dim3(kThreads), 0,
                        SliceKernel<false>, args);
}

cudaError_t GateRows(const Launch& launch, const GateRowsArgs& args) {
  if (args.rows.max == 0 || args.dim == 0) {
    return cudaSuccess;
  }
  const bool gates = args.single || (args.dim % 4 == 0 && args.gate_group_stride % 4 == 0 &&
                                     Aligned(args.gate, args.gate_stride));
  const bool sum = args.residual == nullptr || Aligned(args.residual, args.residual_stride);
  const std::int32_t values = args.groups * args.dim;
  const bool vector = gates && sum && values % 4 == 0 && Aligned(args.x, args.x_stride) &&
                      Aligned(args.y, args.y_stride);
  return vector ? Start(launch, Grid<true>(values, args.rows), dim3(kThreads), 0, GateKernel<true>,
                        args)
                : Start(launch, Grid<false>(values, args.rows), dim3(kThreads), 0,
                        GateKernel<false>, args);
}

}  // namespace bloomery::kernels::cuda
