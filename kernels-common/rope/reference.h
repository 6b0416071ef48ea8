// The plain definition of Rope.
#pragma once

#include <cstddef>

#include "kernels-common/rope/rope.h"

namespace bloomery::kernels::reference {

void Rope(const RopeArgs& args, std::size_t row_begin, std::size_t row_end);

}  // namespace bloomery::kernels::reference
