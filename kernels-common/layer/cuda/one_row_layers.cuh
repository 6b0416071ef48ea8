// Inside CUDA sources: what the parts of the kernel of one_row_layers.h share: its shape, its
// parameters, and where things lie in shared memory and among the exchanged words.
#pragma once

#include "kernels-common/attention/cuda/rows_plan.cuh"
#include "kernels-common/layer/cuda/exchange.cuh"
#include "kernels-common/layer/cuda/one_row_layers.h"
#include "kernels-common/linear/cuda/row_codes.cuh"
#include "kernels-common/moe/cuda/one_row_route.cuh"
#include "kernels-common/quant/cuda/card_types.cuh"

namespace bloomery::kernels::cuda {

// The shape. A tile is 16 rows x 256 values; a group is 256 values.
struct LayerShape {
  static constexpr int kWidth = 2048;
  static constexpr int kHeads = 32;
  static constexpr int kKvHeads = 4;
  static constexpr int kRatio = kHeads / kKvHeads;
  static constexpr int kHeadDim = 128;
  static constexpr int kFf = 768;
  static constexpr int kPicks = kOneRowPicks;
  static constexpr int kExperts = kOneRowExperts;

  static constexpr int kInGroups = kWidth / 256;               // of QKV, gate and up
  static constexpr int kHeadGroups = kHeads * kHeadDim / 256;  // of the output projection
  static constexpr int kFfGroups = kFf / 256;                  // of down
  static constexpr int kQueryTiles = kHeads * kHeadDim / 16;
  static constexpr int kKeyTiles = kKvHeads * kHeadDim / 16;
  static constexpr int kQkvTiles = kQueryTiles + 2 * kKeyTiles;
  static constexpr int kFfTiles = kFf / 16;

  // Blocks that have a tile of the output projection and of down, a row of the router, and three
  // tiles of gate and up; further blocks take part in QKV and attention alone.
  static constexpr int kWorkers = kWidth / 16;
  static constexpr int kWarps = 24;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kTeams = kWarps / kInGroups;  // of 8 warps, with a tile of 8 groups each
};
static_assert(LayerShape::kPicks * LayerShape::kFfGroups == LayerShape::kWarps);
static_assert(LayerShape::kPicks * LayerShape::kFfTiles ==
              LayerShape::kTeams * LayerShape::kWorkers);
static_assert(LayerShape::kExperts == LayerShape::kWorkers);
static_assert(LayerShape::kHeadGroups <= LayerShape::kWarps);

inline constexpr int kTileQ4K = static_cast<int>(CardTile<kQ4K>::kBytes);
inline constexpr int kTileQ6K = static_cast<int>(CardTile<kQ6K>::kBytes);

// A layer on the card.
struct alignas(16) LayerWeights {
  const std::byte* qkv[3];
  const std::byte* output;
  const std::byte* gate;
  const std::byte* up;
  const std::byte* down;
  const float* router;
  const float* attention_norm;
  const float* ffn_norm;
  const float* q_norm;
  const float* k_norm;
  std::byte* keys;  // of the row's slot 0
  std::byte* values;
  float attention_eps;
  float ffn_eps;
  float q_eps;
  float k_eps;
  std::uint32_t expert_bytes;  // of gate and up
  std::uint32_t down_bytes;
  std::uint32_t q6k;  // bits: q, k, v, output, down
};
inline constexpr int kOutputBit = 3;
inline constexpr int kDownBit = 4;

struct LayersPass {
  std::int32_t count;
  const float* x;
  float* out;
  const std::int32_t* live;
  const std::int32_t* slot;
  const std::int32_t* index;
  const std::int32_t* position;
  const double* frequencies;
  float magnitude;
  float scale;         // of attention
  float weight_scale;  // of picks
  bool renormalise;
  std::size_t slot_bytes;
  std::size_t row_bytes;
  std::int32_t windows_most;
  std::int32_t* failed_row;
  std::uint32_t* picks;  // counts of the experts, layer after layer, or null
  std::uint32_t* epoch;  // tags below have been used
  Word* words;
};

struct LayersParams {
  LayerWeights layers[kOneRowLayersMax];
  LayersPass pass;
};

// Places of words. x, x2: six quads a block, of its 16 values; qkv: heads of q, k, v; codes: a
// group of the heads' outputs, a quad a lane: two words of codes, the scale; h: by pick and group,
// so that lane l's pair i lies at 32i + l. Copies of what all blocks poll at once: one copy is in
// one place of L2.
struct LayerWords {
  static constexpr int kRowQuads = 6;
  static constexpr int kRowWords = 2 * kRowQuads * LayerShape::kWorkers;
  static_assert(kRowQuads * LayerShape::kWorkers == LayerShape::kThreads);
  static constexpr int kCodeCopies = 4;
  static constexpr int kCodeGroup = 64;
  static constexpr int kCodeWords = LayerShape::kHeadGroups * kCodeGroup;
  static constexpr int kLogitCopies = 8;
  static constexpr int kLogitWords = LayerShape::kExperts + 16;
  static constexpr int kX = 0;
  static constexpr int kQkv = kX + kRowWords;
  static constexpr int kCodes = kQkv + 16 * LayerShape::kQkvTiles;
  static constexpr int kX2 = kCodes + kCodeCopies * kCodeWords;
  static constexpr int kLogits = kX2 + kRowWords;
  static constexpr int kH = kLogits + kLogitCopies * kLogitWords;
  static constexpr int kHCodes = kH + LayerShape::kPicks * LayerShape::kFf;
  static constexpr int kHCodeWords = LayerShape::kPicks * LayerShape::kFfGroups * kCodeGroup;
  // What was merged of windows, by groups as h.
  static constexpr int kMerged = kHCodes + kCodeCopies * kHCodeWords;
  static constexpr int kMergedWords = LayerShape::kHeads * LayerShape::kHeadDim;
  // Of windows: (m, l) of [head][window], then [head][window][dim].
  static constexpr int kSums = kMerged + kCodeCopies * kMergedWords;

  __host__ __device__ static constexpr std::size_t OfWindows(std::size_t windows) {
    return static_cast<std::size_t>(LayerShape::kHeads) * windows * (2 + LayerShape::kHeadDim);
  }
};

// Shared memory, in bytes.
struct LayerRoom {
  // Of a team: a tile's groups of gate, then of up, and before them of QKV; of all teams: keys and
  // values of a window.
  static constexpr int kFirst = 0;
  static constexpr int kFirstBytes = 2 * LayerShape::kInGroups * kTileQ4K;
  // Of a pick: a tile's groups of down; and before them those of the output projection.
  static constexpr int kSecond = kFirst + LayerShape::kTeams * kFirstBytes;
  static constexpr int kSecondBytes = LayerShape::kFfGroups * kTileQ6K;
  static constexpr int kRouter = kSecond + LayerShape::kPicks * kSecondBytes;
  static_assert(LayerShape::kInGroups * kTileQ6K <= kFirstBytes);
  static_assert(LayerShape::kHeadGroups * kTileQ6K <= kRouter - kSecond);
  static constexpr int kValues = kRouter + 4 * LayerShape::kWidth;  // the row
  static constexpr int kGroups = kValues + 4 * LayerShape::kWidth;  // OwnCodes of the row's groups
  static constexpr int kCodes = kGroups + LayerShape::kInGroups * OwnCodes::kBytes;  // of each warp
  static constexpr int kPartial = kCodes + LayerShape::kWarps * OwnCodes::kBytes;
  static constexpr int kPartialBytes = 4 * 2 * LayerShape::kWarps * 16;
  static constexpr int kDownPartial = kPartial + kPartialBytes;
  static constexpr int kPickStride = 16 * LayerShape::kFfGroups + 4;  // floats
  static constexpr int kTurns = kDownPartial + 4 * LayerShape::kPicks * kPickStride;
  static constexpr int kLayers = kTurns + 8 * LayerShape::kHeadDim / 2;
  // One for each copy of a layer, and for the ids of its picks, so that its phase is the layer's.
  enum Barrier {
    kProjectBarrier,
    kOutputBarrier = kProjectBarrier + LayerShape::kTeams,
    kRouterBarrier,
    kGateUpBarrier,
    kDownBarrier = kGateUpBarrier + LayerShape::kTeams,
    kIdsBarrier = kDownBarrier + LayerShape::kPicks,
    kBarrierCount
  };
  static constexpr int kBarriers = kLayers + static_cast<int>(sizeof(LayersParams::layers));
  static constexpr int kSmall = kBarriers + 8 * kBarrierCount;
  static constexpr int kPass = kSmall + 256;
  static constexpr int kBytes = kPass + static_cast<int>(sizeof(LayersPass));

  // While attention runs, in kFirst: the window's keys and values.
  static constexpr int kKeyStride = StageKeyBytes<KvType::kF16>();
  static constexpr int kValueStride = PlaneBytes<KvType::kF16>(LayerShape::kHeadDim);
  static constexpr int kWindowValues = kFirst + kWindow * kKeyStride;
  static_assert(kWindowValues + kWindow * kValueStride <= kSecond);
  // And from kValues on, over the row and the codes: q, scores, weights of up to eight heads.
  static constexpr int kQuery = kValues;
  static constexpr int kScores = kQuery + 4 * LayerShape::kRatio * LayerShape::kHeadDim;
  static constexpr int kWeights = kScores + 4 * LayerShape::kRatio * kScoreStride;
  // A merge has values in kFirst, and factors in place of the scores.
  static constexpr int kMergeWindows = 96;
  static constexpr int kMergeDims =
      LayerShape::kHeads * LayerShape::kHeadDim / LayerShape::kWorkers;
  static_assert(kMergeWindows * 4 * kMergeDims <= kSecond);
  static_assert(kMergeWindows * 16 <= kWeights - kScores);
  static_assert(kWeights + 4 * LayerShape::kRatio * kWindow <= kPartial);
};
static_assert(LayerRoom::kBytes <= 227 * 1024);

// The 256 bytes at kSmall.
struct LayerSmall {
  std::size_t slot_at;  // of the row's slot in the planes
  // Attention, the same in every layer.
  std::int32_t index;
  std::int32_t windows;
  std::int32_t heads;  // of a unit
  std::int32_t units;
  // The block's first unit, its window and kv head; how many units it has.
  std::int32_t first_unit;
  std::int32_t first_window;
  std::int32_t first_kv_head;
  std::int32_t rounds;
  float factor;
  float residual[16];                   // of the block's outputs
  float scales[LayerShape::kInGroups];  // of the row's groups
  std::int32_t ids[LayerShape::kPicks];
  std::int32_t asked[LayerShape::kTeams];  // the expert whose gate and up a team gets
  float weights[LayerShape::kPicks];
  float sums[LayerShape::kRatio];
};
static_assert(sizeof(LayerSmall) <= 256);

}  // namespace bloomery::kernels::cuda
