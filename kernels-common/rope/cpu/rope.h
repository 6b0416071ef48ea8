// CPU kernels of Rope. Bits equal reference::Rope on every Isa; rows are independent.
#pragma once

#include <cstddef>

#include "kernels-common/cpu/isa.h"
#include "kernels-common/rope/rope.h"

namespace bloomery::kernels::cpu {

void Rope(Isa isa, const RopeArgs& args, std::size_t row_begin, std::size_t row_end);

}  // namespace bloomery::kernels::cpu
