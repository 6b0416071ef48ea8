#include "runtime/apps/folder/tensor_source.h"

namespace bloomery::apps {

ModelFileSource::ModelFileSource(const model::ModelFile& file) : file_(file) {
  for (const model::TensorInfo& tensor : file.tensors()) {
    const auto axes = std::span(tensor.ne).first(tensor.n_dims);
    tensors_.push_back({tensor.name, tensor.type, {axes.begin(), axes.end()}});
  }
}

void ModelFileSource::ReadRows(size_t i, uint64_t first, std::span<std::byte> out) const {
  file_.ReadTensor(i, first * tensors_[i].row_bytes(), out);
}

}  // namespace bloomery::apps
