// CPU kernels of routed experts. Bits equal the reference on every Isa. No call allocates; scratch
// is the calling thread's, 64-byte aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels-common/cpu/isa.h"
#include "kernels-common/moe/moe.h"

namespace bloomery::kernels::cpu {

// Routes rows [row_begin, row_end); rows are independent. Returns the first row with a logit that
// is not finite (its ids are still distinct and in range), or kNoFailingRow.
std::int64_t Route(Isa isa, const RouterArgs& args, std::size_t row_begin, std::size_t row_end);

// Groups the picks of `rows` rows by expert (a stable counting sort); one task,
// O(rows*top_k+experts). Picks with the id -1 are left out; their pairs get the place -1.
void GroupPicks(const std::int32_t* ids, std::size_t rows, std::size_t top_k, std::size_t experts,
                ExpertGroups* groups);

// Intermediate columns [n_begin, n_end) of one expert for all places of its group. Returns the
// weight bytes read. Disjoint ranges may run at the same time. places_max: most places of any
// group.
std::size_t ExpertGateUpScratchBytes(Isa isa, std::size_t k, std::size_t places_max);
std::size_t ExpertGateUp(Isa isa, const ExpertGateUpArgs& args, std::size_t n_begin,
                         std::size_t n_end, std::span<std::byte> scratch);

// ExpertDown is Linear over the group's rows of h: cpu::Linear with `quantised` (or x) offset to
// the group's first place and y at the same place.

// Rows [row_begin, row_end), columns [column_begin, column_end). Returns the first failing row
// (N7), or kNoFailingRow; a failing row's output is unspecified.
std::int64_t PickSum(Isa isa, const PickSumArgs& args, std::size_t row_begin, std::size_t row_end,
                     std::size_t column_begin, std::size_t column_end);

}  // namespace bloomery::kernels::cpu
