// Whether a model's small tensors of floats hold numbers. Norms, biases and routers are stored as
// F32 and every row passes through them: one NaN there makes every answer meaningless. They are a
// small part of a model, so all of them are looked at when it is loaded; larger tensors are not
// (that would read the whole file), what they spoil is refused when a row's logits are no numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/memory/weights.h"
#include "runtime/model/inventory.h"

namespace bloomery::memory {

// Looks at bytes [offset, offset + bytes.size()) of tensor `index`, whole values, where it is one
// of the F32 tensors of at most limits::kCheckedTensorBytesMax; others pass. Error(kBadModel)
// naming tensor and element.
void CheckFiniteStretch(const model::ModelFile& model, size_t index, uint64_t offset,
                        std::span<const std::byte> bytes);

// Looks at the F32 tensors among `tensors` (indices into model.tensors(), loaded in `weights`) of
// at most limits::kCheckedTensorBytesMax. Error(kBadModel) naming tensor and element.
void CheckFinite(const model::ModelFile& model, std::span<const size_t> tensors,
                 const WeightStore& weights);

}  // namespace bloomery::memory
