// CPU kernels of the short convolution and the gated delta rule. Bits equal the references on every
// Isa; channels and heads are independent, rows of one follow each other.
#pragma once

#include <cstddef>
#include <span>

#include "kernels-common/cpu/isa.h"
#include "kernels-common/delta/delta.h"

namespace bloomery::kernels::cpu {

void ShortConv(Isa isa, const ShortConvArgs& args, std::size_t rows, std::size_t channel_begin,
               std::size_t channel_end);
void Delta(Isa isa, const DeltaArgs& args, std::size_t rows, std::size_t head);

// The same rule in the form for prompts: chunks of kDeltaChunk rows from the call's first one, a
// chunk as products of matrices. Another order of sums: outputs and states are those of Delta
// within a band (docs/numeric-rule.md), alike on every Isa, and depend on where a call begins; a
// row alone is dearer than with Delta. Scratch is 64-byte aligned.
std::size_t DeltaChunksScratchBytes(const DeltaArgs& args);
void DeltaChunks(Isa isa, const DeltaArgs& args, std::size_t rows, std::size_t head,
                 std::span<std::byte> scratch);

}  // namespace bloomery::kernels::cpu
