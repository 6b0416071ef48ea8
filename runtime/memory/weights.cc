#include "runtime/memory/weights.h"

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/memory/arena.h"

namespace bloomery::memory {

uint64_t WeightStore::Bytes(const model::ModelFile& model, std::span<const size_t> tensors) {
  uint64_t total = 0;
  for (const size_t index : tensors) {
    const model::TensorInfo& tensor = model.tensors()[index];
    total = CheckedAdd(total,
                       CheckedAlignUp(tensor.bytes, kArenaAlignment, ErrorKind::kBadModel,
                                      "bytes of tensor '" + tensor.name + "'"),
                       ErrorKind::kBadModel, "bytes of all weights");
  }
  return total;
}

WeightStore::WeightStore(const model::ModelFile& model, std::span<const size_t> tensors,
                         WeightSource source,
                         const std::function<void(uint64_t, uint64_t)>& progress)
    : data_(model.tensors().size(), nullptr) {
  const uint64_t total = Bytes(model, tensors);
  if (source == WeightSource::kRead) region_ = HostBuffer(total, "weights");
  uint64_t done = 0;
  for (const size_t index : tensors) {
    const model::TensorInfo& tensor = model.tensors()[index];
    if (source == WeightSource::kMap) {
      std::unique_ptr<Mapping> mapping = model.MapTensor(index);
      // Reading it instead would take memory that the plan has not counted.
      if (mapping == nullptr) {
        throw Error(ErrorKind::kNoInput, "tensor '" + tensor.name + "' of " + model.path() +
                                             " cannot be mapped into memory; start with --no-mmap "
                                             "to read the weights instead");
      }
      data_[index] = mapping->bytes().data();
      mappings_.push_back(std::move(mapping));
    } else {
      const std::span<std::byte> place = region_.bytes().subspan(done, tensor.bytes);
      model.ReadTensor(index, 0, place);
      data_[index] = place.data();
    }
    done += CheckedAlignUp(tensor.bytes, kArenaAlignment, ErrorKind::kBadModel, tensor.name);
    if (progress) progress(done, total);
  }
}

const std::byte* WeightStore::Find(size_t index) const { return data_[index]; }

}  // namespace bloomery::memory
