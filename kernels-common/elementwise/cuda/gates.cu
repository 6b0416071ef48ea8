#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/cuda/rows.cuh"
#include "kernels-common/elementwise/cuda/elementwise.h"
#include "kernels-common/exact_math/exact_math.h"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kThreads = 128;

dim3 Grid(std::int32_t values, const RowBound& rows) {
  return {static_cast<unsigned>((values + kThreads - 1) / kThreads),
          static_cast<unsigned>(rows.max)};
}

// Block (values, row).
__global__ void __launch_bounds__(kThreads) SliceKernel(const SliceRowsArgs p) {
  WaitForInputs();
  AllowNext();
  const std::size_t row = blockIdx.y;
  const auto i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (static_cast<std::int32_t>(row) >= LiveRows(p.rows) || i >= p.groups * p.count) {
    return;
  }
  p.y[row * p.y_stride + i] =
      p.x[row * p.x_stride + static_cast<std::size_t>(i / p.count) * p.dim + p.first + i % p.count];
}

// Block (values, row).
__global__ void __launch_bounds__(kThreads) GateKernel(const GateRowsArgs p) {
  WaitForInputs();
  AllowNext();
  const std::size_t row = blockIdx.y;
  const auto i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (static_cast<std::int32_t>(row) >= LiveRows(p.rows) || i >= p.groups * p.dim) {
    return;
  }
  const float* gates = p.gate + row * p.gate_stride;
  const float gate =
      p.single ? gates[0]
               : gates[static_cast<std::size_t>(i / p.dim) * p.gate_group_stride + i % p.dim];
  const float factor = p.function == GateFunction::kSilu ? ExactSilu(gate) : ExactSigmoid(gate);
  const float y = p.x[row * p.x_stride + i] * factor;
  p.y[row * p.y_stride + i] =
      p.residual == nullptr ? y : p.residual[row * p.residual_stride + i] + y;
}

}  // namespace

cudaError_t PrepareGates() {
  const cudaError_t status = PreferShared(SliceKernel);
  return status == cudaSuccess ? PreferShared(GateKernel) : status;
}

cudaError_t SliceRows(const Launch& launch, const SliceRowsArgs& args) {
  if (args.rows.max == 0 || args.count == 0) {
    return cudaSuccess;
  }
  return Start(launch, Grid(args.groups * args.count, args.rows), dim3(kThreads), 0, SliceKernel,
               args);
}

cudaError_t GateRows(const Launch& launch, const GateRowsArgs& args) {
  if (args.rows.max == 0 || args.dim == 0) {
    return cudaSuccess;
  }
  return Start(launch, Grid(args.groups * args.dim, args.rows), dim3(kThreads), 0, GateKernel,
               args);
}

}  // namespace bloomery::kernels::cuda
