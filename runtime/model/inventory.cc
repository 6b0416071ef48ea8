#include "runtime/model/inventory.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::model {

ModelFile::ModelFile(std::string format, Metadata metadata, std::vector<TensorInfo> tensors,
                     std::vector<std::shared_ptr<const File>> files)
    : format_(std::move(format)),
      metadata_(std::move(metadata)),
      tensors_(std::move(tensors)),
      files_(std::move(files)) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    index_.emplace(tensors_[i].name, i);
    tensor_bytes_ += tensors_[i].bytes;
  }
}

std::optional<size_t> ModelFile::FindTensorIndex(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

size_t ModelFile::GetTensorIndex(std::string_view name) const {
  const std::optional<size_t> index = FindTensorIndex(name);
  if (!index) {
    throw Error(ErrorKind::kBadModel, path() + ": tensor '" + Printable(name) + "' is missing");
  }
  return *index;
}

void ModelFile::ReadTensor(size_t index, uint64_t offset, std::span<std::byte> out) const {
  const TensorInfo& tensor = tensors_.at(index);
  if (offset > tensor.bytes || out.size() > tensor.bytes - offset) {
    throw Error(ErrorKind::kInternal, path() + ": tensor '" + tensor.name + "' has " +
                                          std::to_string(tensor.bytes) + " bytes, " +
                                          std::to_string(out.size()) + " were asked for at byte " +
                                          std::to_string(offset) + " of it");
  }
  try {
    files_[tensor.file]->ReadAt(tensor.offset + offset, out);
  } catch (const Error& error) {
    throw Error(error.kind(), "tensor '" + tensor.name + "': " + error.what());
  }
}

std::vector<std::byte> ModelFile::ReadTensor(size_t index) const {
  std::vector<std::byte> data(tensors_.at(index).bytes);
  ReadTensor(index, 0, data);
  return data;
}

std::unique_ptr<Mapping> ModelFile::MapTensor(size_t index) const {
  const TensorInfo& tensor = tensors_.at(index);
  return files_[tensor.file]->Map(tensor.offset, tensor.bytes);
}

}  // namespace bloomery::model
