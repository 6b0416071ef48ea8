// Writes a model as a model file with its matrices in another mix of types
// (runtime/model/quant_mix.h). Reads a piece of a tensor at a time, so memory stays small whatever
// the model's size. The new file appears whole or not at all. The same input gives the same bytes,
// whatever the threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "runtime/apps/folder/tensor_source.h"
#include "runtime/model/quant_mix.h"
#include "runtime/model/tensor_type.h"

namespace bloomery::apps {

// How many tensors got which type.
using TypeCounts = std::map<model::TensorType, size_t>;

// Tensors already of the wanted type are copied as they are. Throws Error(kUnsupported) naming
// tensor and type where the source cannot be decoded or the wanted type not be written, before
// anything is written; Error(kBadModel) naming tensor, row and value for a weight that is not
// finite; errors of reading and writing. `progress` gets bytes written and in all.
TypeCounts QuantiseFile(const TensorSource& source, const std::string& out_path,
                        const model::QuantMix& mix, int32_t threads,
                        const std::function<void(uint64_t, uint64_t)>& progress);

}  // namespace bloomery::apps
