// Inside CUDA sources: attention in the kernel of one_row_layers.h, in the order of attention.h. A
// unit is one window of 128 keys for 2, 4 or 8 heads of a kv head, so many that units are about as
// many as blocks. What one window is all of is divided at once, and leaves as codes: two heads are
// a group of the output projection. Else windows go to the words, each worker merges 32 values of a
// head, and the output projection makes codes of them.
#pragma once

#include "kernels-common/layer/cuda/one_row_block.cuh"

namespace bloomery::kernels::cuda {

// By one thread.
__device__ inline void OneRowBlock::BeginAttention() const {
  LayerSmall& small = Small();
  small.index = *p_.pass.index;
  small.windows = small.index / kWindow + 1;
  small.heads = 2;
  while (small.heads < S::kRatio && small.windows * (S::kHeads / small.heads) > Blocks()) {
    small.heads *= 2;
  }
  const int chunks = S::kHeads / small.heads;
  small.units = small.windows * chunks;
  // Units begin at blocks that have no third tile of QKV; so do merges.
  small.first_unit = (static_cast<int>(blockIdx.x) + 2 * S::kHeadGroups) % Blocks();
  small.first_window = small.first_unit / chunks;
  small.first_kv_head = small.first_unit % chunks / (S::kRatio / small.heads);
  small.rounds = (max(small.units - small.first_unit, 0) + Blocks() - 1) / Blocks();
  small.slot_at = static_cast<std::size_t>(*p_.pass.slot) * p_.pass.slot_bytes;
}

// The block's first window to L2, while it waits for the row.
__device__ inline void OneRowBlock::AskForWindow(const LayerThread& me) const {
  const LayerSmall& small = Small();
  const LayerWeights& w = Layer();
  if (small.rounds == 0 || me.thread >= 4 * kWindow) return;
  const int key = small.first_window * kWindow + me.thread / 2 % kWindow;
  if (key >= small.index) return;
  const std::byte* plane = me.thread < 2 * kWindow ? w.keys : w.values;
  const std::byte* line = plane + small.slot_at + key * Pass().row_bytes +
                          small.first_kv_head * L::kValueStride + me.thread % 2 * 128;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

__device__ inline void OneRowBlock::Attend() {
  const LayerSmall& small = Small();
  switch (small.heads) {
    case 2:
      AttendUnits<2>();
      break;
    case 4:
      AttendUnits<4>();
      break;
    default:
      AttendUnits<8>();
      break;
  }
  const bool merges = small.windows > 1 && LayerThread().IsWorker();
  if (merges) MergeSlice();
  if (merges || small.first_unit < small.units) OrderBeforeBulk();
}

template <int kHeads>
__device__ void OneRowBlock::AttendUnits() {
  const LayerSmall& small = Small();
#pragma unroll 1
  for (int round = 0; round < small.rounds; ++round) {
    AttendUnit<kHeads>(small.first_unit + round * Blocks());
  }
}

// What a unit is; read anew in each step, as LayerThread.
template <int kHeads>
struct AttendedUnit {
  int window, first_head, kv_head, begin, count;
  __device__ __forceinline__ explicit AttendedUnit(int unit) {
    asm volatile("" : "+r"(unit));
    constexpr int kChunks = LayerShape::kHeads / kHeads;  // units of a window
    const auto number = static_cast<unsigned>(unit);
    window = static_cast<int>(number / kChunks);
    first_head = static_cast<int>(number % kChunks) * kHeads;
    kv_head = first_head / LayerShape::kRatio;
    begin = window * kWindow;
    count = min(kWindow, OneRowBlock::Small().index + 1 - begin);
  }
};

template <int kHeads>
__device__ void OneRowBlock::AttendUnit(int unit) {
  CopyWindow<kHeads>(unit);
  MakeHeads<kHeads>(unit);
  __syncthreads();
  Score<kHeads>(unit);
  __syncthreads();
  Softmax<kHeads>(unit);
  __syncthreads();
  AddValues<kHeads>(unit);
  __syncthreads();
  if (Small().windows == 1) PutGroup(AttendedUnit<kHeads>(unit).first_head / 2);
}

// Rows of planes that earlier passes wrote, by the warps that make no head.
template <int kHeads>
__device__ void OneRowBlock::CopyWindow(int unit) const {
  constexpr int kBusy = 32 * (kHeads + 2);
  const LayerThread me;
  if (me.thread < kBusy) return;
  const AttendedUnit<kHeads> u(unit);
  const LayerSmall& small = Small();
  const LayerWeights& w = Layer();
  constexpr int kParts = L::kValueStride / 16;
  const std::size_t at = small.slot_at + u.begin * Pass().row_bytes + u.kv_head * L::kValueStride;
  const int old_keys = min(kWindow, small.index - u.begin);
#pragma unroll 1
  for (int i = me.thread - kBusy; i < old_keys * kParts; i += S::kThreads - kBusy) {
    const int key = i / kParts;
    const int part = i % kParts * 16;
    CopyAsync<16>(layer_shared + L::kFirst + key * L::kKeyStride + part,
                  w.keys + at + key * Pass().row_bytes + part);
    CopyAsync<16>(layer_shared + L::kWindowValues + key * L::kValueStride + part,
                  w.values + at + key * Pass().row_bytes + part);
  }
  CommitCopies();
  WaitForCopies<0>();
}

// q of the unit's heads, and where the window has the row's own key, k and v: to the stage, and by
// the first unit of a kv head to the planes. A warp a head.
template <int kHeads>
__device__ void OneRowBlock::MakeHeads(int unit) const {
  const AttendedUnit<kHeads> u(unit);
  const LayerThread me;
  const LayerSmall& small = Small();
  const LayerWeights& w = Layer();
  const bool query = me.warp < kHeads;
  const bool value = me.warp == kHeads + 1;
  if (me.warp > kHeads + 1 || (!query && u.window != small.windows - 1)) return;
  constexpr int kParts = S::kHeadDim / 32;
  float weight[kParts];
  float2 turn[kParts / 2];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    weight[part] = __ldg((query ? w.q_norm : w.k_norm) + 32 * part + me.lane);
  }
#pragma unroll
  for (int part = 0; part < kParts / 2; ++part) {
    turn[part] = reinterpret_cast<const float2*>(layer_shared + L::kTurns)[32 * part + me.lane];
  }
  const int head = query   ? u.first_head + me.warp
                   : value ? S::kHeads + S::kKvHeads + u.kv_head
                           : S::kHeads + u.kv_head;
  std::uint32_t bits[kParts];
  GetWords<kParts>(Pass().words + W::kQkv + head * S::kHeadDim + me.lane, 32, tag_, bits);
  float x[kParts];
#pragma unroll
  for (int part = 0; part < kParts; ++part) x[part] = __uint_as_float(bits[part]);
  if (!value) {
    const float sum = WarpTree(SquaresOfParts(x));
    const float eps = query ? w.q_eps : w.k_eps;
    NormParts(x, ExactInverseSqrt(sum / static_cast<float>(S::kHeadDim) + eps), weight);
    TurnParts(x, turn);
  }
  if (query) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      Floats(L::kQuery)[me.warp * S::kHeadDim + 32 * part + me.lane] = x[part];
    }
    return;
  }
  const int key = small.index - u.begin;
  const bool write = u.first_head % S::kRatio == 0;
  std::byte* stage = value ? layer_shared + L::kWindowValues + key * L::kValueStride
                           : layer_shared + L::kFirst + key * L::kKeyStride;
  std::byte* plane = (value ? w.values : w.keys) + small.slot_at + small.index * Pass().row_bytes +
                     u.kv_head * L::kValueStride;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    constexpr int kBytes = PlaneBytes<KvType::kF16>(32);
    WarpEncodeLane<KvType::kF16>(x[part], stage + part * kBytes, me.lane);
    if (write) WarpEncodeLane<KvType::kF16>(x[part], plane + part * kBytes, me.lane);
  }
}

// A team of 16 threads has kSums sums at a time: all heads by kSums / kHeads keys
// (rows_attention.cuh).
template <int kHeads>
__device__ void OneRowBlock::Score(int unit) const {
  const int count = AttendedUnit<kHeads>(unit).count;
  const LayerThread me;
  // Of two heads half as many sums make twice as many warps work.
  constexpr int kSums = kHeads == 2 ? kTeam / 2 : kTeam;
  constexpr int kKeys = kSums / kHeads;
  constexpr int kSets = kWindow / kKeys;
  const int thread = me.lane % kTeam;
  const int own_head = thread % kSums / kKeys;
  const int own_key = thread % kKeys;
  const float* query = Floats(L::kQuery) + 2 * thread;
#pragma unroll 1
  for (int pair = me.warp; pair < kSets / 2; pair += S::kWarps) {
    if (2 * pair * kKeys >= count) break;
    const int first = (2 * pair + me.lane / kTeam) * kKeys;
    const std::byte* keys = layer_shared + L::kFirst + first * L::kKeyStride + 4 * thread;
    float sums[kSums][2] = {};
#pragma unroll(kHeads == 2 ? 4 : 1)
    for (int step = 0; step < S::kHeadDim / 32; ++step) {
      float2 q[kHeads];
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        q[head] =
            *reinterpret_cast<const float2*>(query + (head ^ own_head) * S::kHeadDim + 32 * step);
      }
#pragma unroll
      for (int key = 0; key < kKeys; ++key) {
        float k[2];
        RawValues<KvType::kF16, 2>(keys + (key ^ own_key) * L::kKeyStride + 64 * step).Get(k);
#pragma unroll
        for (int head = 0; head < kHeads; ++head) {
          float(&sum)[2] = sums[head * kKeys + key];
          sum[0] = ExactFma(q[head].x, k[0], sum[0]);
          sum[1] = ExactFma(q[head].y, k[1], sum[1]);
        }
      }
    }
    const float sum = TeamTree(sums);
    if (thread < kSums) {
      Floats(L::kScores)[own_head * kScoreStride + first + own_key] = sum * Pass().scale;
    }
  }
}

// Warp h: weights exp(s - m) of head h, side by side with those of h ^ 1; m and l where they are
// wanted.
template <int kHeads>
__device__ void OneRowBlock::Softmax(int unit) const {
  const AttendedUnit<kHeads> u(unit);
  const LayerThread me;
  const LayerSmall& small = Small();
  if (me.warp >= kHeads) return;
  const float* scores = Floats(L::kScores) + me.warp * kScoreStride;
  float* weights = Floats(L::kWeights) + me.warp / 2 * kWindow * 2 + me.warp % 2;
  const float2 sums = WindowSoftmax(scores, weights, u.count);
  if (me.lane != 0) return;
  if (small.windows == 1) {
    Small().sums[me.warp] = sums.y;
  } else {
    const int place = (u.first_head + me.warp) * Pass().windows_most + u.window;
    PutPair(Pass().words + W::kSums + 2 * place, __float_as_uint(sums.x), __float_as_uint(sums.y),
            tag_);
  }
}

template <int kHeads>
__device__ void OneRowBlock::AddValues(int unit) const {
  const AttendedUnit<kHeads> u(unit);
  const LayerThread me;
  const LayerSmall& small = Small();
  constexpr int kDims = kHeads == 2 ? 1 : 2;  // a thread's, for two heads
  constexpr int kTiles = S::kHeadDim / kDims;
  if (me.thread >= kHeads / 2 * kTiles) return;
  const int pair = me.thread / kTiles;
  const int dim = me.thread % kTiles * kDims;
  const float2* weights = reinterpret_cast<const float2*>(Floats(L::kWeights)) + pair * kWindow;
  const std::byte* values = layer_shared + L::kWindowValues + 2 * dim;
  float o[2][kDims] = {};
  // Keys by the eight, the next eight loaded while these are added; what is loaded beyond the
  // window's end is not used.
  constexpr int kSome = 8;
  float2 weight[2][kSome];
  std::uint32_t raw[2][kSome];
  const auto load = [&](int set, int key) {
#pragma unroll
    for (int i = 0; i < kSome; ++i) {
      if (i % 2 == 0) {
        const float4 two = *reinterpret_cast<const float4*>(weights + key + i);
        weight[set][i] = {two.x, two.y};
        weight[set][i + 1] = {two.z, two.w};
      }
      const std::byte* at = values + (key + i) * L::kValueStride;
      if constexpr (kDims == 1) {
        raw[set][i] = *reinterpret_cast<const std::uint16_t*>(at);
      } else {
        raw[set][i] = *reinterpret_cast<const std::uint32_t*>(at);
      }
    }
  };
  const auto add = [&](int set, int key) {
#pragma unroll
    for (int i = 0; i < kSome; ++i) {
      if (key + i < u.count) {
#pragma unroll
        for (int j = 0; j < kDims; ++j) {
          const float v = HalfBits(raw[set][i] >> (16 * j));
          o[0][j] = ExactFma(weight[set][i].x, v, o[0][j]);
          o[1][j] = ExactFma(weight[set][i].y, v, o[1][j]);
        }
      }
    }
  };
  static_assert(kWindow % (2 * kSome) == 0);
  load(0, 0);
#pragma unroll 1
  for (int key = 0; key < u.count; key += 2 * kSome) {
    load(1, key + kSome);
    add(0, key);
    if (key + 2 * kSome < u.count) load(0, key + 2 * kSome);
    add(1, key + kSome);
  }
  if (small.windows == 1) {  // then kHeads is 2
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float x[kDims];
#pragma unroll
      for (int j = 0; j < kDims; ++j) x[j] = o[i][j];
      DivideAll(x, Small().sums[i]);
#pragma unroll
      for (int j = 0; j < kDims; ++j) Floats(L::kQuery)[i * S::kHeadDim + dim + j] = x[j];
    }
    return;
  }
  const std::size_t sums = static_cast<std::size_t>(S::kHeads) * Pass().windows_most * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::size_t place = (u.first_head + 2 * pair + i) * Pass().windows_most + u.window;
    Word* to = Pass().words + W::kSums + sums + place * S::kHeadDim + dim;
    if constexpr (kDims == 1) {
      PutWord(to, o[i][0], tag_);
    } else {
      PutPair(to, __float_as_uint(o[i][0]), __float_as_uint(o[i][kDims - 1]), tag_);
    }
  }
}

// Two heads' 256 values from shared memory as a group of codes; warp 0.
__device__ inline void OneRowBlock::PutGroup(int group) const {
  const LayerThread me;
  if (me.warp != 0) return;
  const auto* at = reinterpret_cast<const float4*>(Floats(L::kQuery) + 8 * me.lane);
  PutCodes(me, layer_shared + L::kCodes, at[0], at[1],
           Pass().words + W::kCodes + group * W::kCodeGroup, W::kCodeWords);
}

// A worker's 32 of the heads' values: windows ascending, kMergeWindows at a time. The values of all
// windows come to kFirst, by half a warp a window.
__device__ inline void OneRowBlock::MergeSlice() const {
  constexpr int kDims = L::kMergeDims;
  constexpr int kBlocks = S::kHeadDim / kDims;  // of a head
  static_assert(kDims == 32);
  constexpr int kAtOnce = 2 * S::kWarps;
  const LayerThread me;
  const LayerSmall& small = Small();
  const int windows_most = Pass().windows_most;
  const int head = me.block / kBlocks;
  const int first_dim = me.block % kBlocks * kDims;
  const Word* sums = Pass().words + W::kSums;
  const Word* values = sums + 2 * S::kHeads * static_cast<std::size_t>(windows_most) +
                       static_cast<std::size_t>(head) * windows_most * S::kHeadDim + first_dim;
  sums += 2 * head * static_cast<std::size_t>(windows_most);
  float* stage = Floats(L::kFirst);                               // [window][kDims]
  auto* factors = reinterpret_cast<float4*>(Floats(L::kScores));  // [window]
  float most = -INFINITY;
  float total = 0.0F;
  float sum = 0.0F;
#pragma unroll 1
  for (int begin = 0; begin < small.windows; begin += L::kMergeWindows) {
    const int count = min(L::kMergeWindows, small.windows - begin);
    if (me.warp == S::kWarps - 1) {
#pragma unroll 1
      for (int first = 0; first < count; first += 32) {
        float2 own = {-INFINITY, 0.0F};
        if (first + me.lane < count) {
          std::uint32_t bits[2];
          GetPairs<1>(sums + 2 * (begin + first + me.lane), 0, tag_, bits);
          own = {__uint_as_float(bits[0]), __uint_as_float(bits[1])};
        }
        factors[first + me.lane] = WindowFactors(own, &most);
      }
    }
    constexpr int kPairs = L::kMergeWindows / kAtOnce;
    const int first = 2 * me.warp + me.lane / 16;
    const int mine = (count - first + kAtOnce - 1) / kAtOnce;
    std::uint32_t bits[2 * kPairs];
    GetSomePairs<kPairs>(
        values + static_cast<std::size_t>(begin + first) * S::kHeadDim + me.lane % 16 * 2,
        kAtOnce * S::kHeadDim, mine, tag_, bits);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (i < mine) {
        reinterpret_cast<uint2*>(stage)[(first + i * kAtOnce) * kDims / 2 + me.lane % 16] =
            make_uint2(bits[2 * i], bits[2 * i + 1]);
      }
    }
    __syncthreads();
    if (me.warp == 0) {
#pragma unroll 4
      for (int window = 0; window < count; ++window) {
        const float4 by = factors[window];
        const float part = stage[window * kDims + me.lane];
        const bool is_first = begin + window == 0;
        total = is_first ? part : total * by.x + part * by.y;
        sum = is_first ? by.z : sum * by.x + by.z * by.y;
      }
    }
    if (begin + L::kMergeWindows < small.windows) __syncthreads();
  }
  if (me.warp != 0) return;
  const float value = total / sum;
  Word* to = Pass().words + W::kMerged + head / 2 * 256 +
             PlaceInGroup(head % 2 * S::kHeadDim + first_dim + me.lane);
#pragma unroll
  for (int copy = 0; copy < W::kCodeCopies; ++copy) {
    PutWord(to + copy * W::kMergedWords, value, tag_);
  }
}

}  // namespace bloomery::kernels::cuda
