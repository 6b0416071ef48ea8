#include "kernels-common/moe/cuda/prompt_experts.h"

#include <algorithm>

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/cuda/rows.cuh"
#include "kernels-common/moe/cuda/route.cuh"

namespace bloomery::kernels::cuda {
namespace {

constexpr unsigned kAll = 0xFFFFFFFFU;
constexpr int kRouteWarps = 4;
constexpr int kGroupThreads = 1024;
constexpr int kGroupWarps = kGroupThreads / 32;
constexpr int kSumThreads = 128;

// kValues: experts a lane holds.
template <int kValues>
__global__ void __launch_bounds__(32 * kRouteWarps) RouteKernel(const RouteRowsArgs args) {
  WaitForInputs();
  AllowNext();
  const auto row = static_cast<std::int32_t>(blockIdx.x * kRouteWarps + threadIdx.x / 32);
  if (row >= LiveRows(args.rows)) {
    return;
  }
  const RouterArgs& router = args.router;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const LanePick pick = RouteRow<kValues>(router, row);
  if (lane < static_cast<std::int32_t>(router.top_k)) {
    const auto pair = static_cast<std::size_t>(row) * router.top_k + lane;
    router.ids[pair] = pick.id;
    router.weights[pair] = pick.weight;
  }
  if (!pick.finite && lane == 0) {
    atomicMin(args.failed_row, row);
  }
}

// Exclusive prefix sum over the block's threads; *total is the sum of all.
__device__ std::int32_t BlockScan(std::int32_t value, std::int32_t* warp_sums,
                                  std::int32_t* total) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  std::int32_t inclusive = value;
  for (unsigned step = 1; step < 32; step *= 2) {
    const std::int32_t other = __shfl_up_sync(kAll, inclusive, step);
    inclusive += lane >= step ? other : 0;
  }
  __syncthreads();  // the last scan's readers are done with warp_sums
  if (lane == 31) {
    warp_sums[warp] = inclusive;
  }
  __syncthreads();
  std::int32_t before = 0;
  std::int32_t all = 0;
  for (unsigned i = 0; i < kGroupWarps; ++i) {
    before += i < warp ? warp_sums[i] : 0;
    all += warp_sums[i];
  }
  *total = all;
  return before + inclusive - value;
}

// Each warp owns a contiguous stretch of pairs. Counts of (warp, expert) first; their prefix over
// warps and experts is where the warp's pairs of that expert begin, so that places ascend by pair
// id.
__global__ void __launch_bounds__(kGroupThreads) GroupKernel(const GroupPicksArgs args) {
  extern __shared__ std::int32_t next[];  // [kGroupWarps][experts]: counts, then next places
  __shared__ std::int32_t warp_sums[kGroupWarps];
  WaitForInputs();
  AllowNext();
  const std::int32_t experts = args.experts;
  const std::int32_t pairs = LiveRows(args.rows) * args.top_k;
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t lane = thread % 32;
  std::int32_t* mine = next + thread / 32 * experts;
  // A multiple of 32 pairs a warp.
  const std::int32_t stretch = (pairs + kGroupThreads - 1) / kGroupThreads * 32;
  const std::int32_t begin = min(thread / 32 * stretch, pairs);
  const std::int32_t end = min(begin + stretch, pairs);

  for (std::int32_t e = lane; e < experts; e += 32) {
    mine[e] = 0;
  }
  __syncwarp();
  for (std::int32_t pair = begin + lane; pair < end; pair += 32) {
    atomicAdd(mine + args.ids[pair], 1);
  }
  __syncthreads();

  std::int32_t count = 0;
  if (thread < experts) {
    for (std::int32_t warp = 0; warp < kGroupWarps; ++warp) {
      count += next[warp * experts + thread];
    }
  }
  std::int32_t total = 0;
  const std::int32_t first = BlockScan(count, warp_sums, &total);
  const std::int32_t size = args.groups.tile_places;
  const std::int32_t tiles = (count + size - 1) / size;
  std::int32_t tile_count = 0;
  const std::int32_t first_tile = BlockScan(tiles, warp_sums, &tile_count);
  if (thread < experts) {
    std::int32_t place = first;
    for (std::int32_t warp = 0; warp < kGroupWarps; ++warp) {
      const std::int32_t here = next[warp * experts + thread];
      next[warp * experts + thread] = place;
      place += here;
    }
    args.groups.offsets[thread] = first;
    for (std::int32_t t = 0; t < tiles; ++t) {
      args.groups.tiles[first_tile + t] = {thread, first + t * size, min(size, count - t * size),
                                           0};
    }
  }
  if (thread == 0) {
    args.groups.offsets[experts] = total;
    *args.groups.tile_count = tile_count;
  }
  __syncthreads();

  for (std::int32_t start = begin; start < end; start += 32) {
    const std::int32_t pair = start + lane;
    const bool real = pair < end;
    const std::int32_t expert = real ? args.ids[pair] : -1;
    const unsigned same = __match_any_sync(kAll, expert);
    const std::int32_t rank = __popc(same & ((1U << lane) - 1U));
    const std::int32_t base = real ? mine[expert] : 0;
    __syncwarp();
    if (real) {
      const std::int32_t place = base + rank;
      args.groups.pair_places[pair] = place;
      args.groups.place_rows[place] = pair / args.top_k;
      if (rank == 0) {
        mine[expert] = base + __popc(same);
      }
    }
    __syncwarp();
  }
}

// Block (column block, row), four columns a thread. Integer sums: no order.
__global__ void __launch_bounds__(kSumThreads) PickSumKernel(const PickSumRowsArgs args) {
  WaitForInputs();
  AllowNext();
  const auto row = static_cast<std::int32_t>(blockIdx.y);
  const PickSumArgs& p = args.sum;
  const std::size_t column = 4 * (blockIdx.x * kSumThreads + threadIdx.x);
  if (row >= LiveRows(args.rows) || column >= p.dim) {
    return;
  }
  const auto top_k = static_cast<std::int32_t>(p.top_k);
  std::int64_t sum[4] = {};
  bool valid = true;
  for (std::int32_t pick = 0; pick < top_k; ++pick) {
    const std::int32_t pair = row * top_k + pick;
    const float w = p.weights[pair];
    const float4 y = *reinterpret_cast<const float4*>(
        p.y + static_cast<std::size_t>(p.pair_places[pair]) * p.y_stride + column);
    const float v[4] = {w * y.x, w * y.y, w * y.z, w * y.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      valid = valid && fabsf(v[i]) < 0x1p26F;
      sum[i] += __double2ll_rn(static_cast<double>(v[i]) * 0x1p32);
    }
  }
  float out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[i] = __ll2float_rn(sum[i]) * 0x1p-32F;
  }
  if (p.residual != nullptr) {
    const float4 r = *reinterpret_cast<const float4*>(
        p.residual + static_cast<std::size_t>(row) * p.residual_stride + column);
    out[0] = r.x + out[0], out[1] = r.y + out[1], out[2] = r.z + out[2], out[3] = r.w + out[3];
  }
  *reinterpret_cast<float4*>(p.out + static_cast<std::size_t>(row) * p.out_stride + column) =
      make_float4(out[0], out[1], out[2], out[3]);
  if (!valid) {
    atomicMin(args.failed_row, row);
  }
}

std::size_t GroupShared(std::int32_t experts) {
  return static_cast<std::size_t>(kGroupWarps) * static_cast<std::size_t>(experts) * 4;
}

}  // namespace

std::int32_t PickTilePlaces(std::int32_t rows_max, std::int32_t top_k, std::int32_t experts) {
  return rows_max * top_k / experts <= 24 ? 32 : kTilePlaces;
}

std::int32_t PickTilesMax(std::int32_t rows_max, std::int32_t top_k, std::int32_t experts,
                          std::int32_t tile_places) {
  const std::int32_t pairs = rows_max * top_k;
  return std::min(pairs, pairs / tile_places + experts);
}

cudaError_t PreparePromptExperts() {
  return AllowShared(GroupKernel, GroupShared(static_cast<std::int32_t>(kMaxExperts)));
}

cudaError_t RouteRows(const Launch& launch, const RouteRowsArgs& args) {
  if (args.rows.max == 0) {
    return cudaSuccess;
  }
  const std::size_t experts = args.router.experts;
  const dim3 grid(static_cast<unsigned>((args.rows.max + kRouteWarps - 1) / kRouteWarps));
  const auto kernel = experts <= 128   ? RouteKernel<4>
                      : experts <= 256 ? RouteKernel<8>
                      : experts <= 512 ? RouteKernel<16>
                                       : RouteKernel<32>;
  return Start(launch, grid, dim3(32 * kRouteWarps), 0, kernel, args);
}

cudaError_t GroupPicks(const Launch& launch, const GroupPicksArgs& args) {
  return Start(launch, dim3(1), dim3(kGroupThreads), GroupShared(args.experts), GroupKernel, args);
}

cudaError_t PickSumRows(const Launch& launch, const PickSumRowsArgs& args) {
  const PickSumArgs& p = args.sum;
  if (p.dim % 4 != 0 || p.y_stride % 4 != 0 || p.out_stride % 4 != 0 ||
      p.residual_stride % 4 != 0) {
    return cudaErrorInvalidValue;
  }
  if (args.rows.max == 0 || p.dim == 0) {
    return cudaSuccess;
  }
  const dim3 grid(static_cast<unsigned>((p.dim / 4 + kSumThreads - 1) / kSumThreads),
                  static_cast<unsigned>(args.rows.max));
  return Start(launch, grid, dim3(kSumThreads), 0, PickSumKernel, args);
}

}  // namespace bloomery::kernels::cuda
