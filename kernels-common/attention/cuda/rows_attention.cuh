// The kernel of rows_attention.h. A block owns one row, up to kHeads query heads of one kv head,
// and every `splits`-th window of 128 keys among those that the row looks into. Of the first of
// these a sliding row may see the last keys alone: the values of the others are zeros in its stage
// and so are their weights, which adds +0 to sums that begin with +0.
//
// A window passes through a ring of shared-memory stages: its keys in slices of 128 dims (all 128
// keys), then its values in slices of whole rows. Keys and values that earlier passes wrote are
// asked for before the launch waits for its inputs; the rows of this pass are computed by every
// block that needs them and put over their places in the stages.
//
// What bounds it is the loads from shared memory: they give a lane one word a cycle, while the lane
// can do four fma. So each thread keeps a tile of sums in registers (AddKeys, AddValues). No sum
// depends on how the windows are spread. The members that are only declared here are in
// rows_ring.cuh, rows_heads.cuh and rows_merge.cuh.
#pragma once

#include "kernels-common/attention/cuda/rows_plan.cuh"

namespace bloomery::kernels::cuda {

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
    const int place = static_cast<int>(blockIdx.z);
    const int live = *a.rows.live;
    row_ = a.rows.map == nullptr ? place : place < live ? a.rows.map[place] : 0;
    first_head_ = kv_head_ * p_.ratio + chunk_ * kHeads;
    heads_ = min(kHeads, p_.ratio - chunk_ * kHeads);
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
    first_seen_ = a.window == 0 ? 0 : max(index_ + 1 - a.window, 0);
    first_window_ = first_seen_ / kWindow;
    windows_ = index_ / kWindow + 1 - first_window_;
    issue_window_ = split_;
    return place < live && (index_ >= 0 ? split_ < windows_ : split_ == 0);
  }

  // Constants that PrepareConstants() will want, asked for along with the row arrays.
  __device__ void LoadEarly(bool in);

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
  __device__ void Issue();

  __device__ void IssueKeys(int begin, int slice, std::byte* stage) const;

  // 16 bytes of every kStep-th row while there are `rows` left; at most kCount of them.
  template <int kCount>
  __device__ static void CopyColumn(std::byte* to, int to_step, const std::byte* from,
                                    std::size_t from_step, int rows, int step) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i * step >= rows) break;
      CopyAsync<16>(to, from);
      to += to_step;
      from += from_step;
    }
  }

  __device__ void IssueValues(int begin, std::byte* stage) const;

  // Of `keys` rows; of the first `unseen` zeros.
  __device__ void CopyQ8(std::byte* stage, int stride, const std::byte* source,
                         std::size_t row_bytes, int unseen, int keys, int bytes) const;

  // ---- q, and the keys and values of this pass's rows of the slot.

  // What no other kernel of the pass writes: cosines and sines, norm weights.
  __device__ void PrepareConstants();

  // Up to the barrier after which q, and the rows of this pass, are ready.
  __device__ void FusedHeads();

  __device__ void LoadHeads();

  // Heads of 128 dims that turn whole: a warp takes two at once, in registers. Lane l has dims l
  // mod 32, and with them both of each pair of rope.
  __device__ void QuickHeads(int fresh);

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
  __device__ void FinishHeads();

  // The row to the planes, by the block that has its window and the half of the threads that have
  // no values to add (AddValues).
  __device__ void WriteRow() const;

  __device__ void PutRow(const CardPlane& plane, int bytes, const std::byte* row, int thread) const;

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

  // This pass's rows over their places of a stage; zeros where they are not seen. A warp a row.
  __device__ void Patch(std::byte* stage, const Slice& slice) const;

  // A q8_0 stage to f32 rows.
  __device__ const std::byte* Decode(const std::byte* stage, const Slice& slice) const;

  // Waits for the next stage; the block may read it when this returns.
  __device__ const std::byte* Arrive(const Slice& slice);

  // ---- One window, counted from the first that the row looks into.

  __device__ void DoWindow(int window) {
    const int begin = (first_window_ + window) * kWindow;
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
    Softmax(window, max(first_seen_ - begin, 0), count);
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

  // Warp h: maximum, exponentials and their sum of head h over keys [unseen, count).
  __device__ void Softmax(int window, int unseen, int count) {
    if (warp_ >= heads_) return;
    const float* scores = Floats(p_.score_at) + warp_ * kScoreStride + unseen;
    float* weights = Floats(p_.weight_at) + warp_ / 2 * kWindow * 2 + warp_ % 2;
#pragma unroll 1
    for (int key = lane_; key < unseen; key += kWarpLanes) {
      weights[2 * key] = 0.0F;
    }
    const auto [max, sum] = WindowSoftmax(scores, weights + 2 * unseen, count - unseen);
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
    if (p_.attention.sinks != nullptr && window == windows_ - 1) {
      const float2 sink = SinkFactors(first_head_ + warp_, max_);
      sum_ = sum_ * sink.x + sink.y;
      if (lane_ == 0) {
        exchange_.sinks[warp_] = sink;
      }
    }
    if (lane_ == 0) {
      exchange_.factors[warp_] = factors;
      exchange_.sums[warp_] = sum_;
    }
  }

  // What the sink of a head does to sums of maximum `max`: a factor on all, and its own part of L.
  __device__ float2 SinkFactors(int head, float max) const {
    const float sink = p_.attention.sinks[head];
    const float larger = max > sink ? max : sink;
    return {ExactExp(max - larger), ExactExp(sink - larger)};
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
      if (p_.attention.sinks != nullptr) {
        const float keep = exchange_.sinks[head].x;
#pragma unroll
        for (float& each : x) {
          each *= keep;
        }
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
  __device__ int CountIn(int* mergers);

  __device__ int Group() const {
    return (row_ * p_.attention.kv_heads + kv_head_) * p_.chunks + chunk_;
  }

  // The last merger to end makes the counters ready for the next launch.
  __device__ void CountOut(int mergers) const;

  // Windows pass through the stages, a group at a time; what outputs have so far stays before them.
  __device__ void Merge();

  // [heads][count][value_dim]
  __device__ void CopyWindows(float* to, int begin, int count, int heads, int merger,
                              int mergers) const;

  // Factors of the windows of each head of this merger: (a, b, l).
  __device__ void MergeFactors(int begin, int count, int merger, int mergers, int heads,
                               float* most);

  __device__ void MergeItem(const float* values, float2* so_far, int item, int begin, int count,
                            int merger, int mergers) const;

  const RowsPlan& p_;
  std::byte* shared_;
  RowsExchange& exchange_;
  int lane_, warp_;
  int split_, kv_head_, chunk_, row_;
  int first_head_, heads_;
  int slot_, index_;
  int first_fresh_;  // first row of the slot in this pass
  int old_keys_;     // keys below were in the planes before this launch
  int first_seen_;   // first key that the row sees
  int first_window_;
  int windows_;         // that the row looks into
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
