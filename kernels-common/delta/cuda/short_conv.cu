// The short convolution: a thread walks over some rows of one channel, the taps and the values they
// meet in registers.
#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/delta/cuda/delta.h"
#include "kernels-common/exact_math/exact_math.h"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr std::int32_t kFewRows = 8;    // up to here a row a thread: all at once
constexpr std::int32_t kRowsOfOne = 8;  // rows of a thread beyond

// One channel of a pass.
template <int kTaps>
struct Channel {
  static constexpr int kKept = kTaps - 1;
  const ShortConvRowsArgs& p;
  std::int32_t channel;

  __device__ __forceinline__ float X(std::int32_t row) const {
    return p.x[static_cast<std::size_t>(row) * p.x_stride + channel];
  }
  // Value i of a lane, oldest first.
  __device__ __forceinline__ float* Lane(std::int32_t slot, std::int32_t lane, int i) const {
    return p.state.base + static_cast<std::size_t>(slot) * p.state.slot_floats +
           static_cast<std::size_t>(lane) * p.state.lane_floats +
           static_cast<std::size_t>(i) * p.channels + channel;
  }

  // The values before `row`, oldest first: of the rows of its slot in the pass, and of the state
  // before those.
  __device__ __forceinline__ void Before(std::int32_t row, float (&window)[kTaps]) const {
    const std::int32_t slot = p.rows.slot[row];
    int there = 0;
    while (there < kKept && there < row && p.rows.slot[row - there - 1] == slot) {
      ++there;
    }
    const std::int32_t lane = there < kKept ? p.states.lane_in[row - there] : -1;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int back = kKept - i;  // rows before this one
      if (back <= there) {
        window[i] = X(row - back);
      } else {
        // The state's newest value is its last, right before the stretch's first row.
        window[i] = lane < 0 ? 0.0F : *Lane(slot, lane, i + there);
      }
    }
  }
};

// Block (channels, rows); a thread walks over `rows_of_one` rows of a channel.
template <int kTaps>
__global__ void __launch_bounds__(kThreads)
    ShortConvKernel(const ShortConvRowsArgs p, std::int32_t rows_of_one) {
  WaitForInputs();
  AllowNext();
  const Channel<kTaps> channel = {p,
                                  static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x)};
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.y) * rows_of_one;
  const std::int32_t end = min(begin + rows_of_one, *p.rows.live);
  if (begin >= end || channel.channel >= p.channels) {
    return;
  }
  float weight[kTaps];
#pragma unroll
  for (int i = 0; i < kTaps; ++i) {
    weight[i] = p.weight[static_cast<std::size_t>(channel.channel) * kTaps + i];
  }
  float window[kTaps];  // oldest first, the row's own last
  for (std::int32_t row = begin; row < end; ++row) {
    const std::int32_t slot = p.rows.slot[row];
    if (row == begin || p.rows.slot[row - 1] != slot) {
      channel.Before(row, window);
    }
    window[kTaps - 1] = channel.X(row);
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      sum = ExactFma(weight[i], window[i], sum);
    }
    p.y[static_cast<std::size_t>(row) * p.y_stride + channel.channel] =
        p.silu ? ExactSilu(sum) : sum;
    const std::int32_t lane_out = p.states.lane_out[row];
#pragma unroll
    for (int i = 0; i + 1 < kTaps; ++i) {
      window[i] = window[i + 1];
      if (lane_out >= 0) *channel.Lane(slot, lane_out, i) = window[i];
    }
  }
}

template <int kTaps>
cudaError_t StartTaps(const Launch& launch, const ShortConvRowsArgs& args) {
  const std::int32_t rows_of_one = args.rows.rows <= kFewRows ? 1 : kRowsOfOne;
  const dim3 grid(static_cast<unsigned>((args.channels + kThreads - 1) / kThreads),
                  static_cast<unsigned>((args.rows.rows + rows_of_one - 1) / rows_of_one));
  return Start(launch, grid, dim3(kThreads), 0, ShortConvKernel<kTaps>, args, rows_of_one);
}

}  // namespace

cudaError_t PrepareShortConv() {
  cudaError_t status = PreferShared(ShortConvKernel<4>);  // that models have
  if (status == cudaSuccess) status = PreferShared(ShortConvKernel<3>);
  return status;
}

cudaError_t ShortConvRows(const Launch& launch, const ShortConvRowsArgs& args) {
  static_assert(kConvTapsMax == 8);
  if (args.channels <= 0) {
    return cudaErrorInvalidValue;
  }
  switch (args.taps) {
    case 2:
      return StartTaps<2>(launch, args);
    case 3:
      return StartTaps<3>(launch, args);
    case 4:
      return StartTaps<4>(launch, args);
    case 5:
      return StartTaps<5>(launch, args);
    case 6:
      return StartTaps<6>(launch, args);
    case 7:
      return StartTaps<7>(launch, args);
    case 8:
      return StartTaps<8>(launch, args);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace bloomery::kernels::cuda
