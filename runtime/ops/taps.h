// Steps that hand values from one row to a later one of the same slot through a fixed plane, and
// the join of two values: what drafts of a model's own head are made from. Pointers are final.
#pragma once

#include <bloomery/tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/ops/step.h"

namespace bloomery::ops {

// y = a then b, row by row.
std::unique_ptr<Step> MakeConcat(const float* a, size_t a_width, const float* b, size_t b_width,
                                 float* y, RowCount rows);

// y = x of the slot's row before, the plane's for a segment's first; x into the lanes of rows that
// have one.
std::unique_ptr<Step> MakePrevious(const float* x, float* y, size_t width,
                                   const bl_plane_view& plane, const bl_rows& rows);
// y = the lane of each segment's first row, which every row of it gets.
std::unique_ptr<Step> MakeRecall(float* y, size_t width, const bl_plane_view& plane,
                                 const bl_rows& rows);
// x into the lanes of rows that have one.
std::unique_ptr<Step> MakeKeep(const float* x, size_t width, const bl_plane_view& plane,
                               const bl_rows& rows);

}  // namespace bloomery::ops
