// CPU kernels of RMS norm. Bits equal reference::RmsNorm on every Isa; rows are independent.
#pragma once

#include <cstddef>

#include "kernels-common/cpu/isa.h"
#include "kernels-common/norm/norm.h"

namespace bloomery::kernels::cpu {

void RmsNorm(Isa isa, const RmsNormArgs& args, std::size_t row_begin, std::size_t row_end);

}  // namespace bloomery::kernels::cpu
