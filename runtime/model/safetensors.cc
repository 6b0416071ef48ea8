#include "runtime/model/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace bloomery::model {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kLengthBytes = 8;  // in front of the header
constexpr std::string_view kMetadataKey = "__metadata__";

struct DtypeInfo {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array kDtypes{
    DtypeInfo{"BOOL", 1},    DtypeInfo{"U8", 1},      DtypeInfo{"I8", 1},  DtypeInfo{"F8_E4M3", 1},
    DtypeInfo{"F8_E5M2", 1}, DtypeInfo{"F8_E8M0", 1}, DtypeInfo{"I16", 2}, DtypeInfo{"U16", 2},
    DtypeInfo{"F16", 2},     DtypeInfo{"BF16", 2},    DtypeInfo{"I32", 4}, DtypeInfo{"U32", 4},
    DtypeInfo{"F32", 4},     DtypeInfo{"I64", 8},     DtypeInfo{"U64", 8}, DtypeInfo{"F64", 8}};

std::optional<uint64_t> DtypeBytes(std::string_view name) {
  const auto found = std::ranges::find(kDtypes, name, &DtypeInfo::name);
  return found == kDtypes.end() ? std::nullopt : std::optional(found->bytes);
}

// One entry of the header, not yet believed.
class EntryReader {
 public:
  EntryReader(const std::string& path, std::string name, uint64_t data_begin, uint64_t data_bytes)
      : path_(path), name_(std::move(name)), data_begin_(data_begin), data_bytes_(data_bytes) {}

  SafeTensor Read(const rapidjson::Value& entry) const {
    if (!entry.IsObject()) Refuse("its entry is no object");
    SafeTensor tensor;
    tensor.name = name_;
    const auto dtype = entry.FindMember("dtype");
    if (dtype == entry.MemberEnd() || !dtype->value.IsString()) Refuse("no dtype");
    tensor.dtype = dtype->value.GetString();
    const auto value_bytes = DtypeBytes(tensor.dtype);
    if (!value_bytes) Refuse("dtype '" + Printable(tensor.dtype) + "' is not known");
    tensor.shape = Numbers(entry, "shape");
    uint64_t bytes = *value_bytes;
    for (const uint64_t n : tensor.shape) {
      bytes = CheckedMul(bytes, n, ErrorKind::kBadModel,
                         path_ + ": bytes of tensor '" + Printable(name_) + "'");
    }
    const std::vector<uint64_t> range = Numbers(entry, "data_offsets");
    if (range.size() != 2 || range[1] < range[0] || range[1] > data_bytes_) {
      Refuse("its data_offsets do not lie in the file's " + std::to_string(data_bytes_) +
             " data bytes");
    }
    if (range[1] - range[0] != bytes) {
      Refuse("its data_offsets span " + std::to_string(range[1] - range[0]) +
             " bytes, its shape needs " + std::to_string(bytes));
    }
    tensor.offset = data_begin_ + range[0];
    tensor.bytes = bytes;
    return tensor;
  }

 private:
  [[noreturn]] void Refuse(const std::string& problem) const {
    throw Error(ErrorKind::kBadModel, path_ + ": tensor '" + Printable(name_) + "': " + problem);
  }

  std::vector<uint64_t> Numbers(const rapidjson::Value& entry, const char* field) const {
    const auto member = entry.FindMember(field);
    if (member == entry.MemberEnd() || !member->value.IsArray()) {
      Refuse(std::string("no array '") + field + "'");
    }
    std::vector<uint64_t> numbers;
    for (const auto& item : member->value.GetArray()) {
      if (!item.IsUint64()) Refuse(std::string("'") + field + "' holds no whole number");
      numbers.push_back(item.GetUint64());
    }
    return numbers;
  }

  const std::string& path_;
  std::string name_;
  uint64_t data_begin_;
  uint64_t data_bytes_;
};

// Names are unique and data does not overlap. Sorts by place.
void CheckTogether(const std::string& path, std::vector<SafeTensor>& tensors) {
  const auto refuse = [&](const SafeTensor& tensor, const std::string& problem) {
    throw Error(ErrorKind::kBadModel,
                path + ": tensor '" + Printable(tensor.name) + "': " + problem);
  };
  std::ranges::sort(tensors, {}, &SafeTensor::name);
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].name == tensors[i - 1].name) refuse(tensors[i], "the name is there twice");
  }
  std::ranges::stable_sort(tensors, {}, &SafeTensor::offset);
  for (size_t i = 1; i < tensors.size(); ++i) {
    const SafeTensor& before = tensors[i - 1];
    if (before.offset + before.bytes > tensors[i].offset) {
      refuse(tensors[i], "its data overlaps that of '" + Printable(before.name) + "'");
    }
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const FileSystem& files, const std::string& path)
    : file_(files.Open(path)) {
  const auto refuse = [&](const std::string& problem) {
    throw Error(ErrorKind::kBadModel, path + ": not a safetensors file: " + problem);
  };
  if (file_->size() < kLengthBytes) refuse("it ends inside the header's length");
  uint64_t header_bytes = 0;
  file_->ReadAt(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > file_->size() - kLengthBytes || header_bytes > limits::kMetadataBytesMax) {
    refuse("a header of " + std::to_string(header_bytes) + " bytes at byte 0, the file has " +
           std::to_string(file_->size()));
  }
  std::string text(header_bytes, '\0');
  file_->ReadAt(kLengthBytes, std::as_writable_bytes(std::span(text)));
  const rapidjson::Document header = ParseJson(text, path,
                                               {.kind = ErrorKind::kBadModel,
                                                .bytes_max = limits::kMetadataBytesMax,
                                                .nodes_max = limits::kSafetensorsNodesMax,
                                                .keep_repeated = true});
  if (!header.IsObject()) refuse("its header is no JSON object");
  const uint64_t begin = kLengthBytes + header_bytes;
  for (const auto& member : header.GetObject()) {
    std::string name(member.name.GetString(), member.name.GetStringLength());
    if (name == kMetadataKey) continue;
    tensors_.push_back(
        EntryReader(path, std::move(name), begin, file_->size() - begin).Read(member.value));
  }
  CheckTogether(path, tensors_);
}

const SafeTensor* SafetensorsFile::Find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &SafeTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

const SafeTensor& SafetensorsFile::Get(std::string_view name) const {
  const SafeTensor* found = Find(name);
  if (found == nullptr) {
    throw Error(ErrorKind::kBadModel, path() + ": no tensor '" + Printable(name) + "'");
  }
  return *found;
}

void SafetensorsFile::Read(const SafeTensor& tensor, uint64_t offset,
                           std::span<std::byte> out) const {
  if (offset > tensor.bytes || out.size() > tensor.bytes - offset) {
    throw Error(ErrorKind::kInternal, path() + ": a read past tensor '" + tensor.name + "'");
  }
  file_->ReadAt(tensor.offset + offset, out);
}

template <typename T>
std::vector<T> SafetensorsFile::ReadAll(const SafeTensor& tensor, std::string_view dtype) const {
  if (tensor.dtype != dtype) {
    throw Error(ErrorKind::kBadModel, path() + ": tensor '" + Printable(tensor.name) + "' is " +
                                          tensor.dtype + ", expected " + std::string(dtype));
  }
  std::vector<T> values(tensor.bytes / sizeof(T));
  Read(tensor, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<int32_t> SafetensorsFile::ReadI32(const SafeTensor& tensor) const {
  return ReadAll<int32_t>(tensor, "I32");
}

std::vector<float> SafetensorsFile::ReadF32(const SafeTensor& tensor) const {
  return ReadAll<float>(tensor, "F32");
}

std::string SafetensorsHeader(std::span<const SafeTensor> tensors) {
  rapidjson::Document header(rapidjson::kObjectType);
  auto& allocator = header.GetAllocator();
  uint64_t at = 0;
  for (const SafeTensor& tensor : tensors) {
    uint64_t bytes = DtypeBytes(tensor.dtype).value();
    rapidjson::Value shape(rapidjson::kArrayType);
    for (const uint64_t n : tensor.shape) {
      bytes = CheckedMul(bytes, n, ErrorKind::kUsage, "bytes of tensor '" + tensor.name + "'");
      shape.PushBack(n, allocator);
    }
    rapidjson::Value range(rapidjson::kArrayType);
    range.PushBack(at, allocator);
    at = CheckedAdd(at, bytes, ErrorKind::kUsage, "bytes of all tensors");
    range.PushBack(at, allocator);
    rapidjson::Value entry(rapidjson::kObjectType);
    entry.AddMember("dtype", tensor.dtype, allocator);
    entry.AddMember("shape", shape, allocator);
    entry.AddMember("data_offsets", range, allocator);
    header.AddMember(rapidjson::Value(tensor.name, allocator), entry, allocator);
  }
  std::string text = WriteJson(header);
  while (text.size() % kLengthBytes != 0) text.push_back(' ');
  const uint64_t length = text.size();
  std::string out(kLengthBytes, '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out + text;
}

}  // namespace bloomery::model
