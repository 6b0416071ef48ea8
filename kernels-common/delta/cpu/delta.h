// CPU kernels of the short convolution and the gated delta rule. Bits equal the references on every
// Isa; channels and heads are independent, rows of one follow each other.
#pragma once

#include <cstddef>

#include "kernels-common/cpu/isa.h"
#include "kernels-common/delta/delta.h"

namespace bloomery::kernels::cpu {

void ShortConv(Isa isa, const ShortConvArgs& args, std::size_t rows, std::size_t channel_begin,
               std::size_t channel_end);
void Delta(Isa isa, const DeltaArgs& args, std::size_t rows, std::size_t head);

}  // namespace bloomery::kernels::cpu
