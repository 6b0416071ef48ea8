#include "kernels-common/attention/cuda/prompt_attention.h"

#include <algorithm>

#include "kernels-common/attention/cuda/prompt_attention.cuh"
#include "kernels-common/attention/cuda/rows_attention.h"
#include "kernels-common/attention/cuda/setup.h"

namespace bloomery::kernels::cuda {
namespace {

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads)
    PromptAttentionKernel(const __grid_constant__ PromptPlan plan) {
  extern __shared__ __align__(128) std::byte prompt_shared[];
  __shared__ PromptExchange exchange;
  PromptBlock<Shape>(plan, prompt_shared, exchange).Run();
}

// A shape that a kernel is compiled for; a head's dims are padded to the next larger one, and value
// dims beyond kValueDim go to further blocks.
struct Entry {
  KvType type;
  bool bounded;  // knows windows, rings and sinks
  int key_dim;
  int value_dim;
  int queries;
  int threads;
  int shared_bytes;
  void (*kernel)(PromptPlan);
};

template <class Shape>
constexpr Entry EntryOf() {
  return {Shape::kType,    Shape::kBounded, Shape::kKeyDim,      Shape::kValueDim,
          Shape::kQueries, Shape::kThreads, Shape::kSharedBytes, PromptAttentionKernel<Shape>};
}

// Ascending by key_dim, then value_dim, within a type; of bounded attention after those of the
// rest. f32 planes of more than 256 dims do not fit shared memory in two parts.
constexpr Entry kEntries[] = {
    EntryOf<PromptShape<KvType::kF16, 64, 64, 8>>(),
    EntryOf<PromptShape<KvType::kF16, 128, 128, 8>>(),
    EntryOf<PromptShape<KvType::kF16, 192, 128, 8>>(),
    EntryOf<PromptShape<KvType::kF16, 256, 256, 8>>(),
    EntryOf<PromptShape<KvType::kF16, 576, 256, 4>>(),
    EntryOf<PromptShape<KvType::kQ8_0, 64, 64, 8>>(),
    EntryOf<PromptShape<KvType::kQ8_0, 128, 128, 8>>(),
    EntryOf<PromptShape<KvType::kQ8_0, 192, 128, 8>>(),
    EntryOf<PromptShape<KvType::kQ8_0, 256, 256, 8>>(),
    EntryOf<PromptShape<KvType::kQ8_0, 576, 256, 4>>(),
    EntryOf<PromptShape<KvType::kF32, 64, 64, 8>>(),
    EntryOf<PromptShape<KvType::kF32, 128, 128, 8>>(),
    EntryOf<PromptShape<KvType::kF32, 192, 128, 8>>(),
    EntryOf<PromptShape<KvType::kF32, 256, 256, 4>>(),
    EntryOf<PromptShape<KvType::kF16, 64, 64, 8, true>>(),
    EntryOf<PromptShape<KvType::kF16, 128, 128, 8, true>>(),
    EntryOf<PromptShape<KvType::kF16, 192, 128, 8, true>>(),
    EntryOf<PromptShape<KvType::kF16, 256, 256, 8, true>>(),
    EntryOf<PromptShape<KvType::kQ8_0, 64, 64, 8, true>>(),
    EntryOf<PromptShape<KvType::kQ8_0, 128, 128, 8, true>>(),
    EntryOf<PromptShape<KvType::kQ8_0, 192, 128, 8, true>>(),
    EntryOf<PromptShape<KvType::kQ8_0, 256, 256, 8, true>>(),
    EntryOf<PromptShape<KvType::kF32, 64, 64, 8, true>>(),
    EntryOf<PromptShape<KvType::kF32, 128, 128, 8, true>>(),
    EntryOf<PromptShape<KvType::kF32, 192, 128, 8, true>>(),
    EntryOf<PromptShape<KvType::kF32, 256, 256, 4, true>>(),
};

bool IsBounded(const CardAttention& a) { return a.window != 0 || a.sinks != nullptr; }

// The first entry that takes the head's keys, preferring one that takes its values whole; null:
// none fits.
const Entry* FindEntry(const CardAttention& a, int shared_bytes_most) {
  const Entry* found = nullptr;
  for (const Entry& entry : kEntries) {
    if (entry.type != a.keys.type || entry.bounded != IsBounded(a) || entry.key_dim < a.key_dim ||
        entry.shared_bytes > shared_bytes_most || entry.queries < a.heads / a.kv_heads) {
      continue;
    }
    if (found == nullptr) {
      found = &entry;
    }
    if (entry.value_dim >= a.value_dim && entry.key_dim <= 2 * a.key_dim) {
      return &entry;
    }
  }
  return found;
}

int UsableShared(int most) { return most - static_cast<int>(sizeof(PromptExchange)); }

}  // namespace

cudaError_t PreparePromptAttention(int shared_bytes_most) {
  for (const Entry& entry : kEntries) {
    if (entry.shared_bytes > UsableShared(shared_bytes_most)) continue;
    const cudaError_t error = AllowShared(entry.kernel, entry.shared_bytes);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t PromptAttention(const Launch& launch, const CardAttention& attention) {
  if (!RowsAttentionFits(attention)) return cudaErrorInvalidValue;
  int shared_most = 0;
  const cudaError_t error = SharedBytesMost(&shared_most);
  if (error != cudaSuccess) return error;
  shared_most = std::min(shared_most, launch.shared_bytes_max);
  const Entry* entry = FindEntry(attention, UsableShared(shared_most));
  if (entry == nullptr || attention.scale <= 0.0F) {
    return RowsAttention(launch, attention, nullptr);
  }
  constexpr float kLog2E = 0x1.715476p+0F;
  PromptPlan plan;
  plan.attention = attention;
  plan.ratio = attention.heads / attention.kv_heads;
  plan.tile_rows = entry->queries / plan.ratio;
  plan.value_chunks = (attention.value_dim + entry->value_dim - 1) / entry->value_dim;
  plan.exponent = attention.scale * kLog2E;
  plan.staged = attention.key_dim % 128 == 0 && attention.value_dim % 128 == 0 &&
                attention.keys.row_bytes % 8 == 0 && attention.values.row_bytes % 8 == 0;
  const dim3 grid(attention.kv_heads * plan.value_chunks,
                  (attention.rows.rows + plan.tile_rows - 1) / plan.tile_rows);
  return Start(launch, grid, dim3(entry->threads), entry->shared_bytes, entry->kernel, plan);
}

}  // namespace bloomery::kernels::cuda
