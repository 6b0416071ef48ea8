// How the scratch of one attention task is cut. Internal.
#pragma once

#include <cstddef>

#include "kernels-common/attention/attention.h"

namespace bloomery::kernels::cpu {

// Rows that share one decoding of a window: their states are some 5 KiB a row for 8 heads of 128.
inline constexpr std::size_t kAttentionChunkRows = 8;

// All counts are in floats and multiples of 16, so every part is 64-byte aligned. Decoded keys and
// values of a window are shared; scores, o, maximum and sum of the window are one a head of the
// group; the running states are one a (row, head) of the chunk.
struct AttentionScratch {
  std::size_t key_stride;    // floats of a decoded key
  std::size_t value_stride;  // floats of a decoded value, of o
  std::size_t group;         // query heads of a kv head
  std::size_t states;        // (row, head) pairs of a chunk

  explicit AttentionScratch(const AttentionArgs& args)
      : key_stride(Align16(args.key_dim)),
        value_stride(Align16(args.value_dim)),
        group(args.heads / args.kv_heads),
        states(kAttentionChunkRows * group) {}

  static std::size_t Align16(std::size_t floats) { return (floats + 15) / 16 * 16; }

  std::size_t KeysAt() const { return 0; }
  std::size_t ValuesAt() const { return kAttentionWindow * key_stride; }
  std::size_t ScoresAt() const { return ValuesAt() + kAttentionWindow * value_stride; }
  std::size_t WindowAt() const { return ScoresAt() + kAttentionWindow * group; }
  std::size_t WindowMaxAt() const { return WindowAt() + value_stride * group; }
  std::size_t WindowSumAt() const { return WindowMaxAt() + Align16(group); }
  std::size_t MaxAt() const { return WindowSumAt() + Align16(group); }
  std::size_t SumAt() const { return MaxAt() + Align16(states); }
  std::size_t OutAt() const { return SumAt() + Align16(states); }
  std::size_t Floats() const { return OutAt() + states * value_stride; }
};

}  // namespace bloomery::kernels::cpu
