// The kernel of rows_attention.h. A block owns one row, up to kHeads query heads of one kv head,
// and every `splits`-th window of 128 keys.
//
// A window passes through a ring of shared-memory stages: its keys in slices of 128 dims (all 128
// keys), then its values in slices of whole rows. Keys and values that earlier passes wrote are
// asked for before the launch waits for its inputs; the rows of this pass are computed by every
// block that needs them and put over their places in the stages.
//
// What bounds it is the loads from shared memory: they give a lane one word a cycle, while the lane
// can do four fma. So each thread keeps a tile of sums in registers (Scores, AddValues). No sum
// depends on how the windows are spread.
#pragma once

#include "kernels-common/attention/attention.h"
#include "kernels-common/attention/cuda/async_copy.cuh"
#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/attention/cuda/heads.cuh"

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

// Small exchanges between the threads of a block.
struct RowsExchange {
  float4 merge[kRowsWarps][kWarpLanes];  // (a, b, l) of a head's windows
  float2 factors[kRowsWarps];            // (a, b) of a head's window, where the block folds
  float sums[kRowsWarps];                // L so far
  int merger;
};

// kRounds: tiles of values a thread has, in turn; 1 is enough for 256 dims.
template <KvType kType, int kHeads, int kRounds>
class RowsBlock {
 public:
  __device__ RowsBlock(const RowsPlan& plan, std::byte* shared, RowsExchange& exchange)
      : p_(plan), shared_(shared), exchange_(exchange) {}

  __device__ void Run() {
    AllowNext();
    if (!Place()) {
      WaitForInputs();
      return;
    }
    if (index_ < 0) {
      WaitForInputs();
      WriteZeros();
      return;
    }
    PlaceTiles();
    if (Fused()) {
      StartRing();
      FusedHeads();
    } else {
      WaitForInputs();
      StartRing();
      LoadHeads();
    }
#pragma unroll 1
    for (int window = split_; window < windows_; window += p_.splits) {
      DoWindow(window);
    }
    if (Alone()) {
      WriteAlone();
    } else {
      Merge();
    }
  }

 private:
  static constexpr int kStageKey = StageKeyBytes<kType>();
  static constexpr int kScoreKey = ScoreKeyBytes<kType>();
  static constexpr KvType kWorkType = kType == KvType::kQ8_0 ? KvType::kF32 : kType;
  // AddValues: a thread's tile is two heads by kTileDims.
  static constexpr int kPairs = kHeads / 2;
  static constexpr int kTileDims = kHeads == 8 ? 4 : 2;
  static constexpr int kWorkBytes = kWorkType == KvType::kF16 ? 2 : 4;
  using Tile = float[kRounds][2][kTileDims];

  __device__ bool Fused() const { return p_.inputs.k != nullptr; }
  // One block sees all windows of its row: it folds them as it goes.
  __device__ bool Alone() const { return p_.splits == 1 || windows_ == 1; }
  __device__ float* Floats(int at) const { return reinterpret_cast<float*>(shared_ + at); }
  __device__ float* Query() const { return Floats(p_.query_at); }
  __device__ std::byte* Stage(int stage) const { return shared_ + stage * p_.stage_bytes; }
  __device__ int ValueRowBytes() const { return PlaneBytes<kType>(p_.attention.value_dim); }

  // Which row, heads and windows; false where there is nothing to do.
  __device__ bool Place() {
    const CardAttention& a = p_.attention;
    lane_ = static_cast<int>(threadIdx.x) % kWarpLanes;
    warp_ = static_cast<int>(threadIdx.x) / kWarpLanes;
    split_ = static_cast<int>(blockIdx.x);
    const int group = static_cast<int>(blockIdx.y);
    kv_head_ = p_.chunks == 1 ? group : group / p_.chunks;
    chunk_ = group - kv_head_ * p_.chunks;
    row_ = static_cast<int>(blockIdx.z);
    first_head_ = kv_head_ * p_.ratio + chunk_ * kHeads;
    heads_ = min(kHeads, p_.ratio - chunk_ * kHeads);
    const int live = *a.rows.live;
    slot_ = a.rows.slot[row_];
    index_ = a.rows.index[row_];
    first_fresh_ = row_;
    old_keys_ = index_ + 1;
    if (Fused()) {
      const bool in = lane_ <= row_;
      const int slot = in ? a.rows.slot[lane_] : -1;
      const int index = in ? a.rows.index[lane_] : -1;
      LoadEarly(in);
      const std::uint32_t same = __ballot_sync(0xFFFFFFFFU, in && slot == slot_);
      first_fresh_ = __ffs(static_cast<int>(same)) - 1;
      old_keys_ = max(__shfl_sync(0xFFFFFFFFU, index, first_fresh_), 0);
    }
    windows_ = index_ / kWindow + 1;
    issue_window_ = split_;
    return row_ < live && (index_ >= 0 ? split_ < windows_ : split_ == 0);
  }

  // Constants that PrepareConstants() will want, asked for along with the row arrays.
  __device__ void LoadEarly(bool in) {
    const HeadInputs& inputs = p_.inputs;
    const int thread = static_cast<int>(threadIdx.x);
    const int half = inputs.n_rot / 2;
    const int dim = p_.attention.key_dim;
    early_position_ = in ? p_.attention.rows.position[lane_] : 0;
    early_frequency_ = half == 0       ? 0.0
                       : thread < half ? inputs.frequencies[thread]
                                       : inputs.frequencies[thread % half];
    early_q_norm_ = inputs.q_norm != nullptr && thread < dim ? inputs.q_norm[thread] : 1.0F;
    early_k_norm_ = inputs.k_norm != nullptr && thread < dim ? inputs.k_norm[thread] : 1.0F;
  }

  __device__ void PlaceTiles() {
    const int tiles = p_.attention.value_dim / kTileDims;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int item = static_cast<int>(threadIdx.x) + round * kRowsThreads;
      pair_[round] = p_.tile_shift >= 0 ? item >> p_.tile_shift : item / tiles;
      first_dim_[round] = (item - pair_[round] * tiles) * kTileDims;
    }
  }

  // ---- The ring of stages.

  __device__ void StartRing() {
#pragma unroll 1
    for (int i = 0; i + 1 < p_.stages; ++i) {
      Issue();
    }
  }

  // Asks for the next slice, if there is one; always one group.
  __device__ void Issue() {
    if (issue_window_ < windows_) {
      std::byte* stage = Stage(issue_stage_);
      if (issue_slice_ < p_.key_slices) {
        IssueKeys(issue_window_ * kWindow, issue_slice_, stage);
      } else {
        IssueValues(issue_window_ * kWindow + (issue_slice_ - p_.key_slices) * p_.value_keys,
                    stage);
      }
      issue_stage_ = issue_stage_ + 1 == p_.stages ? 0 : issue_stage_ + 1;
      if (++issue_slice_ == p_.slices) {
        issue_slice_ = 0;
        issue_window_ += p_.splits;
      }
    }
    CommitCopies();
  }

  __device__ void IssueKeys(int begin, int slice, std::byte* stage) const {
    const CardPlane& plane = p_.attention.keys;
    const int keys = min(kWindow, old_keys_ - begin);
    const int dims = min(kSliceDims, p_.attention.key_dim - slice * kSliceDims);
    const std::byte* source = plane.base + slot_ * plane.slot_bytes + begin * plane.row_bytes +
                              kv_head_ * PlaneBytes<kType>(p_.attention.key_dim) +
                              slice * PlaneBytes<kType>(kSliceDims);
    const int bytes = PlaneBytes<kType>(dims);
    if constexpr (kType != KvType::kQ8_0) {
      constexpr int kParts = PlaneBytes<kType>(kSliceDims) / 16;
      constexpr int kStep = kRowsThreads / kParts;
      const int first = static_cast<int>(threadIdx.x) / kParts;
      const int at = static_cast<int>(threadIdx.x) % kParts * 16;
      CopyColumn<kWindow / kStep>(stage + first * kStageKey + at, kStep * kStageKey,
                                  source + first * plane.row_bytes + at, kStep * plane.row_bytes,
                                  at < bytes ? keys - first : 0, kStep);
    } else {
      CopyQ8(stage, kStageKey, source, plane.row_bytes, keys, bytes);
    }
  }

  // 16 bytes of every kStep-th row while there are `rows` left; at most kCount of them.
  template <int kCount>
  __device__ static void CopyColumn(std::byte* to, int to_step, const std::byte* from,
                                    std::size_t from_step, int rows, int step) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i * step >= rows) break;
      CopyAsync16(to, from);
      to += to_step;
      from += from_step;
    }
  }

  __device__ void IssueValues(int begin, std::byte* stage) const {
    const CardPlane& plane = p_.attention.values;
    const int keys = min(p_.value_keys, old_keys_ - begin);
    const int bytes = ValueRowBytes();
    const std::byte* source =
        plane.base + slot_ * plane.slot_bytes + begin * plane.row_bytes + kv_head_ * bytes;
    if constexpr (kType != KvType::kQ8_0) {
      if (p_.value_step > 0) {
        const int thread = static_cast<int>(threadIdx.x);
        const int step = p_.value_step;
        const int first = thread * step / kRowsThreads;
        const int at = 16 * thread - first * bytes;
        std::byte* to = stage + first * bytes + at;
        const std::byte* from = source + first * plane.row_bytes + at;
#pragma unroll 4
        for (int key = first; key < keys; key += step) {
          CopyAsync16(to, from);
          to += step * bytes;
          from += step * plane.row_bytes;
        }
        return;
      }
      const int parts = bytes / 16;
#pragma unroll 2
      for (int item = static_cast<int>(threadIdx.x); item < keys * parts; item += kRowsThreads) {
        const int key = item / parts;
        const int at = (item - key * parts) * 16;
        CopyAsync16(stage + key * bytes + at, source + key * plane.row_bytes + at);
      }
    } else {
      CopyQ8(stage, bytes, source, plane.row_bytes, keys, bytes);
    }
  }

  __device__ void CopyQ8(std::byte* stage, int stride, const std::byte* source,
                         std::size_t row_bytes, int keys, int bytes) const {
    const int parts = bytes / p_.copy_unit;
#pragma unroll 2
    for (int item = static_cast<int>(threadIdx.x); item < keys * parts; item += kRowsThreads) {
      const int key = item / parts;
      const int at = (item - key * parts) * p_.copy_unit;
      std::byte* to = stage + key * stride + at;
      const std::byte* from = source + key * row_bytes + at;
      if (p_.copy_unit == 4) {
        CopyAsync4(to, from);
      } else {
        *reinterpret_cast<std::uint16_t*>(to) =
            __ldcg(reinterpret_cast<const unsigned short*>(from));
      }
    }
  }

  // ---- q, and the keys and values of this pass's rows of the slot.

  // What no other kernel of the pass writes: cosines and sines, norm weights.
  __device__ void PrepareConstants() {
    const HeadInputs& in = p_.inputs;
    const int half = in.n_rot / 2;
    auto* turns = reinterpret_cast<float2*>(shared_ + p_.turn_at);
    const int fresh = row_ - first_fresh_ + 1;
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
    for (int first = 0; first < fresh * half; first += kRowsThreads) {
      const int item = first + thread;
      const int row = item < half ? 0 : item / half;
      const int position = __shfl_sync(0xFFFFFFFFU, early_position_, first_fresh_ + row);
      if (item < fresh * half) {
        const double frequency = first == 0 ? early_frequency_ : in.frequencies[item % half];
        turns[item] = RopeTurn(position, frequency, in.magnitude);
      }
    }
    float* norms = Floats(p_.norm_at);
    const int dim = p_.attention.key_dim;
#pragma unroll 1
    for (int i = thread; i < dim; i += kRowsThreads) {
      norms[i] = i == thread ? early_q_norm_ : in.q_norm == nullptr ? 1.0F : in.q_norm[i];
      norms[dim + i] = i == thread ? early_k_norm_ : in.k_norm == nullptr ? 1.0F : in.k_norm[i];
    }
  }

  // Up to the barrier after which q, and the rows of this pass, are ready.
  __device__ void FusedHeads() {
    const int fresh = row_ - first_fresh_ + 1;
    PrepareConstants();
    if (p_.attention.key_dim == kQuickDim && p_.attention.value_dim == kQuickDim &&
        p_.inputs.n_rot == kQuickDim && heads_ + 2 * fresh <= 2 * kRowsWarps) {
      __syncthreads();
      QuickHeads(fresh);
      return;
    }
    WaitForInputs();
    LoadHeads();
    FinishHeads();
  }

  __device__ void LoadHeads() {
    const CardAttention& a = p_.attention;
    const float* q = a.q + row_ * a.q_stride + first_head_ * a.key_dim;
    CopyFloats(Query(), q, heads_ * a.key_dim);
    if (Fused()) {
      const HeadInputs& in = p_.inputs;
      for (int row = first_fresh_; row <= row_; ++row) {
        CopyFloats(FreshKey(row), in.k + row * in.k_stride + kv_head_ * a.key_dim, a.key_dim);
        CopyFloats(FreshValue(row), in.v + row * in.v_stride + kv_head_ * a.value_dim, a.value_dim);
      }
    }
    __syncthreads();
  }

  // Heads of 128 dims that turn whole: a warp takes two at once, in registers. Lane l has dims l
  // mod 32, and with them both of each pair of rope.
  __device__ void QuickHeads(int fresh) {
    // Where the first window is two slices, they are complete at the barrier that ends this.
    const bool direct = kType != KvType::kQ8_0 && p_.slices == 2 && p_.stages > 2;
    constexpr int kParts = kQuickDim / kWarpLanes;
    const CardAttention& a = p_.attention;
    const HeadInputs& in = p_.inputs;
    int row[2];
    bool query[2];
    bool value[2];
    const float* source[2];
    float weight[2][kParts];
    float2 turn[2][kParts / 2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int task = warp_ + i * kRowsWarps;
      query[i] = task < heads_;
      value[i] = task >= heads_ + fresh;
      row[i] = query[i] ? row_ : min(first_fresh_ + (task - heads_) % fresh, row_);
      source[i] = query[i]   ? a.q + row_ * a.q_stride + (first_head_ + task) * kQuickDim
                  : value[i] ? in.v + row[i] * in.v_stride + kv_head_ * kQuickDim
                             : in.k + row[i] * in.k_stride + kv_head_ * kQuickDim;
      const float* norms = Floats(p_.norm_at) + (query[i] ? 0 : kQuickDim);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        weight[i][part] = norms[part * kWarpLanes + lane_];
      }
      const auto* turns = reinterpret_cast<const float2*>(shared_ + p_.turn_at) +
                          (row[i] - first_fresh_) * (kQuickDim / 2);
#pragma unroll
      for (int part = 0; part < kParts / 2; ++part) {
        turn[i][part] = turns[part * kWarpLanes + lane_];
      }
    }
    WaitForInputs();
    float x[2][kParts];
#pragma unroll
    for (int i = 0; i < 2 * kParts; ++i) {
      x[i / kParts][i % kParts] = __ldcg(source[i / kParts] + i % kParts * kWarpLanes + lane_);
    }
    float r[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = 0.0F;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        sum = ExactFma(x[i][part], x[i][part], sum);
      }
      r[i] = sum;
    }
#pragma unroll
    for (int step = kWarpLanes / 2; step > 0; step /= 2) {
      r[0] += __shfl_xor_sync(0xFFFFFFFFU, r[0], step);
      r[1] += __shfl_xor_sync(0xFFFFFFFFU, r[1], step);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      r[i] =
          ExactInverseSqrt(r[i] / static_cast<float>(kQuickDim) + (query[i] ? in.q_eps : in.k_eps));
      const int task = warp_ + i * kRowsWarps;
      if (task >= heads_ + 2 * fresh) continue;
      const int key = index_ - (row_ - row[i]) - split_ * kWindow;
      const bool placed = direct && key >= 0 && key < kWindow;
      if (value[i]) {
        EncodeParts(x[i], FreshValueRow(row[i]));
        if (placed) {
          EncodeParts(x[i], Stage(1) + key * ValueRowBytes());
        }
        continue;
      }
      if ((query[i] ? in.q_norm : in.k_norm) != nullptr) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const float scaled = x[i][part] * r[i];
          x[i][part] = scaled * weight[i][part];
        }
      }
#pragma unroll
      for (int part = 0; part < kParts / 2; ++part) {
        const float low = x[i][part];
        const float high = x[i][part + kParts / 2];
        x[i][part] = low * turn[i][part].x - high * turn[i][part].y;
        x[i][part + kParts / 2] = high * turn[i][part].x + low * turn[i][part].y;
      }
      if (query[i]) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          Query()[task * kQuickDim + part * kWarpLanes + lane_] = x[i][part];
        }
      } else {
        EncodeParts(x[i], FreshKeyRow(row[i]));
        if (placed) {
          EncodeParts(x[i], Stage(0) + key * kStageKey);
        }
      }
    }
    if (direct) {
      WaitForCopies(p_.stages - 3);
      ready_ = 2;
    }
    __syncthreads();
  }

  template <int kParts>
  __device__ void EncodeParts(const float (&x)[kParts], std::byte* row) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      WarpEncodeLane<kType>(x[part], row + part * PlaneBytes<kType>(kWarpLanes), lane_);
    }
  }

  __device__ static void CopyFloats(float* to, const float* from, int count) {
#pragma unroll 1
    for (int i = 4 * static_cast<int>(threadIdx.x); i < count; i += 4 * kRowsThreads) {
      *reinterpret_cast<float4*>(to + i) = __ldcg(reinterpret_cast<const float4*>(from + i));
    }
  }

  __device__ float* FreshKey(int row) const {
    return Floats(p_.fresh_key_at) + (row - first_fresh_) * p_.attention.key_dim;
  }
  __device__ float* FreshValue(int row) const {
    return Floats(p_.fresh_value_at) + (row - first_fresh_) * p_.attention.value_dim;
  }
  __device__ std::byte* FreshKeyRow(int row) const {
    return shared_ + p_.fresh_key_row_at +
           (row - first_fresh_) * PlaneBytes<kType>(p_.attention.key_dim);
  }
  __device__ std::byte* FreshValueRow(int row) const {
    return shared_ + p_.fresh_value_row_at + (row - first_fresh_) * ValueRowBytes();
  }

  // Norm and rope in place, then the rows as the planes will hold them; a warp a head.
  __device__ void FinishHeads() {
    const CardAttention& a = p_.attention;
    const HeadInputs& in = p_.inputs;
    const float* norms = Floats(p_.norm_at);
    const auto* turns = reinterpret_cast<const float2*>(shared_ + p_.turn_at);
    const int fresh = row_ - first_fresh_ + 1;
#pragma unroll 1
    for (int task = warp_; task < heads_ + 2 * fresh; task += kRowsWarps) {
      const int row = first_fresh_ + (task - heads_) % fresh;
      if (task >= heads_ + fresh) {
        WarpEncode<kType>(FreshValue(row), a.value_dim, FreshValueRow(row), lane_);
        continue;
      }
      const bool query = task < heads_;
      float* head = query ? Query() + task * a.key_dim : FreshKey(row);
      if ((query ? in.q_norm : in.k_norm) != nullptr) {
        WarpHeadNorm(head, a.key_dim, query ? norms : norms + a.key_dim,
                     query ? in.q_eps : in.k_eps, lane_);
      }
      __syncwarp();
      WarpRope(head, in.n_rot, turns + (query ? fresh - 1 : row - first_fresh_) * (in.n_rot / 2),
               lane_);
      __syncwarp();
      if (!query) {
        WarpEncode<kType>(head, a.key_dim, FreshKeyRow(row), lane_);
      }
    }
    __syncthreads();
  }

  // The row to the planes, by the block that has its window and the half of the threads that have
  // no values to add (AddValues).
  __device__ void WriteRow() const {
    const int thread = static_cast<int>(threadIdx.x) - kRowsThreads / 2;
    if (chunk_ != 0 || thread < 0) return;
    const CardAttention& a = p_.attention;
    PutRow(a.keys, PlaneBytes<kType>(a.key_dim), FreshKeyRow(row_), thread);
    PutRow(a.values, ValueRowBytes(), FreshValueRow(row_), thread);
  }

  __device__ void PutRow(const CardPlane& plane, int bytes, const std::byte* row,
                         int thread) const {
    std::byte* to =
        plane.base + slot_ * plane.slot_bytes + index_ * plane.row_bytes + kv_head_ * bytes;
#pragma unroll 1
    for (int i = thread; i < bytes / 2; i += kRowsThreads / 2) {
      reinterpret_cast<std::uint16_t*>(to)[i] = reinterpret_cast<const std::uint16_t*>(row)[i];
    }
  }

  // What a stage holds: bytes [from, from + row_bytes) of a head's part of plane rows [begin, begin
  // + keys), `stride` apart.
  struct Slice {
    bool is_keys;
    int begin, keys;
    int from, row_bytes, stride;
    int values;  // of a row
  };

  __device__ Slice KeySlice(int begin, int number) const {
    const int dims = min(kSliceDims, p_.attention.key_dim - number * kSliceDims);
    return {
        true,      begin, kWindow, number * PlaneBytes<kType>(kSliceDims), PlaneBytes<kType>(dims),
        kStageKey, dims};
  }
  __device__ Slice ValueSlice(int begin) const {
    return {false,           begin,           p_.value_keys,         0,
            ValueRowBytes(), ValueRowBytes(), p_.attention.value_dim};
  }

  // This pass's rows over their places of a stage. A warp a row.
  __device__ void Patch(std::byte* stage, const Slice& slice) const {
    const int fresh = row_ - first_fresh_ + 1;
    const std::byte* rows =
        shared_ + (slice.is_keys ? p_.fresh_key_row_at : p_.fresh_value_row_at) + slice.from;
    const int row_bytes = slice.is_keys ? PlaneBytes<kType>(p_.attention.key_dim) : ValueRowBytes();
#pragma unroll 1
    for (int i = warp_; i < fresh; i += kRowsWarps) {
      const int key = index_ - fresh + 1 + i - slice.begin;
      if (key < 0 || key >= slice.keys) continue;
      const auto* source = reinterpret_cast<const std::uint16_t*>(rows + i * row_bytes);
      auto* to = reinterpret_cast<std::uint16_t*>(stage + key * slice.stride);
#pragma unroll 4
      for (int word = lane_; word < slice.row_bytes / 2; word += kWarpLanes) {
        to[word] = source[word];
      }
    }
  }

  // A q8_0 stage to f32 rows.
  __device__ const std::byte* Decode(const std::byte* stage, const Slice& slice) const {
    const int blocks = slice.values / kQ8Values;
    const int stride = slice.is_keys ? kScoreKey : slice.values * 4;
#pragma unroll 1
    for (int item = static_cast<int>(threadIdx.x); item < slice.keys * blocks;
         item += kRowsThreads) {
      const int key = item / blocks;
      const int block = item - key * blocks;
      DecodeQ8(stage + key * slice.stride + block * kQ8Bytes,
               reinterpret_cast<float*>(shared_ + p_.work_at + key * stride) + block * kQ8Values);
    }
    __syncthreads();
    return shared_ + p_.work_at;
  }

  // Waits for the next stage; the block may read it when this returns.
  __device__ const std::byte* Arrive(const Slice& slice) {
    std::byte* stage = Stage(read_stage_);
    read_stage_ = read_stage_ + 1 == p_.stages ? 0 : read_stage_ + 1;
    if (ready_ > 0) {
      --ready_;
      if (!slice.is_keys) {
        __syncthreads();  // for the weights
      }
    } else {
      WaitForCopies(p_.stages - 2);
      if (Fused() && slice.begin + slice.keys > old_keys_) {
        Patch(stage, slice);
      }
      __syncthreads();
    }
    Issue();
    if constexpr (kType == KvType::kQ8_0) {
      return Decode(stage, slice);
    } else {
      return stage;
    }
  }

  // ---- One window.

  __device__ void DoWindow(int window) {
    const int begin = window * kWindow;
    const int count = min(kWindow, index_ + 1 - begin);
    {
      Sums sums = {};
#pragma unroll 1
      for (int number = 0; number < p_.key_slices; ++number) {
        const Slice slice = KeySlice(begin, number);
        AddKeys(Arrive(slice), number * kSliceDims, slice.values, count, sums);
      }
      FinishScores(count, sums);
    }
    __syncthreads();
    Softmax(window, count);
    Tile o = {};
#pragma unroll 1
    for (int first = 0; first < kWindow; first += p_.value_keys) {
      const Slice slice = ValueSlice(begin + first);
      AddValues(Arrive(slice), first, min(slice.keys, count - first), o);
    }
    if (Fused() && window == windows_ - 1) {
      WriteRow();
    }
    if (Alone()) {
      Fold(window, o);
    } else {
      StoreWindow(window, o);
    }
  }

  // A team of 16 threads has 8 keys of the window and all heads; its thread t has lanes 2t and 2t +
  // 1 of N8's dot. The tree's steps 16, 8, 4, 2 are exchanges between threads t and t ^ 8, 4, 2, 1,
  // in each of which a thread keeps half of its sums and gives away the others: of 16 (head, key)
  // it ends with one. Which ones it keeps is settled by the order in which it holds them: place i
  // is (head, key) number i ^ t. Step 1 is its own two lanes.
  static constexpr int kKeyBits = kHeads == 8 ? 1 : kHeads == 4 ? 2 : 3;  // of the 4 bits of i
  static constexpr int kSetKeys = 1 << kKeyBits;                          // keys of 16 sums
  static constexpr int kSets = kTeamKeys / kSetKeys;
  static_assert(kHeads * kSetKeys == kTeam);

  using Sums = float[kSets][kTeam][2];

  // Two dims of q and of the thread's keys, as they lie in shared memory.
  struct KeyPart {
    float2 q[kHeads];
    RawValues<kWorkType, 2> k[kTeamKeys];
  };

  // The keys' dims [first, first + dims), which lie at `keys`. Loads run one step ahead.
  __device__ void AddKeys(const std::byte* keys, int first, int dims, int count, Sums& sums) const {
    if (!HasKeys(count)) return;
    const int thread = lane_ % kTeam;
    const int team = static_cast<int>(threadIdx.x) / kTeam;
    const std::byte* at = keys + team * kSetKeys * kScoreKey + 2 * thread * kWorkBytes;
    const float* query = Query() + first + 2 * thread;
    KeyPart part;
    LoadKeys(at, query, thread, part);
#pragma unroll 2
    for (int dim = 2 * thread; dim < dims; dim += kWarpLanes) {
      const int step = dim + kWarpLanes < dims ? kWarpLanes : 0;
      at += step * kWorkBytes;
      query += step;
      const KeyPart now = part;
      LoadKeys(at, query, thread, part);
      AddPart(now, count, sums);
    }
    __syncwarp();
  }

  // Whether any of the warp's keys is among the first `count` of the window.
  __device__ bool HasKeys(int count) const {
    return warp_ * (kWarpLanes / kTeam) * kSetKeys < count;
  }

  __device__ void LoadKeys(const std::byte* keys, const float* query, int thread,
                           KeyPart& part) const {
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      part.q[head] = *reinterpret_cast<const float2*>(query + (head ^ (thread / kSetKeys)) *
                                                                  p_.attention.key_dim);
    }
#pragma unroll
    for (int i = 0; i < kTeamKeys; ++i) {
      const int key = i / kSetKeys * kTeams * kSetKeys + (i % kSetKeys ^ (thread % kSetKeys));
      part.k[i] = RawValues<kWorkType, 2>(keys + key * kScoreKey);
    }
  }

  __device__ static void AddPart(const KeyPart& part, int count, Sums& sums) {
#pragma unroll
    for (int i = 0; i < kTeamKeys; ++i) {
      if (i / kSetKeys * kTeams * kSetKeys >= count) break;
      float k[2];
      part.k[i].Get(k);
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        float(&sum)[2] = sums[i / kSetKeys][head * kSetKeys + i % kSetKeys];
        sum[0] = ExactFma(part.q[head].x, k[0], sum[0]);
        sum[1] = ExactFma(part.q[head].y, k[1], sum[1]);
      }
    }
  }

  __device__ void FinishScores(int count, Sums& sums) const {
    if (!HasKeys(count)) return;
    const int thread = lane_ % kTeam;
    const int team = static_cast<int>(threadIdx.x) / kTeam;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      if (set * kTeams * kSetKeys >= count) break;
      const float sum = TeamTree(sums[set]);
      const int key = (set * kTeams + team) * kSetKeys + thread % kSetKeys;
      Floats(p_.score_at)[thread / kSetKeys * kScoreStride + key] = sum * p_.attention.scale;
    }
  }

  // The tree over a team's threads and lanes; thread t gets sum number t.
  __device__ static float TeamTree(float (&sums)[kTeam][2]) {
    TeamSteps<kTeam / 2>(sums);
    return sums[0][0] + sums[0][1];
  }
  template <int kStep>
  __device__ static void TeamSteps(float (&sums)[kTeam][2]) {
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

  // Warp h: maximum, exponentials and their sum of head h.
  __device__ void Softmax(int window, int count) {
    if (warp_ >= heads_) return;
    const float* scores = Floats(p_.score_at) + warp_ * kScoreStride;
    float* weights = Floats(p_.weight_at) + warp_ / 2 * kWindow * 2 + warp_ % 2;
    float score[kWindow / kWarpLanes];
    float max = -INFINITY;
#pragma unroll
    for (int i = 0; i < kWindow / kWarpLanes; ++i) {
      const int key = lane_ + i * kWarpLanes;
      score[i] = key < count ? scores[key] : -INFINITY;
      max = fmaxf(max, score[i]);
    }
    max = WarpMax(max);
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kWindow / kWarpLanes; ++i) {
      const int key = lane_ + i * kWarpLanes;
      if (key < count) {
        const float weight = ExactExp(score[i] - max);
        weights[2 * key] = weight;
        sum += weight;
      }
    }
    sum = WarpTree(sum);
    if (!Alone()) {
      if (lane_ == 0) {
        p_.window_sums[WindowPlace(warp_) + window] = {max, sum};
      }
      return;
    }
    // The window's part in the fold, for Fold().
    float2 factors = {0.0F, 1.0F};
    if (window == 0) {
      max_ = max;
      sum_ = sum;
    } else {
      const float larger = max_ > max ? max_ : max;
      factors = {ExactExp(max_ - larger), ExactExp(max - larger)};
      sum_ = sum_ * factors.x + sum * factors.y;
      max_ = larger;
    }
    if (lane_ == 0) {
      exchange_.factors[warp_] = factors;
      exchange_.sums[warp_] = sum_;
    }
  }

  __device__ bool HasTile(int round) const { return pair_[round] < kPairs; }

  // o += weights * values for keys [first, first + keys) of the window, ascending. Loads run one
  // step ahead.
  __device__ void AddValues(const std::byte* values, int first, int keys, Tile& o) const {
    const int row_bytes = PlaneBytes<kWorkType>(p_.attention.value_dim);
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      if (!HasTile(round)) break;
      const float* weights = Floats(p_.weight_at) + (pair_[round] * kWindow + first) * 2;
      const std::byte* at = values + PlaneBytes<kWorkType>(first_dim_[round]);
      ValuePart parts[2];
      LoadSome(weights, at, row_bytes, parts[0]);
      int key = 0;
#pragma unroll 1
      for (; key + 2 * kKeysAtOnce <= keys; key += 2 * kKeysAtOnce) {
        LoadSome(weights + 2 * (key + kKeysAtOnce), at + (key + kKeysAtOnce) * row_bytes, row_bytes,
                 parts[1]);
        AddSome<true>(parts[0], kKeysAtOnce, o[round]);
        const int next = min(key + 2 * kKeysAtOnce, p_.value_keys - kKeysAtOnce);
        LoadSome(weights + 2 * next, at + next * row_bytes, row_bytes, parts[0]);
        AddSome<true>(parts[1], kKeysAtOnce, o[round]);
      }
#pragma unroll 1
      for (; key < keys; key += kKeysAtOnce) {
        AddSome<false>(parts[0], keys - key, o[round]);
        const int next = min(key + kKeysAtOnce, p_.value_keys - kKeysAtOnce);
        LoadSome(weights + 2 * next, at + next * row_bytes, row_bytes, parts[0]);
      }
    }
  }

  // Weights and values of some keys, as they lie in shared memory.
  static constexpr int kKeysAtOnce = kWorkType == KvType::kF16 && kHeads == 8 ? 8 : 4;
  struct ValuePart {
    float2 weights[kKeysAtOnce];
    RawValues<kWorkType, kTileDims> values[kKeysAtOnce];
  };

  __device__ static void LoadSome(const float* weights, const std::byte* values, int row_bytes,
                                  ValuePart& part) {
#pragma unroll
    for (int key = 0; key < kKeysAtOnce; ++key) {
      part.weights[key] = reinterpret_cast<const float2*>(weights)[key];
      part.values[key] = RawValues<kWorkType, kTileDims>(values + key * row_bytes);
    }
  }

  // Those of the first `left` keys, or all.
  template <bool kAll>
  __device__ static void AddSome(const ValuePart& part, int left, float (&o)[2][kTileDims]) {
#pragma unroll
    for (int key = 0; key < kKeysAtOnce; ++key) {
      const bool in = kAll || key < left;
      float value[kTileDims];
      part.values[key].Get(value);
#pragma unroll
      for (int i = 0; i < kTileDims; ++i) {
        const float first = ExactFma(part.weights[key].x, value[i], o[0][i]);
        const float second = ExactFma(part.weights[key].y, value[i], o[1][i]);
        o[0][i] = in ? first : o[0][i];
        o[1][i] = in ? second : o[1][i];
      }
    }
  }

  // ---- The end of a window.

  __device__ std::size_t WindowPlace(int head) const {
    return (static_cast<std::size_t>(row_) * p_.attention.heads + first_head_ + head) *
           p_.windows_most;
  }

  __device__ static void Store(float* to, const float (&x)[kTileDims]) {
    if constexpr (kTileDims == 4) {
      *reinterpret_cast<float4*>(to) = {x[0], x[1], x[2], x[3]};
    } else {
      *reinterpret_cast<float2*>(to) = {x[0], x[1]};
    }
  }

  __device__ void StoreWindow(int window, const Tile& o) const {
#pragma unroll
    for (int i = 0; i < 2 * kRounds; ++i) {
      const int round = i / 2;
      const int head = 2 * pair_[round] + i % 2;
      if (HasTile(round) && head < heads_) {
        Store(p_.window_values + (WindowPlace(head) + window) * p_.attention.value_dim +
                  first_dim_[round],
              o[round][i % 2]);
      }
    }
  }

  __device__ void Fold(int window, const Tile& o) {
#pragma unroll
    for (int i = 0; i < 2 * kRounds; ++i) {
      const int round = i / 2;
      if (!HasTile(round)) break;
      const float2 factors = exchange_.factors[2 * pair_[round] + i % 2];
#pragma unroll
      for (int j = 0; j < kTileDims; ++j) {
        float& total = total_[round][i % 2][j];
        const float part = o[round][i % 2][j];
        total = window == 0 ? part : total * factors.x + part * factors.y;
      }
    }
  }

  __device__ float* Out(int head) const {
    const CardAttention& a = p_.attention;
    return a.out + row_ * a.out_stride + (first_head_ + head) * a.value_dim;
  }

  __device__ void WriteAlone() const {
#pragma unroll
    for (int i = 0; i < 2 * kRounds; ++i) {
      const int round = i / 2;
      const int head = 2 * pair_[round] + i % 2;
      if (!HasTile(round) || head >= heads_) continue;
      const float sum = exchange_.sums[head];
      float x[kTileDims];
#pragma unroll
      for (int j = 0; j < kTileDims; ++j) {
        x[j] = total_[round][i % 2][j];
      }
      DivideAll(x, sum);
      Store(Out(head) + first_dim_[round], x);
    }
  }

  __device__ void WriteZeros() const {
    const int count = heads_ * p_.attention.value_dim;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kRowsThreads) {
      Out(0)[i] = 0.0F;
    }
  }

  // ---- The merge by the last blocks of a (row, kv head, chunk).

  // Counts the block in; its number among the mergers, or -1. The last mergers but one wait for
  // the blocks that still work: those run or can start, since mergers hold at most half of the
  // multiprocessors.
  __device__ int CountIn(int* mergers) {
    auto* counter = reinterpret_cast<std::int32_t*>(p_.counters) + 2 * Group();
    const int blocks = min(p_.splits, windows_);
    *mergers = min(min(p_.mergers, blocks), heads_);
    __syncthreads();
    if (threadIdx.x == 0) {
      int before = 0;
      asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;\n"
                   : "=r"(before)
                   : "l"(counter)
                   : "memory");
      const int merger = before - (blocks - *mergers);
      int arrived = before + 1;
      while (merger >= 0 && arrived < blocks) {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n"
                     : "=r"(arrived)
                     : "l"(counter)
                     : "memory");
      }
      exchange_.merger = merger;
    }
    __syncthreads();
    return exchange_.merger;
  }

  __device__ int Group() const {
    return (row_ * p_.attention.kv_heads + kv_head_) * p_.chunks + chunk_;
  }

  // The last merger to end makes the counters ready for the next launch.
  __device__ void CountOut(int mergers) const {
    if (threadIdx.x != 0) return;
    auto* counter = reinterpret_cast<std::int32_t*>(p_.counters) + 2 * Group();
    if (mergers == 1 || atomicAdd(counter + 1, 1) == mergers - 1) {
      counter[0] = 0;
      counter[1] = 0;
    }
  }

  // Windows pass through the stages, a group at a time; what outputs have so far stays before them.
  __device__ void Merge() {
    int mergers = 0;
    const int merger = CountIn(&mergers);
    if (merger < 0) return;
    const int heads = (heads_ - merger + mergers - 1) / mergers;  // merger, merger + mergers, ..
    const int items = heads * p_.attention.value_dim;
    auto* so_far = reinterpret_cast<float2*>(shared_);
    float* values = reinterpret_cast<float*>(so_far + items);
    const int room = p_.stages * p_.stage_bytes / 4 - 2 * items;
    const int group = min(kWarpLanes, room / items);
    float most = -INFINITY;
#pragma unroll 1
    for (int begin = 0; begin < windows_; begin += group) {
      const int count = min(group, windows_ - begin);
      CopyWindows(values, begin, count, heads, merger, mergers);
      MergeFactors(begin, count, merger, mergers, heads, &most);
      WaitForCopies<0>();
      __syncthreads();
#pragma unroll 1
      for (int item = static_cast<int>(threadIdx.x); item < items; item += kRowsThreads) {
        MergeItem(values, so_far, item, begin, count, merger, mergers);
      }
      __syncthreads();
    }
    CountOut(mergers);
  }

  // [heads][count][value_dim]
  __device__ void CopyWindows(float* to, int begin, int count, int heads, int merger,
                              int mergers) const {
    const int values = count * p_.attention.value_dim;
#pragma unroll 1
    for (int head = 0; head < heads; ++head) {
      const float* from = p_.window_values +
                          (WindowPlace(merger + head * mergers) + begin) * p_.attention.value_dim;
#pragma unroll 4
      for (int i = 4 * static_cast<int>(threadIdx.x); i < values; i += 4 * kRowsThreads) {
        CopyAsync16(to + head * values + i, from + i);
      }
    }
    CommitCopies();
  }

  // Factors of the windows of each head of this merger: (a, b, l).
  __device__ void MergeFactors(int begin, int count, int merger, int mergers, int heads,
                               float* most) {
    if (warp_ >= heads) return;
    const float2* sums = p_.window_sums + WindowPlace(merger + warp_ * mergers) + begin;
    const float2 own = lane_ < count ? __ldcg(sums + lane_) : float2{-INFINITY, 0.0F};
    float larger = own.x;
#pragma unroll
    for (int step = 1; step < kWarpLanes; step *= 2) {
      const float below = __shfl_up_sync(0xFFFFFFFFU, larger, step);
      larger = lane_ >= step && below > larger ? below : larger;
    }
    larger = *most > larger ? *most : larger;
    const float above = __shfl_up_sync(0xFFFFFFFFU, larger, 1);
    const float before = lane_ == 0 ? *most : above;
    *most = __shfl_sync(0xFFFFFFFFU, larger, kWarpLanes - 1);
    exchange_.merge[warp_][lane_] = {ExactExp(before - larger), ExactExp(own.x - larger), own.y,
                                     0.0F};
  }

  __device__ void MergeItem(const float* values, float2* so_far, int item, int begin, int count,
                            int merger, int mergers) const {
    const int dim = p_.attention.value_dim;
    const int head = item / dim;
    const float* value = values + head * (count - 1) * dim + item;
    const float4* factors = exchange_.merge[head];
    float total = value[0];
    float sum = factors[0].z;
    if (begin > 0) {
      const float2 before = so_far[item];
      total = before.x * factors[0].x + total * factors[0].y;
      sum = before.y * factors[0].x + sum * factors[0].y;
    }
#pragma unroll 8
    for (int window = 1; window < count; ++window) {
      const float4 factor = factors[window];
      total = total * factor.x + value[window * dim] * factor.y;
      sum = sum * factor.x + factor.z * factor.y;
    }
    if (begin + count < windows_) {
      so_far[item] = {total, sum};
    } else {
      Out(merger + head * mergers)[item - head * dim] = total / sum;
    }
  }

  const RowsPlan& p_;
  std::byte* shared_;
  RowsExchange& exchange_;
  int lane_, warp_;
  int split_, kv_head_, chunk_, row_;
  int first_head_, heads_;
  int slot_, index_;
  int first_fresh_;  // first row of the slot in this pass
  int old_keys_;     // keys below were in the planes before this launch
  int windows_;
  int early_position_;  // of row `lane`
  double early_frequency_;
  float early_q_norm_, early_k_norm_;
  int issue_window_, issue_slice_ = 0, issue_stage_ = 0, read_stage_ = 0;
  int ready_ = 0;     // slices that may be read without more ado
  float max_ = 0.0F;  // of head `warp_`, where the block folds
  float sum_ = 0.0F;
  int pair_[kRounds], first_dim_[kRounds];  // of a thread's tiles
  Tile total_;
};

}  // namespace bloomery::kernels::cuda
