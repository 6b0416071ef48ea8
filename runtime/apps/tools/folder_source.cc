#include "runtime/apps/tools/folder_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "runtime/apps/tools/folder_tokenizer.h"
#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/model/gguf_writer.h"
#include "runtime/model/quant_mix.h"
#include "runtime/ops/row_codec.h"

namespace bloomery::apps {
namespace {

using model::FolderTensor;
using model::TensorType;

struct StoredType {
  std::string_view dtype;
  TensorType type;
};
constexpr std::array kStored{StoredType{"F32", TensorType::kF32},
                             StoredType{"F16", TensorType::kF16},
                             StoredType{"BF16", TensorType::kBF16}};

[[noreturn]] void Refuse(ErrorKind kind, const FolderTensor& tensor, const std::string& problem) {
  throw Error(
      kind, tensor.file->path() + ": tensor '" + Printable(tensor.tensor->name) + "': " + problem);
}

TensorType StoredTypeOf(const FolderTensor& tensor) {
  const auto found = std::ranges::find(kStored, tensor.tensor->dtype, &StoredType::dtype);
  if (found == kStored.end()) {
    Refuse(ErrorKind::kUnsupported, tensor,
           "its type " + tensor.tensor->dtype + " is not read; F32, F16 and BF16 are");
  }
  return found->type;
}

std::string Spell(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (const uint64_t n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "]";
}

// The folder's own name, also of "." and "x/".
std::string NameOf(const std::string& path) {
  std::filesystem::path full = std::filesystem::absolute(path).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();
  return full.filename().string();
}

}  // namespace

FolderSource::FolderSource(const model::SafetensorsFolder& folder, const FolderMap& map)
    : folder_(folder), metadata_(folder.path()) {
  map.Check(folder.config());
  const std::vector<MappedTensor> mapped = map.Tensors(folder.config());
  for (const MappedTensor& tensor : mapped) {
    if (!tensor.skipped) AddTensor(tensor);
  }
  RefuseUnnamed(mapped);
  // After the tensors: what holds a row a token has shown that there are so many tokens.
  AddMetadata(map);
}

void FolderSource::AddMetadata(const FolderMap& map) {
  metadata_.Add("general.architecture", model::StringValue(map.architecture()));
  metadata_.Add("general.type", model::StringValue("model"));
  metadata_.Add("general.name", model::StringValue(ReplaceInvalidUtf8(NameOf(folder_.path()))));
  for (auto& [key, value] : map.Keys(folder_.config())) metadata_.Add(key, std::move(value));
  const uint64_t vocabulary = map.Vocabulary(folder_.config());
  for (auto& [key, value] : TokenizerKeys(folder_, map.pre_tokenizer(), vocabulary)) {
    metadata_.Add(key, std::move(value));
  }
}

FolderTensor FolderSource::FindPart(const std::string& name, std::span<const uint64_t> ne) const {
  const FolderTensor* found = folder_.Find(name);
  if (found == nullptr) {
    throw Error(ErrorKind::kBadModel,
                "'" + Printable(folder_.path()) + "': no tensor '" + Printable(name) + "'");
  }
  const std::vector<uint64_t> shape(ne.rbegin(), ne.rend());  // slowest axis first there
  if (found->tensor->shape != shape) {
    Refuse(ErrorKind::kBadModel, *found,
           "its shape is " + Spell(found->tensor->shape) + ", the config asks for " + Spell(shape));
  }
  return *found;
}

void FolderSource::AddTensor(const MappedTensor& mapped) {
  const std::span<const uint64_t> part_ne =
      std::span(mapped.ne).first(mapped.ne.size() - (mapped.stacked ? 1 : 0));
  Parts parts{};
  for (const std::string& name : mapped.sources) parts.parts.push_back(FindPart(name, part_ne));
  parts.stored = StoredTypeOf(parts.parts.front());
  for (const FolderTensor& part : parts.parts) {
    if (StoredTypeOf(part) != parts.stored) {
      Refuse(ErrorKind::kUnsupported, part,
             "its type " + part.tensor->dtype + " is not that of '" +
                 parts.parts.front().tensor->name + "', which lies in the same stack");
    }
  }
  SourceTensor tensor{mapped.name, parts.stored, mapped.ne};
  parts.rows = tensor.rows() / parts.parts.size();
  if (!model::IsQuantisable(mapped.name, mapped.ne)) tensor.type = TensorType::kF32;
  tensors_.push_back(std::move(tensor));
  parts_.push_back(std::move(parts));
}

void FolderSource::RefuseUnnamed(std::span<const MappedTensor> mapped) const {
  std::set<std::string_view> named;
  for (const MappedTensor& tensor : mapped) {
    named.insert(tensor.sources.begin(), tensor.sources.end());
  }
  for (const auto& [name, tensor] : folder_.tensors()) {
    if (named.contains(name)) continue;
    Refuse(ErrorKind::kUnsupported, tensor,
           "nothing says what it becomes in a model file; a model with other parts than the "
           "plugin knows is not converted");
  }
}

void FolderSource::ReadRows(size_t i, uint64_t first, std::span<std::byte> out) const {
  const Parts& parts = parts_[i];
  const SourceTensor& tensor = tensors_[i];
  const size_t width = tensor.ne[0];
  const uint64_t out_row = tensor.row_bytes();
  const uint64_t in_row = SourceTensor{{}, parts.stored, {width}}.row_bytes();
  const auto decode = ops::RowCodecOf(static_cast<uint32_t>(parts.stored)).decode;
  std::vector<std::byte> stored;
  for (uint64_t row = first; !out.empty();) {
    const FolderTensor& part = parts.parts[row / parts.rows];
    const uint64_t from = row % parts.rows;
    const uint64_t rows = std::min(parts.rows - from, out.size() / out_row);
    if (tensor.type == parts.stored) {
      part.file->Read(*part.tensor, from * in_row, out.first(rows * out_row));
    } else {
      stored.resize(rows * in_row);
      part.file->Read(*part.tensor, from * in_row, stored);
      std::vector<float> values(width);
      for (uint64_t r = 0; r < rows; ++r) {
        decode(stored.data() + r * in_row, values.data(), width);
        std::ranges::copy(std::as_bytes(std::span(values)), out.data() + r * out_row);
      }
    }
    out = out.subspan(rows * out_row);
    row += rows;
  }
}

}  // namespace bloomery::apps
