#include "kernels-common/rope/cuda/rope.h"

#include <algorithm>

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/exact_math/trig.h"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kRopeThreads = 256;

// y = rope(x), a row by gridDim.y blocks. head_dim >= n_rot; y may be x.
__global__ void __launch_bounds__(kRopeThreads)
    RopeKernel(const std::int32_t* live, const __grid_constant__ RopeArgs args) {
  __shared__ float2 turns[kMaxRopeValues / 2];
  const int row = static_cast<int>(blockIdx.x);
  const int half = static_cast<int>(args.n_rot / 2);
  const bool lives = row < *live;
  if (lives) {
    const auto position = static_cast<double>(args.positions[row]);
    for (int i = static_cast<int>(threadIdx.x); i < half; i += kRopeThreads) {
      const SinCosResult turn = ExactSinCos(position * args.frequencies[i]);
      turns[i] = {static_cast<float>(turn.cos) * args.magnitude,
                  static_cast<float>(turn.sin) * args.magnitude};
    }
  }
  __syncthreads();
  WaitForInputs();
  AllowNext();
  if (!lives) return;
  // A thread takes a pair, or a value that passes through.
  const int dim = static_cast<int>(args.head_dim);
  const int through = dim - 2 * half;
  const int items = half + through;
  const int count = static_cast<int>(args.heads) * items;
  for (int item = static_cast<int>(blockIdx.y * kRopeThreads + threadIdx.x); item < count;
       item += static_cast<int>(gridDim.y) * kRopeThreads) {
    const int head = item / items;
    const int i = item % items;
    const float* x = args.x + row * args.x_stride + head * dim;
    float* y = args.y + row * args.y_stride + head * dim;
    if (i >= half) {
      y[i + half] = x[i + half];
      continue;
    }
    const float2 turn = turns[i];
    const float a = x[i];
    const float b = x[i + half];
    y[i] = a * turn.x - b * turn.y;
    y[i + half] = b * turn.x + a * turn.y;
  }
}

}  // namespace

cudaError_t Rope(const Launch& launch, const PassRowsView& rows, const RopeArgs& args) {
  if (args.n_rot > kMaxRopeValues || args.n_rot > args.head_dim || args.n_rot % 2 != 0) {
    return cudaErrorInvalidValue;
  }
  RopeArgs with_positions = args;
  if (args.positions == nullptr) {
    with_positions.positions = rows.position;
  }
  const auto items = static_cast<int>(args.heads * (args.head_dim - args.n_rot / 2));
  const dim3 grid(rows.rows, std::clamp(2 * launch.multiprocessors / rows.rows, 1,
                                        (items + kRopeThreads - 1) / kRopeThreads));
  return Start(launch, grid, dim3(kRopeThreads), 0, RopeKernel, rows.live, with_positions);
}

}  // namespace bloomery::kernels::cuda
