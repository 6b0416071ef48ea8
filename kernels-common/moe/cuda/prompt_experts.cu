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

// kValues: experts a lane holds. kPlain: of plain routers.
template <int kValues, bool kPlain>
__global__ void __launch_bounds__(32 * kRouteWarps) RouteKernel(const RouteRowsArgs args) {
  WaitForInputs();
  AllowNext();
  const auto row = static_cast<std::int32_t>(blockIdx.x * kRouteWarps + threadIdx.x / 32);
  if (row >= LiveRows(args.rows)) {
    return;
  }
  const RouterArgs& router = args.router;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const LanePick pick = kPlain ? RouteRow<kValues>(router, row) : RouteAnyRow<kValues>(router, row);
  if (lane < static_cast<std::int32_t>(router.top_k)) {
    const auto pair = static_cast<std::size_t>(row) * router.top_k + lane;
    router.ids[pair] = pick.id;
    router.weights[pair] = pick.weight;
  }
  if (!pick.finite && lane == 0) {
    atomicMin(args.failed_row, row);
  }
}

// Inclusive prefix sum over a warp.
__device__ __forceinline__ std::int32_t WarpScan(std::int32_t value) {
  const unsigned lane = threadIdx.x % 32;
  for (unsigned step = 1; step < 32; step *= 2) {
    const std::int32_t other = __shfl_up_sync(kAll, value, step);
    value += lane >= step ? other : 0;
  }
  return value;
}

// Exclusive prefix sum over the block's threads; *total is the sum of all.
__device__ std::int32_t BlockScan(std::int32_t value, std::int32_t* warp_sums,
                                  std::int32_t* total) {
  static_assert(kGroupWarps == 32);
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  const std::int32_t inclusive = WarpScan(value);
  __syncthreads();  // the last scan's readers are done with warp_sums
  if (lane == 31) {
    warp_sums[warp] = inclusive;
  }
  __syncthreads();
  const std::int32_t sums = WarpScan(warp_sums[lane]);
  const std::int32_t before = __shfl_sync(kAll, sums, static_cast<int>(warp + 31) % 32);
  *total = __shfl_sync(kAll, sums, 31);
  return (warp == 0 ? 0 : before) + inclusive - value;
}

// A lane's picks of a batch of 32 * kBatch pairs from `start`, -1 beyond `end` and where they are
// the host's: all loads at once.
constexpr int kBatch = 8;
__device__ __forceinline__ void LoadBatch(const GroupPicksArgs& args, std::int32_t start,
                                          std::int32_t end, std::int32_t (&expert)[kBatch]) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const std::int32_t pair = start + 32 * i + static_cast<std::int32_t>(threadIdx.x % 32);
    expert[i] = pair < end ? args.ids[pair] : -1;
  }
  if (args.frame_of == nullptr) return;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (expert[i] >= 0 && args.frame_of[expert[i]] < 0) expert[i] = -1;
  }
}

// Gives the pairs [begin, end) of a warp their places, ascending. next: the first free place of
// each expert for this warp; masks: zeros, one an expert. The rows of places go to `staged` in
// shared memory where there is room, for they are scattered; else to where they belong.
__device__ void PlacePairs(const GroupPicksArgs& args, std::int32_t begin, std::int32_t end,
                           std::int32_t* next, unsigned* masks, std::uint16_t* staged) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  for (std::int32_t start = begin; start < end; start += 32 * kBatch) {
    std::int32_t batch[kBatch];
    LoadBatch(args, start, end, batch);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const std::int32_t expert = batch[i];
      if (expert >= 0) {
        atomicOr(masks + expert, 1U << lane);
      }
      __syncwarp();
      const unsigned same = expert >= 0 ? masks[expert] : 0U;
      const std::int32_t base = expert >= 0 ? next[expert] : 0;
      const std::int32_t rank = __popc(same & ((1U << lane) - 1U));
      __syncwarp();
      if (expert >= 0) {
        const std::int32_t pair = start + 32 * i + lane;
        args.groups.pair_places[pair] = base + rank;
        const std::int32_t row = pair / args.top_k;
        if (staged != nullptr) {
          staged[base + rank] = static_cast<std::uint16_t>(row);
        } else {
          args.groups.place_rows[base + rank] = row;
        }
        if (rank == 0) {
          next[expert] = base + __popc(same);
          masks[expert] = 0;
        }
      } else if (args.frame_of != nullptr && start + 32 * i + lane < end) {
        args.groups.pair_places[start + 32 * i + lane] = -1;
      }
      __syncwarp();
    }
  }
}

// Each of `warps` warps owns a contiguous stretch of pairs. Counts of (warp, expert) first; their
// prefix over warps and experts is where the warp's pairs of that expert begin, so that places
// ascend by pair id.
__global__ void __launch_bounds__(kGroupThreads)
    GroupKernel(const GroupPicksArgs args, std::int32_t warps, bool stage) {
  extern __shared__ std::int32_t counts[];  // [warps][experts]: counts, then next places; masks
  __shared__ std::int32_t warp_sums[kGroupWarps];
  WaitForInputs();
  AllowNext();
  const std::int32_t experts = args.experts;
  const std::int32_t pairs = LiveRows(args.rows) * args.top_k;
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t warp = thread / 32;
  std::int32_t* mine = counts + warp * experts;
  // A multiple of 32 pairs a warp.
  const std::int32_t stretch = (pairs + 32 * warps - 1) / (32 * warps) * 32;
  const std::int32_t begin = min(warp * stretch, pairs);
  const std::int32_t end = warp < warps ? min(begin + stretch, pairs) : begin;

  for (std::int32_t i = thread; i < 2 * warps * experts; i += kGroupThreads) {
    counts[i] = 0;
  }
  __syncthreads();
  for (std::int32_t start = begin; start < end; start += 32 * kBatch) {
    std::int32_t expert[kBatch];
    LoadBatch(args, start, end, expert);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (expert[i] >= 0) {
        atomicAdd(mine + expert[i], 1);
      }
    }
  }
  __syncthreads();

  std::int32_t count = 0;
  if (thread < experts) {
#pragma unroll 8
    for (std::int32_t w = 0; w < warps; ++w) {
      count += counts[w * experts + thread];
    }
  }
  std::int32_t total = 0;
  const std::int32_t first = BlockScan(count, warp_sums, &total);
  constexpr std::int32_t size = kTilePlaces;
  const std::int32_t tiles = (count + size - 1) / size;
  std::int32_t tile_count = 0;
  const std::int32_t first_tile = BlockScan(tiles, warp_sums, &tile_count);
  if (thread < experts) {
    std::int32_t place = first;
#pragma unroll 8
    for (std::int32_t w = 0; w < warps; ++w) {
      const std::int32_t here = counts[w * experts + thread];
      counts[w * experts + thread] = place;
      place += here;
    }
    args.groups.offsets[thread] = first;
    const std::int32_t frame =
        args.frame_of == nullptr || count == 0 ? thread : args.frame_of[thread];
    for (std::int32_t t = 0; t < tiles; ++t) {
      args.groups.tiles[first_tile + t] = {frame, first + t * size, min(size, count - t * size), 0};
    }
  }
  if (args.counts.experts != nullptr && count != 0) {
    args.counts.experts[thread] += static_cast<std::uint32_t>(count);
  }
  if (args.counts.distinct != nullptr) {
    const unsigned picked = __ballot_sync(kAll, count != 0);
    if (picked != 0 && thread % 32 == 0) {
      atomicAdd(args.counts.distinct, static_cast<std::uint32_t>(__popc(picked)));
    }
  }
  if (thread == 0) {
    args.groups.offsets[experts] = total;
    *args.groups.tile_count = tile_count;
  }
  __syncthreads();
  auto* masks = reinterpret_cast<unsigned*>(counts + (warps + warp) * experts);
  auto* staged = stage ? reinterpret_cast<std::uint16_t*>(counts + 2 * warps * experts) : nullptr;
  PlacePairs(args, begin, end, mine, masks, staged);
  if (stage) {
    __syncthreads();
    for (std::int32_t place = thread; place < pairs; place += kGroupThreads) {
      args.groups.place_rows[place] = staged[place];
    }
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
    const std::int32_t place = p.pair_places[pair];
    if (place < 0) continue;
    const float4 y = *reinterpret_cast<const float4*>(
        p.y + static_cast<std::size_t>(place) * p.y_stride + column);
    const float v[4] = {w * y.x, w * y.y, w * y.z, w * y.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      valid = valid && fabsf(v[i]) < 0x1p26F;
      sum[i] += __double2ll_rn(static_cast<double>(v[i]) * 0x1p32);
    }
  }
  if (args.others != nullptr) {
    const auto* others = reinterpret_cast<const longlong2*>(
        args.others + static_cast<std::size_t>(row) * p.dim + column);
    const longlong2 a = others[0];
    const longlong2 b = others[1];
    sum[0] += a.x, sum[1] += a.y, sum[2] += b.x, sum[3] += b.y;
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

// Counters of `warps` warps that own pairs.
std::size_t GroupShared(std::int32_t experts, std::int32_t warps) {
  return 8 * static_cast<std::size_t>(warps) * static_cast<std::size_t>(experts);
}

constexpr std::size_t kGroupSharedMax = 224 * 1024;
constexpr std::size_t kGroupOwnBytes = 1024;

}  // namespace

std::int32_t PickTilesMax(std::int32_t rows_max, std::int32_t top_k, std::int32_t experts) {
  const std::int32_t pairs = rows_max * top_k;
  return std::min(pairs, pairs / kTilePlaces + experts);
}

cudaError_t PreparePromptExperts() { return AllowShared(GroupKernel, kGroupSharedMax); }

cudaError_t RouteRows(const Launch& launch, const RouteRowsArgs& args) {
  if (args.rows.max == 0) {
    return cudaSuccess;
  }
  const std::size_t experts = args.router.experts;
  const dim3 grid(static_cast<unsigned>((args.rows.max + kRouteWarps - 1) / kRouteWarps));
  const bool plain = IsPlainRouter(args.router);
  const auto kernel = experts <= 128   ? plain ? RouteKernel<4, true> : RouteKernel<4, false>
                        : experts <= 256 ? plain ? RouteKernel<8, true> : RouteKernel<8, false>
                        : experts <= 512 ? plain ? RouteKernel<16, true> : RouteKernel<16, false>
                        : plain ? RouteKernel<32, true>
                                       : RouteKernel<32, false>;
  return Start(launch, grid, dim3(32 * kRouteWarps), 0, kernel, args);
}

cudaError_t GroupPicks(const Launch& launch, const GroupPicksArgs& args) {
  const std::size_t most = SharedLimit(launch, kGroupSharedMax, kGroupOwnBytes);
  std::int32_t warps = kGroupWarps;
  while (warps > 1 && GroupShared(args.experts, warps) > most) {
    warps /= 2;
  }
  const std::size_t counters = GroupShared(args.experts, warps);
  const std::size_t rows =
      2 * static_cast<std::size_t>(args.rows.max) * static_cast<std::size_t>(args.top_k);
  const bool stage = args.rows.max <= 65536 && counters + rows <= most;
  return Start(launch, dim3(1), dim3(kGroupThreads), counters + (stage ? rows : 0), GroupKernel,
               args, warps, stage);
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
