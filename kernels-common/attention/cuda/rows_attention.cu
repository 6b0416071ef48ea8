#include "kernels-common/attention/cuda/rows_attention.h"

#include <algorithm>
#include <bit>

#include "kernels-common/attention/cuda/rows_attention.cuh"
#include "kernels-common/attention/cuda/rows_heads.cuh"
#include "kernels-common/attention/cuda/rows_merge.cuh"
#include "kernels-common/attention/cuda/rows_ring.cuh"
#include "kernels-common/attention/cuda/setup.h"

namespace bloomery::kernels::cuda {
namespace {

// Blocks of at most four heads leave room for a second one on a multiprocessor.
template <int kHeads>
inline constexpr int kBlocksAMultiprocessor = kHeads <= 4 ? 2 : 1;

template <KvType kType, int kHeads, int kRounds>
__global__ void __launch_bounds__(kRowsThreads, kBlocksAMultiprocessor<kHeads>)
    RowsAttentionKernel(const __grid_constant__ RowsPlan plan) {
  extern __shared__ __align__(16) std::byte rows_shared[];
  __shared__ RowsExchange exchange;
  RowsBlock<kType, kHeads, kRounds>(plan, rows_shared, exchange).Run();
}

constexpr int kMostHeads = 8;  // of a block
constexpr int kOneRoundDims = 256;
constexpr int kMostRounds = kMaxValueDim / kOneRoundDims;

int BlockHeads(const CardAttention& a) {
  const int ratio = a.heads / a.kv_heads;
  int heads = 2;
  while (heads < kMostHeads && heads < ratio) {
    heads *= 2;
  }
  return heads;
}

int Chunks(const CardAttention& a) {
  const int heads = BlockHeads(a);
  return (a.heads / a.kv_heads + heads - 1) / heads;
}

std::size_t Align(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Windows that a row may look into.
int WindowsMost(const CardAttention& a) {
  constexpr std::size_t kRest = kAttentionWindow - 1;
  const std::size_t all = (a.keys.capacity + kRest) / kAttentionWindow;
  if (a.window == 0) return static_cast<int>(all);
  // The last of its keys anywhere in a window, the others before it.
  const std::size_t seen = (static_cast<std::size_t>(a.window) + kRest - 1) / kAttentionWindow + 1;
  return static_cast<int>(std::min(all, seen));
}

// The workspace begins with the counters: two for each (row, kv head, chunk), at the same place for
// every shape and number of rows, so that a program of one shape leaves those of another at zero.
// Shapes with more groups than that have no splits.
constexpr std::size_t kCounterBytes = 16384;
constexpr int kMostGroups = static_cast<int>(kCounterBytes / (2 * sizeof(std::int32_t)));

// Offsets into the workspace.
struct Workspace {
  std::size_t values_at;
  std::size_t bytes;
};

Workspace WorkspaceOf(const CardAttention& a) {
  const auto rows = static_cast<std::size_t>(std::min(a.rows.rows, kMaxHeadRows));
  const std::size_t windows = rows * a.heads * WindowsMost(a);
  Workspace space{};
  space.values_at = kCounterBytes + Align(windows * sizeof(float2), 256);
  space.bytes = space.values_at + windows * a.value_dim * sizeof(float);
  return space;
}

constexpr int kFewestValueKeys = 32;  // of a slice
constexpr int kMostStages = 8;        // WaitForCopies counts to 6

template <KvType kType>
int StageBytes(const CardAttention& a) {
  return std::max(kWindow * StageKeyBytes<kType>(),
                  kFewestValueKeys * PlaneBytes<kType>(a.value_dim));
}

// As many keys as a stage, and for q8_0 the decoded slice, have room for.
template <KvType kType>
int ValueKeys(const CardAttention& a) {
  const int room = kType == KvType::kQ8_0 ? kWindow * ScoreKeyBytes<kType>() / (a.value_dim * 4)
                                          : StageBytes<kType>(a) / PlaneBytes<kType>(a.value_dim);
  int keys = kWindow;
  while (keys > kFewestValueKeys && keys > room) {
    keys /= 2;
  }
  return keys;
}

template <KvType kType>
int WorkBytes(const CardAttention& a, int value_keys) {
  if (kType != KvType::kQ8_0) return 0;
  return std::max(kWindow * ScoreKeyBytes<kType>(), value_keys * a.value_dim * 4);
}

// whole / part where that has no rest, else 0.
int Divides(int part, int whole) { return whole % part == 0 ? whole / part : 0; }

// Lays out shared memory behind the stages; returns its bytes.
template <KvType kType>
int LayOut(RowsPlan& plan, int heads, int most_bytes) {
  const CardAttention& a = plan.attention;
  const int rows = std::min(a.rows.rows, kMaxHeadRows);
  const bool fused = plan.inputs.k != nullptr;
  int at = 0;
  const auto take = [&at](int bytes) {
    const int here = at;
    at += (bytes + 15) / 16 * 16;
    return here;
  };
  plan.value_keys = ValueKeys<kType>(a);
  plan.slices = plan.key_slices + kWindow / plan.value_keys;
  plan.value_step = Divides(PlaneBytes<kType>(a.value_dim), kRowsThreads * 16);
  const int tiles = a.value_dim / (heads == 8 ? 4 : 2);
  plan.tile_shift = std::has_single_bit(static_cast<unsigned>(tiles))
                        ? std::countr_zero(static_cast<unsigned>(tiles))
                        : -1;
  plan.work_at = take(WorkBytes<kType>(a, plan.value_keys));
  plan.query_at = take(heads * a.key_dim * 4);
  plan.score_at = take(heads * kScoreStride * 4);
  plan.weight_at = take(heads * kWindow * 4);
  if (fused) {
    plan.turn_at = take(rows * plan.inputs.n_rot * 4);
    plan.norm_at = take(2 * a.key_dim * 4);
    plan.fresh_key_at = take(rows * a.key_dim * 4);
    plan.fresh_value_at = take(rows * a.value_dim * 4);
    plan.fresh_key_row_at = take(rows * PlaneBytes<kType>(a.key_dim));
    plan.fresh_value_row_at = take(rows * PlaneBytes<kType>(a.value_dim));
  }
  plan.stage_bytes = (StageBytes<kType>(a) + 15) / 16 * 16;
  const int wanted = std::min(kMostStages, plan.slices + 2);
  plan.stages = std::clamp((most_bytes - at) / plan.stage_bytes, 2, wanted);
  const int front = plan.stages * plan.stage_bytes;
  for (std::int32_t* offset :
       {&plan.work_at, &plan.query_at, &plan.score_at, &plan.weight_at, &plan.turn_at,
        &plan.norm_at, &plan.fresh_key_at, &plan.fresh_value_at, &plan.fresh_key_row_at,
        &plan.fresh_value_row_at}) {
    *offset += front;
  }
  return front + at;
}

// cp.async of q8_0 rows needs whole words.
int CopyUnit(const CardAttention& a) {
  const bool words = a.key_dim % 64 == 0 && a.value_dim % 64 == 0 && a.keys.row_bytes % 4 == 0 &&
                     a.values.row_bytes % 4 == 0;
  return words ? 4 : 2;
}

template <KvType kType, int kHeads>
cudaError_t LaunchRows(const Launch& launch, RowsPlan& plan) {
  const CardAttention& a = plan.attention;
  int shared_most = 0;
  const cudaError_t error = SharedBytesMost(&shared_most);
  if (error != cudaSuccess) return error;
  shared_most = std::min(shared_most, launch.shared_bytes_max);
  shared_most -= static_cast<int>(sizeof(RowsExchange)) + 1024;
  constexpr int kShare = kBlocksAMultiprocessor<kHeads>;
  const int groups = a.rows.rows * a.kv_heads * plan.chunks;
  plan.splits = 1;
  plan.mergers = 1;
  if (plan.counters != nullptr && groups <= kMostGroups) {
    plan.splits = std::clamp(launch.multiprocessors * kShare / groups, 1, plan.windows_most);
    plan.mergers = std::clamp(launch.multiprocessors / 2 / groups, 1, kHeads);
  }
  int shared = LayOut<kType>(plan, kHeads, shared_most / kShare);
  if (shared > shared_most) return cudaErrorInvalidValue;
  const dim3 grid(plan.splits, a.kv_heads * plan.chunks, a.rows.rows);
  const auto kernel = a.value_dim <= kOneRoundDims
                          ? RowsAttentionKernel<kType, kHeads, 1>
                          : RowsAttentionKernel<kType, kHeads, kMostRounds>;
  return Start(launch, grid, dim3(kRowsThreads), shared, kernel, plan);
}

template <KvType kType>
cudaError_t LaunchType(const Launch& launch, RowsPlan& plan) {
  switch (BlockHeads(plan.attention)) {
    case 2:
      return LaunchRows<kType, 2>(launch, plan);
    case 4:
      return LaunchRows<kType, 4>(launch, plan);
    default:
      return LaunchRows<kType, 8>(launch, plan);
  }
}

cudaError_t LaunchPlan(const Launch& launch, const CardAttention& attention,
                       const HeadInputs& inputs, std::byte* workspace) {
  if (!RowsAttentionFits(attention)) return cudaErrorInvalidValue;
  RowsPlan plan;
  plan.attention = attention;
  plan.inputs = inputs;
  plan.ratio = attention.heads / attention.kv_heads;
  plan.chunks = Chunks(attention);
  plan.windows_most = WindowsMost(attention);
  plan.key_slices = (attention.key_dim + kSliceDims - 1) / kSliceDims;
  plan.copy_unit = CopyUnit(attention);
  if (workspace != nullptr) {
    const Workspace space = WorkspaceOf(attention);
    plan.counters = workspace;
    plan.window_sums = reinterpret_cast<float2*>(workspace + kCounterBytes);
    plan.window_values = reinterpret_cast<float*>(workspace + space.values_at);
  }
  switch (attention.keys.type) {
    case KvType::kF32:
      return LaunchType<KvType::kF32>(launch, plan);
    case KvType::kF16:
      return LaunchType<KvType::kF16>(launch, plan);
    default:
      return LaunchType<KvType::kQ8_0>(launch, plan);
  }
}

template <KvType kType>
cudaError_t PrepareType(int bytes) {
  for (auto* kernel :
       {RowsAttentionKernel<kType, 2, 1>, RowsAttentionKernel<kType, 4, 1>,
        RowsAttentionKernel<kType, 8, 1>, RowsAttentionKernel<kType, 2, kMostRounds>,
        RowsAttentionKernel<kType, 4, kMostRounds>, RowsAttentionKernel<kType, 8, kMostRounds>}) {
    const cudaError_t error = AllowShared(kernel, bytes - sizeof(RowsExchange));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t SharedBytesMost(int* bytes) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
}

cudaError_t PrepareAttention() {
  int bytes = 0;
  cudaError_t error = SharedBytesMost(&bytes);
  if (error == cudaSuccess) error = PrepareType<KvType::kF32>(bytes);
  if (error == cudaSuccess) error = PrepareType<KvType::kF16>(bytes);
  if (error == cudaSuccess) error = PrepareType<KvType::kQ8_0>(bytes);
  if (error == cudaSuccess) error = PreparePromptAttention(bytes);
  return error;
}

bool RowsAttentionFits(const CardAttention& a) {
  const int unit = a.keys.type == KvType::kQ8_0 ? kQ8Values : 8;
  // A window of 128 keys lies together in a ring.
  for (const CardPlane* plane : {&a.keys, &a.values}) {
    if (plane->ring_rows % kWindow != 0 || (plane->ring_rows > 0 && a.window == 0)) return false;
  }
  return a.keys.type == a.values.type && a.kv_heads > 0 && a.heads % a.kv_heads == 0 &&
         a.key_dim > 0 && a.value_dim > 0 && a.key_dim % unit == 0 && a.value_dim % unit == 0 &&
         a.key_dim <= kMaxValueDim && a.value_dim <= kMaxValueDim;
}

std::size_t RowsAttentionWorkspaceBytes(const CardAttention& attention) {
  return WorkspaceOf(attention).bytes;
}

cudaError_t HeadAttentionRows(const Launch& launch, const CardAttention& attention,
                              const HeadInputs& inputs, std::byte* workspace) {
  if (attention.rows.rows > kMaxHeadRows || workspace == nullptr || inputs.k == nullptr) {
    return cudaErrorInvalidValue;
  }
  return LaunchPlan(launch, attention, inputs, workspace);
}

cudaError_t RowsAttention(const Launch& launch, const CardAttention& attention,
                          std::byte* workspace) {
  const bool few = attention.rows.rows <= kMaxHeadRows;
  return LaunchPlan(launch, attention, HeadInputs{}, few ? workspace : nullptr);
}

}  // namespace bloomery::kernels::cuda
