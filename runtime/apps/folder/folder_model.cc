#include "runtime/apps/folder/folder_model.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/apps/folder/folder_map.h"
#include "runtime/apps/folder/folder_source.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/model/gguf.h"
#include "runtime/model/safetensors_folder.h"

namespace bloomery::apps {
namespace {

constexpr const char* kConfig = "config.json";

// The bytes of a folder's model one after the other: a stamp of what else the model depends on,
// then each tensor from the start of a page, zeros between them. They lie nowhere like this, so
// there is nothing to map.
class FolderFile final : public File {
 public:
  FolderFile(std::unique_ptr<const model::SafetensorsFolder> folder,
             std::unique_ptr<FolderSource> source)
      : File(source->path()), folder_(std::move(folder)), source_(std::move(source)) {
    stamp_ = Stamp(*folder_);
    size_ = PageUp(stamp_.size());
    for (const SourceTensor& tensor : source_->tensors()) {
      offsets_.push_back(size_);
      size_ = PageUp(CheckedAdd(size_, tensor.bytes(), ErrorKind::kBadModel, "the model's bytes"));
    }
  }

  uint64_t size() const override { return size_; }
  uint64_t OffsetOf(size_t i) const { return offsets_[i]; }
  FolderSource& source() { return *source_; }

  std::unique_ptr<Mapping> Map(uint64_t /*offset*/, uint64_t /*length*/) const override {
    return nullptr;
  }

 protected:
  // What lies at `offset`, to its end. Fails as the folder's files do, by throwing.
  size_t ReadSome(uint64_t offset, std::span<std::byte> out,
                  std::error_code& /*error*/) const override {
    if (offset >= size_) return 0;
    out = out.first(std::min<uint64_t>(out.size(), size_ - offset));
    if (offset < stamp_.size()) {
      out = out.first(std::min(out.size(), stamp_.size() - offset));
      std::ranges::copy(std::as_bytes(std::span(stamp_)).subspan(offset, out.size()), out.begin());
      return out.size();
    }
    const auto behind = std::ranges::upper_bound(offsets_, offset);
    const uint64_t next = behind == offsets_.end() ? size_ : *behind;
    out = out.first(std::min<uint64_t>(out.size(), next - offset));
    if (behind != offsets_.begin()) {
      const auto i = static_cast<size_t>(behind - offsets_.begin() - 1);
      if (offset - offsets_[i] < source_->tensors()[i].bytes()) {
        return ReadTensor(i, offset - offsets_[i], out);
      }
    }
    std::ranges::fill(out, std::byte{0});
    return out.size();
  }

 private:
  static uint64_t PageUp(uint64_t bytes) {
    return CheckedAlignUp(bytes, kDirectAlignment, ErrorKind::kBadModel, "the model's bytes");
  }

  // What tells one state of the folder from another, as far as it is not tensors.
  static std::string Stamp(const model::SafetensorsFolder& folder) {
    std::string stamp = folder.ReadText(kConfig, limits::kMetadataBytesMax).value_or("");
    for (const model::SafetensorsFile& file : folder.files()) {
      std::error_code unknown;
      const auto time = std::filesystem::last_write_time(file.path(), unknown);
      stamp += "\n" + file.path() + " " + std::to_string(time.time_since_epoch().count());
    }
    return stamp;
  }

  // Bytes of tensor i from byte `at`, at most as many as are wanted: whole rows, or of one.
  size_t ReadTensor(size_t i, uint64_t at, std::span<std::byte> out) const {
    const SourceTensor& tensor = source_->tensors()[i];
    const uint64_t row_bytes = tensor.row_bytes();
    out = out.first(std::min<uint64_t>(out.size(), tensor.bytes() - at));
    if (at % row_bytes == 0 && out.size() >= row_bytes) {
      out = out.first(out.size() / row_bytes * row_bytes);
      source_->ReadRows(i, at / row_bytes, out);
      return out.size();
    }
    std::vector<std::byte> row(row_bytes);
    source_->ReadRows(i, at / row_bytes, row);
    const uint64_t in_row = at % row_bytes;
    out = out.first(std::min<uint64_t>(out.size(), row_bytes - in_row));
    std::ranges::copy(std::span(row).subspan(in_row, out.size()), out.begin());
    return out.size();
  }

  std::unique_ptr<const model::SafetensorsFolder> folder_;
  std::unique_ptr<FolderSource> source_;  // reads folder_
  std::string stamp_;
  std::vector<uint64_t> offsets_;  // of each tensor, ascending
  uint64_t size_ = 0;
};

model::ModelFile OpenFolder(const std::string& path, const plugin::Discovery& discovery) {
  auto folder = std::make_unique<const model::SafetensorsFolder>(RealFileSystem(), path);
  const std::string model_type(folder->config().GetString("model_type"));
  const FolderMap map = FindFolderMap(discovery, model_type);
  auto source = std::make_unique<FolderSource>(*folder, map);
  const auto file = std::make_shared<FolderFile>(std::move(folder), std::move(source));
  std::vector<model::TensorInfo> tensors;
  for (const SourceTensor& from : file->source().tensors()) {
    model::TensorInfo tensor{.name = from.name,
                             .type = from.type,
                             .ne = {1, 1, 1, 1},
                             .n_dims = static_cast<uint32_t>(from.ne.size()),
                             .file = 0,
                             .offset = file->OffsetOf(tensors.size()),
                             .bytes = from.bytes()};
    std::ranges::copy(from.ne, tensor.ne.begin());
    tensors.push_back(std::move(tensor));
  }
  return {"safetensors folder", file->source().TakeMetadata(), std::move(tensors), {file}};
}

}  // namespace

model::ModelFile OpenModelAt(const std::string& path, const plugin::Discovery& discovery) {
  return std::filesystem::is_directory(path) ? OpenFolder(path, discovery)
                                             : model::OpenGguf(RealFileSystem(), path);
}

void CheckModelPath(const std::string& path) {
  if (!std::filesystem::is_directory(path)) {
    RealFileSystem().Open(path);
    return;
  }
  if (!RealFileSystem().Exists(path + "/" + kConfig)) {
    throw Error(ErrorKind::kNoInput,
                "'" + Printable(path) + "' holds no " + kConfig + ": no model folder");
  }
}

}  // namespace bloomery::apps
