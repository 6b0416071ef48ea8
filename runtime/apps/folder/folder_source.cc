#include "runtime/apps/folder/folder_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <set>

#include "runtime/apps/folder/folder_tokenizer.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
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

// Axes of length one change no byte, and folders have some that model files lack.
std::vector<uint64_t> WithoutOnes(std::span<const uint64_t> shape) {
  std::vector<uint64_t> out;
  std::ranges::copy_if(shape, std::back_inserter(out), [](uint64_t n) { return n != 1; });
  return out;
}

// The folder's own name, also of "." and "x/".
std::string NameOf(const std::string& path) {
  std::filesystem::path full = std::filesystem::absolute(path).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();
  return full.filename().string();
}

// Which entry of the folder's tensor comes out at `at`, and how many after it follow it there.
struct Place {
  uint64_t from;
  uint64_t run;
};
Place PlaceOf(const RegroupOf<uint64_t>& regroup, uint64_t length, uint64_t at) {
  if (at < regroup.first) return {at, regroup.first - at};
  const uint64_t in_block = (at - regroup.first) % regroup.block;
  const uint64_t block = (at - regroup.first) / regroup.block;
  const uint64_t in_group = (length - regroup.first) / regroup.block / regroup.groups;
  const uint64_t from = block % regroup.groups * in_group + block / regroup.groups;
  return {regroup.first + from * regroup.block + in_block, regroup.block - in_block};
}

void CheckRegroup(const MappedTensor& mapped, const FolderTensor& tensor) {
  if (!mapped.regroup) return;
  const auto& [axis, first, block, groups] = *mapped.regroup;
  const uint64_t length = mapped.ne[axis];
  const bool fits = first <= length && block != 0 && groups != 0 && (length - first) % block == 0 &&
                    (length - first) / block % groups == 0;
  if (!fits) {
    Refuse(ErrorKind::kBadModel, tensor,
           std::to_string(length) + " entries, " + std::to_string(first) +
               " of them as they are, are no blocks of " + std::to_string(block) + " in " +
               std::to_string(groups) + " groups");
  }
}

// One row of values of `bytes` each, in the order in which they come out.
void RegroupRow(const RegroupOf<uint64_t>& regroup, uint64_t width, uint64_t bytes,
                std::span<const std::byte> in, std::span<std::byte> out) {
  for (uint64_t at = 0; at < width;) {
    const Place place = PlaceOf(regroup, width, at);
    std::ranges::copy(in.subspan(place.from * bytes, place.run * bytes),
                      out.begin() + static_cast<std::ptrdiff_t>(at * bytes));
    at += place.run;
  }
}

void Change(FolderChange change, std::span<float> values) {
  if (change == FolderChange::kNone) return;
  for (float& value : values) {
    // By way of double, so that every machine's library gives the same.
    value = change == FolderChange::kAddOne ? value + 1.0F
                                            : -static_cast<float>(std::exp(double{value}));
  }
}

}  // namespace

FolderSource::FolderSource(const model::SafetensorsFolder& folder, const FolderMap& map)
    : folder_(folder), metadata_(folder.path()) {
  map.Check(folder.config());
  NameTensors(map);
  const auto has = [this](const std::string& name) { return named_.contains(name); };
  const std::vector<MappedTensor> mapped = map.Tensors(folder.config(), has);
  for (const MappedTensor& tensor : mapped) {
    if (!tensor.skipped) AddTensor(tensor);
  }
  RefuseUnnamed(mapped);
  // After the tensors: what holds a row a token has shown that there are so many tokens.
  AddMetadata(map, has);
}

void FolderSource::NameTensors(const FolderMap& map) {
  size_t ignored = 0;
  for (const auto& [name, tensor] : folder_.tensors()) {
    const std::optional<std::string> known = map.NameOf(std::string(name), folder_.config());
    if (!known) {
      ++ignored;
      continue;
    }
    const auto [other, added] = named_.emplace(*known, tensor);
    if (!added) {
      Refuse(ErrorKind::kBadModel, tensor,
             "'" + Printable(other->second.tensor->name) + "' is the same part of the model");
    }
  }
  if (ignored > 0) {
    LOG(INFO) << Printable(folder_.path()) << ": " << ignored
              << " tensors belong to parts of the model that are not read";
  }
}

void FolderSource::AddMetadata(const FolderMap& map, const FolderMap::HasTensor& has) {
  metadata_.Add("general.architecture", model::StringValue(map.architecture()));
  metadata_.Add("general.type", model::StringValue("model"));
  metadata_.Add("general.name", model::StringValue(ReplaceInvalidUtf8(NameOf(folder_.path()))));
  for (auto& [key, value] : map.Keys(folder_.config(), has)) metadata_.Add(key, std::move(value));
  const TokenizerFacts facts = {.pre = map.pre_tokenizers(),
                                .inner = map.inner(),
                                .vocabulary = map.Vocabulary(folder_.config())};
  for (auto& [key, value] : TokenizerKeys(folder_, facts)) metadata_.Add(key, std::move(value));
}

FolderTensor FolderSource::FindPart(const std::string& name, std::span<const uint64_t> ne) const {
  const auto found = named_.find(name);
  if (found == named_.end()) {
    throw Error(ErrorKind::kBadModel,
                "'" + Printable(folder_.path()) + "': no tensor '" + Printable(name) + "'");
  }
  const std::vector<uint64_t> shape(ne.rbegin(), ne.rend());  // slowest axis first there
  if (WithoutOnes(found->second.tensor->shape) != WithoutOnes(shape)) {
    Refuse(ErrorKind::kBadModel, found->second,
           "its shape is " + Spell(found->second.tensor->shape) + ", the config asks for " +
               Spell(shape));
  }
  return found->second;
}

void FolderSource::AddTensor(const MappedTensor& mapped) {
  std::vector<uint64_t> part_ne = mapped.ne;
  if (mapped.stacked) part_ne.pop_back();
  if (mapped.of != 0) part_ne[1] = mapped.of;
  Parts parts{.stored = TensorType::kF32, .regroup = mapped.regroup, .parts = {}};
  for (const std::string& name : mapped.sources) parts.parts.push_back(FindPart(name, part_ne));
  parts.stored = StoredTypeOf(parts.parts.front());
  for (const FolderTensor& part : parts.parts) {
    if (StoredTypeOf(part) != parts.stored) {
      Refuse(ErrorKind::kUnsupported, part,
             "its type " + part.tensor->dtype + " is not that of '" +
                 parts.parts.front().tensor->name + "', which lies in the same stack");
    }
  }
  CheckRegroup(mapped, parts.parts.front());
  SourceTensor tensor{mapped.name, parts.stored, mapped.ne};
  parts.rows = tensor.rows() / parts.parts.size();
  parts.axis = mapped.ne.size() < 2 ? 1 : mapped.ne[1];
  parts.stride = mapped.of == 0 ? parts.axis : mapped.of;
  parts.first = mapped.first;
  parts.change = mapped.change;
  if (!model::IsQuantisable(mapped.name, mapped.ne)) tensor.type = TensorType::kF32;
  if (parts.change != FolderChange::kNone && tensor.type != TensorType::kF32) {
    Refuse(ErrorKind::kUnsupported, parts.parts.front(), "values of a matrix are not changed");
  }
  tensors_.push_back(std::move(tensor));
  parts_.push_back(std::move(parts));
}

void FolderSource::RefuseUnnamed(std::span<const MappedTensor> mapped) const {
  std::set<std::string_view> named;
  for (const MappedTensor& tensor : mapped) {
    named.insert(tensor.sources.begin(), tensor.sources.end());
  }
  for (const auto& [name, tensor] : named_) {
    if (named.contains(name)) continue;
    Refuse(ErrorKind::kUnsupported, tensor,
           "nothing says what it becomes in a model file; a model with other parts than the "
           "plugin knows is not converted");
  }
}

FolderSource::Stretch FolderSource::StretchAt(const Parts& parts, uint64_t row) {
  const FolderTensor& part = parts.parts[row / parts.rows];
  const uint64_t in_part = row % parts.rows;
  const uint64_t slice = in_part / parts.axis;
  Place place = {in_part % parts.axis, parts.axis - in_part % parts.axis};
  if (parts.regroup && parts.regroup->axis == 1) {
    place = PlaceOf(*parts.regroup, parts.axis, place.from);
  } else if (parts.stride == parts.axis) {
    place.run = parts.rows - in_part;
  }
  return {part, slice * parts.stride + parts.first + place.from, place.run};
}

void FolderSource::ReadRows(size_t i, uint64_t first, std::span<std::byte> out) const {
  const uint64_t row_bytes = tensors_[i].row_bytes();
  for (uint64_t row = first; !out.empty();) {
    Stretch stretch = StretchAt(parts_[i], row);
    stretch.rows = std::min<uint64_t>(stretch.rows, out.size() / row_bytes);
    ReadStretch(i, stretch, out.first(stretch.rows * row_bytes));
    out = out.subspan(stretch.rows * row_bytes);
    row += stretch.rows;
  }
}

void FolderSource::ReadStretch(size_t i, const Stretch& stretch, std::span<std::byte> out) const {
  const Parts& parts = parts_[i];
  const SourceTensor& tensor = tensors_[i];
  const size_t width = tensor.ne[0];
  const uint64_t out_row = tensor.row_bytes();
  const uint64_t in_row = SourceTensor{{}, parts.stored, {width}}.row_bytes();
  const bool regroups = parts.regroup && parts.regroup->axis == 0;
  const bool as_stored = tensor.type == parts.stored && parts.change == FolderChange::kNone;
  const auto read = [&](std::span<std::byte> to) {
    stretch.part.file->Read(*stretch.part.tensor, stretch.row * in_row, to);
  };
  if (as_stored && !regroups) return read(out);
  std::vector<std::byte> stored(stretch.rows * in_row);
  read(stored);
  const auto decode = ops::RowCodecOf(static_cast<uint32_t>(parts.stored)).decode;
  std::vector<float> values(width);
  std::vector<std::byte> moved(regroups ? in_row : 0);
  for (uint64_t r = 0; r < stretch.rows; ++r) {
    std::span<const std::byte> row = std::span(stored).subspan(r * in_row, in_row);
    const std::span<std::byte> to = out.subspan(r * out_row, out_row);
    if (regroups) {
      RegroupRow(*parts.regroup, width, in_row / width, row, moved);
      row = moved;
    }
    if (as_stored) {
      std::ranges::copy(row, to.begin());
      continue;
    }
    decode(row.data(), values.data(), width);
    Change(parts.change, values);
    std::ranges::copy(std::as_bytes(std::span(values)), to.begin());
  }
}

}  // namespace bloomery::apps
