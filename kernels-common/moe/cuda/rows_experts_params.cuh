// Inside CUDA sources: what the expert kernels of a decode pass get, and the picks of the pass in
// shared memory: its distinct experts and, for each, which row picked it as its which pick.
#pragma once

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/linear/cuda/row_codes.cuh"
#include "kernels-common/linear/cuda/rows_linear.h"
#include "kernels-common/moe/cuda/hand_off.cuh"
#include "kernels-common/moe/cuda/route.cuh"
#include "kernels-common/moe/cuda/rows_experts.h"
#include "kernels-common/quant/cuda/quantise.cuh"

namespace bloomery::kernels::cuda {

struct ExpertBank {
  const std::byte* data;
  std::size_t row_bytes;  // float formats
  std::size_t expert_bytes;
  std::int32_t type;
  std::int32_t tile_bytes;  // integer formats
};

struct GateUpParams {
  std::int32_t rows;
  const std::int32_t* live;
  std::int32_t experts;
  std::int32_t top_k;
  RouterArgs router;
  bool plain;  // router: IsPlainRouter
  std::int32_t* failed_row;
  PickCounts counts;
  FrameMap frame_of;
  HandOff hand_off;
  std::size_t input_bytes;  // of a row that is handed over
  std::int32_t matrices;    // 2; or 1, which is `gate`, whichever it is, `up` having no bytes
  bool gated;               // one matrix: its values are multiplied to silu(h)
  QuantisedView quantised;
  const float* x;
  std::size_t x_stride;
  ExpertBank gate;
  ExpertBank up;
  std::int32_t n;
  std::int32_t k;
  std::int32_t groups;
  std::int32_t tiles;
  std::int32_t slots;
  std::int32_t parts;
  std::int32_t units_of_expert;
  std::int32_t stages;  // pairs of tiles that a warp has in flight
  std::int32_t tiles_at;
  std::int32_t table_at;
  std::int32_t partial_at;
  RowCodesLayout layout;
  float* h;
  std::size_t h_stride;
};

struct DownParams {
  std::int32_t rows;
  const std::int32_t* live;
  std::int32_t experts;
  std::int32_t top_k;
  const std::int32_t* ids;
  const float* weights;
  const float* h;
  std::size_t h_stride;
  ExpertBank down;
  std::int32_t n;
  std::int32_t k;
  std::int32_t groups;
  std::int32_t slots;
  std::int32_t parts;
  std::int32_t stages;  // tiles that a warp has in flight
  std::int32_t tiles_at;
  std::int32_t table_at;
  std::int32_t partial_at;
  RowCodesLayout layout;  // of one warp's stretch
  const float* residual;
  std::size_t residual_stride;
  float* out;
  std::size_t out_stride;
  std::int32_t* failed_row;
  FrameMap frame_of;
  HandOff hand_off;
};

inline constexpr int kPassPicksMax = kRowsMax * static_cast<int>(kMaxPicks);

// The distinct experts of a pass in ascending order; of one row: its picks in their order. Of a
// split bank those on the card, by their frames.
struct PassPicks {
  int count;
  int host;  // distinct experts that are the host's
  std::int16_t expert[kPassPicksMax];
  // Byte r: 1 + which pick of row r the expert is, or 0.
  unsigned long long ranks[kPassPicksMax];

  // Which pick of `row` entry `pick` is, or -1.
  template <bool kOne>
  __device__ __forceinline__ int Rank(int pick, int row) const {
    return kOne ? pick : static_cast<int>((ranks[pick] >> (8 * row)) & 255U) - 1;
  }
};

// Before AddPick, with a barrier between: the table has one entry an expert.
template <bool kOne>
__device__ __forceinline__ void ClearPicks(int experts, unsigned long long* table) {
  if constexpr (!kOne) {
    for (int i = static_cast<int>(threadIdx.x); i < experts; i += static_cast<int>(blockDim.x)) {
      table[i] = 0;
    }
    __syncthreads();
  }
}

template <bool kOne>
__device__ __forceinline__ void AddPick(int expert, int row, int rank, PassPicks& picks,
                                        unsigned long long* table) {
  if constexpr (kOne) {
    picks.expert[rank] = static_cast<std::int16_t>(expert);
  } else {
    atomicOr(table + expert, static_cast<unsigned long long>(rank + 1) << (8 * row));
  }
}

// After all AddPick and a barrier; ends with one.
template <bool kOne>
__device__ __forceinline__ void CollectPicks(int experts, int top_k, int rows, FrameMap frame_of,
                                             PassPicks& picks, const unsigned long long* table) {
  if constexpr (kOne) {
    if (threadIdx.x == 0) {
      picks.count = rows == 0 ? 0 : top_k;
      picks.host = 0;
    }
  } else if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x);
    int count = 0;
    int all = 0;
    for (int first = 0; first < experts; first += 32) {
      const unsigned long long ranks = first + lane < experts ? table[first + lane] : 0;
      int frame = first + lane;
      if (frame_of != nullptr && ranks != 0) frame = frame_of[first + lane];
      const bool here = ranks != 0 && frame >= 0;
      const unsigned mask = __ballot_sync(kAllLanes, here);
      const int place = count + __popc(mask & ((1U << lane) - 1U));
      if (here) {
        picks.expert[place] = static_cast<std::int16_t>(frame);
        picks.ranks[place] = ranks;
      }
      count += __popc(mask);
      all += __popc(__ballot_sync(kAllLanes, ranks != 0));
    }
    if (lane == 0) {
      picks.count = count;
      picks.host = all - count;
    }
  }
  __syncthreads();
}

// The picks of a pass for a down launch, whose tiles are so asked for before its inputs are there;
// returns the live rows. The ids were written before this kernel was allowed to start, by a kernel
// that may still run: ask() is called on their word, which is checked once it counts. Where it was
// wrong, forget(), and ask() again. Ids are read past L1, which would keep what it saw early. By
// all threads; `ids` is shared memory for kPassPicksMax.
template <bool kOne, class Ask, class Forget>
__device__ __forceinline__ int TakePicks(const DownParams& p, std::int32_t* ids, PassPicks& picks,
                                         unsigned long long* table, const Ask& ask,
                                         const Forget& forget) {
  const int me = static_cast<int>(threadIdx.x);
  const int step = static_cast<int>(blockDim.x);
  const auto collect = [&](int rows) {
    ClearPicks<kOne>(p.experts, table);
    for (int i = me; i < rows * p.top_k; i += step) {
      AddPick<kOne>(ids[i], i / p.top_k, i % p.top_k, picks, table);
    }
    __syncthreads();
    CollectPicks<kOne>(p.experts, p.top_k, rows, p.frame_of, picks, table);
    ask();
  };
  bool valid = true;
  for (int i = me; i < p.rows * p.top_k; i += step) {
    const std::int32_t id = __ldcg(p.ids + i);
    ids[i] = id;
    valid = valid && id >= 0 && id < p.experts;
  }
  const bool early = __syncthreads_and(valid) != 0;
  if (early) collect(p.rows);
  WaitForInputs();
  const int rows = p.live == nullptr ? p.rows : min(p.rows, *p.live);
  bool same = early && rows == p.rows;
  for (int i = me; i < rows * p.top_k; i += step) same = same && __ldcg(p.ids + i) == ids[i];
  if (__syncthreads_and(same) == 0) {
    for (int i = me; i < rows * p.top_k; i += step) ids[i] = __ldcg(p.ids + i);
    if (early) forget();
    __syncthreads();
    collect(rows);
  }
  return rows;
}

// The form for one row is for up to so many experts: more take more registers to route.
inline constexpr int kOneRowExpertsMax = 256;

// Not inlined: 64 registers that few models need.
// By value: a pointer to kernel parameters would make every use of them a load.
static __device__ __noinline__ LanePick RouteManyExperts(RouterArgs router, std::int32_t row) {
  return RouteRow<32>(router, row);
}
// The same for routers that are not plain.
static __device__ __noinline__ LanePick RouteBySigmoid(RouterArgs router, std::int32_t row) {
  return RouteAnyRow<8>(router, row);
}
static __device__ __noinline__ LanePick RouteManyBySigmoid(RouterArgs router, std::int32_t row) {
  return RouteAnyRow<32>(router, row);
}

// Routes every row by a warp; the first block also writes ids, weights and failures, and makes them
// visible. True where the block has warps without a row: all of them then return at once.
template <bool kOne>
__device__ __forceinline__ bool RouteRows(const GateUpParams& p, int rows, PassPicks& picks,
                                          unsigned long long* table) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int row = static_cast<int>(threadIdx.x / 32); row < rows;
       row += static_cast<int>(blockDim.x / 32)) {
    LanePick pick;
    if (!p.plain) {
      pick = p.experts <= 256 ? RouteBySigmoid(p.router, row) : RouteManyBySigmoid(p.router, row);
    } else if (p.experts <= 128) {
      pick = RouteRow<4>(p.router, row);
    } else if constexpr (kOne) {
      pick = RouteRow<kOneRowExpertsMax / 32>(p.router, row);
    } else {
      pick = p.experts <= 256 ? RouteRow<8>(p.router, row) : RouteManyExperts(p.router, row);
    }
    if (lane < p.top_k) {
      AddPick<kOne>(pick.id, row, lane, picks, table);
      if (blockIdx.x == 0) {
        p.router.ids[row * p.top_k + lane] = pick.id;
        p.router.weights[row * p.top_k + lane] = pick.weight;
        if (p.counts.experts != nullptr) atomicAdd(p.counts.experts + pick.id, 1U);
      }
    }
    if (blockIdx.x == 0) {
      if (lane == 0 && !pick.finite) atomicMin(p.failed_row, row);
      __threadfence();
    }
  }
  return rows < static_cast<int>(blockDim.x / 32);
}

// After CollectPicks, by the first block.
__device__ __forceinline__ void CountDistinct(const GateUpParams& p, const PassPicks& picks) {
  if (p.counts.distinct != nullptr && threadIdx.x == 0) {
    *p.counts.distinct += static_cast<std::uint32_t>(picks.count + picks.host);
  }
}

// By all threads of the block that wrote ids and weights, after a barrier; `host`: whether a pick
// is the host's, for all threads alike.
__device__ __forceinline__ void HandOver(const GateUpParams& p, int rows, bool host) {
  const HandOff& to = p.hand_off;
  if (to.ring == nullptr) return;
  if (host) {
    for (int i = static_cast<int>(threadIdx.x); i < rows * p.top_k;
         i += static_cast<int>(blockDim.x)) {
      to.ids[i] = p.router.ids[i];
      to.weights[i] = p.router.weights[i];
    }
    if (p.quantised.data != nullptr) {
      CopyByBlock(to.input, p.quantised.data, p.input_bytes * static_cast<std::size_t>(rows));
    } else {
      for (int row = 0; row < rows; ++row) {
        CopyByBlock(to.input + static_cast<std::size_t>(row) * p.input_bytes,
                    reinterpret_cast<const std::byte*>(p.x + row * p.x_stride), p.input_bytes);
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    *to.pending = host ? kPends : kNothingPends;
    if (host) __threadfence_system();  // of what the whole block wrote
    TellHost(to.ring, host ? kRingsPicks : kRingsNoPick);
  }
}

// An output of a unit from the sums of its one or two matrices.
__device__ __forceinline__ void StoreGateUp(const GateUpParams& p, float first, float second,
                                            float* h) {
  if (p.matrices == 2) {
    *h = ExactSilu(first) * second;
  } else {
    *h = p.gated ? ExactSilu(*h) * first : first;
  }
}

// N7's end: the one rounding, and the residual.
__device__ __forceinline__ void StorePickSum(const DownParams& p, long long sum, int row,
                                             int output) {
  const float moe = __ll2float_rn(sum) * 0x1p-32F;
  const float value =
      p.residual == nullptr
          ? moe
          : p.residual[static_cast<std::size_t>(row) * p.residual_stride + output] + moe;
  p.out[static_cast<std::size_t>(row) * p.out_stride + output] = value;
}

// one_row_experts.cu: whether it has the shape, and the launches. One row that need not be counted.
bool HasOneRowGateUp(const GateUpParams& params);
bool HasOneRowDown(const DownParams& params);
cudaError_t PrepareOneRowExperts();
cudaError_t OneRowGateUp(const Launch& launch, GateUpParams& params);
cudaError_t OneRowDown(const Launch& launch, DownParams& params);

// few_rows_experts.cu, the same for 2 to 8 rows.
bool HasFewRowsGateUp(const Launch& launch, const GateUpParams& params);
bool HasFewRowsDown(const Launch& launch, const DownParams& params);
cudaError_t PrepareFewRowsExperts();
cudaError_t FewRowsGateUp(const Launch& launch, GateUpParams& params);
cudaError_t FewRowsDown(const Launch& launch, DownParams& params);

// rows_experts_float.cu
cudaError_t FloatGateUp(const Launch& launch, GateUpParams& params);
cudaError_t FloatDown(const Launch& launch, DownParams& params);

}  // namespace bloomery::kernels::cuda
