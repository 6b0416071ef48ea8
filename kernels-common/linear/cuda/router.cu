#include "kernels-common/linear/cuda/router.h"

#include "kernels-common/cuda/async_copy.cuh"
#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/cuda/rows.cuh"
#include "kernels-common/exact_math/exact_math.h"

namespace bloomery::kernels::cuda {
namespace {

// A warp keeps partial sums of 8 rows x kWide weight rows; a block of 4 x 2 warps makes 32 rows x 2
// kWide weight rows, in stages of 128 values of k. 16 wide reads less (from L2 and shared memory)
// for each product, 8 wide makes enough blocks of few rows.
constexpr int kTall = 8;
constexpr int kRowWarps = 4;
constexpr int kWeightWarps = 2;
constexpr int kThreads = 32 * kRowWarps * kWeightWarps;
constexpr int kRows = kTall * kRowWarps;
constexpr int kValues = 128;

// kStages: of the copies; as many as hide a trip to L2, or as shared memory has room for.
template <int kWide, int kStages>
struct Block {
  static constexpr int kWeights = kWide * kWeightWarps;
  static constexpr int kStageFloats = (kRows + kWeights) * kValues;
  static constexpr std::size_t kSharedBytes = kStages * kStageFloats * sizeof(float);
};

// Values [start, start + 128) of the block's rows and weight rows, zeros where there are none (they
// add +0 to a partial sum). kVector: k divides by 4.
template <int kWide, bool kVector>
__device__ void CopyStage(const RouterLinearArgs& p, std::int32_t live, std::int32_t first_row,
                          std::int32_t first_weight, std::int32_t start, float* stage) {
  constexpr int kWidth = kVector ? 4 : 1;
  constexpr int kPieces = kValues / kWidth;
  constexpr int kLines = kRows + kWide * kWeightWarps;
  for (int i = static_cast<int>(threadIdx.x); i < kLines * kPieces; i += kThreads) {
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

// The tree over 32 lanes (steps 16, 8, 4, 2, 1) of each of kCount partial sums. A step leaves each
// lane the half of the sums that its lane bit names, so about two exchanges a lane's sum do; lane l
// ends with the kCount / 32 sums from l * kCount / 32 on.
template <int kCount, int kStep = 16>
__device__ __forceinline__ void TreeOfLanes(float (&sums)[kCount]) {
  constexpr int kHalf = kCount / 32 * kStep;
  const bool upper = (threadIdx.x & kStep) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float send = upper ? sums[i] : sums[i + kHalf];
    const float keep = upper ? sums[i + kHalf] : sums[i];
    sums[i] = keep + __shfl_xor_sync(0xFFFFFFFFU, send, kStep);
  }
  if constexpr (kStep > 1) {
    TreeOfLanes<kCount, kStep / 2>(sums);
  }
}

template <int kWide, int kStages, bool kVector>
__global__ void __launch_bounds__(kThreads, 1) RouterKernel(const RouterLinearArgs p) {
  using B = Block<kWide, kStages>;
  extern __shared__ __align__(16) float shared[];
  WaitForInputs();
  AllowNext();
  const std::int32_t live = LiveRows(p.rows);
  const auto first_row = static_cast<std::int32_t>(blockIdx.y) * kRows;
  const auto first_weight = static_cast<std::int32_t>(blockIdx.x) * B::kWeights;
  if (first_row >= live) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int warp_row = warp / kWeightWarps * kTall;
  const int warp_weight = warp % kWeightWarps * kWide;
  const std::int32_t steps = (p.k + kValues - 1) / kValues;
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) {
      CopyStage<kWide, kVector>(p, live, first_row, first_weight, s * kValues,
                                shared + s * B::kStageFloats);
    }
    CommitCopies();
  }
  float sums[kTall * kWide] = {};  // [row][weight row]: the sum over k mod 32 = lane
  for (std::int32_t step = 0; step < steps; ++step) {
    WaitForCopies<kStages - 2>();
    __syncthreads();
    const std::int32_t ahead = step + kStages - 1;
    if (ahead < steps) {
      CopyStage<kWide, kVector>(p, live, first_row, first_weight, ahead * kValues,
                                shared + ahead % kStages * B::kStageFloats);
    }
    CommitCopies();
    const float* x = shared + step % kStages * B::kStageFloats + warp_row * kValues + lane;
    const float* w =
        shared + step % kStages * B::kStageFloats + (kRows + warp_weight) * kValues + lane;
#pragma unroll
    for (int part = 0; part < kValues; part += 32) {
      float a[kTall];
      float b[kWide];
#pragma unroll
      for (int i = 0; i < kTall; ++i) {
        a[i] = x[i * kValues + part];
      }
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        b[i] = w[i * kValues + part];
      }
#pragma unroll
      for (int i = 0; i < kTall; ++i) {
#pragma unroll
        for (int j = 0; j < kWide; ++j) {
          sums[kWide * i + j] = ExactFma(b[j], a[i], sums[kWide * i + j]);
        }
      }
    }
  }
  TreeOfLanes(sums);
  constexpr int kOwn = kTall * kWide / 32;  // consecutive weight rows of one row
  const std::int32_t row = first_row + warp_row + kOwn * lane / kWide;
  const std::int32_t n = first_weight + warp_weight + kOwn * lane % kWide;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (row < live && n + i < p.n) {
      p.y[static_cast<std::size_t>(row) * p.y_stride + n + i] =
          p.bias == nullptr ? sums[i] : sums[i] + p.bias[n + i];
    }
  }
}

template <int kWide, int kStages>
cudaError_t Prepare() {
  constexpr std::size_t kBytes = Block<kWide, kStages>::kSharedBytes;
  const cudaError_t first = AllowShared(RouterKernel<kWide, kStages, true>, kBytes);
  const cudaError_t second = AllowShared(RouterKernel<kWide, kStages, false>, kBytes);
  return first != cudaSuccess ? first : second;
}

template <int kWide, int kStages>
cudaError_t LaunchRouter(const Launch& launch, const RouterLinearArgs& args) {
  using B = Block<kWide, kStages>;
  const dim3 grid(static_cast<unsigned>((args.n + B::kWeights - 1) / B::kWeights),
                  static_cast<unsigned>((args.rows.max + kRows - 1) / kRows));
  const auto kernel =
      args.k % 4 == 0 ? RouterKernel<kWide, kStages, true> : RouterKernel<kWide, kStages, false>;
  return Start(launch, grid, dim3(kThreads), B::kSharedBytes, kernel, args);
}

}  // namespace

cudaError_t PrepareRouterLinear() {
  cudaError_t status = Prepare<16, 5>();
  if (status == cudaSuccess) {
    status = Prepare<8, 5>();
  }
  return status == cudaSuccess ? Prepare<8, 3>() : status;
}

cudaError_t RouterLinear(const Launch& launch, const RouterLinearArgs& args) {
  if (args.rows.max == 0 || args.n == 0) {
    return cudaSuccess;
  }
  constexpr std::size_t kMost = Block<16, 5>::kSharedBytes;
  const std::size_t shared = SharedLimit(launch, kMost, 0);
  const std::int32_t wide_blocks = (args.n + 31) / 32 * ((args.rows.max + kRows - 1) / kRows);
  if (shared >= kMost && wide_blocks >= launch.multiprocessors) {
    return LaunchRouter<16, 5>(launch, args);
  }
  return shared >= Block<8, 5>::kSharedBytes ? LaunchRouter<8, 5>(launch, args)
                                             : LaunchRouter<8, 3>(launch, args);
}

}  // namespace bloomery::kernels::cuda
