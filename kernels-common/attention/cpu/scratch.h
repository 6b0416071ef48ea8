// How the scratch of one attention task, and a part of split-key attention, are cut. Internal.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels-common/attention/attention.h"
#include "kernels-common/attention/cpu/isa_entries.h"

namespace bloomery::kernels::cpu {

// Queries that share one decoding of a window. Packing a window costs about what four queries cost,
// so 128 make it a few percent; their scores, outputs and q (192 KiB for heads of 128) stay in the
// second cache, strips in the first.
inline constexpr std::size_t kAttentionQueries = 256;
inline constexpr std::size_t kAttentionRowsMax = 32;

// All counts are in floats and multiples of 16, so every part is 64-byte aligned.
struct AttentionCut {
  std::size_t group;         // query heads of a kv head
  std::size_t rows;          // rows of a chunk at most
  std::size_t queries;       // (row, head) pairs of a chunk at most
  std::size_t stage_stride;  // bytes of a head's key as the plane holds it, whole lines
  std::size_t key_dim;
  std::size_t value_stride;  // floats of an output: whole strips

  explicit AttentionCut(const AttentionArgs& args)
      : group(args.heads / args.kv_heads),
        rows(std::clamp<std::size_t>(kAttentionQueries / group, 1, kAttentionRowsMax)),
        queries(rows * group),
        stage_stride(RoundUp(args.key_dim * sizeof(float), 64)),
        key_dim(args.key_dim),
        value_stride(RoundUp(args.value_dim, kAttentionStrip)) {}

  static std::size_t RoundUp(std::size_t n, std::size_t unit) {
    return (n + unit - 1) / unit * unit;
  }

  // One value a query: a kernel that starts at any of them may touch fifteen more.
  std::size_t PerQuery() const { return RoundUp(queries, 16) + 16; }
  // Keys of a strip as they are, then packed; or all strips of values of a window.
  std::size_t StageAt() const { return 0; }
  std::size_t KeysAt() const { return kAttentionStrip * stage_stride / sizeof(float); }
  std::size_t ValuesAt() const { return 0; }
  std::size_t ScoresAt() const {
    return std::max(KeysAt() + kAttentionStrip * key_dim, kAttentionWindow * value_stride);
  }
  std::size_t QueriesAt() const { return ScoresAt() + kAttentionWindow * queries + 16; }
  std::size_t MaxAt() const {
    return QueriesAt() + RoundUp(queries * sizeof(const float*) / sizeof(float), 16);
  }
  std::size_t SumAt() const { return MaxAt() + PerQuery(); }
  std::size_t KeepAt() const { return SumAt() + PerQuery(); }
  std::size_t TakeAt() const { return KeepAt() + PerQuery(); }
  std::size_t OutAt() const { return TakeAt() + PerQuery(); }
  std::size_t Floats() const { return OutAt() + queries * value_stride; }

  // A part of `part_rows` rows: outputs, then maxima, then sums.
  std::size_t PartOut(std::size_t part_rows) const { return part_rows * group * value_stride; }
  std::size_t PartFloats(std::size_t part_rows) const {
    return PartOut(part_rows) + 2 * RoundUp(part_rows * group, 16);
  }
};

}  // namespace bloomery::kernels::cpu
