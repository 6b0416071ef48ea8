// Steps of the operators around recurrent layers: slices, gates, L2 norms, the short convolution
// and the gated delta rule. Pointers are final; rows of a segment follow each other inside one
// task.
#pragma once

#include <bloomery/tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/ops/backend.h"
#include "runtime/ops/step.h"

namespace bloomery::ops {

// Of each of `groups` vectors of `dim` values a row: values [first, first + count).
struct SliceArgs {
  const float* x = nullptr;
  float* y = nullptr;
  size_t groups = 1;
  size_t dim = 0;
  size_t first = 0;
  size_t count = 0;
};
std::unique_ptr<Step> MakeSlice(const SliceArgs& args, RowCount rows, int32_t threads);

std::unique_ptr<Step> MakeGate(const Backend& backend, const kernels::GateArgs& args, RowCount rows,
                               int32_t threads);
std::unique_ptr<Step> MakeL2Norm(const Backend& backend, const kernels::L2NormArgs& args,
                                 RowCount rows, int32_t threads);

// `args` without states: those are lanes of `plane`, chosen by the pass's rows.
std::unique_ptr<Step> MakeShortConv(const Backend& backend, const kernels::ShortConvArgs& args,
                                    const bl_plane_view& plane, const bl_rows& rows,
                                    int32_t threads);
// `chunks`: rows of a prompt in the backend's other order of sums, which it must have.
std::unique_ptr<Step> MakeDelta(const Backend& backend, const kernels::DeltaArgs& args,
                                const bl_plane_view& plane, const bl_rows& rows, bool chunks);

// Rows that follow each other from which on chunks are faster (docs/measurements/cpu.md).
inline constexpr size_t kDeltaChunkRowsMin = 8;

}  // namespace bloomery::ops
