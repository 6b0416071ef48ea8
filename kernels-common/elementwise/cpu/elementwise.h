// CPU kernels of the elementwise steps. Bits equal the reference on every Isa.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cpu/isa.h"
#include "kernels-common/elementwise/elementwise.h"

namespace bloomery::kernels::cpu {

// y = a + b; y may be a or b.
void Add(Isa isa, const float* a, const float* b, float* y, std::size_t count);
// h = silu(gate) * up; h may be gate or up.
void SwiGlu(Isa isa, const float* gate, const float* up, float* h, std::size_t count);
// Rows [row_begin, row_end) of the call.
void Gate(Isa isa, const GateArgs& args, std::size_t row_begin, std::size_t row_end);
// Embedding rows [row_begin, row_end) of the call.
void Embed(Isa isa, const EmbedArgs& args, std::size_t row_begin, std::size_t row_end);
// y row r = x row ids[r] (`width` floats), r in [row_begin, row_end). y must not overlap x.
void GatherRows(const float* x, std::size_t x_stride, const std::int32_t* ids, float* y,
                std::size_t y_stride, std::size_t width, std::size_t row_begin,
                std::size_t row_end);

}  // namespace bloomery::kernels::cpu
