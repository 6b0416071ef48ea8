// Steps of append and attention over append planes of keys and values.
#pragma once

#include <bloomery/tensor.h>

#include <memory>
#include <span>
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

// What the two steps of an attention are made with. args.keys and args.values are replaced by the
// vectors. `parts` (64-byte aligned, AttentionPlan::PartsBytes or more; empty: keys are never
// split) holds what the first step leaves to the second.
struct AttentionBinding {
  const Backend& backend;
  kernels::AttentionArgs args;
  std::vector<kernels::KvView> keys;
  std::vector<kernels::KvView> values;
  RowCount rows;
  int32_t threads = 1;
  std::span<std::byte> parts;
};

std::unique_ptr<Step> MakeAttention(AttentionBinding binding);

// To run after it, with the same binding; no tasks where no keys were split.
std::unique_ptr<Step> MakeAttentionMerge(AttentionBinding binding);

}  // namespace bloomery::ops
