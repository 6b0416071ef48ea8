// CPU kernels of RMS norm and L2 norm. Bits equal the references on every Isa; rows are
// independent.
#pragma once

#include <cstddef>

#include "kernels-common/cpu/isa.h"
#include "kernels-common/norm/norm.h"

namespace bloomery::kernels::cpu {

void RmsNorm(Isa isa, const RmsNormArgs& args, std::size_t row_begin, std::size_t row_end);
void L2Norm(Isa isa, const L2NormArgs& args, std::size_t row_begin, std::size_t row_end);

}  // namespace bloomery::kernels::cpu
