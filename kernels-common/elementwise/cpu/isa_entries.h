// The functions each instruction set brings for elementwise steps. Internal.
#pragma once

#include <cstddef>

#include "kernels-common/elementwise/elementwise.h"

namespace bloomery::kernels::cpu {

using BinaryFunction = void(const float* a, const float* b, float* y, std::size_t count);
using GateRowsFunction = void(const GateArgs& args, std::size_t row_begin, std::size_t row_end);

namespace scalar {
BinaryFunction Add;
BinaryFunction SwiGlu;
GateRowsFunction Gate;
}  // namespace scalar
namespace avx2 {
BinaryFunction Add;
BinaryFunction SwiGlu;
GateRowsFunction Gate;
}  // namespace avx2
namespace avx512vnni {
BinaryFunction SwiGlu;
}  // namespace avx512vnni

}  // namespace bloomery::kernels::cpu
