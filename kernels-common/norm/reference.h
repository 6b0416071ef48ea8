// The plain definition of RMS norm.
#pragma once

#include <cstddef>

#include "kernels-common/norm/norm.h"

namespace bloomery::kernels::reference {

void RmsNorm(const RmsNormArgs& args, std::size_t row_begin, std::size_t row_end);
void L2Norm(const L2NormArgs& args, std::size_t row_begin, std::size_t row_end);

}  // namespace bloomery::kernels::reference
