#include "runtime/model/metadata.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::model {
namespace {

static_assert(std::endian::native == std::endian::little, "stored values are read as they lie");

constexpr uint64_t kStringLengthBytes = 8;

struct KindRow {
  std::string_view name;
  uint32_t bytes;
};
// By the number of the kind.
constexpr KindRow kKinds[] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};

template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <typename T>
constexpr std::string_view kExpected = "";
template <>
constexpr std::string_view kExpected<uint64_t> = "an integer from 0 to 2^64-1";
template <>
constexpr std::string_view kExpected<int64_t> = "an integer from -2^63 to 2^63-1";
template <>
constexpr std::string_view kExpected<double> = "a number";

// The number as T when that is exact, else nothing. Floats never become integers.
template <typename T>
struct Exact {
  std::optional<T> operator()(double) const { return std::nullopt; }
  template <typename Integer>
  std::optional<T> operator()(Integer value) const {
    if (!std::in_range<T>(value)) return std::nullopt;
    return static_cast<T>(value);
  }
};

template <>
struct Exact<double> {
  static constexpr int64_t kExactMax = int64_t{1} << 53;
  std::optional<double> operator()(double value) const { return value; }
  template <typename Integer>
  std::optional<double> operator()(Integer value) const {
    if (std::cmp_greater(value, kExactMax) || std::cmp_less(value, -kExactMax)) return std::nullopt;
    return static_cast<double>(value);
  }
};

std::string Describe(const MetadataValue& value) {
  std::string text(ValueKindName(value.kind));
  if (const auto* array = std::get_if<MetadataArray>(&value.data)) {
    text += " of " + std::to_string(array->size()) + " " +
            std::string(ValueKindName(array->element_kind()));
  }
  return text;
}

std::string Text(const Number& number) {
  return std::visit([](auto value) { return std::to_string(value); }, number);
}

}  // namespace

std::string_view ValueKindName(ValueKind kind) { return kKinds[static_cast<uint32_t>(kind)].name; }

uint32_t ValueKindBytes(ValueKind kind) { return kKinds[static_cast<uint32_t>(kind)].bytes; }

Number DecodeNumber(ValueKind kind, const char* bytes) {
  switch (kind) {
    case ValueKind::kU8:
    case ValueKind::kBool:
      return uint64_t{Load<uint8_t>(bytes)};
    case ValueKind::kI8:
      return int64_t{Load<int8_t>(bytes)};
    case ValueKind::kU16:
      return uint64_t{Load<uint16_t>(bytes)};
    case ValueKind::kI16:
      return int64_t{Load<int16_t>(bytes)};
    case ValueKind::kU32:
      return uint64_t{Load<uint32_t>(bytes)};
    case ValueKind::kI32:
      return int64_t{Load<int32_t>(bytes)};
    case ValueKind::kF32:
      return double{Load<float>(bytes)};
    case ValueKind::kU64:
      return Load<uint64_t>(bytes);
    case ValueKind::kI64:
      return Load<int64_t>(bytes);
    case ValueKind::kF64:
      return Load<double>(bytes);
    case ValueKind::kString:
    case ValueKind::kArray:
      break;
  }
  assert(false && "strings and arrays are no numbers");
  return uint64_t{0};
}

MetadataArray MetadataArray::OfNumbers(ValueKind element, std::string raw) {
  assert(ValueKindBytes(element) != 0 && raw.size() % ValueKindBytes(element) == 0);
  return {element, std::move(raw), {}};
}

MetadataArray MetadataArray::OfStrings(std::string raw, std::vector<uint64_t> starts) {
  return {ValueKind::kString, std::move(raw), std::move(starts)};
}

uint64_t MetadataArray::size() const {
  return element_ == ValueKind::kString ? starts_.size() : raw_.size() / ValueKindBytes(element_);
}

std::string_view MetadataArray::String(uint64_t i) const {
  assert(element_ == ValueKind::kString && i < starts_.size());
  const uint64_t end = i + 1 < starts_.size() ? starts_[i + 1] - kStringLengthBytes : raw_.size();
  return std::string_view(raw_).substr(starts_[i], end - starts_[i]);
}

Number MetadataArray::At(uint64_t i) const {
  assert(element_ != ValueKind::kString && i < size());
  return DecodeNumber(element_, raw_.data() + i * ValueKindBytes(element_));
}

bool Metadata::Add(std::string key, MetadataValue value) {
  if (Has(key)) return false;
  entries_.emplace_back(std::move(key), std::move(value));
  index_.emplace(entries_.back().first, entries_.size() - 1);
  return true;
}

void Metadata::MoveInto(Metadata& other) {
  index_.clear();
  for (auto& [key, value] : entries_) other.Add(std::move(key), std::move(value));
  entries_.clear();
}

const MetadataValue* Metadata::Find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

const MetadataValue& Metadata::Require(std::string_view key) const {
  const MetadataValue* value = Find(key);
  if (value == nullptr) {
    throw Error(ErrorKind::kBadModel,
                source_ + ": metadata key '" + Printable(key) + "' is missing");
  }
  return *value;
}

void Metadata::Refuse(std::string_view key, const MetadataValue& value,
                      const std::string& problem) const {
  throw Error(ErrorKind::kBadModel, source_ + ": metadata key '" + Printable(key) + "' at byte " +
                                        std::to_string(value.offset) + ": it " + problem);
}

template <typename T>
T Metadata::Convert(std::string_view key, const MetadataValue& value, const Number& number,
                    std::optional<uint64_t> index) const {
  const std::optional<T> exact = std::visit(Exact<T>(), number);
  if (exact) return *exact;
  const std::string place = index ? "holds " + Text(number) + " at index " + std::to_string(*index)
                                  : "is " + Text(number);
  Refuse(key, value, place + " (" + Describe(value) + "), expected " + std::string(kExpected<T>));
}

template <typename T>
T Metadata::GetNumber(std::string_view key) const {
  const MetadataValue& value = Require(key);
  if (const auto* u = std::get_if<uint64_t>(&value.data)) return Convert<T>(key, value, *u, {});
  if (const auto* i = std::get_if<int64_t>(&value.data)) return Convert<T>(key, value, *i, {});
  if (const auto* d = std::get_if<double>(&value.data)) return Convert<T>(key, value, *d, {});
  Refuse(key, value, "is " + Describe(value) + ", expected " + std::string(kExpected<T>));
}

template <typename T>
std::vector<T> Metadata::GetNumberArray(std::string_view key) const {
  const MetadataValue& value = Require(key);
  const auto* array = std::get_if<MetadataArray>(&value.data);
  if (array == nullptr || array->element_kind() == ValueKind::kString ||
      array->element_kind() == ValueKind::kBool) {
    Refuse(
        key, value,
        "is " + Describe(value) + ", expected an array, each element " + std::string(kExpected<T>));
  }
  std::vector<T> out;
  out.reserve(array->size());
  for (uint64_t i = 0; i < array->size(); ++i) {
    out.push_back(Convert<T>(key, value, array->At(i), i));
  }
  return out;
}

template <typename T>
const T& Metadata::GetAs(std::string_view key, std::string_view expected) const {
  const MetadataValue& value = Require(key);
  const T* found = std::get_if<T>(&value.data);
  if (found == nullptr) {
    Refuse(key, value, "is " + Describe(value) + ", expected " + std::string(expected));
  }
  return *found;
}

uint64_t Metadata::GetU64(std::string_view key) const { return GetNumber<uint64_t>(key); }
int64_t Metadata::GetI64(std::string_view key) const { return GetNumber<int64_t>(key); }
double Metadata::GetF64(std::string_view key) const { return GetNumber<double>(key); }
bool Metadata::GetBool(std::string_view key) const { return GetAs<bool>(key, "bool"); }
std::string_view Metadata::GetString(std::string_view key) const {
  return GetAs<std::string>(key, "string");
}
const MetadataArray& Metadata::GetArray(std::string_view key) const {
  return GetAs<MetadataArray>(key, "array");
}

std::optional<uint64_t> Metadata::FindU64(std::string_view key) const {
  return Has(key) ? std::optional(GetU64(key)) : std::nullopt;
}
std::optional<int64_t> Metadata::FindI64(std::string_view key) const {
  return Has(key) ? std::optional(GetI64(key)) : std::nullopt;
}
std::optional<double> Metadata::FindF64(std::string_view key) const {
  return Has(key) ? std::optional(GetF64(key)) : std::nullopt;
}
std::optional<bool> Metadata::FindBool(std::string_view key) const {
  return Has(key) ? std::optional(GetBool(key)) : std::nullopt;
}
std::optional<std::string_view> Metadata::FindString(std::string_view key) const {
  return Has(key) ? std::optional(GetString(key)) : std::nullopt;
}

std::vector<uint64_t> Metadata::GetU64Array(std::string_view key) const {
  return GetNumberArray<uint64_t>(key);
}
std::vector<int64_t> Metadata::GetI64Array(std::string_view key) const {
  return GetNumberArray<int64_t>(key);
}
std::vector<double> Metadata::GetF64Array(std::string_view key) const {
  return GetNumberArray<double>(key);
}

std::vector<bool> Metadata::GetBoolArray(std::string_view key) const {
  const MetadataArray& array = GetArray(key);
  if (array.element_kind() != ValueKind::kBool) {
    const MetadataValue& value = Require(key);
    Refuse(key, value, "is " + Describe(value) + ", expected an array of bool");
  }
  std::vector<bool> out(array.size());
  for (uint64_t i = 0; i < array.size(); ++i) out[i] = array.At(i) == Number(uint64_t{1});
  return out;
}

const MetadataArray& Metadata::GetStringArray(std::string_view key) const {
  const MetadataArray& array = GetArray(key);
  if (array.element_kind() != ValueKind::kString) {
    const MetadataValue& value = Require(key);
    Refuse(key, value, "is " + Describe(value) + ", expected an array of string");
  }
  return array;
}

}  // namespace bloomery::model
