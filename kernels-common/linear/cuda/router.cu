#include "kernels-common/linear/cuda/router.h"

#include "kernels-common/cuda/async_copy.cuh"
#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/cuda/rows.cuh"
#include "kernels-common/exact_math/exact_math.h"

namespace bloomery::kernels::cuda {
namespace {

// A block makes 32 rows x 16 weight rows by 8 warps of 8 x 8; stages of 128 values of k.
constexpr int kTile = 8;
constexpr int kRowWarps = 4;
constexpr int kWeightWarps = 2;
constexpr int kThreads = 32 * kRowWarps * kWeightWarps;
constexpr int kRows = kTile * kRowWarps;
constexpr int kWeights = kTile * kWeightWarps;
constexpr int kValues = 128;
constexpr int kStages = 3;
constexpr int kStageFloats = (kRows + kWeights) * kValues;
constexpr std::size_t kSharedBytes = kStages * kStageFloats * sizeof(float);

// Values [start, start + 128) of the block's rows and weight rows, zeros where there are none (they
// add +0 to a partial sum). kVector: k divides by 4.
template <bool kVector>
__device__ void CopyStage(const RouterLinearArgs& p, std::int32_t live, std::int32_t first_row,
                          std::int32_t first_weight, std::int32_t start, float* stage) {
  constexpr int kWidth = kVector ? 4 : 1;
  constexpr int kPieces = kValues / kWidth;
  for (int i = static_cast<int>(threadIdx.x); i < (kRows + kWeights) * kPieces; i += kThreads) {
    const int line = i / kPieces;
    const std::int32_t k = start + i % kPieces * kWidth;
    const bool activation = line < kRows;
    const std::int32_t index = activation ? first_row + line : first_weight + line - kRows;
    const bool inside = k < p.k && index < (activation ? live : p.n);
    const float* source = activation
                              ? p.x + static_cast<std::size_t>(inside ? index : 0) * p.x_stride
                              : p.weight + static_cast<std::size_t>(inside ? index : 0) * p.k;
    CopyAsync<4 * kWidth>(stage + line * kValues + i % kPieces * kWidth, source + (inside ? k : 0),
                          inside ? 4 * kWidth : 0);
  }
}

// The tree over 32 lanes (steps 16, 8, 4, 2, 1) of each of 64 partial sums. A step leaves each lane
// the half of the sums that its lane bit names, so 62 exchanges do for all of them; lane l ends
// with sums 2l and 2l + 1.
template <int kStep = 16>
__device__ __forceinline__ void TreeOf64(float (&sums)[64]) {
  constexpr int kHalf = 2 * kStep;
  const bool upper = (threadIdx.x & kStep) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float send = upper ? sums[i] : sums[i + kHalf];
    const float keep = upper ? sums[i + kHalf] : sums[i];
    sums[i] = keep + __shfl_xor_sync(0xFFFFFFFFU, send, kStep);
  }
  if constexpr (kStep > 1) {
    TreeOf64<kStep / 2>(sums);
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, 2) RouterKernel(const RouterLinearArgs p) {
  extern __shared__ __align__(16) float shared[];
  WaitForInputs();
  AllowNext();
  const std::int32_t live = LiveRows(p.rows);
  const auto first_row = static_cast<std::int32_t>(blockIdx.y) * kRows;
  const auto first_weight = static_cast<std::int32_t>(blockIdx.x) * kWeights;
  if (first_row >= live) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int warp_row = warp / kWeightWarps * kTile;
  const int warp_weight = warp % kWeightWarps * kTile;
  const std::int32_t steps = (p.k + kValues - 1) / kValues;
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) {
      CopyStage<kVector>(p, live, first_row, first_weight, s * kValues, shared + s * kStageFloats);
    }
    CommitCopies();
  }
  float sums[kTile * kTile] = {};  // [row][weight row]: the sum over k mod 32 = lane
  for (std::int32_t step = 0; step < steps; ++step) {
    WaitForCopies<kStages - 2>();
    __syncthreads();
    const std::int32_t ahead = step + kStages - 1;
    if (ahead < steps) {
      CopyStage<kVector>(p, live, first_row, first_weight, ahead * kValues,
                         shared + ahead % kStages * kStageFloats);
    }
    CommitCopies();
    const float* x = shared + step % kStages * kStageFloats + warp_row * kValues + lane;
    const float* w =
        shared + step % kStages * kStageFloats + (kRows + warp_weight) * kValues + lane;
#pragma unroll
    for (int part = 0; part < kValues; part += 32) {
      float a[kTile];
      float b[kTile];
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
        a[i] = x[i * kValues + part];
        b[i] = w[i * kValues + part];
      }
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
#pragma unroll
        for (int j = 0; j < kTile; ++j) {
          sums[kTile * i + j] = ExactFma(b[j], a[i], sums[kTile * i + j]);
        }
      }
    }
  }
  TreeOf64(sums);
  // Sums 2 * lane and 2 * lane + 1 of [row][weight row].
  const std::int32_t row = first_row + warp_row + lane / 4;
  const std::int32_t n = first_weight + warp_weight + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (row < live && n + i < p.n) {
      p.y[static_cast<std::size_t>(row) * p.y_stride + n + i] =
          p.bias == nullptr ? sums[i] : sums[i] + p.bias[n + i];
    }
  }
}

}  // namespace

cudaError_t PrepareRouterLinear() {
  const cudaError_t first = AllowShared(RouterKernel<true>, kSharedBytes);
  const cudaError_t second = AllowShared(RouterKernel<false>, kSharedBytes);
  return first != cudaSuccess ? first : second;
}

cudaError_t RouterLinear(const Launch& launch, const RouterLinearArgs& args) {
  if (args.rows.max == 0 || args.n == 0) {
    return cudaSuccess;
  }
  const dim3 grid(static_cast<unsigned>((args.n + kWeights - 1) / kWeights),
                  static_cast<unsigned>((args.rows.max + kRows - 1) / kRows));
  return args.k % 4 == 0
             ? Start(launch, grid, dim3(kThreads), kSharedBytes, RouterKernel<true>, args)
             : Start(launch, grid, dim3(kThreads), kSharedBytes, RouterKernel<false>, args);
}

}  // namespace bloomery::kernels::cuda
