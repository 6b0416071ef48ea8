// The functions each instruction set brings for the delta rule. Internal.
#pragma once

#include <cstddef>

#include "kernels-common/delta/delta.h"

namespace bloomery::kernels::cpu {

using ShortConvFunction = void(const ShortConvArgs& args, std::size_t rows,
                               std::size_t channel_begin, std::size_t channel_end);
using DeltaFunction = void(const DeltaArgs& args, std::size_t rows, std::size_t head);

namespace scalar {
ShortConvFunction ShortConv;
DeltaFunction Delta;
}  // namespace scalar
namespace avx2 {
ShortConvFunction ShortConv;
DeltaFunction Delta;
}  // namespace avx2
namespace avx512vnni {
DeltaFunction Delta;
}  // namespace avx512vnni

}  // namespace bloomery::kernels::cpu
