// Float formats (F32, F16, BF16) by N8: lane l of a warp keeps P_l, the ascending fma over k = l
// mod 32, and the tree goes over the lanes. Three forms. Short: a warp makes one output of one row,
// with the weights (loaded before the inputs are there) and the row in registers; each warp norms
// its row for itself. Middle: the same of rows twice as long, which lie in shared memory. Long: a
// warp makes an output of all rows.
#include <algorithm>

#include "kernels-common/cuda/async_copy.cuh"
#include "kernels-common/linear/cuda/float_rows.cuh"
#include "kernels-common/linear/cuda/rows_params.cuh"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kShortSteps = 64;  // of 32 values: rows of up to 2048
constexpr int kShortOutputs = 8192;
constexpr int kMiddleSteps = 128;
constexpr int kMiddleWarps = 4;
constexpr int kMiddleOutputs = 4096;
constexpr int kLongWarps = 8;
constexpr int kLongSteps = 16;

// Units: outputs x rows, a matrix after another; then the side outputs' rows x stretches.
// kFull: rows of exactly kShortSteps steps.
template <bool kFull>
__global__ void __launch_bounds__(128, 3) ShortKernel(const __grid_constant__ RowsParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto unit = static_cast<int>(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
  const int steps = kFull ? kShortSteps : p.k / 32;
  const bool dot = unit < p.units;
  const RowsMatrix& m = p.matrices[MatrixOfUnit(p, unit)];
  const int output = (unit - m.first_unit) / p.rows;
  float w[kShortSteps];
  if (dot) {
    LoadWeights(m.data + static_cast<std::size_t>(output) * m.row_bytes, m.type, 0, steps, w);
  }
  auto* norm_weights = reinterpret_cast<float*>(shared);
  AllowNext();
  StageNormWeights(p, norm_weights);
  __syncthreads();
  WaitForInputs();
  const int rows = LiveRows(p);
  const int side = unit - p.units;
  const int row = dot ? (unit - m.first_unit) % p.rows : side / p.groups;
  if (row >= rows) return;
  const float* x = InputRow(p, row);
  float v[kShortSteps];
#pragma unroll
  for (int i = 0; i < kShortSteps; ++i) v[i] = i < steps ? x[32 * i + lane] : 0.0F;
  float factor = 1.0F;
  if (p.norm_weight != nullptr) {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kShortSteps; ++i) {
      if (i < steps) sum = __fmaf_rn(v[i], v[i], sum);
    }
    const float mean = LaneTree(sum) / static_cast<float>(p.k);
    factor = ExactInverseSqrt(mean + p.eps);
  }
  if (!dot) {
    float stretch[8];
    const int start = side % p.groups * 256;
    LoadStretch(x, start + 8 * lane, p.k, stretch);
    NormStretch(p, norm_weights, factor, start + 8 * lane, stretch);
    StoreSide(p, stretch, row, start);
    return;
  }
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kShortSteps; ++i) {
    if (i >= steps) continue;
    const float value =
        p.norm_weight == nullptr ? v[i] : v[i] * factor * norm_weights[32 * i + lane];
    sum = __fmaf_rn(w[i], value, sum);
  }
  sum = LaneTree(sum);
  if (lane == 0) StoreOutput(p, m, sum, row, output);
}

// Units as ShortKernel's.
__global__ void __launch_bounds__(32 * kMiddleWarps, 2)
    MiddleKernel(const __grid_constant__ RowsParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const auto unit = static_cast<int>(blockIdx.x) * kMiddleWarps + warp;
  const int steps = p.k / 32;
  const bool dot = unit < p.units;
  const RowsMatrix& m = p.matrices[MatrixOfUnit(p, unit)];
  const int output = (unit - m.first_unit) / p.rows;
  float w[kMiddleSteps];
  if (dot) {
    LoadWeights(m.data + static_cast<std::size_t>(output) * m.row_bytes, m.type, 0, steps, w);
  }
  auto* norm_weights = reinterpret_cast<float*>(shared);
  const bool norm = p.norm_weight != nullptr;
  float* mine = norm_weights + (norm ? p.k : 0) + warp * p.k;
  AllowNext();
  StageNormWeights(p, norm_weights);
  WaitForInputs();
  const int side = unit - p.units;
  const int row = dot ? (unit - m.first_unit) % p.rows : side / p.groups;
  const bool works = row < LiveRows(p);
  if (works) {
    const float* x = InputRow(p, row);
    for (int i = lane; i < p.k / 4; i += 32) CopyAsync<16>(mine + 4 * i, x + 4 * i);
  }
  CommitCopies();
  WaitForCopies<0>();
  __syncthreads();
  if (!works) return;
  float factor = 1.0F;
  if (norm) {
    float sum = 0.0F;
#pragma unroll 16
    for (int i = 0; i < steps; ++i) sum = __fmaf_rn(mine[32 * i + lane], mine[32 * i + lane], sum);
    factor = ExactInverseSqrt(LaneTree(sum) / static_cast<float>(p.k) + p.eps);
  }
  if (!dot) {
    float stretch[8];
    const int start = side % p.groups * 256;
    LoadStretch(mine, start + 8 * lane, p.k, stretch);
    NormStretch(p, norm_weights, factor, start + 8 * lane, stretch);
    StoreSide(p, stretch, row, start);
    return;
  }
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kMiddleSteps; ++i) {
    if (i >= steps) continue;
    const float v = mine[32 * i + lane];
    sum = __fmaf_rn(w[i], norm ? v * factor * norm_weights[32 * i + lane] : v, sum);
  }
  sum = LaneTree(sum);
  if (lane == 0) StoreOutput(p, m, sum, row, output);
}

__global__ void __launch_bounds__(32 * kLongWarps)
    LongKernel(const __grid_constant__ RowsParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ float factors[kRowsMax];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int first = static_cast<int>(blockIdx.x) * kLongWarps + warp;
  const int stride = static_cast<int>(gridDim.x) * kLongWarps;
  const int steps = p.k / 32;
  auto* norm_weights = reinterpret_cast<float*>(shared);
  const bool norm = p.norm_weight != nullptr;
  AllowNext();
  StageNormWeights(p, norm_weights);
  WaitForInputs();
  const int rows = LiveRows(p);
  if (norm) {
    for (int row = warp; row < rows; row += kLongWarps) {
      const float factor = NormFactor(InputRow(p, row), p.k, p.eps);
      if (lane == 0) factors[row] = factor;
    }
  }
  __syncthreads();
  if (p.normed.data != nullptr || p.normed_f32 != nullptr) {
    for (int i = first; i < rows * p.groups; i += stride) {
      const int row = i / p.groups;
      const int start = i % p.groups * 256;
      float v[8];
      LoadStretch(InputRow(p, row), start + 8 * lane, p.k, v);
      NormStretch(p, norm_weights, norm ? factors[row] : 1.0F, start + 8 * lane, v);
      StoreSide(p, v, row, start);
    }
  }
  for (int unit = first; unit < p.units; unit += stride) {
    const RowsMatrix& m = p.matrices[MatrixOfUnit(p, unit)];
    const int output = unit - m.first_unit;
    const std::byte* weights = m.data + static_cast<std::size_t>(output) * m.row_bytes;
    float sum[kRowsMax] = {};
    for (int step = 0; step < steps; step += kLongSteps) {
      float w[kLongSteps];
      LoadWeights(weights, m.type, step, steps, w);
#pragma unroll
      for (int row = 0; row < kRowsMax; ++row) {
        if (row >= rows) continue;
        const float* x = InputRow(p, row);
        const float factor = norm ? factors[row] : 1.0F;
#pragma unroll
        for (int i = 0; i < kLongSteps; ++i) {
          const int at = 32 * (step + i) + lane;
          if (step + i >= steps) continue;
          const float value = norm ? x[at] * factor * norm_weights[at] : x[at];
          sum[row] = __fmaf_rn(w[i], value, sum[row]);
        }
      }
    }
#pragma unroll
    for (int row = 0; row < kRowsMax; ++row) {
      if (row >= rows) continue;
      const float y = LaneTree(sum[row]);
      if (lane == 0) StoreOutput(p, m, y, row, output);
    }
  }
}

}  // namespace

cudaError_t PrepareRowsFloat() {
  constexpr std::size_t kBytes = 200 * 1024;
  cudaError_t status = AllowShared(LongKernel, kBytes);
  if (status == cudaSuccess) status = AllowShared(MiddleKernel, kBytes);
  if (status == cudaSuccess) status = PreferShared(ShortKernel<true>);
  if (status == cudaSuccess) status = PreferShared(ShortKernel<false>);
  return status;
}

cudaError_t RowsFloat(const Launch& launch, RowsParams& p) {
  std::int32_t outputs = 0;
  for (std::int32_t i = 0; i < p.count; ++i) outputs += p.matrices[i].n;
  const std::size_t bytes = p.norm_weight == nullptr ? 0 : std::size_t{4} * p.k;
  const std::size_t middle_bytes = bytes + std::size_t{4} * kMiddleWarps * p.k;
  const bool is_short = p.k <= 32 * kShortSteps && outputs * p.rows <= kShortOutputs;
  const bool is_middle = !is_short && p.k <= 32 * kMiddleSteps &&
                         outputs * p.rows <= kMiddleOutputs &&
                         middle_bytes <= SharedLimit(launch, middle_bytes, 1024);
  const std::int32_t each = is_short || is_middle ? p.rows : 1;
  p.units = 0;
  for (std::int32_t i = 0; i < p.count; ++i) {
    p.matrices[i].first_unit = p.units;
    p.units += p.matrices[i].n * each;
  }
  if (bytes > SharedLimit(launch, bytes, 1024)) return cudaErrorInvalidValue;
  const bool side = p.normed.data != nullptr || p.normed_f32 != nullptr;
  const std::int32_t warps = p.units + (side ? p.rows * p.groups : 0);
  if (is_middle) {
    return Start(launch, dim3((warps + kMiddleWarps - 1) / kMiddleWarps), dim3(32 * kMiddleWarps),
                 middle_bytes, MiddleKernel, p);
  }
  if (is_short) {
    // Few warps a block spread over the card while there are fewer than multiprocessors.
    const std::int32_t a_block = warps <= 2 * launch.multiprocessors ? 2 : 4;
    return Start(launch, dim3((warps + a_block - 1) / a_block), dim3(32 * a_block), bytes,
                 p.k == 32 * kShortSteps ? ShortKernel<true> : ShortKernel<false>, p);
  }
  const std::int32_t blocks =
      std::min(4 * launch.multiprocessors, (p.units + kLongWarps - 1) / kLongWarps);
  return Start(launch, dim3(blocks), dim3(32 * kLongWarps), bytes, LongKernel, p);
}

}  // namespace bloomery::kernels::cuda
