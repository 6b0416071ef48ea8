// The bytes of a seat's weights in host memory, in their stored types: read into one aligned
// region, or mapped where the user wants the system's page cache to hold them. Immutable after
// loading; any thread may read. Knows no meaning of a tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/memory/host_buffer.h"
#include "runtime/model/inventory.h"

namespace bloomery::memory {

enum class WeightSource { kRead, kMap };

class WeightStore {
 public:
  // Bytes that reading these tensors takes; each starts on a cache line.
  static uint64_t Bytes(const model::ModelFile& model, std::span<const size_t> tensors);

  // Loads the tensors (indices into model.tensors(), none twice). `progress(done, total)` is called
  // after each. Throws Error(kNoMemory), the errors of reading, and
  // Error(kNoInput) naming a tensor that cannot be mapped.
  WeightStore(const model::ModelFile& model, std::span<const size_t> tensors, WeightSource source,
              const std::function<void(uint64_t, uint64_t)>& progress = {});

  // The bytes of tensor `index`, or null when it was not loaded.
  const std::byte* Find(size_t index) const;

 private:
  std::vector<const std::byte*> data_;  // by tensor index
  HostBuffer region_;
  std::vector<std::unique_ptr<Mapping>> mappings_;
};

}  // namespace bloomery::memory
