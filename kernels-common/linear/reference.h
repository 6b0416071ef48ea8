// The plain definition of Linear: the numeric rule written down once, one output at a time.
#pragma once

#include <cstddef>

#include "kernels-common/linear/linear.h"

namespace bloomery::kernels::reference {

// N8: P_l over k = l mod 32 by ascending fma from +0, then the tree 16, 8, 4, 2, 1.
float Dot32(const float* a, const float* b, std::size_t k);
// The same order with plain additions of one row of values.
float Sum32(const float* a, std::size_t k);

// One weight row of an integer format times one quantised row (N3-N5).
float IntegerDot(const WeightRows& weight, std::size_t n, const QuantisedRows& x, std::size_t row);

// Linear over weight rows [n_begin, n_end) and all output rows.
void Linear(const LinearArgs& args, std::size_t n_begin, std::size_t n_end);

// The mathematical value: decoded weights times f32 activations in f64 (for tolerance tests).
double LinearF64(const WeightRows& weight, std::size_t n, const float* x);

}  // namespace bloomery::kernels::reference
