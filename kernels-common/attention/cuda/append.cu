#include "kernels-common/attention/cuda/append.h"

#include <algorithm>

#include "kernels-common/attention/cuda/heads.cuh"
#include "kernels-common/rope/rope.h"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kAppendThreads = 256;
constexpr int kAppendWarps = kAppendThreads / kWarpLanes;
constexpr int kMostHeadValues = 768;

// One row by gridDim.y blocks; a warp takes a head of q, k or v at a time through shared memory.
template <KvType kType>
__global__ void __launch_bounds__(kAppendThreads)
    HeadAppendKernel(const __grid_constant__ HeadAppendArgs args) {
  __shared__ float2 turns[kMaxRopeValues / 2];
  __shared__ float heads[kAppendWarps][kMostHeadValues];
  const HeadInputs& in = args.inputs;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const int warp = static_cast<int>(threadIdx.x) / kWarpLanes;
  const int row = static_cast<int>(blockIdx.x);
  const bool lives = row < *args.rows.live;
  if (lives) {
    const int position = args.rows.position[row];
    for (int i = static_cast<int>(threadIdx.x); i < in.n_rot / 2; i += kAppendThreads) {
      turns[i] = RopeTurn(position, in.frequencies[i], in.magnitude);
    }
  }
  __syncthreads();
  WaitForInputs();
  AllowNext();
  if (!lives) return;
  const int slot = args.rows.slot[row];
  const int index = args.rows.index[row];
  float* head = heads[warp];
  const int count = args.heads + 2 * args.kv_heads;
  for (int item = static_cast<int>(blockIdx.y) * kAppendWarps + warp; item < count;
       item += static_cast<int>(gridDim.y) * kAppendWarps) {
    const bool query = item < args.heads;
    const bool value = item >= args.heads + args.kv_heads;
    if (!query && index < 0) continue;
    const int number = query ? item : value ? item - args.heads - args.kv_heads : item - args.heads;
    const int dim = value ? args.value_dim : args.key_dim;
    const float* x = (query   ? args.q + row * args.q_stride
                      : value ? in.v + row * in.v_stride
                              : in.k + row * in.k_stride) +
                     number * dim;
#pragma unroll 4
    for (int i = lane; i < dim; i += kWarpLanes) {
      head[i] = value ? x[i] * in.v_scale : x[i];
    }
    const float* norm = query ? in.q_norm : in.k_norm;
    if (!value && norm != nullptr) {
      WarpHeadNorm(head, dim, norm, query ? in.q_eps : in.k_eps, lane);
    }
    __syncwarp();
    if (!value) {
      WarpRope(head, in.n_rot, turns, lane);
    }
    __syncwarp();
    if (query) {
      float* y = args.q_out + row * args.q_out_stride + number * dim;
      for (int i = lane; i < dim; i += kWarpLanes) {
        y[i] = head[i];
      }
    } else {
      std::byte* to = PlaneRow(value ? args.values : args.keys, slot, index);
      WarpEncode<kType>(head, dim, to + number * PlaneBytes<kType>(dim), lane);
    }
    __syncwarp();
  }
}

// A row by gridDim.y blocks, 32 values a warp at a time.
template <KvType kType>
__global__ void __launch_bounds__(kAppendThreads)
    AppendKernel(const PassRowsView rows, const float* x, std::size_t x_stride,
                 const CardPlane plane) {
  const int row = static_cast<int>(blockIdx.x);
  WaitForInputs();
  AllowNext();
  if (row >= *rows.live || rows.index[row] < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const int warp =
      static_cast<int>(blockIdx.y) * kAppendWarps + static_cast<int>(threadIdx.x) / kWarpLanes;
  std::byte* to = PlaneRow(plane, rows.slot[row], rows.index[row]);
  const int width = static_cast<int>(plane.width);
  for (int i = warp * kWarpLanes; i < width; i += static_cast<int>(gridDim.y) * kAppendThreads) {
    WarpEncode<kType>(x + row * x_stride + i, min(kWarpLanes, width - i), to + PlaneBytes<kType>(i),
                      lane);
  }
}

// Blocks a row so that the card is filled, where the row has so much work.
int BlocksARow(const Launch& launch, int rows, int most) {
  return std::clamp(2 * launch.multiprocessors / rows, 1, most);
}

}  // namespace

cudaError_t HeadNormRopeAppend(const Launch& launch, const HeadAppendArgs& args) {
  if (args.keys.type != args.values.type || args.key_dim > kMostHeadValues ||
      args.value_dim > kMostHeadValues || args.inputs.n_rot > static_cast<int>(kMaxRopeValues)) {
    return cudaErrorInvalidValue;
  }
  const int items = args.heads + 2 * args.kv_heads;
  const dim3 grid(args.rows.rows,
                  BlocksARow(launch, args.rows.rows, (items + kAppendWarps - 1) / kAppendWarps));
  const auto kernel = args.keys.type == KvType::kF32   ? HeadAppendKernel<KvType::kF32>
                      : args.keys.type == KvType::kF16 ? HeadAppendKernel<KvType::kF16>
                                                       : HeadAppendKernel<KvType::kQ8_0>;
  return Start(launch, grid, dim3(kAppendThreads), 0, kernel, args);
}

cudaError_t Append(const Launch& launch, const PassRowsView& rows, const float* x,
                   std::size_t x_stride, const CardPlane& plane) {
  const int most = (static_cast<int>(plane.width) + kAppendThreads - 1) / kAppendThreads;
  const dim3 grid(rows.rows, BlocksARow(launch, rows.rows, most));
  const auto kernel = plane.type == KvType::kF32   ? AppendKernel<KvType::kF32>
                      : plane.type == KvType::kF16 ? AppendKernel<KvType::kF16>
                                                   : AppendKernel<KvType::kQ8_0>;
  return Start(launch, grid, dim3(kAppendThreads), 0, kernel, rows, x, x_stride, plane);
}

}  // namespace bloomery::kernels::cuda
