#include "runtime/model/gguf_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace bloomery::model {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;  // what readers assume of a file that does not say
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::string_view kSplitPrefix = "split.";

template <typename T>
void Append(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T>);
  std::array<char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &value, sizeof(T));
  out.append(bytes.data(), bytes.size());
}

void AppendString(std::string& out, std::string_view text) {
  Append(out, static_cast<uint64_t>(text.size()));
  out += text;
}

// A number of a fixed-size kind, from the widest type that holds it.
template <typename T>
void AppendNumber(std::string& out, ValueKind kind, T value) {
  switch (kind) {
    case ValueKind::kU8:
      return Append(out, static_cast<uint8_t>(value));
    case ValueKind::kI8:
      return Append(out, static_cast<int8_t>(value));
    case ValueKind::kU16:
      return Append(out, static_cast<uint16_t>(value));
    case ValueKind::kI16:
      return Append(out, static_cast<int16_t>(value));
    case ValueKind::kU32:
      return Append(out, static_cast<uint32_t>(value));
    case ValueKind::kI32:
      return Append(out, static_cast<int32_t>(value));
    case ValueKind::kF32:
      return Append(out, static_cast<float>(value));
    case ValueKind::kBool:
      return Append(out, static_cast<uint8_t>(value));
    case ValueKind::kU64:
      return Append(out, static_cast<uint64_t>(value));
    case ValueKind::kI64:
      return Append(out, static_cast<int64_t>(value));
    case ValueKind::kF64:
      return Append(out, static_cast<double>(value));
    case ValueKind::kString:
    case ValueKind::kArray:
      break;
  }
  throw Error(ErrorKind::kInternal, "a metadata value is no number");
}

void AppendArray(std::string& out, const MetadataArray& array) {
  Append(out, static_cast<uint32_t>(array.element_kind()));
  Append(out, array.size());
  for (uint64_t i = 0; i < array.size(); ++i) {
    if (array.element_kind() == ValueKind::kString) {
      AppendString(out, array.String(i));
    } else {
      std::visit([&](auto number) { AppendNumber(out, array.element_kind(), number); },
                 array.At(i));
    }
  }
}

void AppendValue(std::string& out, const MetadataValue& value) {
  Append(out, static_cast<uint32_t>(value.kind));
  std::visit(
      [&](const auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::string>) {
          AppendString(out, held);
        } else if constexpr (std::is_same_v<Held, MetadataArray>) {
          AppendArray(out, held);
        } else {
          AppendNumber(out, value.kind, held);
        }
      },
      value.data);
}

// Raw bytes of a number array.
template <typename T>
std::string RawBytes(std::span<const T> values) {
  std::string raw(values.size_bytes(), '\0');
  if (!values.empty()) std::memcpy(raw.data(), values.data(), raw.size());
  return raw;
}

}  // namespace

MetadataValue U32Value(uint32_t value) { return {ValueKind::kU32, uint64_t{value}, 0}; }
MetadataValue F32Value(float value) { return {ValueKind::kF32, double{value}, 0}; }
MetadataValue BoolValue(bool value) { return {ValueKind::kBool, value, 0}; }
MetadataValue StringValue(std::string value) { return {ValueKind::kString, std::move(value), 0}; }

MetadataValue StringArrayValue(std::span<const std::string> values) {
  std::string raw;
  std::vector<uint64_t> starts;
  starts.reserve(values.size());
  for (const std::string& value : values) {
    Append(raw, static_cast<uint64_t>(value.size()));
    starts.push_back(raw.size());
    raw += value;
  }
  return {ValueKind::kArray, MetadataArray::OfStrings(std::move(raw), std::move(starts)), 0};
}

MetadataValue I32ArrayValue(std::span<const int32_t> values) {
  return {ValueKind::kArray, MetadataArray::OfNumbers(ValueKind::kI32, RawBytes(values)), 0};
}

MetadataValue BoolArrayValue(const std::vector<bool>& values) {
  std::string raw;
  for (const bool value : values) raw.push_back(value ? '\1' : '\0');
  return {ValueKind::kArray, MetadataArray::OfNumbers(ValueKind::kBool, std::move(raw)), 0};
}

GgufWriter::GgufWriter(const std::string& path) : out_(path) {}

void GgufWriter::Add(std::string_view key, MetadataValue value) {
  if (key.empty() || key.size() > limits::kMetadataKeyBytesMax || key == kAlignmentKey) {
    throw Error(ErrorKind::kUsage,
                "'" + out_.path() + "': metadata key '" + Printable(key) + "' cannot be written");
  }
  const auto found = std::ranges::find(
      entries_, key, [](const auto& entry) -> std::string_view { return entry.first; });
  if (found != entries_.end()) {
    found->second = std::move(value);
  } else {
    entries_.emplace_back(std::string(key), std::move(value));
  }
}

void GgufWriter::AddAll(const Metadata& metadata) {
  for (size_t i = 0; i < metadata.size(); ++i) {
    const std::string_view key = metadata.key(i);
    if (key == kAlignmentKey || key.starts_with(kSplitPrefix)) continue;
    Add(key, metadata.value(i));
  }
}

void GgufWriter::AddTensor(std::string_view name, TensorType type, std::span<const uint64_t> ne) {
  const auto refuse = [&](const std::string& problem) {
    throw Error(ErrorKind::kUsage,
                "'" + out_.path() + "': tensor '" + Printable(name) + "': " + problem);
  };
  if (name.empty() || name.size() > limits::kTensorNameBytesMax) refuse("no name for a tensor");
  if (std::ranges::find(tensors_, name, &Tensor::name) != tensors_.end()) {
    refuse("the name is taken");
  }
  if (ne.empty() || ne.size() > 4) refuse(std::to_string(ne.size()) + " axes, 1 to 4 are possible");
  if (std::ranges::find(ne, uint64_t{0}) != ne.end()) refuse("an axis of length 0");
  const TensorTypeInfo& info = Info(type);
  if (ne[0] % info.block_values != 0) {
    refuse("rows of " + std::to_string(ne[0]) + " values are no whole number of " +
           std::string(info.name) + " blocks of " + std::to_string(info.block_values));
  }
  uint64_t bytes = CheckedMul<uint64_t>(ne[0] / info.block_values, info.block_bytes,
                                        ErrorKind::kUsage, "bytes of a tensor");
  for (const uint64_t n : ne.subspan(1)) {
    bytes = CheckedMul(bytes, n, ErrorKind::kUsage, "bytes of a tensor");
  }
  tensors_.push_back({std::string(name), type, {ne.begin(), ne.end()}, bytes, data_end_});
  data_end_ =
      CheckedAlignUp(CheckedAdd(data_end_, bytes, ErrorKind::kUsage, "bytes of all tensors"),
                     kAlignment, ErrorKind::kUsage, "bytes of all tensors");
}

uint64_t GgufWriter::DataBytes() const {
  uint64_t bytes = 0;
  for (const Tensor& tensor : tensors_) bytes += tensor.bytes;
  return bytes;
}

void GgufWriter::BeginData() {
  std::string header = "GGUF";
  Append(header, kVersion);
  Append(header, static_cast<uint64_t>(tensors_.size()));
  Append(header, static_cast<uint64_t>(entries_.size()));
  for (const auto& [key, value] : entries_) {
    AppendString(header, key);
    AppendValue(header, value);
  }
  for (const Tensor& tensor : tensors_) {
    AppendString(header, tensor.name);
    Append(header, static_cast<uint32_t>(tensor.ne.size()));
    for (const uint64_t n : tensor.ne) Append(header, n);
    Append(header, static_cast<uint32_t>(tensor.type));
    Append(header, tensor.offset);
  }
  out_.Write(std::as_bytes(std::span(header)));
  Pad();
  in_data_ = true;
}

void GgufWriter::WriteData(std::span<const std::byte> bytes) {
  if (!in_data_ || current_ == tensors_.size() ||
      bytes.size() > tensors_[current_].bytes - current_done_) {
    throw Error(ErrorKind::kInternal, "'" + out_.path() + "': more data than the tensor has");
  }
  out_.Write(bytes);
  current_done_ += bytes.size();
  if (current_done_ < tensors_[current_].bytes) return;
  Pad();
  ++current_;
  current_done_ = 0;
}

void GgufWriter::Finish() {
  if (!in_data_ || current_ != tensors_.size()) {
    throw Error(ErrorKind::kInternal, "'" + out_.path() + "': data of a tensor is missing");
  }
  out_.Commit();
}

void GgufWriter::Pad() {
  constexpr std::array<std::byte, kAlignment> kZeros{};
  const uint64_t rest = out_.size() % kAlignment;
  if (rest != 0) out_.Write(std::span(kZeros).first(kAlignment - rest));
}

}  // namespace bloomery::model
