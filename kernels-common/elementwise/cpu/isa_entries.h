// The functions each instruction set brings for elementwise steps. Internal.
#pragma once

#include <cstddef>

namespace bloomery::kernels::cpu {

using BinaryFunction = void(const float* a, const float* b, float* y, std::size_t count);

namespace scalar {
BinaryFunction Add;
BinaryFunction SwiGlu;
}  // namespace scalar
namespace avx2 {
BinaryFunction Add;
BinaryFunction SwiGlu;
}  // namespace avx2
namespace avx512vnni {
BinaryFunction SwiGlu;
}  // namespace avx512vnni

}  // namespace bloomery::kernels::cpu
