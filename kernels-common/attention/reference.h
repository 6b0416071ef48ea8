// The plain definition of attention: the order of attention.h, and its f64 value for tolerance
// tests. Allocates freely; not for the pass loop.
#pragma once

#include <cstddef>
#include <span>

#include "kernels-common/attention/attention.h"

namespace bloomery::kernels::reference {

// One output head of one row; `scratch` holds kAttentionWindow + 2*value_dim floats.
void Attention(const AttentionArgs& args, std::size_t row, std::size_t head,
               std::span<float> scratch);

// The same in f64 without windows or clamps: writes out[value_dim].
void AttentionF64(const AttentionArgs& args, std::size_t row, std::size_t head, double* out);

}  // namespace bloomery::kernels::reference
