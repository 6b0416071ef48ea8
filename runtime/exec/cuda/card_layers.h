// Steps of a program that become one launch: all layers of a decode pass of one row, where they
// have the shape that one_row_layers.h is for and nothing else looks at what they hand to each
// other.
#pragma once

#include <span>
#include <vector>

#include "runtime/exec/cuda/card_program.h"

namespace bloomery::exec {

// Puts one step in place of the longest run of whole layers (six steps each) that goes together.
// `kept`: memory that is read after the pass. `state`: memory of the program's own, zero before its
// first pass.
void JoinLayers(const kernels::cuda::Launch& launch, std::span<const std::byte* const> kept,
                std::byte* state, std::vector<CardStep>* steps);

}  // namespace bloomery::exec
