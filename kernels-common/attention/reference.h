// The plain definition of attention: the order of attention.h, and its f64 value for tolerance
// tests.
#pragma once

#include <cstddef>
#include <span>

#include "kernels-common/attention/attention.h"

namespace bloomery::kernels::reference {

// One output head of one row; `scratch` holds kAttentionWindow + key_dim + 2*value_dim floats.
void Attention(const AttentionArgs& args, std::size_t row, std::size_t head,
               std::span<float> scratch);

// The same in f64 without windows or clamps: out[value_dim]; scratch holds index + 1 doubles and
// rows are decoded through `values` (max(key_dim, value_dim) floats).
void AttentionF64(const AttentionArgs& args, std::size_t row, std::size_t head,
                  std::span<double> scratch, std::span<float> values, double* out);

}  // namespace bloomery::kernels::reference
