#include "runtime/model/json_metadata.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::model {
namespace {

using rapidjson::Value;

std::string Text(const Value& value) { return {value.GetString(), value.GetStringLength()}; }

std::optional<MetadataValue> ScalarOf(const Value& value) {
  if (value.IsUint64()) return MetadataValue{ValueKind::kU64, value.GetUint64(), 0};
  if (value.IsInt64()) return MetadataValue{ValueKind::kI64, value.GetInt64(), 0};
  if (value.IsNumber()) return MetadataValue{ValueKind::kF64, value.GetDouble(), 0};
  if (value.IsBool()) return MetadataValue{ValueKind::kBool, value.GetBool(), 0};
  if (value.IsString()) return MetadataValue{ValueKind::kString, Text(value), 0};
  return std::nullopt;
}

template <typename T, typename Get>
std::string RawOf(const Value& array, Get get) {
  std::string raw(array.Size() * sizeof(T), '\0');
  for (rapidjson::SizeType i = 0; i < array.Size(); ++i) {
    const T number = get(array[i]);
    std::memcpy(raw.data() + i * sizeof(T), &number, sizeof(T));
  }
  return raw;
}

MetadataArray TextArrayOf(const Value& array) {
  std::string raw;
  std::vector<uint64_t> starts;
  for (const Value& item : array.GetArray()) {
    const uint64_t length = item.GetStringLength();
    raw.append(std::bit_cast<std::array<char, sizeof(length)>>(length).data(), sizeof(length));
    starts.push_back(raw.size());
    raw += Text(item);
  }
  return MetadataArray::OfStrings(std::move(raw), std::move(starts));
}

std::optional<MetadataArray> ArrayOf(const Value& array) {
  const auto all = [&](auto is) { return std::ranges::all_of(array.GetArray(), is); };
  if (all([](const Value& item) { return item.IsUint64(); })) {
    return MetadataArray::OfNumbers(
        ValueKind::kU64, RawOf<uint64_t>(array, [](const Value& v) { return v.GetUint64(); }));
  }
  if (all([](const Value& item) { return item.IsInt64(); })) {
    return MetadataArray::OfNumbers(
        ValueKind::kI64, RawOf<int64_t>(array, [](const Value& v) { return v.GetInt64(); }));
  }
  if (all([](const Value& item) { return item.IsNumber(); })) {
    return MetadataArray::OfNumbers(
        ValueKind::kF64, RawOf<double>(array, [](const Value& v) { return v.GetDouble(); }));
  }
  if (all([](const Value& item) { return item.IsBool(); })) {
    return MetadataArray::OfNumbers(ValueKind::kBool, RawOf<uint8_t>(array, [](const Value& v) {
                                      return static_cast<uint8_t>(v.GetBool());
                                    }));
  }
  if (all([](const Value& item) { return item.IsString(); })) return TextArrayOf(array);
  return std::nullopt;
}

// Recursive: ParseJson has limited the depth.
void AddMembers(const Value& object, const std::string& prefix, Metadata& out) {
  for (const auto& member : object.GetObject()) {
    const std::string key = prefix + Text(member.name);
    std::optional<MetadataValue> value;
    if (member.value.IsObject()) {
      AddMembers(member.value, key + ".", out);
    } else if (member.value.IsArray()) {
      std::optional<MetadataArray> array = ArrayOf(member.value);
      if (array) value = MetadataValue{ValueKind::kArray, std::move(*array), 0};
    } else {
      value = ScalarOf(member.value);
    }
    if (value && !out.Add(key, std::move(*value))) {
      throw Error(ErrorKind::kBadModel,
                  out.source() + ": key '" + Printable(key) + "' is there twice");
    }
  }
}

}  // namespace

Metadata MetadataOfJson(const Value& object, const std::string& source) {
  Metadata metadata(source);
  AddMembers(object, "", metadata);
  return metadata;
}

}  // namespace bloomery::model
