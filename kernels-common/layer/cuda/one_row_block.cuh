// Inside CUDA sources: the kernel of one_row_layers.h, but for its attention
// (one_row_attention.cuh). A block has 24 warps; a warp has one tile of one group in each phase:
//
//   Project   x -> norm, codes -> a tile of QKV for each 8 warps
//   Attend    a window of keys for some heads of one kv head; merge; codes of two heads
//   Output    codes -> a tile of the output projection by 16 warps, residual
//   Route     x2 -> norm, codes; a row of the router; selection by each block for itself
//   GateUp    a tile of gate and up for each 8 warps -> h
//   Down      h -> a tile of down: 8 picks x 3 groups
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

class OneRowBlock {
 public:
  __device__ OneRowBlock(const LayersParams& params, std::byte* shared)
      : p_(params),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32),
        block_(static_cast<int>(blockIdx.x)),
        blocks_(static_cast<int>(gridDim.x)),
        group_(warp_ % S::kInGroups),
        team_(warp_ / S::kInGroups),
        worker_(block_ < S::kWorkers) {}

  __device__ void Run() {
    WaitForInputs();
    index_ = *p_.index;
    if (*p_.live <= 0 || index_ < 0) return;  // in all blocks alike
    Begin();
#pragma unroll 1
    for (layer_ = 0; layer_ < p_.count; ++layer_) {
      ++tag_;
      w_ = Layer(layer_);
      Project();
      Attend();
      if (worker_) {
        Output();
        Route();
        GateUp();
        Down();
      } else {
        __syncthreads();
        if (lane_ == 0) AskForProjection(layer_ + 1);
      }
    }
    End();
  }

 private:
  using S = LayerShape;
  using L = LayerRoom;
  using W = LayerWords;
  static constexpr int kRouterWarp = S::kInGroups;  // has no codes to make

  // ---- Places.

  __device__ const LayerWeights* Layer(int layer) const {
    return reinterpret_cast<const LayerWeights*>(shared_ + L::kLayers) + layer;
  }
  __device__ float* Floats(int at) const { return reinterpret_cast<float*>(shared_ + at); }
  __device__ LayerSmall& Small() const {
    return *reinterpret_cast<LayerSmall*>(shared_ + L::kSmall);
  }
  __device__ std::byte* First(int warp) const {
    return shared_ + L::kFirst + warp * L::kFirstStride;
  }
  __device__ std::byte* Second(int warp) const {
    return shared_ + L::kSecond + warp * L::kSecondStride;
  }
  __device__ std::uint64_t* Barriers() const {
    return reinterpret_cast<std::uint64_t*>(shared_ + L::kBarriers);
  }
  __device__ std::uint64_t* FirstBarrier(int warp) const { return Barriers() + warp; }
  __device__ std::uint64_t* SecondBarrier(int warp) const { return Barriers() + S::kWarps + warp; }
  __device__ std::uint64_t* RouterBarrier() const { return Barriers() + 2 * S::kWarps; }

  // A place takes two copies a layer where it has both uses, else one.
  __device__ std::uint32_t Parity(bool both, std::uint32_t use) const {
    return both ? use : static_cast<std::uint32_t>(layer_) & 1U;
  }

  // ---- Asking for weights; one lane.

  __device__ int QkvTile(int team) const { return block_ + team * blocks_; }

  __device__ static int MatrixOf(int tile) {
    return (tile >= S::kQueryTiles ? 1 : 0) + (tile >= S::kQueryTiles + S::kKeyTiles ? 1 : 0);
  }

  __device__ void AskForProjection(int layer) const {
    const int tile = QkvTile(team_);
    if (layer >= p_.count || tile >= S::kQkvTiles) return;
    const LayerWeights& w = *Layer(layer);
    const int matrix = MatrixOf(tile);
    const int first = matrix == 0   ? 0
                      : matrix == 1 ? S::kQueryTiles
                                    : S::kQueryTiles + S::kKeyTiles;
    const int bytes = ((w.q6k >> matrix) & 1U) != 0 ? kTileQ6K : kTileQ4K;
    const std::byte* from = w.qkv[matrix] + ((tile - first) * S::kInGroups + group_) * bytes;
    ExpectBytes(FirstBarrier(warp_), bytes);
    CopyBulk(First(warp_), from, bytes, FirstBarrier(warp_));
  }

  __device__ void AskForOutput(int layer) const {
    if (layer >= p_.count) return;
    const LayerWeights& w = *Layer(layer);
    if (warp_ < S::kHeadGroups) {
      const int bytes = ((w.q6k >> kOutputBit) & 1U) != 0 ? kTileQ6K : kTileQ4K;
      ExpectBytes(SecondBarrier(warp_), bytes);
      CopyBulk(Second(warp_), w.output + (block_ * S::kHeadGroups + warp_) * bytes, bytes,
               SecondBarrier(warp_));
    }
    if (warp_ == kRouterWarp) {
      constexpr int kBytes = 4 * S::kWidth;
      ExpectBytes(RouterBarrier(), kBytes);
      CopyBulk(shared_ + L::kRouter, reinterpret_cast<const std::byte*>(w.router) + block_ * kBytes,
               kBytes, RouterBarrier());
    }
  }

  // Pick and tile of gate and up that a team has.
  __device__ int UnitOf(int team) const { return block_ + team * S::kWorkers; }

  __device__ void AskForGateUp(int warp, std::int32_t expert) const {
    const int tile = UnitOf(warp / S::kInGroups) % S::kFfTiles;
    const std::size_t at = static_cast<std::size_t>(expert) * w_->expert_bytes +
                           (tile * S::kInGroups + warp % S::kInGroups) * kTileQ4K;
    ExpectBytes(FirstBarrier(warp), 2 * kTileQ4K);
    CopyBulk(First(warp), w_->gate + at, kTileQ4K, FirstBarrier(warp));
    CopyBulk(First(warp) + kTileQ4K, w_->up + at, kTileQ4K, FirstBarrier(warp));
  }

  __device__ void AskForDown(int warp, std::int32_t expert) const {
    const int bytes = ((w_->q6k >> kDownBit) & 1U) != 0 ? kTileQ6K : kTileQ4K;
    const std::byte* from = w_->down + static_cast<std::size_t>(expert) * w_->down_bytes +
                            (block_ * S::kFfGroups + warp % S::kFfGroups) * bytes;
    ExpectBytes(SecondBarrier(warp), bytes);
    CopyBulk(Second(warp), from, bytes, SecondBarrier(warp));
  }

  // The next layer's small weights, a line a block, to L2.
  __device__ void AskForNorms(int layer) const {
    if (layer >= p_.count) return;
    const LayerWeights& w = *Layer(layer);
    constexpr int kLines = S::kWidth / 32;
    const float* line = block_ < kLines       ? w.attention_norm + 32 * block_
                        : block_ < 2 * kLines ? w.ffn_norm + 32 * (block_ - kLines)
                                              : w.q_norm + 32 * (block_ % 4);
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
    if (block_ < 4) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(w.k_norm + 32 * block_));
    }
  }

  // ---- The whole pass.

  __device__ void Begin() {
    const auto* from = reinterpret_cast<const uint4*>(p_.layers);
    auto* to = reinterpret_cast<uint4*>(shared_ + L::kLayers);
    const int quads = p_.count * static_cast<int>(sizeof(LayerWeights) / sizeof(uint4));
    for (int i = thread_; i < quads; i += S::kThreads) to[i] = from[i];
    if (thread_ < 2 * S::kWarps + 1) InitBarrier(Barriers() + thread_, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if (thread_ < S::kHeadDim / 2) {
      reinterpret_cast<float2*>(shared_ + L::kTurns)[thread_] =
          RopeTurn(*p_.position, p_.frequencies[thread_], p_.magnitude);
    }
    tag_ = *p_.epoch;
    BeginAttention();
    OrderBeforeBulk();
    __syncthreads();
    if (lane_ == 0) {
      AskForProjection(0);
      if (worker_) AskForOutput(0);
    }
  }

  __device__ void BeginAttention();

  // Every block has read the epoch: none can be here before all took part in the first layer.
  // Before tags begin anew, words that not every pass writes are cleared: those of windows.
  __device__ void End() {
    if (!worker_) return;
    const bool last = tag_ > 0xFFFFFFFFU - 2 * static_cast<std::uint32_t>(kOneRowLayersMax);
    if (last) {
      Word* words = p_.words + W::kSums;
      const std::size_t count = W::OfWindows(static_cast<std::size_t>(p_.windows_most));
      for (std::size_t i = static_cast<std::size_t>(block_) * S::kThreads + thread_; i < count;
           i += static_cast<std::size_t>(S::kWorkers) * S::kThreads) {
        words[i] = 0;
      }
    }
    if (block_ == 0 && thread_ == 0) *p_.epoch = last ? 0 : tag_;
  }

  // ---- Phases.

  // u of N4 of a tile and a group's codes, for row lane/4 + 8*(lane % 2). Not inlined: five uses.
  __device__ static __noinline__ float TileValue(const std::byte* tile, const std::byte* codes,
                                                 bool q6k) {
    const std::byte* high = codes + OwnCodes::kHigh;
    const std::byte* low = codes + OwnCodes::kLow;
    return q6k ? OneRowValue<kQ6K>(tile, codes, high, low)
               : OneRowValue<kQ4K>(tile, codes, high, low);
  }
  // t of N5, a lane's, to `partial`, 16 floats.
  __device__ void StorePartial(float* partial, float scale, float u) const {
    if (lane_ % 4 < 2) partial[lane_ / 4 + 8 * (lane_ % 4)] = __fmaf_rn(scale, u, 0.0F);
  }
  template <int kCount>
  __device__ static float Ascending(const float* partial) {
    float y = 0.0F;
#pragma unroll
    for (int i = 0; i < kCount; ++i) y += partial[16 * i];
    return y;
  }

  // The row to shared memory; all threads, without a barrier.
  __device__ void GetRow(int words, std::uint32_t tag) const {
#pragma unroll
    for (int first = 0; first < S::kWidth / 2; first += S::kThreads) {
      const int pair = first + thread_;
      if (pair >= S::kWidth / 2) break;
      std::uint32_t bits[2];
      GetPairs<1>(p_.words + words + 2 * pair, 0, tag, bits);
      reinterpret_cast<uint2*>(shared_ + L::kValues)[pair] = make_uint2(bits[0], bits[1]);
    }
  }

  __device__ void LoadNorm(const float* weights, float (&w)[8]) const {
    const auto* at = reinterpret_cast<const float4*>(weights + 256 * group_ + 8 * lane_);
    *reinterpret_cast<float4*>(w) = __ldg(at);
    *reinterpret_cast<float4*>(w + 4) = __ldg(at + 1);
  }

  // By warp 0, from the row in shared memory.
  __device__ void MakeFactor(float eps) const {
    if (warp_ != 0) return;
    const float factor = NormFactorOf<S::kWidth>(Floats(L::kValues), eps);
    if (lane_ == 0) Small().factor = factor;
  }

  // By the first 8 warps: a group of the normed row, v, and its codes.
  __device__ void NormGroup(const float (&weights)[8], float (&v)[8]) const {
    const float factor = Small().factor;
    const auto* at = reinterpret_cast<const float4*>(Floats(L::kValues) + 256 * group_ + 8 * lane_);
    *reinterpret_cast<float4*>(v) = at[0];
    *reinterpret_cast<float4*>(v + 4) = at[1];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = v[i] * factor * weights[i];
  }
  __device__ std::byte* GroupCodes() const {
    return shared_ + L::kGroups + group_ * OwnCodes::kBytes;
  }
  __device__ void StoreGroup(const float (&v)[8]) const {
    const LaneCodes codes = QuantiseLane<256>(v);
    OwnCodes::Store(GroupCodes(), codes.words, codes.sum);
    if (lane_ == 0) Small().scales[group_] = codes.scale;
  }

  __device__ void Project() {
    float norm[8];
    if (team_ == 0) LoadNorm(w_->attention_norm, norm);
    AskForWindow();
    if (layer_ == 0) {
      if (thread_ < S::kWidth / 4) {
        reinterpret_cast<float4*>(Floats(L::kValues))[thread_] =
            __ldcg(reinterpret_cast<const float4*>(p_.x) + thread_);
      }
    } else {
      GetRow(W::kX, tag_ - 1);
    }
    __syncthreads();
    MakeFactor(w_->attention_eps);
    if (thread_ < 16 && worker_) residual_ = Floats(L::kValues)[16 * block_ + thread_];
    if (thread_ == S::kThreads - 1) AskForNorms(layer_ + 1);
    __syncthreads();
    if (team_ == 0) {
      float v[8];
      NormGroup(norm, v);
      StoreGroup(v);
    }
    __syncthreads();
    float* partial = Floats(L::kPartial);
    const int tile = QkvTile(team_);
    if (tile < S::kQkvTiles) {
      const bool q6k = ((w_->q6k >> MatrixOf(tile)) & 1U) != 0;
      WaitPhase(FirstBarrier(warp_), Parity(worker_, 0));
      const float u = TileValue(First(warp_), GroupCodes(), q6k);
      StorePartial(partial + 16 * warp_, Small().scales[group_], u);
    }
    __syncthreads();
    if (thread_ < 16 * S::kTeams) {
      const int team = thread_ / 16;
      const int row = thread_ % 16;
      if (QkvTile(team) < S::kQkvTiles) {
        const float y = Ascending<S::kInGroups>(partial + 16 * S::kInGroups * team + row);
        PutWord(p_.words + W::kQkv + 16 * QkvTile(team) + row, y, tag_);
      }
    }
  }

  // one_row_attention.cuh
  __device__ void AskForWindow() const;
  __device__ void Attend();
  template <int kHeads>
  __device__ void AttendUnits();
  template <int kHeads>
  __device__ void AttendUnit(int unit);
  __device__ void CopyWindow(int begin, int old_keys, int kv_head) const;
  template <int kHeads>
  __device__ void MakeHeads(int kv_head, int first_head, int key, bool write) const;
  template <int kHeads>
  __device__ void Score(int count) const;
  template <int kHeads>
  __device__ void Softmax(int window, int first_head, int count) const;
  template <int kHeads>
  __device__ void AddValues(int window, int first_head, int count) const;
  __device__ void MergeGroup(int group) const;
  __device__ void PutGroup(int group) const;

  __device__ void Output() {
    if (team_ == 0) LoadNorm(w_->ffn_norm, norm_);
    float* partial = Floats(L::kDownPartial);
    if (warp_ < S::kHeadGroups) {
      const Word* words =
          p_.words + W::kCodes + (block_ % W::kCodeCopies) * W::kCodeWords + warp_ * W::kCodeGroup;
      std::uint32_t codes[2];
      std::uint32_t scale[1];
      GetPairs<1>(words + 2 * lane_, 0, tag_, codes);
      GetWords<1>(words + 64, 0, tag_, scale);
      std::byte* own = shared_ + L::kCodes + warp_ * OwnCodes::kBytes;
      OwnCodes::Store(own, codes, SumOfCodes(codes));
      __syncwarp();
      WaitPhase(SecondBarrier(warp_), 0);
      const float u = TileValue(Second(warp_), own, ((w_->q6k >> kOutputBit) & 1U) != 0);
      StorePartial(partial + 16 * warp_, __uint_as_float(scale[0]), u);
    }
    __syncthreads();
    if (thread_ < 16) {
      const float y = residual_ + Ascending<S::kHeadGroups>(partial + thread_);
      PutWord(p_.words + W::kX2 + 16 * block_ + thread_, y, tag_);
    }
  }

  __device__ void Route() {
    GetRow(W::kX2, tag_);
    __syncthreads();
    MakeFactor(w_->ffn_eps);
    if (thread_ < 16 * S::kPicks) {
      residual_ = Floats(L::kValues)[16 * block_ + thread_ / S::kPicks];
    }
    __syncthreads();
    float* normed = Floats(L::kFirst);
    float v[8];
    if (team_ == 0) {
      NormGroup(norm_, v);
      auto* at = reinterpret_cast<float4*>(normed + 256 * group_ + 8 * lane_);
      at[0] = *reinterpret_cast<const float4*>(v);
      at[1] = *reinterpret_cast<const float4*>(v + 4);
      OrderBeforeBulk();
    }
    __syncthreads();
    if (warp_ == kRouterWarp) {
      WaitPhase(RouterBarrier(), static_cast<std::uint32_t>(layer_) & 1U);
      const float* row = Floats(L::kRouter);
      float sum = 0.0F;
#pragma unroll 16
      for (int i = 0; i < S::kWidth / 32; ++i) {
        sum = __fmaf_rn(row[32 * i + lane_], normed[32 * i + lane_], sum);
      }
      sum = LaneTree(sum);
      if (lane_ < W::kLogitCopies) {
        PutWord(p_.words + W::kLogits + lane_ * W::kLogitWords + block_, sum, tag_);
      }
    }
    if (team_ == 0) StoreGroup(v);
    __syncthreads();
    if (warp_ == 0) Select();
  }

  // Lanes below 24 have a warp each, and ask for what it needs.
  __device__ void Select() const {
    const Word* words = p_.words + W::kLogits + (block_ % W::kLogitCopies) * W::kLogitWords + lane_;
    std::uint32_t bits[4];
    GetWords<4>(words, 32, tag_, bits);
    float logits[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) logits[j] = __uint_as_float(bits[j]);
    OrderBeforeBulk();
    const int team = lane_ / S::kInGroups;
    const int my_pick = lane_ < S::kWarps ? UnitOf(team) / S::kFfTiles : -1;
    const Routed routed =
        RouteUpTo(logits, S::kExperts, S::kPicks - 1, [&](int pick, std::int32_t id) {
          if (pick == my_pick) AskForGateUp(lane_, id);
        });
    const std::int32_t of_down =
        __shfl_sync(kAllLanes, routed.my_id, min(lane_ / S::kFfGroups, S::kPicks - 1));
    if (lane_ < S::kWarps) AskForDown(lane_, of_down);
    const float weight = routed.Weight(p_.renormalise, p_.weight_scale);
    if (lane_ < S::kPicks) Small().weights[lane_] = weight;
    if (block_ == 0 && lane_ == 0 && !routed.finite) atomicMin(p_.failed_row, 0);
  }

  __device__ void GateUp() {
    const int unit = UnitOf(team_);
    float* partial = Floats(L::kPartial) + team_ * 2 * S::kInGroups * 16;
    WaitPhase(FirstBarrier(warp_), Parity(QkvTile(team_) < S::kQkvTiles, 1));
    const float scale = Small().scales[group_];
#pragma unroll 1
    for (int matrix = 0; matrix < 2; ++matrix) {
      const float u = TileValue(First(warp_) + matrix * kTileQ4K, GroupCodes(), false);
      StorePartial(partial + 16 * (matrix * S::kInGroups + group_), scale, u);
    }
    asm volatile("bar.sync %0, %1;" ::"r"(1 + team_), "n"(32 * S::kInGroups) : "memory");
    if (lane_ == 0) AskForProjection(layer_ + 1);
    if (group_ == 0 && lane_ < 16) {
      const float gate = Ascending<S::kInGroups>(partial + lane_);
      const float up = Ascending<S::kInGroups>(partial + 16 * S::kInGroups + lane_);
      const int value = unit % S::kFfTiles * 16 + lane_;
      const int in_group = value % 256;
      const int place = (in_group % 8 / 2 * 32 + in_group / 8) * 2 + in_group % 2;
      PutWord(p_.words + W::kH + unit / S::kFfTiles * S::kFf + value / 256 * 256 + place,
              ExactSilu(gate) * up, tag_);
    }
  }

  __device__ void Down() {
    const int pick = warp_ / S::kFfGroups;
    const int group = warp_ % S::kFfGroups;
    std::uint32_t bits[8];
    WaitPhase(SecondBarrier(warp_), Parity(warp_ < S::kHeadGroups, 1));
    GetPairs<4>(p_.words + W::kH + pick * S::kFf + 256 * group + 2 * lane_, 64, tag_, bits);
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = __uint_as_float(bits[i]);
    const LaneCodes codes = QuantiseLane<256>(v);
    std::byte* own = shared_ + L::kCodes + warp_ * OwnCodes::kBytes;
    OwnCodes::Store(own, codes.words, codes.sum);
    __syncwarp();
    const float u = TileValue(Second(warp_), own, ((w_->q6k >> kDownBit) & 1U) != 0);
    float* partial = Floats(L::kDownPartial);
    StorePartial(partial + L::kPickStride * pick + 16 * group, codes.scale, u);
    __syncthreads();
    if (lane_ == 0) AskForOutput(layer_ + 1);
    if (thread_ >= 16 * S::kPicks) return;
    const int of_pick = thread_ % S::kPicks;
    const int row = thread_ / S::kPicks;
    const float y = Ascending<S::kFfGroups>(partial + L::kPickStride * of_pick + row);
    const float moe = SumOfPicks(Small().weights[of_pick] * y, p_.failed_row);
    if (of_pick != 0) return;
    const float x = residual_ + moe;
    const int output = 16 * block_ + row;
    if (layer_ + 1 < p_.count) {
      PutWord(p_.words + W::kX + output, x, tag_);
    } else {
      p_.out[output] = x;
    }
  }

  const LayersParams& p_;
  std::byte* shared_;
  const int thread_, lane_, warp_, block_, blocks_;
  const int group_, team_;  // in phases of 8 warps a tile
  const bool worker_;
  int layer_ = 0;
  std::uint32_t tag_ = 0;  // of the layer
  const LayerWeights* w_ = nullptr;
  float residual_ = 0.0F;
  float norm_[8];
  // Attention: of the row, the same in every layer.
  int index_ = 0;
  int windows_ = 0;
  int heads_ = 0;  // of a unit
  int units_ = 0;
  int unit_ = 0;  // the block's first
  std::size_t slot_at_ = 0;
};

}  // namespace bloomery::kernels::cuda
