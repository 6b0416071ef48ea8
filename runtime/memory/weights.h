// The bytes of a seat's weights in host memory, in their stored types: read straight into one
// region that mirrors the files page by page, or mapped where the user wants the system's page
// cache to hold them. Immutable after loading; any thread may read. Knows no meaning of a tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/memory/host_buffer.h"
#include "runtime/memory/parallel_read.h"
#include "runtime/memory/weight_source.h"
#include "runtime/model/inventory.h"

namespace bloomery::memory {

class WeightStore {
 public:
  // Bytes that reading these tensors takes: the file pages that hold a part of them.
  static uint64_t Bytes(const model::ModelFile& model, std::span<const size_t> tensors);

  // `source`: kRead or kMap. Loads the tensors (indices into model.tensors(), none twice), several
  // reads in flight, past the page cache where that is possible. A tensor's address is its offset
  // in the file modulo 4096. `progress(done, total)` is called by this thread now and then, with
  // the total at the end; throwing it ends the load. Throws Error(kNoMemory), the errors of reading
  // naming file and offset, Error(kNoInput) naming a tensor that cannot be mapped, and what
  // `progress` throws.
  WeightStore(const model::ModelFile& model, std::span<const size_t> tensors, WeightSource source,
              const std::function<void(uint64_t, uint64_t)>& progress = {});

  // The bytes of tensor `index`, or null when it was not loaded.
  const std::byte* Find(size_t index) const;

  // The memory that holds all that was read, for who registers it with a driver; empty where
  // weights are mapped.
  std::span<std::byte> region() const { return region_.bytes(); }

  // What loading took; zeros where weights are mapped.
  const ReadReport& report() const { return report_; }

  // "weights: 1.4 GiB read in 0.43 s, 3.5 GB/s, 100 % past the page cache; 99 % on huge pages", or
  // that they are mapped. For the log.
  std::string Line() const;

 private:
  std::vector<const std::byte*> data_;  // by tensor index
  HostBuffer region_;
  std::vector<std::unique_ptr<Mapping>> mappings_;
  ReadReport report_;
};

}  // namespace bloomery::memory
