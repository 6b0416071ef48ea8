// The functions each instruction set brings for norm. Internal.
#pragma once

#include "kernels-common/norm/norm.h"

namespace bloomery::kernels::cpu {

using RmsNormFunction = void(const RmsNormArgs& args, std::size_t row_begin, std::size_t row_end);
using L2NormFunction = void(const L2NormArgs& args, std::size_t row_begin, std::size_t row_end);

namespace scalar {
RmsNormFunction RmsNorm;
L2NormFunction L2Norm;
}  // namespace scalar
namespace avx2 {
RmsNormFunction RmsNorm;
L2NormFunction L2Norm;
}  // namespace avx2

}  // namespace bloomery::kernels::cpu
