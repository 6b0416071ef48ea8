#include "kernels-common/elementwise/cuda/elementwise.h"

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/cuda/rows.cuh"
#include "kernels-common/exact_math/exact_math.h"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kThreads = 128;

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Product {
  __device__ float operator()(float a, float b) const { return a * b; }
};
struct SwiGluStep {
  __device__ float operator()(float gate, float up) const { return ExactSilu(gate) * up; }
};

bool Aligned16(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// Block (column block, row); kVector: four values a thread, everything 16-byte aligned.
template <class Step, bool kVector>
__global__ void __launch_bounds__(kThreads) PairKernel(const PairRowsArgs p) {
  WaitForInputs();
  AllowNext();
  const std::size_t row = blockIdx.y;
  if (static_cast<std::int32_t>(row) >= LiveRows(p.rows)) {
    return;
  }
  const float* a = p.a + row * p.a_stride;
  const float* b = p.b + row * p.b_stride;
  float* y = p.y + row * p.y_stride;
  const std::int32_t i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  const Step step;
  if constexpr (kVector) {
    if (4 * i < p.width) {
      const float4 u = reinterpret_cast<const float4*>(a)[i];
      const float4 v = reinterpret_cast<const float4*>(b)[i];
      reinterpret_cast<float4*>(y)[i] =
          make_float4(step(u.x, v.x), step(u.y, v.y), step(u.z, v.z), step(u.w, v.w));
    }
  } else if (i < p.width) {
    y[i] = step(a[i], b[i]);
  }
}

template <class Step>
cudaError_t LaunchPair(const Launch& launch, const PairRowsArgs& args) {
  if (args.rows.max == 0 || args.width == 0) {
    return cudaSuccess;
  }
  const bool vector = args.width % 4 == 0 && args.a_stride % 4 == 0 && args.b_stride % 4 == 0 &&
                      args.y_stride % 4 == 0 && Aligned16(args.a) && Aligned16(args.b) &&
                      Aligned16(args.y);
  const std::int32_t items = vector ? args.width / 4 : args.width;
  const dim3 grid(static_cast<unsigned>((items + kThreads - 1) / kThreads),
                  static_cast<unsigned>(args.rows.max));
  return vector ? Start(launch, grid, dim3(kThreads), 0, PairKernel<Step, true>, args)
                : Start(launch, grid, dim3(kThreads), 0, PairKernel<Step, false>, args);
}

__global__ void __launch_bounds__(kThreads) ScaleKernel(const ScaleRowsArgs p) {
  WaitForInputs();
  AllowNext();
  const std::size_t row = blockIdx.y;
  const auto i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (static_cast<std::int32_t>(row) < LiveRows(p.rows) && i < p.width) {
    p.y[row * p.y_stride + i] = p.x[row * p.x_stride + i] * p.factor;
  }
}

__global__ void __launch_bounds__(kThreads) SelectKernel(const SelectRowsArgs p) {
  WaitForInputs();
  AllowNext();
  const std::size_t row = blockIdx.y;
  if (static_cast<std::int32_t>(row) >= LiveRows(p.rows)) {
    return;
  }
  const float* x = p.x + static_cast<std::size_t>(p.map[row]) * p.x_stride;
  float* y = p.y + row * p.y_stride;
  for (std::int32_t i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x); i < p.width;
       i += static_cast<std::int32_t>(gridDim.x * kThreads)) {
    y[i] = x[i];
  }
}

}  // namespace

cudaError_t AddRows(const Launch& launch, const PairRowsArgs& args) {
  return LaunchPair<Sum>(launch, args);
}

cudaError_t MulRows(const Launch& launch, const PairRowsArgs& args) {
  return LaunchPair<Product>(launch, args);
}

cudaError_t SwiGluRows(const Launch& launch, const PairRowsArgs& args) {
  return LaunchPair<SwiGluStep>(launch, args);
}

cudaError_t ScaleRows(const Launch& launch, const ScaleRowsArgs& args) {
  if (args.rows.max == 0 || args.width == 0) {
    return cudaSuccess;
  }
  const dim3 grid(static_cast<unsigned>((args.width + kThreads - 1) / kThreads),
                  static_cast<unsigned>(args.rows.max));
  return Start(launch, grid, dim3(kThreads), 0, ScaleKernel, args);
}

cudaError_t SelectRows(const Launch& launch, const SelectRowsArgs& args) {
  if (args.rows.max == 0 || args.width == 0) {
    return cudaSuccess;
  }
  const int blocks = (args.width + 4 * kThreads - 1) / (4 * kThreads);  // four values a thread
  return Start(launch, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(args.rows.max)),
               dim3(kThreads), 0, SelectKernel, args);
}

}  // namespace bloomery::kernels::cuda
