// How the scratch of one attention task is cut. Internal.
#pragma once

#include <cstddef>

#include "kernels-common/attention/attention.h"

namespace bloomery::kernels::cpu {

// Rows that share one decoding of a window: their states are some 5 KiB a row for 8 heads of 128.
inline constexpr std::size_t kAttentionChunkRows = 8;

// All counts are in floats and multiples of 16, so every part is 64-byte aligned.
struct AttentionScratch {
  std::size_t key_stride;    // floats of a decoded key
  std::size_t value_stride;  // floats of a decoded value, of o
  std::size_t states;        // (row, head) pairs of a chunk

  explicit AttentionScratch(const AttentionArgs& args)
      : key_stride((args.key_dim + 15) / 16 * 16),
        value_stride((args.value_dim + 15) / 16 * 16),
        states(kAttentionChunkRows * (args.heads / args.kv_heads)) {}

  std::size_t KeysAt() const { return 0; }
  std::size_t ValuesAt() const { return kAttentionWindow * key_stride; }
  std::size_t ScoresAt() const { return ValuesAt() + kAttentionWindow * value_stride; }
  std::size_t WindowAt() const { return ScoresAt() + kAttentionWindow; }
  std::size_t MaxAt() const { return WindowAt() + value_stride; }
  std::size_t SumAt() const { return MaxAt() + (states + 15) / 16 * 16; }
  std::size_t OutAt() const { return SumAt() + (states + 15) / 16 * 16; }
  std::size_t Floats() const { return OutAt() + states * value_stride; }
};

}  // namespace bloomery::kernels::cpu
