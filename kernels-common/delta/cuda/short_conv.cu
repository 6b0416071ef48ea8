#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/delta/cuda/delta.h"
#include "kernels-common/exact_math/exact_math.h"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// One channel around one row: its values `back` rows before, from the pass or from the state.
struct Window {
  const float* x;  // the row's own value
  std::size_t x_stride;
  const float* state;  // null: zeros
  std::size_t channels;
  std::int32_t before;  // rows of the stretch before this one, at most `kept`
  std::int32_t kept;

  __device__ float Back(std::int32_t back) const {
    if (back <= before) return *(x - static_cast<std::size_t>(back) * x_stride);
    if (state == nullptr) return 0.0F;
    return state[static_cast<std::size_t>(kept - (back - before)) * channels];
  }
};

// Block (channels, row); a thread makes one value.
__global__ void __launch_bounds__(kThreads) ShortConvKernel(const ShortConvRowsArgs p) {
  WaitForInputs();
  AllowNext();
  const auto row = static_cast<std::int32_t>(blockIdx.y);
  const auto channel = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= *p.rows.live || channel >= p.channels) {
    return;
  }
  const std::int32_t kept = p.taps - 1;
  const std::int32_t slot = p.rows.slot[row];
  std::int32_t before = 0;
  while (before < kept && before < row && p.rows.slot[row - before - 1] == slot) {
    ++before;
  }
  float* const lanes = p.state.base + static_cast<std::size_t>(slot) * p.state.slot_floats;
  const auto lane = [&](std::int32_t number) -> float* {
    if (number < 0) return nullptr;
    return lanes + static_cast<std::size_t>(number) * p.state.lane_floats + channel;
  };
  const Window window = {p.x + static_cast<std::size_t>(row) * p.x_stride + channel,
                         p.x_stride,
                         before < kept ? lane(p.states.lane_in[row - before]) : nullptr,
                         static_cast<std::size_t>(p.channels),
                         before,
                         kept};
  const float* weight = p.weight + static_cast<std::size_t>(channel) * p.taps;
  float sum = 0.0F;
  for (std::int32_t i = 0; i < p.taps; ++i) {
    sum = ExactFma(weight[i], window.Back(kept - i), sum);
  }
  p.y[static_cast<std::size_t>(row) * p.y_stride + channel] = p.silu ? ExactSilu(sum) : sum;
  float* const behind = lane(p.states.lane_out[row]);
  if (behind == nullptr) {
    return;
  }
  for (std::int32_t i = 0; i < kept; ++i) {
    behind[static_cast<std::size_t>(i) * p.channels] = window.Back(kept - 1 - i);
  }
}

}  // namespace

cudaError_t PrepareShortConv() { return PreferShared(ShortConvKernel); }

cudaError_t ShortConvRows(const Launch& launch, const ShortConvRowsArgs& args) {
  if (args.taps < 2 || args.taps > static_cast<std::int32_t>(kConvTapsMax) || args.channels <= 0) {
    return cudaErrorInvalidValue;
  }
  const dim3 grid(static_cast<unsigned>((args.channels + kThreads - 1) / kThreads),
                  static_cast<unsigned>(args.rows.rows));
  return Start(launch, grid, dim3(kThreads), 0, ShortConvKernel, args);
}

}  // namespace bloomery::kernels::cuda
