// The functions each instruction set brings for quant. Internal.
#pragma once

#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cpu {

using QuantiseRowFunction = void(const float* x, const QuantisedRows& out, std::size_t row);
using EncodeKvRowFunction = void(KvType type, const float* values, std::size_t width,
                                 std::byte* row);
using DecodeKvRowFunction = void(KvType type, const std::byte* row, std::size_t width,
                                 float* values);

namespace scalar {
QuantiseRowFunction QuantiseRow;
EncodeKvRowFunction EncodeKvRow;
DecodeKvRowFunction DecodeKvRow;
}  // namespace scalar
namespace avx2 {
QuantiseRowFunction QuantiseRow;
EncodeKvRowFunction EncodeKvRow;
DecodeKvRowFunction DecodeKvRow;
}  // namespace avx2

}  // namespace bloomery::kernels::cpu
