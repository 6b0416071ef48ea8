// The plain definition of the elementwise steps.
#pragma once

#include <cstddef>

#include "kernels-common/elementwise/elementwise.h"

namespace bloomery::kernels::reference {

void Add(const float* a, const float* b, float* y, std::size_t count);
void SwiGlu(const float* gate, const float* up, float* h, std::size_t count);
void Gate(const GateArgs& args, std::size_t row_begin, std::size_t row_end);
void Embed(const EmbedArgs& args, std::size_t row_begin, std::size_t row_end);

}  // namespace bloomery::kernels::reference
