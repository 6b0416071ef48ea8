#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/cuda/rows.cuh"
#include "kernels-common/elementwise/cuda/taps.h"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float* LaneOf(const StatePlane& plane, std::int32_t slot,
                                         std::int32_t lane) {
  return plane.base + static_cast<std::size_t>(slot) * plane.slot_floats +
         static_cast<std::size_t>(lane) * plane.lane_floats;
}

// Block (values, row).
__global__ void __launch_bounds__(kThreads) ConcatKernel(const ConcatRowsArgs p) {
  WaitForInputs();
  AllowNext();
  const std::size_t row = blockIdx.y;
  const auto i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  const std::int32_t width = p.a_width + p.b_width;
  if (static_cast<std::int32_t>(row) >= LiveRows(p.rows) || i >= width) {
    return;
  }
  p.y[row * width + i] =
      i < p.a_width ? p.a[row * p.a_width + i] : p.b[row * p.b_width + (i - p.a_width)];
}

enum class Tap { kPrevious, kRecall, kKeep };

// Block (values, row).
template <Tap kTap>
__global__ void __launch_bounds__(kThreads) TapKernel(const TapRowsArgs p) {
  WaitForInputs();
  AllowNext();
  const auto row = static_cast<std::int32_t>(blockIdx.y);
  const auto i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= *p.rows.live || i >= p.width) {
    return;
  }
  const std::int32_t slot = p.rows.slot[row];
  const std::size_t at = static_cast<std::size_t>(row) * p.width + i;
  if constexpr (kTap != Tap::kKeep) {
    std::int32_t first = row;  // of the stretch
    if constexpr (kTap == Tap::kRecall) {
      while (first > 0 && p.rows.slot[first - 1] == slot) --first;
    }
    if (kTap == Tap::kPrevious && row > 0 && p.rows.slot[row - 1] == slot) {
      p.y[at] = p.x[at - p.width];
    } else {
      const std::int32_t lane_in = p.states.lane_in[first];
      p.y[at] = lane_in < 0 ? 0.0F : LaneOf(p.tap, slot, lane_in)[i];
    }
  }
  if constexpr (kTap != Tap::kRecall) {
    const std::int32_t lane_out = p.states.lane_out[row];
    if (lane_out >= 0) LaneOf(p.tap, slot, lane_out)[i] = p.x[at];
  }
}

dim3 Grid(std::int32_t width, std::int32_t rows) {
  return dim3(static_cast<unsigned>((width + kThreads - 1) / kThreads),
              static_cast<unsigned>(rows));
}

template <Tap kTap>
cudaError_t StartTap(const Launch& launch, const TapRowsArgs& args) {
  return Start(launch, Grid(args.width, args.rows.rows), dim3(kThreads), 0, TapKernel<kTap>, args);
}

}  // namespace

cudaError_t PrepareTaps() {
  cudaError_t status = PreferShared(ConcatKernel);
  if (status == cudaSuccess) status = PreferShared(TapKernel<Tap::kPrevious>);
  if (status == cudaSuccess) status = PreferShared(TapKernel<Tap::kRecall>);
  return status == cudaSuccess ? PreferShared(TapKernel<Tap::kKeep>) : status;
}

cudaError_t ConcatRows(const Launch& launch, const ConcatRowsArgs& args) {
  return Start(launch, Grid(args.a_width + args.b_width, args.rows.max), dim3(kThreads), 0,
               ConcatKernel, args);
}

cudaError_t PreviousRows(const Launch& launch, const TapRowsArgs& args) {
  return StartTap<Tap::kPrevious>(launch, args);
}

cudaError_t RecallRows(const Launch& launch, const TapRowsArgs& args) {
  return StartTap<Tap::kRecall>(launch, args);
}

cudaError_t KeepRows(const Launch& launch, const TapRowsArgs& args) {
  return StartTap<Tap::kKeep>(launch, args);
}

}  // namespace bloomery::kernels::cuda
