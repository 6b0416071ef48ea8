// What the parts of the exact attention kernel share: the plan of a launch, sizes of stages, values
// on their way out of shared memory, and small exchanges. The kernel is described in
// rows_attention.cuh.
#pragma once

#include "kernels-common/attention/attention.h"
#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/attention/cuda/heads.cuh"
#include "kernels-common/cuda/async_copy.cuh"

namespace bloomery::kernels::cuda {

inline constexpr int kRowsThreads = 256;
inline constexpr int kRowsWarps = kRowsThreads / kWarpLanes;
inline constexpr int kWindow = static_cast<int>(kAttentionWindow);
inline constexpr int kSliceDims = 128;
inline constexpr int kScoreStride = kWindow + 4;  // of a head: eight heads meet all banks
inline constexpr int kMaxValueDim = 768;
inline constexpr int kQuickDim = 128;  // heads that QuickHeads takes
inline constexpr int kTeam = 16;       // threads that share a key: residues 2t and 2t + 1 of N8
inline constexpr int kTeams = kRowsThreads / kTeam;
inline constexpr int kTeamKeys = kWindow / kTeams;
static_assert(kTeamKeys == 8);

// What one block's work needs, made on the host. Offsets are bytes into shared memory.
struct RowsPlan {
  CardAttention attention;
  HeadInputs inputs;  // k null: planes hold the rows of this pass
  std::byte* counters = nullptr;
  float2* window_sums = nullptr;   // [rows][heads][windows_most] (m, l)
  float* window_values = nullptr;  // [rows][heads][windows_most][value_dim]
  std::int32_t splits = 1;
  std::int32_t ratio = 1;    // query heads a kv head
  std::int32_t chunks = 1;   // blocks that share the heads of a kv head
  std::int32_t mergers = 1;  // at most so many blocks merge a (row, kv head, chunk)
  std::int32_t windows_most = 0;
  std::int32_t key_slices = 0;
  std::int32_t value_keys = 0;   // of a slice
  std::int32_t slices = 0;       // of a window
  std::int32_t value_step = 0;   // keys that 256 copies of 16 bytes cover, where they do so evenly
  std::int32_t tile_shift = -1;  // log2 of the tiles of a row of values, where it is whole
  std::int32_t stages = 0;
  std::int32_t stage_bytes = 0;
  std::int32_t copy_unit = 16;    // q8_0: 4, or 2 where rows are not aligned
  std::int32_t work_at = 0;       // q8_0: the decoded slice
  std::int32_t query_at = 0;      // [kHeads][key_dim]
  std::int32_t score_at = 0;      // [kHeads][kScoreStride]
  std::int32_t weight_at = 0;     // [kHeads / 2][128][2] exp(score - m)
  std::int32_t turn_at = 0;       // [rows][n_rot / 2]
  std::int32_t norm_at = 0;       // q_norm, k_norm: 2 * key_dim
  std::int32_t fresh_key_at = 0;  // [rows][key_dim] f32, and encoded
  std::int32_t fresh_value_at = 0;
  std::int32_t fresh_key_row_at = 0;
  std::int32_t fresh_value_row_at = 0;
};

// Bytes of a key's slice in a stage, padded so that the teams of a warp meet all banks.
template <KvType kType>
constexpr int StageKeyBytes() {
  return PlaneBytes<kType>(kSliceDims) + (kType == KvType::kF16   ? 32
                                          : kType == KvType::kF32 ? 16
                                                                  : 0);
}
// The same of the slice that scores are computed from.
template <KvType kType>
constexpr int ScoreKeyBytes() {
  return kType == KvType::kF16 ? StageKeyBytes<KvType::kF16>() : StageKeyBytes<KvType::kF32>();
}

// kCount (2 or 4) consecutive values of shared memory, aligned to their size, not yet f32.
template <KvType kType, int kCount>
struct RawValues {
  static constexpr int kWords = kType == KvType::kF16 ? kCount / 2 : kCount;
  std::uint32_t words[kWords];

  RawValues() = default;
  __device__ __forceinline__ explicit RawValues(const std::byte* at) {
    if constexpr (kWords == 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(at);
      words[0] = four.x;
      words[1] = four.y;
      words[2] = four.z;
      words[3] = four.w;
    } else if constexpr (kWords == 2) {
      const uint2 two = *reinterpret_cast<const uint2*>(at);
      words[0] = two.x;
      words[1] = two.y;
    } else {
      words[0] = *reinterpret_cast<const std::uint32_t*>(at);
    }
  }

  __device__ __forceinline__ void Get(float (&out)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (kType == KvType::kF16) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
        out[2 * i] = pair.x;
        out[2 * i + 1] = pair.y;
      } else {
        out[i] = __uint_as_float(words[i]);
      }
    }
  }
};

// x / y for all x, correctly rounded, for y from 1 to 2^31: two steps of Markstein's from the
// rounded inverse, which round correctly while nothing underflows; else plain divisions.
template <int kCount>
__device__ __forceinline__ void DivideAll(float (&x)[kCount], float y) {
  const float inverse = 1.0F / y;
  bool safe = true;
  float q[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    safe = safe && fabsf(x[i]) >= 0x1p-90F && fabsf(x[i]) <= 0x1p90F;
    q[i] = x[i] * inverse;
    q[i] = ExactFma(ExactFma(-y, q[i], x[i]), inverse, q[i]);
    q[i] = ExactFma(ExactFma(-y, q[i], x[i]), inverse, q[i]);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    x[i] = safe ? q[i] : x[i] / y;
  }
}

// The tree over the threads of a team (16 lanes, with two lanes of N8's dot each) for kSums sums,
// 16 or 8: thread t gets sum number t % kSums, of which place i holds number i ^ (t % kSums).
template <int kStep, int kSums>
__device__ __forceinline__ void TeamSteps(float (&sums)[kSums][2]) {
#pragma unroll
  for (int i = 0; i < kStep; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      sums[i][j] += __shfl_xor_sync(0xFFFFFFFFU, sums[i + kStep][j], kStep);
    }
  }
  if constexpr (kStep > 1) {
    TeamSteps<kStep / 2>(sums);
  }
}
template <int kSums>
__device__ __forceinline__ float TeamTree(float (&sums)[kSums][2]) {
  static_assert(kSums == kTeam || kSums == kTeam / 2);
  if constexpr (kSums < kTeam) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) sums[i][j] += __shfl_xor_sync(0xFFFFFFFFU, sums[i][j], kSums);
    }
  }
  TeamSteps<kSums / 2>(sums);
  return sums[0][0] + sums[0][1];
}

// One head's window by a warp: weights[2 * key] = exp(score - m); returns (m, sum of weights).
__device__ __forceinline__ float2 WindowSoftmax(const float* scores, float* weights, int count) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  float score[kWindow / kWarpLanes];
  float max = -INFINITY;
#pragma unroll
  for (int i = 0; i < kWindow / kWarpLanes; ++i) {
    const int key = lane + i * kWarpLanes;
    score[i] = key < count ? scores[key] : -INFINITY;
    max = fmaxf(max, score[i]);
  }
  max = WarpMax(max);
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kWindow / kWarpLanes; ++i) {
    const int key = lane + i * kWarpLanes;
    if (key < count) {
      const float weight = ExactExp(score[i] - max);
      weights[2 * key] = weight;
      sum += weight;
    }
  }
  return {max, WarpTree(sum)};
}

// What 32 windows in a row, one a lane with its (m, l), do to the merge: (a, b, l). `most` is the
// maximum of the windows before, and then of these too.
__device__ __forceinline__ float4 WindowFactors(float2 own, float* most) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  float larger = own.x;
#pragma unroll
  for (int step = 1; step < kWarpLanes; step *= 2) {
    const float below = __shfl_up_sync(0xFFFFFFFFU, larger, step);
    larger = lane >= step && below > larger ? below : larger;
  }
  larger = *most > larger ? *most : larger;
  const float above = __shfl_up_sync(0xFFFFFFFFU, larger, 1);
  const float before = lane == 0 ? *most : above;
  *most = __shfl_sync(0xFFFFFFFFU, larger, kWarpLanes - 1);
  return {ExactExp(before - larger), ExactExp(own.x - larger), own.y, 0.0F};
}

// Small exchanges between the threads of a block.
struct RowsExchange {
  float4 merge[kRowsWarps][kWarpLanes];  // (a, b, l) of a head's windows
  float2 factors[kRowsWarps];            // (a, b) of a head's window, where the block folds
  float sums[kRowsWarps];                // L so far
  float2 sinks[kRowsWarps];              // SinkFactors of a head, once its windows are merged
  int merger;
};

}  // namespace bloomery::kernels::cuda
