// The two expert launches of 2 to 8 rows for experts in Q4_K (down also Q6_K) of up to 2048 values
// into gate and up and 768 into down, on compute capability 9.0: what rows_experts.cu does for
// every other shape. There all warps of a block meet after each tile; here teams of warps, one a
// tile, run apart, each with tiles on their way by bulk copies, so that device memory is never
// idle.
#include "kernels-common/cuda/async_copy.cuh"
#include "kernels-common/cuda/cluster.cuh"
#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/linear/cuda/row_codes.cuh"
#include "kernels-common/moe/cuda/route.cuh"
#include "kernels-common/moe/cuda/rows_experts_params.cuh"
#include "kernels-common/quant/cuda/card_types.cuh"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kStages = 2;  // tiles of a team: one is read, the next on its way
constexpr int kPickedMax = 8 * kRowsMax;
constexpr int kColumns = 4;  // rows that down multiplies at a time: hardly an expert has more
constexpr std::size_t kOwnShared = 8 * 1024;
constexpr std::size_t kSharedMax = 227 * 1024 - kOwnShared;

// Unused where the kernels have no body.
[[maybe_unused]] __device__ __forceinline__ void InitBarriers(std::uint64_t* barriers, int count) {
  if (static_cast<int>(threadIdx.x) < count) InitBarrier(barriers + threadIdx.x, 1);
  OrderBarriersBeforeBulk();
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

// Down: a block makes 16 outputs of all rows. It makes codes of h of all picks, while the first
// tiles are on their way; then a team has one expert of the pass after another, a warp a group of
// 256 values. The picks' Q (N7) are summed in shared memory.
template <int kType>
struct DownTeams {
  static constexpr int kTile = static_cast<int>(CardTile<kType>::kBytes);
  // As many as shared memory has room for.
  static constexpr int kTeams = kType == kQ4K ? 8 : 7;
  static constexpr int kWarps = 3;
  static constexpr int kThreads = 32 * kTeams * kWarps;
  static constexpr int kPartial = 16 * kWarps * kColumns;  // floats
};

// The rows that picked an expert (PassPicks::ranks), as indices of all picks.
struct PickedRows {
  int count;
  std::uint8_t row[kRowsMax];
  std::uint8_t pick[kRowsMax];  // row * top_k + which
};

template <int kType>
__global__ void __launch_bounds__(DownTeams<kType>::kThreads, 1)
    FewRowsDownKernel(const __grid_constant__ DownParams p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using T = DownTeams<kType>;
  constexpr int kTile = T::kTile;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ PassPicks picks;
  __shared__ unsigned long long sums[16 * kRowsMax];
  __shared__ std::int32_t ids[kPassPicksMax];
  __shared__ float weights[kPassPicksMax];
  __shared__ PickedRows picked[kPickedMax];
  __shared__ std::uint64_t barriers[T::kTeams * kStages];
  AllowNext();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int team = warp / T::kWarps;
  const int group = warp % T::kWarps;
  const int thread = static_cast<int>(threadIdx.x) - 32 * T::kWarps * team;
  const RowCodes codes = {shared, p.layout};  // of each pick
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
  ClusterArrive();
  InitBarriers(barriers, T::kTeams * kStages);
  for (int i = static_cast<int>(threadIdx.x); i < 16 * p.rows; i += static_cast<int>(blockDim.x)) {
    sums[i] = 0;
  }
  int round = 0;  // of a place, from when the barriers were made
  const int rows = TakePicks<false>(
      p, ids, picks, table,
      [&] {
        if (thread != 0) return;
        for (int i = 0; i < kStages; ++i) ask(team + i * T::kTeams, i);
      },
      [&] {
        for (int i = 0; i < kStages; ++i) WaitPhase(full + i, 0);
        round = kStages;
      });
  for (int i = static_cast<int>(threadIdx.x); i < rows * p.top_k;
       i += static_cast<int>(blockDim.x)) {
    weights[i] = p.weights[i];
  }
  ClusterWait();
  if (rows == 0) return;

  if (static_cast<int>(threadIdx.x) < picks.count) {
    PickedRows& of = picked[threadIdx.x];
    of.count = 0;
    for (int row = 0; row < rows; ++row) {
      const int rank = picks.Rank<false>(static_cast<int>(threadIdx.x), row);
      if (rank < 0) continue;
      of.row[of.count] = static_cast<std::uint8_t>(row);
      of.pick[of.count++] = static_cast<std::uint8_t>(row * p.top_k + rank);
    }
  }
  // Stretches of 256 values of h, each made codes of by one block of the cluster; some at a time:
  // their latency is that of one.
  constexpr int kSome = 4;
  const int stretches = rows * p.top_k * p.groups;
  const int step = ClusterSize() * T::kTeams * T::kWarps;
  for (int i = ClusterRank() + ClusterSize() * warp; i < stretches; i += kSome * step) {
    float v[kSome][8];
#pragma unroll
    for (int j = 0; j < kSome; ++j) {
      const int at = min(i + j * step, stretches - 1);
      LoadStretch(p.h + static_cast<std::size_t>(at / p.groups) * p.h_stride,
                  256 * (at % p.groups) + 8 * lane, p.k, v[j]);
    }
#pragma unroll
    for (int j = 0; j < kSome; ++j) {
      const int at = i + j * step;
      if (at >= stretches) continue;
      StoreStretch<256>(v[j], codes, at / p.groups, 256 * (at % p.groups));
      __syncwarp();
      ShareStretch(codes, at / p.groups, at % p.groups);
    }
  }
  ClusterArrive();
  ClusterWait();

  int buffer = 0;
  for (int pick = team; pick < picks.count; pick += T::kTeams, ++round) {
    const int stage = round % kStages;
    const PickedRows& of = picked[pick];
    WaitPhase(full + stage, static_cast<std::uint32_t>(round / kStages) & 1U);
    for (int first = 0; first < of.count; first += kColumns) {
      const int count = min(kColumns, of.count - first);
      float* mine = partial + buffer * T::kPartial;
      buffer ^= 1;
      if (group < p.groups) {
        LaneColumns columns(count);
        columns.n = of.pick[first + columns.n];
        columns.c0 = of.pick[first + columns.c0];
        columns.c1 = of.pick[first + columns.c1];
        float t[4];
        TileDot<kType, false>(tiles + stage * bytes + group * kTile, codes, group, columns, t);
        StoreT<false>(t, mine + group * 16 * kColumns, count);
      }
      MeetTeam<T::kWarps>(team);
      if (first + kColumns >= of.count && thread == 0) ask(pick + kStages * T::kTeams, stage);
      if (thread < 16 * count) {
        const int row = of.row[first + thread / 16];
        const float y = SumGroups(mine + thread, p.groups, 16 * kColumns);
        const float value = weights[of.pick[first + thread / 16]] * y;
        if (fabsf(value) < 0x1p26F) {
          const long long q = __double2ll_rn(static_cast<double>(value) * 0x1p32);
          atomicAdd(sums + 16 * row + thread % 16, static_cast<unsigned long long>(q));
        } else if (16 * static_cast<int>(blockIdx.x) + thread % 16 < p.n) {
          atomicMin(p.failed_row, row);
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

template <int kType>
std::size_t LayOutDown(DownParams& p) {
  using T = DownTeams<kType>;
  p.layout = LayOutRowCodes(p.k, 256, p.rows * p.top_k);
  p.tiles_at = Aligned(p.layout.bytes);
  p.table_at = p.tiles_at + T::kTeams * kStages * p.groups * T::kTile;
  p.partial_at = Aligned(p.table_at + 8 * p.experts);
  return static_cast<std::size_t>(p.partial_at) + sizeof(float) * T::kTeams * 2 * T::kPartial;
}
std::size_t LayOutDown(DownParams& p) {
  return p.down.type == kQ4K ? LayOutDown<kQ4K>(p) : LayOutDown<kQ6K>(p);
}

template <int kType>
cudaError_t StartDown(const Launch& launch, DownParams& p) {
  const std::size_t bytes = LayOutDown<kType>(p);
  const auto blocks = static_cast<unsigned>((p.n + 15) / 16);
  const dim3 threads(DownTeams<kType>::kThreads);
  const unsigned cluster = ClusterFor(blocks, threads, bytes, FewRowsDownKernel<kType>);
  return StartClusters(launch, cluster, dim3(blocks), threads, bytes, FewRowsDownKernel<kType>, p);
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
         p.groups <= DownTeams<kQ4K>::kWarps && p.rows * p.top_k <= kPickedMax &&
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
  return p.down.type == kQ4K ? StartDown<kQ4K>(launch, p) : StartDown<kQ6K>(launch, p);
}

cudaError_t PrepareFewRowsExperts() {
  cudaError_t status = AllowShared(FewRowsGateUpKernel, kSharedMax);
  if (status == cudaSuccess) status = AllowShared(FewRowsDownKernel<kQ4K>, kSharedMax);
  if (status == cudaSuccess) status = AllowShared(FewRowsDownKernel<kQ6K>, kSharedMax);
  return status;
}

}  // namespace bloomery::kernels::cuda
