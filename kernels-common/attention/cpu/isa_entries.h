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
namespace avx512vnni {
AttentionFunction Attention;

// The inner loops, which alone are built with AVX-512 (avx512vnni.cc).
// scores[i] = dot(q, keys[i]) * scale for eight keys, in N8's order; dim divides by 32.
void Dots8(const float* q, const float* const* keys, std::size_t dim, float scale, float* scores);
// For two heads, o[0 .. 64) = sum over keys j, ascending, of p[j] * values[j*stride ..], by fma
// from +0.
void WeighPair(const float* p0, const float* p1, const float* values, std::size_t stride,
               std::size_t count, float* o0, float* o1);
}  // namespace avx512vnni

}  // namespace bloomery::kernels::cpu
