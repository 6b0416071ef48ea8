// The functions each instruction set brings for rope. Internal.
#pragma once

#include "kernels-common/rope/rope.h"

namespace bloomery::kernels::cpu {

using RopeFunction = void(const RopeArgs& args, std::size_t row_begin, std::size_t row_end);

namespace scalar {
RopeFunction Rope;
}  // namespace scalar
namespace avx2 {
RopeFunction Rope;
}  // namespace avx2

}  // namespace bloomery::kernels::cpu
