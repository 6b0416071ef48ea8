// Experts of float formats by N8, a warp an output: lane l keeps P_l of each row. For formats that
// are decoded at load, and for tests; not tuned.
#include <algorithm>

#include "kernels-common/linear/cuda/float_rows.cuh"
#include "kernels-common/moe/cuda/rows_experts_params.cuh"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kSteps = 16;

// P_l of each row that picked the expert: `row_of` gives the row's values, null for the others.
template <class RowOf>
__device__ __forceinline__ void DotRows(const std::byte* weights, int type, int k, int rows,
                                        const RowOf& row_of, float (&sum)[kRowsMax]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int steps = k / 32;
#pragma unroll
  for (int row = 0; row < kRowsMax; ++row) sum[row] = 0.0F;
  for (int step = 0; step < steps; step += kSteps) {
    float w[kSteps];
    LoadWeights(weights, type, step, steps, w);
#pragma unroll
    for (int row = 0; row < kRowsMax; ++row) {
      const float* x = row < rows ? row_of(row) : nullptr;
      if (x == nullptr) continue;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (step + i < steps) sum[row] = __fmaf_rn(w[i], x[32 * (step + i) + lane], sum[row]);
      }
    }
  }
#pragma unroll
  for (int row = 0; row < kRowsMax; ++row) sum[row] = LaneTree(sum[row]);
}

__global__ void __launch_bounds__(32 * kWarps)
    FloatGateUpKernel(const __grid_constant__ GateUpParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ PassPicks picks;
  auto* table = reinterpret_cast<unsigned long long*>(shared);
  const int lane = static_cast<int>(threadIdx.x % 32);
  ClearPicks<false>(p.experts, table);
  WaitForInputs();
  const int rows = p.live == nullptr ? p.rows : min(p.rows, *p.live);
  RouteRows<false>(p, rows, picks, table);
  AllowNext();
  __syncthreads();
  CollectPicks<false>(p.experts, p.top_k, rows, p.frame_of, picks, table);
  if (blockIdx.x == 0) {
    CountDistinct(p, picks);
    HandOver(p, rows, picks.host > 0);
  }
  const int units = picks.count * p.n;
  for (int unit = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
       unit < units; unit += static_cast<int>(gridDim.x) * kWarps) {
    const int pick = unit / p.n;
    const int output = unit % p.n;
    const auto expert = static_cast<std::size_t>(picks.expert[pick]);
    const auto row_of = [&](int row) {
      return picks.Rank<false>(pick, row) < 0 ? nullptr
                                              : p.x + static_cast<std::size_t>(row) * p.x_stride;
    };
    float g[kRowsMax];
    float u[kRowsMax] = {};
    DotRows(p.gate.data + expert * p.gate.expert_bytes + output * p.gate.row_bytes, p.gate.type,
            p.k, rows, row_of, g);
    if (p.matrices == 2) {
      DotRows(p.up.data + expert * p.up.expert_bytes + output * p.up.row_bytes, p.up.type, p.k,
              rows, row_of, u);
    }
#pragma unroll
    for (int row = 0; row < kRowsMax; ++row) {
      const int rank = row < rows ? picks.Rank<false>(pick, row) : -1;
      if (lane != 0 || rank < 0) continue;
      StoreGateUp(p, g[row], u[row],
                  p.h + static_cast<std::size_t>(row * p.top_k + rank) * p.h_stride + output);
    }
  }
}

__global__ void __launch_bounds__(32 * kWarps)
    FloatDownKernel(const __grid_constant__ DownParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ PassPicks picks;
  auto* table = reinterpret_cast<unsigned long long*>(shared);
  const int lane = static_cast<int>(threadIdx.x % 32);
  ClearPicks<false>(p.experts, table);
  AllowNext();
  WaitForInputs();
  const int rows = p.live == nullptr ? p.rows : min(p.rows, *p.live);
  for (int i = static_cast<int>(threadIdx.x); i < rows * p.top_k;
       i += static_cast<int>(blockDim.x)) {
    AddPick<false>(p.ids[i], i / p.top_k, i % p.top_k, picks, table);
  }
  __syncthreads();
  CollectPicks<false>(p.experts, p.top_k, rows, p.frame_of, picks, table);
  const int output = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  if (output >= p.n) return;
  long long sums[kRowsMax] = {};
  for (int pick = 0; pick < picks.count; ++pick) {
    const auto expert = static_cast<std::size_t>(picks.expert[pick]);
    const auto row_of = [&](int row) {
      const int rank = picks.Rank<false>(pick, row);
      return rank < 0 ? nullptr : p.h + static_cast<std::size_t>(row * p.top_k + rank) * p.h_stride;
    };
    float y[kRowsMax];
    DotRows(p.down.data + expert * p.down.expert_bytes + output * p.down.row_bytes, p.down.type,
            p.k, rows, row_of, y);
#pragma unroll
    for (int row = 0; row < kRowsMax; ++row) {
      const int rank = row < rows ? picks.Rank<false>(pick, row) : -1;
      if (rank < 0) continue;
      const float v = p.weights[row * p.top_k + rank] * y[row];
      if (fabsf(v) < 0x1p26F) {
        sums[row] += __double2ll_rn(static_cast<double>(v) * 0x1p32);
      } else if (lane == 0) {
        atomicMin(p.failed_row, row);
      }
    }
  }
  const bool with_host = HasHostPart(p.hand_off);
  if (with_host && lane == 0) WaitForHost(p.hand_off, blockIdx.x == 0 && threadIdx.x == 0);
#pragma unroll
  for (int row = 0; row < kRowsMax; ++row) {
    if (row >= rows || lane != 0) continue;
    const std::size_t at = static_cast<std::size_t>(row) * p.n + output;
    const long long sum = sums[row] + (with_host ? HostSum(p.hand_off.sums, at) : 0);
    StorePickSum(p, sum, row, output);
  }
}

}  // namespace

cudaError_t FloatGateUp(const Launch& launch, GateUpParams& p) {
  const std::int32_t units = std::min(p.rows * p.top_k, p.experts) * p.n;
  const std::int32_t blocks = std::min((units + kWarps - 1) / kWarps, 4 * launch.multiprocessors);
  return Start(launch, dim3(blocks), dim3(32 * kWarps), std::size_t{8} * p.experts,
               FloatGateUpKernel, p);
}

cudaError_t FloatDown(const Launch& launch, DownParams& p) {
  return Start(launch, dim3((p.n + kWarps - 1) / kWarps), dim3(32 * kWarps),
               std::size_t{8} * p.experts, FloatDownKernel, p);
}

}  // namespace bloomery::kernels::cuda
