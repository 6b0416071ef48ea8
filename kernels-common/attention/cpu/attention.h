// CPU kernels of attention. Bits equal reference::Attention on every Isa.
//
// A call covers rows [row_begin, row_end) and one kv head with all its query heads; rows of one
// slot that follow each other share the decoding of keys and values. Calls on disjoint (rows, kv
// head) may run at the same time. Nothing is allocated; scratch is 64-byte aligned.
//
// Split keys: where few rows see many keys, AttentionWindows computes a span of windows of a chunk
// of rows and leaves its results as parts in memory of the caller's, and AttentionMerge merges the
// parts in the order of the definition, so the bits are those of Attention. Spans of a chunk may be
// computed at the same time. The span from window 0 gives one part, since the definition begins by
// merging it; every later window is a part of its own.
#pragma once

#include <cstddef>
#include <span>

#include "kernels-common/attention/attention.h"
#include "kernels-common/cpu/isa.h"

namespace bloomery::kernels::cpu {

// Rows of one slot that share a decoding at most: a chunk. A good size of a prompt's tasks. Reads
// heads and kv_heads only.
std::size_t AttentionChunkRows(const AttentionArgs& args);

// Scratch of one call; reads heads, kv_heads, key_dim and value_dim only.
std::size_t AttentionScratchBytes(const AttentionArgs& args);

void Attention(Isa isa, const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
               std::size_t kv_head, std::span<std::byte> scratch);

// Bytes of a part of `rows` rows and one kv head.
std::size_t AttentionPartBytes(const AttentionArgs& args, std::size_t rows);

// Rows of one slot, at most a chunk, and one kv head; windows [window_begin, window_end). Rows that
// see their last keys only (args.window) are not split: they see few. Where
// window_begin is 0 one part is written, else one a window; `parts` is 64-byte aligned. What a row
// does not see is left as it was.
void AttentionWindows(Isa isa, const AttentionArgs& args, std::size_t row_begin,
                      std::size_t row_end, std::size_t kv_head, std::size_t window_begin,
                      std::size_t window_end, std::byte* parts, std::span<std::byte> scratch);

// Outputs of query heads [head_begin, head_end) of the kv head, from its parts: the first of
// windows [0, first_windows), which it changes, then one a window.
void AttentionMerge(const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
                    std::size_t kv_head, std::size_t head_begin, std::size_t head_end,
                    std::size_t first_windows, std::byte* parts);

void KvAppend(Isa isa, const KvAppendArgs& args, std::size_t row_begin, std::size_t row_end);

}  // namespace bloomery::kernels::cpu
