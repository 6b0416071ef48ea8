// CPU kernels of Linear. Bits equal reference::Linear on every Isa.
//
// A call covers weight rows [n_begin, n_end) and all output rows; each weight row is read and
// unpacked once for all of them (with AMX, once for every 256). Calls on disjoint ranges of n may
// run at the same time. Nothing is allocated: scratch belongs to the calling thread, is 64-byte
// aligned and holds LinearScratchBytes.
#pragma once

#include <cstddef>
#include <span>

#include "kernels-common/cpu/isa.h"
#include "kernels-common/linear/linear.h"

namespace bloomery::kernels::cpu {

// Scratch of one call for rows of k weights of any format; the same for every Isa.
std::size_t LinearScratchBytes(std::size_t k);

// Returns the weight bytes read (rows of the range times bytes a row), for the caller's counters.
std::size_t Linear(Isa isa, const LinearArgs& args, std::size_t n_begin, std::size_t n_end,
                   std::span<std::byte> scratch);

// Whether Linear runs faster on `rows` activation rows when row_ids is null: a caller that makes
// many calls with the same ids gathers the rows first.
bool WantsGatheredRows(Isa isa, const WeightRows& weight, std::size_t rows);

}  // namespace bloomery::kernels::cpu
