// The step of select_rows: gathers the rows whose logits are wanted.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/ops/step.h"

namespace bloomery::ops {

// y row i = x row map[i], `width` floats each.
std::unique_ptr<Step> MakeSelectRows(const float* x, float* y, size_t width, const int32_t* map,
                                     RowCount rows, int32_t threads);

}  // namespace bloomery::ops
