// The kernel of rows_attention.h. A block owns one row, up to kHeads query heads of one kv head,
// and every `splits`-th window of 128 keys.
//
// A window passes through a ring of shared-memory stages: its keys in slices of 64 dims (all 128
// keys), then its values in slices of 32 keys (all dims). Keys and values that earlier passes wrote
// are asked for before the launch waits for its inputs; the rows of this pass are computed by every
// block that needs them and put over their places in the stages.
//
// Scores: thread (key, half) keeps the 32 lanes of N8's dot for half of the heads in registers, and
// sums them by the tree at the end. Values: thread (half, pair of dims) adds keys ascending. So no
// sum depends on how the windows are spread.
#pragma once

#include "kernels-common/attention/attention.h"
#include "kernels-common/attention/cuda/async_copy.cuh"
#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/attention/cuda/heads.cuh"

namespace bloomery::kernels::cuda {

inline constexpr int kRowsThreads = 256;
inline constexpr int kRowsWarps = kRowsThreads / kWarpLanes;
inline constexpr int kWindow = static_cast<int>(kAttentionWindow);
inline constexpr int kSliceDims = 64;
inline constexpr int kSliceKeys = 32;
inline constexpr int kValueSlices = kWindow / kSliceKeys;
inline constexpr int kMaxValueDim = 768;
inline constexpr int kMergeValues = 4;  // outputs a thread merges at a time
static_assert(kRowsThreads == 2 * kWindow);

// What one block's work needs, made on the host. Offsets are bytes into shared memory.
struct RowsPlan {
  CardAttention attention;
  HeadInputs inputs;  // k null: planes hold the rows of this pass
  std::byte* counters = nullptr;
  float2* window_sums = nullptr;   // [rows][heads][windows_most] (m, l)
  float* window_values = nullptr;  // [rows][heads][windows_most][value_dim]
  std::int32_t splits = 1;
  std::int32_t chunks = 1;   // blocks that share the heads of a kv head
  std::int32_t mergers = 1;  // at most so many blocks merge a (row, kv head, chunk)
  std::int32_t windows_most = 0;
  std::int32_t key_slices = 0;
  std::int32_t stages = 0;
  std::int32_t stage_bytes = 0;
  std::int32_t copy_unit = 16;    // q8_0: 4, or 2 where rows are not aligned
  std::int32_t work_at = 0;       // q8_0: the decoded slice
  std::int32_t query_at = 0;      // [kHeads][key_dim]
  std::int32_t score_at = 0;      // [kHeads][128]
  std::int32_t weight_at = 0;     // [128][kHeads] exp(score - m)
  std::int32_t turn_at = 0;       // [rows][n_rot / 2]
  std::int32_t norm_at = 0;       // q_norm, k_norm: 2 * key_dim
  std::int32_t fresh_key_at = 0;  // [rows][key_dim] f32, and encoded
  std::int32_t fresh_value_at = 0;
  std::int32_t fresh_key_row_at = 0;
  std::int32_t fresh_value_row_at = 0;
};

// Bytes of a key's slice in a stage, padded so that eight threads with 16 bytes each meet all
// banks.
template <KvType kType>
constexpr int StageKeyBytes() {
  return PlaneBytes<kType>(kSliceDims) + (kType == KvType::kQ8_0 ? 0 : 16);
}
// The same of the slice that scores are computed from.
template <KvType kType>
constexpr int ScoreKeyBytes() {
  return kType == KvType::kF16 ? StageKeyBytes<KvType::kF16>() : StageKeyBytes<KvType::kF32>();
}

// Eight values of a key, as f32.
template <KvType kType>
__device__ __forceinline__ void LoadEight(const std::byte* at, float* out) {
  if constexpr (kType == KvType::kF16) {
    const uint4 words = *reinterpret_cast<const uint4*>(at);
    const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&word[i]));
      out[2 * i] = pair.x;
      out[2 * i + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 four = reinterpret_cast<const float4*>(at)[i];
      out[4 * i] = four.x;
      out[4 * i + 1] = four.y;
      out[4 * i + 2] = four.z;
      out[4 * i + 3] = four.w;
    }
  }
}

template <KvType kType>
__device__ __forceinline__ float2 LoadPair(const std::byte* row, int pair) {
  if constexpr (kType == KvType::kF16) {
    return __half22float2(reinterpret_cast<const __half2*>(row)[pair]);
  } else {
    return reinterpret_cast<const float2*>(row)[pair];
  }
}

// kCount consecutive floats of shared memory, aligned to their size.
template <int kCount>
__device__ __forceinline__ void LoadFloats(const float* at, float* out) {
  if constexpr (kCount == 4) {
    const float4 four = *reinterpret_cast<const float4*>(at);
    out[0] = four.x;
    out[1] = four.y;
    out[2] = four.z;
    out[3] = four.w;
  } else if constexpr (kCount == 2) {
    const float2 two = *reinterpret_cast<const float2*>(at);
    out[0] = two.x;
    out[1] = two.y;
  } else {
    out[0] = *at;
  }
}

// N8's tree from step kStep on, over values of one thread; the sum is left in lanes[0].
template <int kStep>
__device__ __forceinline__ void ThreadTree(float (&lanes)[kWarpLanes]) {
#pragma unroll
  for (int i = 0; i < kStep; ++i) {
    lanes[i] += lanes[i + kStep];
  }
  if constexpr (kStep > 1) {
    ThreadTree<kStep / 2>(lanes);
  }
}

// Small exchanges between the threads of a block.
struct RowsExchange {
  float4 merge[kRowsWarps][kWarpLanes];  // (a, b, l) of a head's windows
  float2 factors[kRowsWarps];            // (a, b) of a head's window, where the block folds
  float sums[kRowsWarps];                // L so far
  int merger;
};

template <KvType kType, int kHeads>
class RowsBlock {
 public:
  __device__ RowsBlock(const RowsPlan& plan, std::byte* shared, RowsExchange& exchange)
      : p_(plan), shared_(shared), exchange_(exchange) {}

  __device__ void Run() {
    if (!Place()) {
      WaitForInputs();
      AllowNext();
      return;
    }
    if (Fused()) {
      StartRing();
      PrepareConstants();
      WaitForInputs();
    } else {
      WaitForInputs();
      StartRing();
    }
    AllowNext();
    if (index_ < 0) {
      WriteZeros();
      return;
    }
    LoadHeads();
    if (Fused()) {
      FinishHeads();
      WriteRow();
    }
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
  static constexpr int kHalves = kHeads == 1 ? 1 : 2;
  static constexpr int kTile = kHeads / kHalves;  // heads a thread works on
  static constexpr int kStageKey = StageKeyBytes<kType>();
  static constexpr int kScoreKey = ScoreKeyBytes<kType>();
  static constexpr KvType kWorkType = kType == KvType::kQ8_0 ? KvType::kF32 : kType;
  static constexpr int kPairRounds = (kMaxValueDim / 2 * kHalves + kRowsThreads - 1) / kRowsThreads;

  __device__ bool Fused() const { return p_.inputs.k != nullptr; }
  // One block sees all windows of its row: it folds them as it goes.
  __device__ bool Alone() const { return p_.splits == 1 || windows_ == 1; }
  __device__ float* Floats(int at) const { return reinterpret_cast<float*>(shared_ + at); }
  __device__ float* Query() const { return Floats(p_.query_at); }
  __device__ std::byte* Stage(int stage) const { return shared_ + stage * p_.stage_bytes; }
  __device__ int ValueRowBytes() const { return PlaneBytes<kType>(p_.attention.value_dim); }
  __device__ int ThreadHalf() const { return kHalves == 1 ? 0 : threadIdx.x / kWindow; }

  // Which row, heads and windows; false where there is nothing to do.
  __device__ bool Place() {
    const CardAttention& a = p_.attention;
    lane_ = static_cast<int>(threadIdx.x) % kWarpLanes;
    warp_ = static_cast<int>(threadIdx.x) / kWarpLanes;
    split_ = static_cast<int>(blockIdx.x);
    kv_head_ = static_cast<int>(blockIdx.y) / p_.chunks;
    chunk_ = static_cast<int>(blockIdx.y) % p_.chunks;
    row_ = static_cast<int>(blockIdx.z);
    const int ratio = a.heads / a.kv_heads;
    first_head_ = kv_head_ * ratio + chunk_ * kHeads;
    heads_ = min(kHeads, ratio - chunk_ * kHeads);
    const int live = *a.rows.live;
    slot_ = a.rows.slot[row_];
    index_ = a.rows.index[row_];
    first_fresh_ = row_;
    old_keys_ = index_ + 1;
    if (Fused()) {
      const bool in = lane_ <= row_;
      const int slot = in ? a.rows.slot[lane_] : -1;
      const int index = in ? a.rows.index[lane_] : -1;
      const std::uint32_t same = __ballot_sync(0xFFFFFFFFU, in && slot == slot_);
      first_fresh_ = __ffs(static_cast<int>(same)) - 1;
      old_keys_ = max(__shfl_sync(0xFFFFFFFFU, index, first_fresh_), 0);
    }
    windows_ = index_ / kWindow + 1;
    issue_window_ = split_;
    return row_ < live && (index_ >= 0 ? split_ < windows_ : split_ == 0);
  }

  // ---- The ring of stages.

  __device__ void StartRing() {
    if (index_ < 0) return;
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
        IssueValues(issue_window_ * kWindow + (issue_slice_ - p_.key_slices) * kSliceKeys, stage);
      }
      issue_stage_ = issue_stage_ + 1 == p_.stages ? 0 : issue_stage_ + 1;
      if (++issue_slice_ == p_.key_slices + kValueSlices) {
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
#pragma unroll
      for (int i = 0; i < kParts * kWindow / kRowsThreads; ++i) {
        const int item = static_cast<int>(threadIdx.x) + i * kRowsThreads;
        const int key = item / kParts;
        const int at = item % kParts * 16;
        if (key < keys && at < bytes) {
          CopyAsync16(stage + key * kStageKey + at, source + key * plane.row_bytes + at);
        }
      }
    } else {
      CopyQ8(stage, kStageKey, source, plane.row_bytes, keys, bytes);
    }
  }

  __device__ void IssueValues(int begin, std::byte* stage) const {
    const CardPlane& plane = p_.attention.values;
    const int keys = min(kSliceKeys, old_keys_ - begin);
    const int bytes = ValueRowBytes();
    const std::byte* source =
        plane.base + slot_ * plane.slot_bytes + begin * plane.row_bytes + kv_head_ * bytes;
    if constexpr (kType != KvType::kQ8_0) {
      const int parts = bytes / 16;
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
    for (int item = static_cast<int>(threadIdx.x); item < fresh * half; item += kRowsThreads) {
      const int row = first_fresh_ + item / half;
      turns[item] =
          RopeTurn(p_.attention.rows.position[row], in.frequencies[item % half], in.magnitude);
    }
    float* norms = Floats(p_.norm_at);
    const int dim = p_.attention.key_dim;
    for (int i = static_cast<int>(threadIdx.x); i < dim; i += kRowsThreads) {
      norms[i] = in.q_norm == nullptr ? 1.0F : in.q_norm[i];
      norms[dim + i] = in.k_norm == nullptr ? 1.0F : in.k_norm[i];
    }
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

  __device__ static void CopyFloats(float* to, const float* from, int count) {
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

  // The one block that has this row's own window appends it to the planes.
  __device__ void WriteRow() const {
    if (chunk_ != 0 || (windows_ - 1) % p_.splits != split_) return;
    const CardAttention& a = p_.attention;
    const int key_bytes = PlaneBytes<kType>(a.key_dim);
    PutRow(a.keys, key_bytes, FreshKeyRow(row_));
    PutRow(a.values, ValueRowBytes(), FreshValueRow(row_));
  }

  __device__ void PutRow(const CardPlane& plane, int bytes, const std::byte* row) const {
    std::byte* to =
        plane.base + slot_ * plane.slot_bytes + index_ * plane.row_bytes + kv_head_ * bytes;
    for (int i = static_cast<int>(threadIdx.x); i < bytes / 2; i += kRowsThreads) {
      reinterpret_cast<std::uint16_t*>(to)[i] = reinterpret_cast<const std::uint16_t*>(row)[i];
    }
  }

  // This pass's rows over their places of a stage that holds keys [begin, begin + keys): bytes
  // [from, from + bytes) of each row. A warp a row.
  __device__ void Patch(std::byte* stage, int stride, int begin, int keys, const std::byte* rows,
                        int row_bytes, int from, int bytes) const {
    const int fresh = row_ - first_fresh_ + 1;
    for (int i = warp_; i < fresh; i += kRowsWarps) {
      const int key = index_ - fresh + 1 + i - begin;
      if (key < 0 || key >= keys) continue;
      const auto* source = reinterpret_cast<const std::uint16_t*>(rows + i * row_bytes + from);
      auto* to = reinterpret_cast<std::uint16_t*>(stage + key * stride);
      for (int word = lane_; word < bytes / 2; word += kWarpLanes) {
        to[word] = source[word];
      }
    }
  }

  // ---- One window.

  __device__ void DoWindow(int window) {
    const int begin = window * kWindow;
    const int count = min(kWindow, index_ + 1 - begin);
    Scores(begin, count);
    __syncthreads();
    Softmax(window, count);
    __syncthreads();
    float o[kPairRounds][kTile][2] = {};
    for (int slice = 0; slice < kValueSlices; ++slice) {
      const std::byte* values = NextValues(begin + slice * kSliceKeys);
      const int keys = count - slice * kSliceKeys;
      if (keys >= kSliceKeys) {
        AddValues<true>(values, slice * kSliceKeys, kSliceKeys, o);
      } else if (keys > 0) {
        AddValues<false>(values, slice * kSliceKeys, keys, o);
      }
    }
    if (Alone()) {
      Fold(window, o);
    } else {
      StoreWindow(window, o);
    }
  }

  // Waits for the next stage; the block may read it when this returns.
  __device__ std::byte* Arrive() {
    std::byte* stage = Stage(read_stage_);
    read_stage_ = read_stage_ + 1 == p_.stages ? 0 : read_stage_ + 1;
    WaitForCopies(p_.stages - 2);
    return stage;
  }

  __device__ const std::byte* NextKeys(int begin, int slice) {
    std::byte* stage = Arrive();
    const int dims = min(kSliceDims, p_.attention.key_dim - slice * kSliceDims);
    if (Fused() && begin + kWindow > old_keys_) {
      Patch(stage, kStageKey, begin, kWindow, shared_ + p_.fresh_key_row_at,
            PlaneBytes<kType>(p_.attention.key_dim), slice * PlaneBytes<kType>(kSliceDims),
            PlaneBytes<kType>(dims));
    }
    __syncthreads();
    Issue();
    if constexpr (kType == KvType::kQ8_0) {
      const int key = static_cast<int>(threadIdx.x) / 2;
      const int block = static_cast<int>(threadIdx.x) % 2;
      if (block * kQ8Values < dims) {
        DecodeQ8(
            stage + key * kStageKey + block * kQ8Bytes,
            reinterpret_cast<float*>(shared_ + p_.work_at + key * kScoreKey) + block * kQ8Values);
      }
      __syncthreads();
      return shared_ + p_.work_at;
    } else {
      return stage;
    }
  }

  __device__ const std::byte* NextValues(int begin) {
    std::byte* stage = Arrive();
    if (Fused() && begin + kSliceKeys > old_keys_) {
      Patch(stage, ValueRowBytes(), begin, kSliceKeys, shared_ + p_.fresh_value_row_at,
            ValueRowBytes(), 0, ValueRowBytes());
    }
    __syncthreads();
    Issue();
    if constexpr (kType == KvType::kQ8_0) {
      const int blocks = kSliceKeys * p_.attention.value_dim / kQ8Values;
      for (int block = static_cast<int>(threadIdx.x); block < blocks; block += kRowsThreads) {
        DecodeQ8(stage + block * kQ8Bytes, Floats(p_.work_at) + block * kQ8Values);
      }
      __syncthreads();
      return shared_ + p_.work_at;
    } else {
      return stage;
    }
  }

  __device__ void Scores(int begin, int count) {
    const int key = static_cast<int>(threadIdx.x) % kWindow;
    const int half = static_cast<int>(threadIdx.x) / kWindow;
    const bool works = half < kHalves && key / kWarpLanes * kWarpLanes < count;
    const int dim = p_.attention.key_dim;
    const float* q = Query() + half * kTile * dim;
    float lanes[kTile][kWarpLanes] = {};
    for (int slice = 0; slice < p_.key_slices; ++slice) {
      const std::byte* keys = NextKeys(begin, slice);
      if (!works) continue;
      const std::byte* at = keys + key * kScoreKey;
      const int first = slice * kSliceDims;
#pragma unroll
      for (int part = 0; part < kSliceDims / 8; ++part) {
        if (first + part * 8 >= dim) break;
        float k[8];
        LoadEight<kWorkType>(at + part * PlaneBytes<kWorkType>(8), k);
#pragma unroll
        for (int head = 0; head < kTile; ++head) {
          float four[8];
          LoadFloats<4>(q + head * dim + first + part * 8, four);
          LoadFloats<4>(q + head * dim + first + part * 8 + 4, four + 4);
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            float& sum = lanes[head][part % 4 * 8 + i];
            sum = ExactFma(four[i], k[i], sum);
          }
        }
      }
    }
    if (!works) return;
    float* scores = Floats(p_.score_at) + half * kTile * kWindow;
#pragma unroll
    for (int head = 0; head < kTile; ++head) {
      ThreadTree<kWarpLanes / 2>(lanes[head]);
      scores[head * kWindow + key] = lanes[head][0] * p_.attention.scale;
    }
  }

  // Warp h: maximum, exponentials and their sum of head h.
  __device__ void Softmax(int window, int count) {
    if (warp_ >= heads_) return;
    const float* scores = Floats(p_.score_at) + warp_ * kWindow;
    float* weights = Floats(p_.weight_at) + warp_;
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
        weights[key * kHeads] = weight;
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

  // (half, pair of dims) of this thread's round, or false.
  __device__ bool PairOf(int round, int* half, int* pair) const {
    const int pairs = p_.attention.value_dim / 2;
    const int item = static_cast<int>(threadIdx.x) + round * kRowsThreads;
    *half = kHalves == 2 && item >= pairs ? 1 : 0;
    *pair = item - *half * pairs;
    return item < pairs * kHalves;
  }

  template <bool kWhole>
  __device__ void AddValues(const std::byte* values, int first, int keys,
                            float (&o)[kPairRounds][kTile][2]) const {
    const int row_bytes = PlaneBytes<kWorkType>(p_.attention.value_dim);
    const float* weights = Floats(p_.weight_at) + first * kHeads;
#pragma unroll
    for (int round = 0; round < kPairRounds; ++round) {
      int half = 0;
      int pair = 0;
      if (!PairOf(round, &half, &pair)) break;
      const auto add = [&](int key) {
        const float2 value = LoadPair<kWorkType>(values + key * row_bytes, pair);
        float weight[kTile];
        LoadFloats<kTile>(weights + key * kHeads + half * kTile, weight);
#pragma unroll
        for (int head = 0; head < kTile; ++head) {
          o[round][head][0] = ExactFma(weight[head], value.x, o[round][head][0]);
          o[round][head][1] = ExactFma(weight[head], value.y, o[round][head][1]);
        }
      };
      if constexpr (kWhole) {
#pragma unroll 8
        for (int key = 0; key < kSliceKeys; ++key) {
          add(key);
        }
      } else {
        for (int key = 0; key < keys; ++key) {
          add(key);
        }
      }
    }
  }

  // ---- The end of a window.

  __device__ std::size_t WindowPlace(int head) const {
    return (static_cast<std::size_t>(row_) * p_.attention.heads + first_head_ + head) *
           p_.windows_most;
  }

  __device__ void StoreWindow(int window, const float (&o)[kPairRounds][kTile][2]) const {
#pragma unroll
    for (int round = 0; round < kPairRounds; ++round) {
      int half = 0;
      int pair = 0;
      if (!PairOf(round, &half, &pair)) break;
#pragma unroll
      for (int tile = 0; tile < kTile; ++tile) {
        const int head = half * kTile + tile;
        if (head < heads_) {
          float* to =
              p_.window_values + (WindowPlace(head) + window) * p_.attention.value_dim + 2 * pair;
          *reinterpret_cast<float2*>(to) = {o[round][tile][0], o[round][tile][1]};
        }
      }
    }
  }

  __device__ void Fold(int window, const float (&o)[kPairRounds][kTile][2]) {
#pragma unroll
    for (int round = 0; round < kPairRounds; ++round) {
      int half = 0;
      int pair = 0;
      if (!PairOf(round, &half, &pair)) break;
#pragma unroll
      for (int tile = 0; tile < kTile; ++tile) {
        const float2 factors = exchange_.factors[half * kTile + tile];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& total = total_[round][tile][i];
          total =
              window == 0 ? o[round][tile][i] : total * factors.x + o[round][tile][i] * factors.y;
        }
      }
    }
  }

  __device__ float* Out(int head) const {
    const CardAttention& a = p_.attention;
    return a.out + row_ * a.out_stride + (first_head_ + head) * a.value_dim;
  }

  __device__ void WriteAlone() const {
#pragma unroll
    for (int round = 0; round < kPairRounds; ++round) {
      int half = 0;
      int pair = 0;
      if (!PairOf(round, &half, &pair)) break;
#pragma unroll
      for (int tile = 0; tile < kTile; ++tile) {
        const int head = half * kTile + tile;
        if (head < heads_) {
          const float sum = exchange_.sums[head];
          *reinterpret_cast<float2*>(Out(head) + 2 * pair) = {total_[round][tile][0] / sum,
                                                              total_[round][tile][1] / sum};
        }
      }
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
    *mergers = min(p_.mergers, blocks);
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      const int before = atomicAdd(counter, 1);
      const int merger = before - (blocks - *mergers);
      if (merger >= 0) {
        int arrived = before + 1;
        while (arrived < blocks) {
          asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n"
                       : "=r"(arrived)
                       : "l"(counter)
                       : "memory");
        }
        __threadfence();
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

  __device__ void Merge() {
    int mergers = 0;
    const int merger = CountIn(&mergers);
    if (merger < 0) return;
    const int heads = (heads_ - merger + mergers - 1) / mergers;  // merger, merger + mergers, ..
    const int items = heads * p_.attention.value_dim;
    for (int first = 0; first < items; first += kMergeValues * kRowsThreads) {
      MergeItems(first, items, merger, mergers, heads);
    }
    CountOut(mergers);
  }

  // Factors of 32 windows of each head of this merger: (a, b, l).
  __device__ void MergeFactors(int begin, int merger, int mergers, int heads, float* most) {
    if (warp_ >= heads) return;
    const int window = begin + lane_;
    const bool in = window < windows_;
    const float2 own = in ? __ldcg(p_.window_sums + WindowPlace(merger + warp_ * mergers) + window)
                          : float2{-INFINITY, 0.0F};
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

  __device__ void MergeItems(int first, int items, int merger, int mergers, int heads) {
    const int dim = p_.attention.value_dim;
    float most = -INFINITY;
    float total[kMergeValues] = {};
    float sum[kMergeValues] = {};
    for (int begin = 0; begin < windows_; begin += kWarpLanes) {
      __syncthreads();
      MergeFactors(begin, merger, mergers, heads, &most);
      __syncthreads();
      const int count = min(kWarpLanes, windows_ - begin);
#pragma unroll
      for (int i = 0; i < kMergeValues; ++i) {
        const int item = first + static_cast<int>(threadIdx.x) + i * kRowsThreads;
        if (item >= items) break;
        const int head = item / dim;
        const float* values =
            p_.window_values + (WindowPlace(merger + head * mergers) + begin) * dim + item % dim;
#pragma unroll 8
        for (int window = 0; window < count; ++window) {
          const float4 factors = exchange_.merge[head][window];
          const float value = __ldcg(values + static_cast<std::size_t>(window) * dim);
          const bool start = begin + window == 0;
          total[i] = start ? value : total[i] * factors.x + value * factors.y;
          sum[i] = start ? factors.z : sum[i] * factors.x + factors.z * factors.y;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kMergeValues; ++i) {
      const int item = first + static_cast<int>(threadIdx.x) + i * kRowsThreads;
      if (item < items) {
        Out(merger + item / dim * mergers)[item % dim] = total[i] / sum[i];
      }
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
  int issue_window_, issue_slice_ = 0, issue_stage_ = 0, read_stage_ = 0;
  float max_ = 0.0F;  // of head `warp_`, where the block folds
  float sum_ = 0.0F;
  float total_[kPairRounds][kTile][2];
};

}  // namespace bloomery::kernels::cuda
