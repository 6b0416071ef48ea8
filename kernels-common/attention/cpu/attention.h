// CPU kernels of attention. Bits equal reference::Attention on every Isa.
//
// A call covers rows [row_begin, row_end) and one kv head with all its query heads; rows of one
// slot that follow each other share the decoding of keys and values. Calls on disjoint (rows, kv
// head) may run at the same time. Nothing is allocated; scratch is 64-byte aligned.
#pragma once

#include <cstddef>
#include <span>

#include "kernels-common/attention/attention.h"
#include "kernels-common/cpu/isa.h"

namespace bloomery::kernels::cpu {

// A good number of rows a task of a prompt.
inline constexpr std::size_t kAttentionTaskRows = 8;

// Scratch of one call; reads heads, kv_heads, key_dim and value_dim only.
std::size_t AttentionScratchBytes(const AttentionArgs& args);

void Attention(Isa isa, const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
               std::size_t kv_head, std::span<std::byte> scratch);

void KvAppend(Isa isa, const KvAppendArgs& args, std::size_t row_begin, std::size_t row_end);

}  // namespace bloomery::kernels::cpu
