// Steps of append and attention over append planes of keys and values.
#pragma once

#include <bloomery/tensor.h>

#include <memory>
#include <vector>

#include "runtime/ops/backend.h"
#include "runtime/ops/step.h"

namespace bloomery::ops {

// What the kernels call a plane's row type. Throws Error(kUnsupported) for a type without kernels.
kernels::KvType KvTypeOf(bl_dtype type);

// One view a slot of an append plane.
std::vector<kernels::KvView> KvViews(const bl_plane_view& plane, int32_t slots);

// args.views is replaced by `views`, which the step keeps.
std::unique_ptr<Step> MakeAppend(const Backend& backend, const kernels::KvAppendArgs& args,
                                 std::vector<kernels::KvView> views, RowCount rows,
                                 int32_t threads);

// args.keys and args.values are replaced by the vectors, which the step keeps.
std::unique_ptr<Step> MakeAttention(const Backend& backend, const kernels::AttentionArgs& args,
                                    std::vector<kernels::KvView> keys,
                                    std::vector<kernels::KvView> values, RowCount rows,
                                    int32_t threads);

}  // namespace bloomery::ops
