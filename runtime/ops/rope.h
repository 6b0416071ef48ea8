// The step of rope: rotates the first `dims` values of each head by the row's position.
#pragma once

#include <memory>
#include <vector>

#include "runtime/ops/backend.h"
#include "runtime/ops/step.h"

namespace bloomery::ops {

// Frequencies scale·base^(−2i/dims), i < dims/2, in f64.
std::vector<double> RopeFrequencies(double base, double scale, size_t dims);

// args.frequencies is replaced by `frequencies`, which the step keeps.
std::unique_ptr<Step> MakeRope(const Backend& backend, const kernels::RopeArgs& args,
                               std::vector<double> frequencies, RowCount rows, int32_t threads);

}  // namespace bloomery::ops
