// The functions each instruction set brings for attention. Internal.
#pragma once

#include <cstddef>

#include "kernels-common/attention/attention.h"

namespace bloomery::kernels::cpu {

using AttentionFunction = void(const AttentionArgs& args, std::size_t row_begin,
                               std::size_t row_end, std::size_t kv_head, std::byte* scratch);

namespace scalar {
AttentionFunction Attention;
}  // namespace scalar
namespace avx2 {
AttentionFunction Attention;
}  // namespace avx2

}  // namespace bloomery::kernels::cpu
