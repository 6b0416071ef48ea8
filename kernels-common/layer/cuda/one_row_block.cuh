// Inside CUDA sources: the kernel of one_row_layers.h, but for its attention
// (one_row_attention.cuh). A block has 24 warps; a warp has one tile of one group in each phase:
//
//   Project   x -> norm, codes -> a tile of QKV for each 8 warps
//   Attend    a window of keys for some heads of one kv head; merge; codes of two heads
//   Output    codes -> a tile of the output projection by 16 warps, residual
//   Route     x2 -> norm, codes; a row of the router; selection by each block for itself
//   GateUp    a tile of gate and up for each 8 warps -> h
//   Down      h -> codes, by blocks without tiles -> a tile of down: 8 picks x 3 groups
//
// Weights come by bulk copies that are asked for as early as their place is free: QKV once gate and
// up are read, output and router once down is read, experts as their ids come out.
//
// Why a word may be written again (exchange.cuh): whoever writes words of layer l + 1 has waited
// for words of layer l that cannot exist before every block has read the old ones. X of layer l
// needs h, so logits, so x2 of all workers, so all codes, so all of qkv, so that every block has
// read X of layer l - 1. qkv of l + 1 needs X of l, so all codes of l: heads are read. Codes, x2,
// logits and h likewise.
#pragma once

#include "kernels-common/layer/cuda/one_row_layers.cuh"

namespace bloomery::kernels::cuda {

// Who a thread is. Read anew in each phase, and so that the compiler cannot know that it was read
// before: what depends on it would else be kept for all phases at once, in more registers than
// there are (spills of 768 threads do not fit into L1).
struct LayerThread {
  int thread, lane, warp, block;
  int group, team;  // in phases of 8 warps a tile
  __device__ __forceinline__ LayerThread() {
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    lane = thread % 32;
    warp = thread / 32;
    group = warp % LayerShape::kInGroups;
    team = warp / LayerShape::kInGroups;
  }
  // Has a part in every phase.
  __device__ __forceinline__ bool IsWorker() const { return block < LayerShape::kWorkers; }
};

extern __shared__ __align__(128) std::byte layer_shared[];

template <int kHeads>
struct AttendedUnit;

class OneRowBlock {
 public:
  __device__ explicit OneRowBlock(const LayersParams& params) : p_(params) {}

  __device__ void Run() {
    WaitForInputs();
    if (*p_.pass.live <= 0 || *p_.pass.index < 0) return;  // in all blocks alike
    Begin();
#pragma unroll 1
    for (layer_ = 0; layer_ < Pass().count; ++layer_) {
      ++tag_;
      Project();
      Attend();
      if (LayerThread().IsWorker()) {
        Output();
        Route();
        GateUp();
        Down();
      } else {
        __syncthreads();
        const LayerThread me;
        if (me.group == 0 && me.lane == 0) AskForProjection(me, me.team, layer_ + 1);
        const int stretch = me.block - S::kWorkers + me.warp * (Blocks() - S::kWorkers);
        if (stretch < S::kPicks * S::kFfGroups) CodeH(me, stretch);
      }
    }
    End();
  }

 private:
  template <int kHeads>
  friend struct AttendedUnit;

  using S = LayerShape;
  using L = LayerRoom;
  using W = LayerWords;
  static constexpr int kRouterWarp = S::kInGroups;  // has no codes to make
  // Picks of down that are on their way at a time: more make every poll wait behind them.
  static constexpr int kDownAhead = 2;
  static constexpr int kDownWarp = (S::kTeams - 2) * S::kInGroups;  // asks for down

  // ---- Places.

  // The pass's parameters, from shared memory: the constant bank is read so seldom that each time
  // it waits for device memory.
  __device__ static const LayersPass& Pass() {
    return *reinterpret_cast<const LayersPass*>(layer_shared + L::kPass);
  }
  __device__ static int Blocks() { return static_cast<int>(gridDim.x); }
  __device__ static const LayerWeights& Layer(int layer) {
    return reinterpret_cast<const LayerWeights*>(layer_shared + L::kLayers)[layer];
  }
  __device__ const LayerWeights& Layer() const { return Layer(layer_); }
  __device__ static float* Floats(int at) { return reinterpret_cast<float*>(layer_shared + at); }
  __device__ static LayerSmall& Small() {
    return *reinterpret_cast<LayerSmall*>(layer_shared + L::kSmall);
  }
  // Of a team; of a pick.
  __device__ static std::byte* First(int team) {
    return layer_shared + L::kFirst + team * L::kFirstBytes;
  }
  __device__ static std::byte* Second(int pick) {
    return layer_shared + L::kSecond + pick * L::kSecondBytes;
  }
  __device__ static std::uint64_t* Barrier(int number) {
    return reinterpret_cast<std::uint64_t*>(layer_shared + L::kBarriers) + number;
  }
  // Waits for a copy of this layer.
  __device__ void WaitFor(int barrier) const {
    WaitPhase(Barrier(barrier), static_cast<std::uint32_t>(layer_) & 1U);
  }
  __device__ static int TileBytes(const LayerWeights& w, int bit) {
    return ((w.q6k >> bit) & 1U) != 0 ? kTileQ6K : kTileQ4K;
  }

  // ---- Asking for weights; one lane.

  __device__ static int QkvTile(const LayerThread& me, int team) {
    return me.block + team * Blocks();
  }

  __device__ static int MatrixOf(int tile) {
    return (tile >= S::kQueryTiles ? 1 : 0) + (tile >= S::kQueryTiles + S::kKeyTiles ? 1 : 0);
  }

  // Tiles and rows of a block, and their bytes (0: none).
  struct Stretch {
    const std::byte* from;
    int bytes;
  };
  __device__ static Stretch ProjectionOf(const LayerThread& me, int team, const LayerWeights& w) {
    const int tile = QkvTile(me, team);
    if (tile >= S::kQkvTiles) return {nullptr, 0};
    const int matrix = MatrixOf(tile);
    const int first = matrix == 0   ? 0
                      : matrix == 1 ? S::kQueryTiles
                                    : S::kQueryTiles + S::kKeyTiles;
    const int bytes = S::kInGroups * TileBytes(w, matrix);
    return {w.qkv[matrix] + (tile - first) * bytes, bytes};
  }
  __device__ static Stretch OutputOf(const LayerThread& me, const LayerWeights& w) {
    const int bytes = S::kHeadGroups * TileBytes(w, kOutputBit);
    return {w.output + me.block * bytes, bytes};
  }
  __device__ static Stretch RouterOf(const LayerThread& me, const LayerWeights& w) {
    constexpr int kBytes = 4 * S::kWidth;
    return {reinterpret_cast<const std::byte*>(w.router) + me.block * kBytes, kBytes};
  }

  __device__ static void Copy(std::byte* to, const Stretch& stretch, int barrier) {
    if (stretch.bytes == 0) return;
    const auto bytes = static_cast<std::uint32_t>(stretch.bytes);
    ExpectBytes(Barrier(barrier), bytes);
    CopyBulk(to, stretch.from, bytes, Barrier(barrier));
  }
  __device__ static void Fetch(const Stretch& stretch) {
    if (stretch.bytes != 0) FetchBulk(stretch.from, static_cast<std::uint32_t>(stretch.bytes));
  }

  __device__ void AskForProjection(const LayerThread& me, int team, int layer) const {
    if (layer >= Pass().count) return;
    Copy(First(team), ProjectionOf(me, team, Layer(layer)), L::kProjectBarrier + team);
  }
  __device__ void AskForOutput(const LayerThread& me, int layer) const {
    if (layer >= Pass().count) return;
    Copy(Second(0), OutputOf(me, Layer(layer)), L::kOutputBarrier);
    Copy(layer_shared + L::kRouter, RouterOf(me, Layer(layer)), L::kRouterBarrier);
  }
  // The next layer's dense weights to L2 while device memory has nothing else to do: when their
  // place in shared memory is free, experts come.
  __device__ void FetchAhead(const LayerThread& me, int layer) const {
    if (layer >= Pass().count) return;
    const LayerWeights& w = Layer(layer);
#pragma unroll 1
    for (int team = 0; team < S::kTeams; ++team) Fetch(ProjectionOf(me, team, w));
    if (!me.IsWorker()) return;
    Fetch(OutputOf(me, w));
    Fetch(RouterOf(me, w));
  }

  // Pick and tile of gate and up that a team has.
  __device__ static int UnitOf(const LayerThread& me, int team) {
    return me.block + team * S::kWorkers;
  }

  __device__ std::size_t GateUpAt(const LayerThread& me, int team, std::int32_t expert) const {
    return static_cast<std::size_t>(expert) * Layer().expert_bytes +
           UnitOf(me, team) % S::kFfTiles * (S::kInGroups * kTileQ4K);
  }
  __device__ void AskForGateUp(const LayerThread& me, int team, std::int32_t expert) const {
    constexpr int kBytes = S::kInGroups * kTileQ4K;
    const LayerWeights& w = Layer();
    const std::size_t at = GateUpAt(me, team, expert);
    ExpectBytes(Barrier(L::kGateUpBarrier + team), 2 * kBytes);
    CopyBulkOnce(First(team), w.gate + at, kBytes, Barrier(L::kGateUpBarrier + team));
    CopyBulkOnce(First(team) + kBytes, w.up + at, kBytes, Barrier(L::kGateUpBarrier + team));
  }

  __device__ void AskForDown(const LayerThread& me, int pick, std::int32_t expert) const {
    const LayerWeights& w = Layer();
    const int bytes = S::kFfGroups * TileBytes(w, kDownBit);
    ExpectBytes(Barrier(L::kDownBarrier + pick), bytes);
    CopyBulkOnce(Second(pick),
                 w.down + static_cast<std::size_t>(expert) * w.down_bytes + me.block * bytes, bytes,
                 Barrier(L::kDownBarrier + pick));
  }

  // The next layer's small weights, a line a block, to L2.
  __device__ void AskForNorms(const LayerThread& me, int layer) const {
    if (layer >= Pass().count) return;
    const LayerWeights& w = Layer(layer);
    constexpr int kLines = S::kWidth / 32;
    const float* line = me.block < kLines       ? w.attention_norm + 32 * me.block
                        : me.block < 2 * kLines ? w.ffn_norm + 32 * (me.block - kLines)
                                                : w.q_norm + 32 * (me.block % 4);
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
    if (me.block < 4) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(w.k_norm + 32 * me.block));
    }
  }

  // ---- The whole pass.

  __device__ void Begin() {
    const LayerThread me;
    tag_ = *p_.pass.epoch + 1;
    if (me.warp == 0 && me.IsWorker()) {
      PutRow(me, p_.pass.words + W::kX, __ldcg(p_.pass.x + 16 * me.block + me.lane % 16), tag_);
    }
    const auto* from = reinterpret_cast<const uint4*>(p_.layers);
    auto* to = reinterpret_cast<uint4*>(layer_shared + L::kLayers);
    const int quads = p_.pass.count * static_cast<int>(sizeof(LayerWeights) / sizeof(uint4));
    for (int i = me.thread; i < quads; i += S::kThreads) to[i] = from[i];
    if (me.thread == S::kThreads - 1) {
      *reinterpret_cast<LayersPass*>(layer_shared + L::kPass) = p_.pass;
    }
    if (me.thread < L::kBarrierCount) {
      InitBarrier(Barrier(me.thread), me.thread == L::kIdsBarrier ? S::kPicks + S::kTeams : 1);
    }
    OrderBarriersBeforeBulk();
    if (me.thread < S::kHeadDim / 2) {
      reinterpret_cast<float2*>(layer_shared + L::kTurns)[me.thread] =
          RopeTurn(*p_.pass.position, p_.pass.frequencies[me.thread], p_.pass.magnitude);
    }
    if (me.thread == 0) BeginAttention();
    OrderBeforeBulk();
    __syncthreads();
    if (me.group == 0 && me.lane == 0) AskForProjection(me, me.team, 0);
    if (me.thread == 0 && me.IsWorker()) AskForOutput(me, 0);
  }

  __device__ void BeginAttention() const;

  // Every block has read the epoch: none can be here before all took part in the first layer.
  // Before tags begin anew, words that not every pass writes are cleared: those of windows.
  __device__ void End() {
    const LayerThread me;
    if (!me.IsWorker()) return;
    const bool last = tag_ > 0xFFFFFFFFU - 2 * static_cast<std::uint32_t>(kOneRowLayersMax);
    if (last) {
      Word* words = Pass().words + W::kSums;
      const std::size_t count = W::OfWindows(static_cast<std::size_t>(Pass().windows_most));
      for (std::size_t i = static_cast<std::size_t>(me.block) * S::kThreads + me.thread; i < count;
           i += static_cast<std::size_t>(S::kWorkers) * S::kThreads) {
        words[i] = 0;
      }
    }
    if (me.block == 0 && me.thread == 0) *Pass().epoch = last ? 0 : tag_;
  }

  // ---- Phases.

  // One warp, whose lane l < 16 has the block's value l, puts them among those of all blocks.
  __device__ static void PutRow(const LayerThread& me, Word* row, float value, std::uint32_t tag) {
    const int first = 3 * me.lane % 16;
    const std::uint32_t bits[3] = {
        __shfl_sync(kAllLanes, __float_as_uint(value), first),
        __shfl_sync(kAllLanes, __float_as_uint(value), (first + 1) % 16),
        __shfl_sync(kAllLanes, __float_as_uint(value), (first + 2) % 16)};
    if (me.lane < W::kRowQuads) PutQuad(row + 2 * (W::kRowQuads * me.block + me.lane), bits, tag);
  }

  // u of N4 of a tile and a group's codes, for row lane/4 + 8*(lane % 2). Not inlined: five uses.
  __device__ static __noinline__ float TileValue(const std::byte* tile, const std::byte* codes,
                                                 bool q6k) {
    const std::byte* high = codes + OwnCodes::kHigh;
    const std::byte* low = codes + OwnCodes::kLow;
    return q6k ? OneRowValue<kQ6K>(tile, codes, high, low)
               : OneRowValue<kQ4K>(tile, codes, high, low);
  }
  // t of N5, a lane's, to `partial`, 16 floats.
  __device__ void StorePartial(const LayerThread& me, float* partial, float scale, float u) const {
    if (me.lane % 4 < 2) partial[me.lane / 4 + 8 * (me.lane % 4)] = __fmaf_rn(scale, u, 0.0F);
  }
  template <int kCount>
  __device__ static float Ascending(const float* partial) {
    float y = 0.0F;
#pragma unroll
    for (int i = 0; i < kCount; ++i) y += partial[16 * i];
    return y;
  }

  // Parts that more than one phase runs are not inlined: the code of a layer is more than a
  // multiprocessor keeps, and what was run a while ago waits for its instructions.

  // A group's codes from lane l's values 8l .. 8l+7, to `own`; returns the scale.
  __device__ static __noinline__ float StoreCodes(std::byte* own, float4 low, float4 high) {
    const float v[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const LaneCodes codes = QuantiseLane<256>(v);
    OwnCodes::Store(own, codes.words, codes.sum);
    return codes.scale;
  }

  __device__ static void TeamBarrier(const LayerThread& me) { MeetTeam<S::kInGroups>(me.team); }

  // A group's codes from lane l's values 8l .. 8l+7, to `own` and to all copies of `words`, which
  // are `stride` apart; returns the scale.
  __device__ float PutCodes(const LayerThread& me, std::byte* own, float4 low, float4 high,
                            Word* words, int stride) const {
    const float scale = StoreCodes(own, low, high);
    const uint2 codes = reinterpret_cast<const uint2*>(own)[me.lane];
#pragma unroll
    for (int copy = 0; copy < W::kCodeCopies; ++copy) {
      PutQuad(words + copy * stride + 2 * me.lane, {codes.x, codes.y, __float_as_uint(scale)},
              tag_);
    }
    return scale;
  }
  // Waits for a group's 256 values (value i at PlaceInGroup(i)) and makes codes of them.
  __device__ float CodeWords(const LayerThread& me, std::byte* own, const Word* words) const {
    std::uint32_t bits[8];
    GetPairs<4>(words + 2 * me.lane, 64, tag_, bits);
    const auto at = [&](int i) { return __uint_as_float(bits[i]); };
    return StoreCodes(own, {at(0), at(1), at(2), at(3)}, {at(4), at(5), at(6), at(7)});
  }
  // Lane l's values 8l .. 8l+7 as four pairs, those of all lanes side by side.
  __device__ static int PlaceInGroup(int i) { return (i % 8 / 2 * 32 + i / 8) * 2 + i % 2; }
  // Waits for such codes; stores them to `own` and returns the scale.
  __device__ float GetCodes(const LayerThread& me, std::byte* own, const Word* words) const {
    std::uint32_t bits[3];
    GetQuad(words + 2 * me.lane, tag_, bits);
    const std::uint32_t codes[2] = {bits[0], bits[1]};
    OwnCodes::Store(own, codes, SumOfCodes(codes));
    return __uint_as_float(bits[2]);
  }

  __device__ static std::byte* GroupCodes(const LayerThread& me) {
    return layer_shared + L::kGroups + me.group * OwnCodes::kBytes;
  }

  // All threads: the row, from `words`, normed, as codes of its groups. With `logits` also the
  // block's row of the router, whose weights are there; its copies begin at `logits`.
  __device__ static __noinline__ void MakeRow(const Word* words, std::uint32_t tag,
                                              const float* norm, float eps, Word* logits,
                                              std::uint32_t router_phase) {
    const LayerThread me;
    float* values = Floats(L::kValues);
    const int first = 256 * me.group + 8 * me.lane;
    float4 low = {};
    float4 high = {};
    if (me.team == 0) {
      low = __ldg(reinterpret_cast<const float4*>(norm + first));
      high = __ldg(reinterpret_cast<const float4*>(norm + first) + 1);
    }
    // Polls of the row of a layer's beginning take from what brings it: not before the block's own
    // part has left.
    if (logits == nullptr) __syncthreads();
    {
      std::uint32_t bits[3];
      GetQuad(words + 2 * me.thread, tag, bits);
      const int quad = me.thread % W::kRowQuads;
      float* to = values + me.thread / W::kRowQuads * 16 + 3 * quad;
      to[0] = __uint_as_float(bits[0]);
      if (quad + 1 < W::kRowQuads) {
        to[1] = __uint_as_float(bits[1]);
        to[2] = __uint_as_float(bits[2]);
      }
    }
    __syncthreads();
    if (me.warp == 0) {
      const float factor = NormFactorOf<S::kWidth>(values, eps);
      if (me.lane == 0) Small().factor = factor;
    }
    // For what the block adds to it later.
    if (me.thread >= S::kThreads - 32 && me.lane < 16 && me.IsWorker()) {
      Small().residual[me.lane] = values[16 * me.block + me.lane];
    }
    __syncthreads();
    float* normed = Floats(L::kFirst);
    if (me.team == 0) {
      const float factor = Small().factor;
      const float4 x = *reinterpret_cast<const float4*>(values + first);
      const float4 y = *reinterpret_cast<const float4*>(values + first + 4);
      low = {x.x * factor * low.x, x.y * factor * low.y, x.z * factor * low.z,
             x.w * factor * low.w};
      high = {y.x * factor * high.x, y.y * factor * high.y, y.z * factor * high.z,
              y.w * factor * high.w};
    }
    if (logits != nullptr) {
      if (me.team == 0) {
        *reinterpret_cast<float4*>(normed + first) = low;
        *reinterpret_cast<float4*>(normed + first + 4) = high;
        OrderBeforeBulk();
      }
      __syncthreads();
      if (me.warp == kRouterWarp) {
        WaitPhase(Barrier(L::kRouterBarrier), router_phase);
        const float* row = Floats(L::kRouter);
        const float sum = LaneTree(LaneDot<S::kWidth>(row, normed));
        if (me.lane < W::kLogitCopies) {
          PutWord(logits + me.lane * W::kLogitWords + me.block, sum, tag);
        }
      }
    }
    if (me.team == 0) {
      const float scale = StoreCodes(GroupCodes(me), low, high);
      if (me.lane == 0) Small().scales[me.group] = scale;
    }
    __syncthreads();
  }

  __device__ void Project() {
    const LayerThread me;
    const LayerWeights& w = Layer();
    AskForWindow(me);
    if (me.thread == S::kThreads - 1) AskForNorms(me, layer_ + 1);
    MakeRow(Pass().words + W::kX, tag_ - 1, w.attention_norm, w.attention_eps, nullptr, 0);
    float* partial = Floats(L::kPartial);
    const int tile = QkvTile(me, me.team);
    if (tile < S::kQkvTiles) {
      const int bytes = TileBytes(w, MatrixOf(tile));
      WaitFor(L::kProjectBarrier + me.team);
      const float u =
          TileValue(First(me.team) + me.group * bytes, GroupCodes(me), bytes == kTileQ6K);
      StorePartial(me, partial + 16 * me.warp, Small().scales[me.group], u);
    }
    __syncthreads();
    if (me.thread == S::kThreads - 1) FetchAhead(me, layer_ + 1);
    if (me.thread < 16 * S::kTeams) {
      const int team = me.thread / 16;
      const int row = me.thread % 16;
      if (QkvTile(me, team) < S::kQkvTiles) {
        const float y = Ascending<S::kInGroups>(partial + 16 * S::kInGroups * team + row);
        PutWord(Pass().words + W::kQkv + 16 * QkvTile(me, team) + row, y, tag_);
      }
    }
  }

  // one_row_attention.cuh
  __device__ void AskForWindow(const LayerThread& me) const;
  __device__ void Attend();
  template <int kHeads>
  __device__ void AttendUnits();
  template <int kHeads>
  __device__ void AttendUnit(int unit);
  template <int kHeads>
  __device__ void CopyWindow(int unit) const;
  template <int kHeads>
  __device__ void MakeHeads(int unit) const;
  template <int kHeads>
  __device__ void Score(int unit) const;
  template <int kHeads>
  __device__ void Softmax(int unit) const;
  template <int kHeads>
  __device__ void AddValues(int unit) const;
  __device__ void MergeSlice() const;
  __device__ void PutGroup(int group) const;

  __device__ void Output() {
    const LayerThread me;
    const LayerWeights& w = Layer();
    float* partial = Floats(L::kDownPartial);
    if (me.warp < S::kHeadGroups) {
      const int copy = me.block % W::kCodeCopies;
      const Word* words = Pass().words + W::kCodes + copy * W::kCodeWords + me.warp * W::kCodeGroup;
      std::byte* own = layer_shared + L::kCodes + me.warp * OwnCodes::kBytes;
      const float scale =
          Small().windows == 1
              ? GetCodes(me, own, words)
              : CodeWords(me, own,
                          Pass().words + W::kMerged + copy * W::kMergedWords + 256 * me.warp);
      __syncwarp();
      const int bytes = TileBytes(w, kOutputBit);
      WaitFor(L::kOutputBarrier);
      const float u = TileValue(Second(0) + me.warp * bytes, own, bytes == kTileQ6K);
      StorePartial(me, partial + 16 * me.warp, scale, u);
    }
    __syncthreads();
    if (me.warp == 0) {
      const int row = me.lane % 16;
      const float y = Small().residual[row] + Ascending<S::kHeadGroups>(partial + row);
      PutRow(me, Pass().words + W::kX2, y, tag_);
    }
  }

  __device__ void Route() {
    const LayerWeights& w = Layer();
    MakeRow(Pass().words + W::kX2, tag_, w.ffn_norm, w.ffn_eps, Pass().words + W::kLogits,
            static_cast<std::uint32_t>(layer_) & 1U);
    const LayerThread me;
    if (me.warp > 1) return;
    const Word* words =
        Pass().words + W::kLogits + me.block % W::kLogitCopies * W::kLogitWords + me.lane;
    std::uint32_t bits[4];
    GetWords<4>(words, 32, tag_, bits);
    if (me.warp == 0) {
      // Probabilities almost always order as their logits do, which are there long before.
      const int my_pick = me.lane < S::kTeams ? UnitOf(me, me.lane) / S::kFfTiles : -1;
      GuessPicks(bits, [&](int pick, std::int32_t id) {
        if (pick != my_pick) return;
        AskForGateUp(me, me.lane, id);
        Small().asked[me.lane] = id;
      });
      if (me.lane < S::kTeams) ArriveAtBarrier(Barrier(L::kIdsBarrier));
      return;
    }
    float p[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) p[j] = __uint_as_float(bits[j]);
    const Routed routed =
        RouteUpTo(p, S::kExperts, S::kPicks - 1, [](int /*pick*/, std::int32_t /*id*/) {});
    if (me.lane < S::kPicks) {
      Small().ids[me.lane] = routed.my_id;
      ArriveAtBarrier(Barrier(L::kIdsBarrier));
    }
    const float weight = routed.Weight(Pass().renormalise, Pass().weight_scale);
    if (me.lane < S::kPicks) Small().weights[me.lane] = weight;
    if (me.block != 0) return;
    if (me.lane < S::kPicks && Pass().picks != nullptr) {
      atomicAdd(Pass().picks + layer_ * S::kExperts + routed.my_id, 1U);
    }
    if (me.lane == 0 && !routed.finite) atomicMin(Pass().failed_row, 0);
  }

  // Where a team's expert is not the one that was asked for: the right one, by its threads.
  __device__ __noinline__ void ReplaceGateUp(std::int32_t expert) const {
    const LayerThread me;
    constexpr int kQuads = S::kInGroups * kTileQ4K / 16;
    const LayerWeights& w = Layer();
    const std::size_t at = GateUpAt(me, me.team, expert);
    TeamBarrier(me);  // the other has come, for all
    for (int i = me.thread % (32 * S::kInGroups); i < 2 * kQuads; i += 32 * S::kInGroups) {
      const std::byte* from = i < kQuads ? w.gate + at : w.up + at;
      reinterpret_cast<uint4*>(First(me.team))[i] =
          __ldcg(reinterpret_cast<const uint4*>(from) + i % kQuads);
    }
    OrderBeforeBulk();
    TeamBarrier(me);
  }

  __device__ void GateUp() {
    const LayerThread me;
    const int unit = UnitOf(me, me.team);
    float* partial = Floats(L::kPartial) + me.team * 2 * S::kInGroups * 16;
    WaitFor(L::kGateUpBarrier + me.team);
    WaitFor(L::kIdsBarrier);
    const std::int32_t expert = Small().ids[unit / S::kFfTiles];
    if (expert != Small().asked[me.team]) ReplaceGateUp(expert);
    // Down is asked for when most of gate and up are there: h needs those first.
    if (me.warp == kDownWarp && me.lane < kDownAhead) {
      AskForDown(me, me.lane, Small().ids[me.lane]);
    }
    __syncwarp();
    const float scale = Small().scales[me.group];
    const std::byte* codes = GroupCodes(me);
    float u[2];
    OneRowValuesQ4K<2>(First(me.team) + me.group * kTileQ4K, S::kInGroups * kTileQ4K, codes,
                       codes + OwnCodes::kHigh, codes + OwnCodes::kLow, u);
#pragma unroll
    for (int matrix = 0; matrix < 2; ++matrix) {
      StorePartial(me, partial + 16 * (matrix * S::kInGroups + me.group), scale, u[matrix]);
    }
    TeamBarrier(me);
    if (me.group == 0 && me.lane < 16) {
      const float gate = Ascending<S::kInGroups>(partial + me.lane);
      const float up = Ascending<S::kInGroups>(partial + 16 * S::kInGroups + me.lane);
      const int value = unit % S::kFfTiles * 16 + me.lane;
      PutWord(Pass().words + W::kH + unit / S::kFfTiles * S::kFf + value / 256 * 256 +
                  PlaceInGroup(value % 256),
              ExactSilu(gate) * up, tag_);
    }
    if (me.group == 1 && me.lane == 0) AskForProjection(me, me.team, layer_ + 1);
  }

  // A stretch of 256 values of h (a pick's, group after group) as codes, for all blocks: for each
  // to read all of h would take longer. By a warp of a block that has no tiles of experts where
  // there are such, else by that of the stretch in as many blocks. To the warp's own codes, too;
  // returns the scale.
  __device__ float CodeH(const LayerThread& me, int stretch) const {
    std::uint32_t bits[8];
    GetPairs<4>(Pass().words + W::kH + 256 * stretch + 2 * me.lane, 64, tag_, bits);
    const auto at = [&](int i) { return __uint_as_float(bits[i]); };
    return PutCodes(me, layer_shared + L::kCodes + me.warp * OwnCodes::kBytes,
                    {at(0), at(1), at(2), at(3)}, {at(4), at(5), at(6), at(7)},
                    Pass().words + W::kHCodes + stretch * W::kCodeGroup, W::kHCodeWords);
  }

  __device__ void Down() {
    const LayerThread me;
    const LayerWeights& w = Layer();
    const int pick = me.warp / S::kFfGroups;
    const int group = me.warp % S::kFfGroups;
    std::byte* own = layer_shared + L::kCodes + me.warp * OwnCodes::kBytes;
    float scale;
    if (Blocks() == S::kWorkers && me.warp == me.block) {
      scale = CodeH(me, me.warp);
      WaitFor(L::kDownBarrier + pick);
    } else {
      // Polled for when down is there: polls before take from the bandwidth of what comes.
      WaitFor(L::kDownBarrier + pick);
      if (pick + kDownAhead < S::kPicks && me.lane == 0 && group == (me.block % 3 == 2 ? 1 : 2)) {
        AskForDown(me, pick + kDownAhead, Small().ids[pick + kDownAhead]);
      }
      scale = GetCodes(me, own,
                       Pass().words + W::kHCodes + me.block % W::kCodeCopies * W::kHCodeWords +
                           me.warp * W::kCodeGroup);
    }
    __syncwarp();
    const int bytes = TileBytes(w, kDownBit);
    const float u = TileValue(Second(pick) + group * bytes, own, bytes == kTileQ6K);
    float* partial = Floats(L::kDownPartial);
    StorePartial(me, partial + L::kPickStride * pick + 16 * group, scale, u);
    __syncthreads();
    if (me.warp != 0) {
      if (me.thread == S::kThreads - 1) AskForOutput(me, layer_ + 1);
      return;
    }
    // Lanes l and l + 16 have row l, four picks each.
    const int row = me.lane % 16;
    const int first = me.lane / 16 * (S::kPicks / 2);
    float values[S::kPicks / 2];
#pragma unroll
    for (int i = 0; i < S::kPicks / 2; ++i) {
      values[i] = Small().weights[first + i] *
                  Ascending<S::kFfGroups>(partial + L::kPickStride * (first + i) + row);
    }
    const float x = Small().residual[row] + SumOfPicks(values, Pass().failed_row);
    if (layer_ + 1 < Pass().count) {
      PutRow(me, Pass().words + W::kX, x, tag_);
    } else if (me.lane < 16) {
      Pass().out[16 * me.block + row] = x;
    }
  }

  const LayersParams& p_;
  int layer_ = 0;
  std::uint32_t tag_ = 0;  // of the layer
};

}  // namespace bloomery::kernels::cuda
