#include "runtime/memory/finite.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"

namespace bloomery::memory {
namespace {

// The first value that is NaN or infinite, or `count`. The bytes need not be aligned.
uint64_t FirstNotFinite(const std::byte* data, uint64_t count) {
  constexpr uint32_t kExponent = 0x7F800000;  // all its bits set: no number
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, data + i * sizeof(bits), sizeof(bits));
    if ((bits & kExponent) == kExponent) return i;
  }
  return count;
}

}  // namespace

void CheckFiniteStretch(const model::ModelFile& model, size_t index, uint64_t offset,
                        std::span<const std::byte> bytes) {
  const model::TensorInfo& tensor = model.tensors()[index];
  if (tensor.type != model::TensorType::kF32 || tensor.bytes > limits::kCheckedTensorBytesMax) {
    return;
  }
  const uint64_t count = bytes.size() / sizeof(float);
  const uint64_t bad = FirstNotFinite(bytes.data(), count);
  if (bad == count) return;
  throw Error(ErrorKind::kBadModel,
              "tensor '" + tensor.name + "' of " + model.path() + ": value " +
                  std::to_string(offset / sizeof(float) + bad) + " of " +
                  std::to_string(tensor.bytes / sizeof(float)) +
                  " is NaN or infinite; the file is damaged or was converted badly");
}

void CheckFinite(const model::ModelFile& model, std::span<const size_t> tensors,
                 const WeightStore& weights) {
  for (const size_t index : tensors) {
    CheckFiniteStretch(model, index, 0, {weights.Find(index), model.tensors()[index].bytes});
  }
}

}  // namespace bloomery::memory
