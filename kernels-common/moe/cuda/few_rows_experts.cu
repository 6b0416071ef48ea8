// The two expert launches of 2 to 8 rows for experts in Q4_K (down also Q6_K) of up to 2048 values
// into gate and up and 768 into down, on compute capability 9.0: what rows_experts.cu does for
// every other shape. There all warps of a block meet after each tile; here teams of warps, one a
// tile, run apart, each with tiles on their way by bulk copies, so that device memory is never
// idle.
#include "kernels-common/cuda/async_copy.cuh"
#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/linear/cuda/row_codes.cuh"
#include "kernels-common/moe/cuda/route.cuh"
#include "kernels-common/moe/cuda/rows_experts_params.cuh"
#include "kernels-common/quant/cuda/card_types.cuh"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kStages = 2;  // tiles of a team: one is read, the next on its way
constexpr std::size_t kOwnShared = 8 * 1024;
constexpr std::size_t kSharedMax = 227 * 1024 - kOwnShared;

// The threads of a team meet.
template <int kWarps>
__device__ __forceinline__ void MeetTeam(int team) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(32 * kWarps) : "memory");
}

// Unused where the kernels have no body.
[[maybe_unused]] __device__ __forceinline__ void InitBarriers(std::uint64_t* barriers, int count) {
  if (static_cast<int>(threadIdx.x) < count) InitBarrier(barriers + threadIdx.x, 1);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Gate and up: a team has 16 rows of both for one expert, a warp a group of 256 values.
struct GateUpTeams {
  static constexpr int kTeams = 2;
  static constexpr int kWarps = 8;
  static constexpr int kThreads = 32 * kTeams * kWarps;
  static constexpr int kTile = static_cast<int>(CardTile<kQ4K>::kBytes);
  // Floats: t of a matrix, padded so that both are read without conflicts; two matrices, twice.
  static constexpr int kMatrix = 16 * kWarps * kRowsMax + 16;
  static constexpr int kPartial = 4 * kMatrix;
};

__global__ void __launch_bounds__(GateUpTeams::kThreads, 1)
    FewRowsGateUpKernel(const __grid_constant__ GateUpParams p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using T = GateUpTeams;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ PassPicks picks;
  __shared__ std::uint64_t barriers[T::kTeams * kStages];
  // The first block lets the next kernel start once it has written the ids, which that kernel may
  // look at before it waits.
  if (blockIdx.x != 0) AllowNext();
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int team = warp / T::kWarps;
  const int group = warp % T::kWarps;
  const int thread = static_cast<int>(threadIdx.x) % (32 * T::kWarps);
  const RowCodes codes = {shared, p.layout};
  auto* partial = reinterpret_cast<float*>(shared + p.partial_at) + team * T::kPartial;
  auto* table = reinterpret_cast<unsigned long long*>(shared + p.table_at);
  const int bytes = p.groups * T::kTile;  // of 16 rows of a matrix
  std::byte* tiles = shared + p.tiles_at + team * kStages * 2 * bytes;
  std::uint64_t* full = barriers + team * kStages;
  InitBarriers(barriers, T::kTeams * kStages);
  ClearPicks<false>(p.experts, table);
  WaitForInputs();
  const int rows = p.live == nullptr ? p.rows : min(p.rows, *p.live);
  const bool idle = RouteRows<false>(p, rows, picks, table);
  if (idle) CopyQuantisedRows(p.quantised, codes, rows, 32 * rows);
  __syncthreads();
  CollectPicks<false>(p.experts, p.top_k, rows, p.frame_of, picks, table);

  const int units = picks.count * p.tiles;
  const int step = T::kTeams * static_cast<int>(gridDim.x);
  const int first = static_cast<int>(blockIdx.x) + team * static_cast<int>(gridDim.x);
  const auto ask = [&](int unit, int stage) {
    if (unit >= units) return;
    const auto expert = static_cast<std::size_t>(picks.expert[unit / p.tiles]);
    const std::size_t at = static_cast<std::size_t>(unit % p.tiles) * bytes;
    std::byte* to = tiles + stage * 2 * bytes;
    ExpectBytes(full + stage, static_cast<std::uint32_t>(2 * bytes));
    CopyBulkOnce(to, p.gate.data + expert * p.gate.expert_bytes + at, bytes, full + stage);
    CopyBulkOnce(to + bytes, p.up.data + expert * p.up.expert_bytes + at, bytes, full + stage);
  };
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) ask(first + i * step, i);
  }
  if (blockIdx.x == 0) {
    AllowNext();
    CountDistinct(p, picks);
    HandOver(p, rows, picks.host > 0);
  }
  if (!idle) {
    CopyQuantisedRows(p.quantised, codes, rows, 0);
    __syncthreads();
  }

  const LaneColumns columns(rows);
  const int outputs = 16 * rows;
  // Of the sums: a pair of threads an output, gate's and up's.
  const int matrix = thread % 2;
  const int row = thread / 32;
  const int output = thread / 2 % 16;
  int round = 0;
  for (int unit = first; unit < units; unit += step, ++round) {
    const int stage = round % kStages;
    float* mine = partial + round % 2 * 2 * T::kMatrix;
    WaitPhase(full + stage, static_cast<std::uint32_t>(round / kStages) & 1U);
    if (group < p.groups) {
#pragma unroll 1
      for (int of = 0; of < 2; ++of) {
        float t[4];
        TileDot<kQ4K, false>(tiles + stage * 2 * bytes + of * bytes + group * T::kTile, codes,
                             group, columns, t);
        StoreT<false>(t, mine + of * T::kMatrix + group * outputs, rows);
      }
    }
    MeetTeam<T::kWarps>(team);
    if (thread == 0) ask(unit + kStages * step, stage);
    const int pick = unit / p.tiles;
    const int value = 16 * (unit % p.tiles) + output;
    const int rank = row < rows && value < p.n ? picks.Rank<false>(pick, row) : -1;
    float y = 0.0F;
    if (rank >= 0) y = SumGroups(mine + matrix * T::kMatrix + 16 * row + output, p.groups, outputs);
    const float up = __shfl_down_sync(kAllLanes, y, 1);
    if (rank >= 0 && matrix == 0) {
      StoreGateUp(p, y, up,
                  p.h + static_cast<std::size_t>(row * p.top_k + rank) * p.h_stride + value);
    }
  }
#endif
}

// Down: a block makes 16 outputs of all rows. A team has one expert of the pass after another, a
// warp a group of 256 values: it makes codes of the rows that picked the expert, up to kColumns at
// a time. The picks' Q (N7) are summed in shared memory.
struct DownTeams {
  static constexpr int kTeams = 8;
  static constexpr int kWarps = 3;
  static constexpr int kThreads = 32 * kTeams * kWarps;
  static constexpr int kColumns = 4;
  static constexpr int kPartial = 16 * kColumns * kWarps;  // floats
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// Takes rows off the ranks of an expert (PassPicks): the lowest row that picked it, as which pick.
struct RankedRow {
  int row;
  int rank;
  __device__ __forceinline__ explicit RankedRow(unsigned long long ranks)
      : row(Lowest(ranks)), rank(static_cast<int>((ranks >> (8 * row)) & 255U) - 1) {}
  __device__ __forceinline__ static unsigned long long Rest(unsigned long long ranks) {
    return ranks & ~(255ULL << (8 * Lowest(ranks)));
  }
  __device__ __forceinline__ static int Lowest(unsigned long long ranks) {
    return __popcll((ranks & (~ranks + 1)) - 1) / 8;
  }
};
#endif

template <int kType>
__global__ void __launch_bounds__(DownTeams::kThreads, 1)
    FewRowsDownKernel(const __grid_constant__ DownParams p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using T = DownTeams;
  constexpr int kTile = static_cast<int>(CardTile<kType>::kBytes);
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ PassPicks picks;
  __shared__ unsigned long long sums[16 * kRowsMax];
  __shared__ std::int32_t ids[kPassPicksMax];
  __shared__ float weights[kPassPicksMax];
  __shared__ std::uint64_t barriers[T::kTeams * kStages];
  AllowNext();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int team = warp / T::kWarps;
  const int group = warp % T::kWarps;
  const int thread = static_cast<int>(threadIdx.x) - 32 * T::kWarps * team;
  const RowCodes codes = {shared + warp * p.layout.bytes, p.layout};
  auto* partial = reinterpret_cast<float*>(shared + p.partial_at) + team * 2 * T::kPartial;
  auto* table = reinterpret_cast<unsigned long long*>(shared + p.table_at);
  const int bytes = p.groups * kTile;  // of 16 outputs of an expert
  std::byte* tiles = shared + p.tiles_at + team * kStages * bytes;
  std::uint64_t* full = barriers + team * kStages;
  // Also where there is no expert, so that each place is asked for once before the first round.
  const auto ask = [&](int pick, int stage) {
    const bool is = pick < picks.count;
    ExpectBytes(full + stage, is ? static_cast<std::uint32_t>(bytes) : 0U);
    if (!is) return;
    const auto expert = static_cast<std::size_t>(picks.expert[pick]);
    CopyBulkOnce(tiles + stage * bytes,
                 p.down.data + expert * p.down.expert_bytes + std::size_t{blockIdx.x} * bytes,
                 bytes, full + stage);
  };
  // Picks of `count` rows whose ids are in shared memory, and their first tiles.
  const auto begin = [&](int count) {
    ClearPicks<false>(p.experts, table);
    for (int i = static_cast<int>(threadIdx.x); i < count * p.top_k;
         i += static_cast<int>(blockDim.x)) {
      AddPick<false>(ids[i], i / p.top_k, i % p.top_k, picks, table);
    }
    __syncthreads();
    CollectPicks<false>(p.experts, p.top_k, count, p.frame_of, picks, table);
    if (thread == 0) {
      for (int i = 0; i < kStages; ++i) ask(team + i * T::kTeams, i);
    }
  };

  // Tiles are asked for on the word of ids that may not be final (rows_experts.cu), read past L1.
  InitBarriers(barriers, T::kTeams * kStages);
  bool valid = true;
  for (int i = static_cast<int>(threadIdx.x); i < p.rows * p.top_k;
       i += static_cast<int>(blockDim.x)) {
    const std::int32_t id = __ldcg(p.ids + i);
    ids[i] = id;
    valid = valid && id >= 0 && id < p.experts;
  }
  for (int i = static_cast<int>(threadIdx.x); i < 16 * p.rows; i += static_cast<int>(blockDim.x)) {
    sums[i] = 0;
  }
  const bool early = __syncthreads_and(valid) != 0;
  if (early) begin(p.rows);
  WaitForInputs();
  const int rows = p.live == nullptr ? p.rows : min(p.rows, *p.live);
  bool same = early && rows == p.rows;
  for (int i = static_cast<int>(threadIdx.x); i < rows * p.top_k;
       i += static_cast<int>(blockDim.x)) {
    same = same && __ldcg(p.ids + i) == ids[i];
    weights[i] = p.weights[i];
  }
  int round = 0;  // of a place, from when the barriers were made
  if (__syncthreads_and(same) == 0) {
    for (int i = static_cast<int>(threadIdx.x); i < rows * p.top_k;
         i += static_cast<int>(blockDim.x)) {
      ids[i] = __ldcg(p.ids + i);
    }
    if (early) {
      for (int i = 0; i < kStages; ++i) WaitPhase(full + i, 0);
      round = kStages;
    }
    __syncthreads();
    begin(rows);
  }
  if (rows == 0) return;

  const auto load = [&](const RankedRow& at, float(&v)[8]) {
    LoadStretch(p.h + static_cast<std::size_t>(at.row * p.top_k + at.rank) * p.h_stride,
                256 * group + 8 * lane, p.k, v);
  };
  const bool has_group = group < p.groups;
  float v[8];  // of the expert's first row, read a round before
  if (has_group && team < picks.count) load(RankedRow(picks.ranks[team]), v);
  int buffer = 0;
  for (int pick = team; pick < picks.count; pick += T::kTeams, ++round) {
    const int stage = round % kStages;
    unsigned long long rest = picks.ranks[pick];
    bool is_first = true;
    while (rest != 0) {
      const unsigned long long some = rest;  // begins with the rows of this turn
      int count = 0;
#pragma unroll 1
      for (; count < T::kColumns && rest != 0; ++count) {
        if (has_group) {
          if (!is_first || count > 0) load(RankedRow(rest), v);
          StoreStretch<256>(v, codes, count, 0);
        }
        rest = RankedRow::Rest(rest);
      }
      if (rest == 0 && has_group && pick + T::kTeams < picks.count) {
        load(RankedRow(picks.ranks[pick + T::kTeams]), v);
      }
      __syncwarp();
      float* mine = partial + buffer * T::kPartial;
      buffer ^= 1;
      if (is_first) WaitPhase(full + stage, static_cast<std::uint32_t>(round / kStages) & 1U);
      is_first = false;
      if (has_group) {
        const LaneColumns columns(count);
        float t[4];
        TileDot<kType, false>(tiles + stage * bytes + group * kTile, codes, 0, columns, t);
        StoreT<false>(t, mine + group * 16 * T::kColumns, count);
      }
      MeetTeam<T::kWarps>(team);
      if (rest == 0 && thread == 0) ask(pick + kStages * T::kTeams, stage);
      if (thread < 16 * count) {
        unsigned long long of = some;
        for (int i = thread / 16; i > 0; --i) of = RankedRow::Rest(of);
        const RankedRow at(of);
        const float y = SumGroups(mine + thread, p.groups, 16 * T::kColumns);
        const float value = weights[at.row * p.top_k + at.rank] * y;
        if (fabsf(value) < 0x1p26F) {
          const long long q = __double2ll_rn(static_cast<double>(value) * 0x1p32);
          atomicAdd(sums + 16 * at.row + thread % 16, static_cast<unsigned long long>(q));
        } else if (16 * static_cast<int>(blockIdx.x) + thread % 16 < p.n) {
          atomicMin(p.failed_row, at.row);
        }
      }
    }
  }
  __syncthreads();
  const bool with_host = HasHostPart(p.hand_off);
  if (with_host) {
    if (threadIdx.x == 0) WaitForHost(p.hand_off, blockIdx.x == 0);
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < 16 * rows; i += static_cast<int>(blockDim.x)) {
    const int output = 16 * static_cast<int>(blockIdx.x) + i % 16;
    if (output >= p.n) continue;
    auto sum = static_cast<long long>(sums[i]);
    if (with_host) {
      sum += HostSum(p.hand_off.sums, static_cast<std::size_t>(i / 16) * p.n + output);
    }
    StorePickSum(p, sum, i / 16, output);
  }
#endif
}

std::int32_t Aligned(std::int32_t bytes) { return (bytes + 127) / 128 * 128; }

// Places in shared memory; returns all their bytes.
std::size_t LayOutGateUp(GateUpParams& p) {
  using T = GateUpTeams;
  p.layout = LayOutRowCodes(p.k, 256, p.rows);
  p.tiles_at = Aligned(p.layout.bytes);
  p.table_at = p.tiles_at + T::kTeams * kStages * 2 * p.groups * T::kTile;
  p.partial_at = Aligned(p.table_at + 8 * p.experts);
  return static_cast<std::size_t>(p.partial_at) + sizeof(float) * T::kTeams * T::kPartial;
}

std::size_t LayOutDown(DownParams& p) {
  using T = DownTeams;
  p.layout = LayOutRowCodes(256, 256, T::kColumns);
  p.tiles_at = Aligned(T::kTeams * T::kWarps * p.layout.bytes);
  p.table_at = p.tiles_at + T::kTeams * kStages * p.groups * p.down.tile_bytes;
  p.partial_at = Aligned(p.table_at + 8 * p.experts);
  return static_cast<std::size_t>(p.partial_at) + sizeof(float) * T::kTeams * 2 * T::kPartial;
}

}  // namespace

bool HasFewRowsGateUp(const Launch& launch, const GateUpParams& params) {
  GateUpParams p = params;
  return launch.dependent && p.rows > 1 && p.matrices == 2 && p.gate.type == kQ4K &&
         p.up.type == kQ4K && p.groups <= GateUpTeams::kWarps &&
         LayOutGateUp(p) <= SharedLimit(launch, kSharedMax, kOwnShared);
}

bool HasFewRowsDown(const Launch& launch, const DownParams& params) {
  DownParams p = params;
  return launch.dependent && p.rows > 1 && (p.down.type == kQ4K || p.down.type == kQ6K) &&
         p.groups <= DownTeams::kWarps &&
         LayOutDown(p) <= SharedLimit(launch, kSharedMax, kOwnShared);
}

cudaError_t FewRowsGateUp(const Launch& launch, GateUpParams& p) {
  const std::size_t bytes = LayOutGateUp(p);
  const std::int32_t picks = p.rows * p.top_k < p.experts ? p.rows * p.top_k : p.experts;
  const std::int32_t units = picks * p.tiles;
  const auto blocks =
      static_cast<unsigned>(units < launch.multiprocessors ? units : launch.multiprocessors);
  return Start(launch, dim3(blocks), dim3(GateUpTeams::kThreads), bytes, FewRowsGateUpKernel, p);
}

cudaError_t FewRowsDown(const Launch& launch, DownParams& p) {
  const std::size_t bytes = LayOutDown(p);
  return Start(launch, dim3((p.n + 15) / 16), dim3(DownTeams::kThreads), bytes,
               p.down.type == kQ4K ? FewRowsDownKernel<kQ4K> : FewRowsDownKernel<kQ6K>, p);
}

cudaError_t PrepareFewRowsExperts() {
  cudaError_t status = AllowShared(FewRowsGateUpKernel, kSharedMax);
  if (status == cudaSuccess) status = AllowShared(FewRowsDownKernel<kQ4K>, kSharedMax);
  if (status == cudaSuccess) status = AllowShared(FewRowsDownKernel<kQ6K>, kSharedMax);
  return status;
}

}  // namespace bloomery::kernels::cuda
