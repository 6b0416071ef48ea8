#include "runtime/serve/fields.h"

#include <cmath>

namespace bloomery::serve {

void RefuseField(std::string_view name, const std::string& why) {
  throw Error(ErrorKind::kBadRequest, "Field '" + std::string(name) + "': " + why);
}

void RefuseFeature(std::string_view name, const std::string& why) {
  throw Error(ErrorKind::kUnsupported, "Field '" + std::string(name) + "': " + why);
}

std::string_view StringOf(const rapidjson::Value& value) {
  return {value.GetString(), value.GetStringLength()};
}

std::optional<int64_t> IntegerOf(const rapidjson::Value& value) {
  if (value.IsInt64()) return value.GetInt64();
  if (!value.IsDouble()) return std::nullopt;
  const double real = value.GetDouble();
  // Below 2^53 a double holds every integer exactly.
  if (std::abs(real) > 9007199254740992.0 || real != std::trunc(real)) return std::nullopt;
  return static_cast<int64_t>(real);
}

Fields::Fields(const rapidjson::Value& value, std::string_view what) : object_(&value) {
  if (!value.IsObject()) {
    throw Error(ErrorKind::kBadRequest, std::string(what) + ": expected a JSON object");
  }
}

const rapidjson::Value* Fields::Find(std::string_view name) const {
  return FindNonNull(*object_, name);
}

std::optional<bool> Fields::Bool(std::string_view name) const {
  const rapidjson::Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->IsBool()) RefuseField(name, "expected true or false");
  return value->GetBool();
}

std::optional<int64_t> Fields::Integer(std::string_view name, int64_t min, int64_t max) const {
  const rapidjson::Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const auto integer = IntegerOf(*value);
  if (!integer) RefuseField(name, "expected an integer");
  if (*integer < min) RefuseField(name, "must be at least " + std::to_string(min));
  if (*integer > max) RefuseField(name, "must be at most " + std::to_string(max));
  return integer;
}

std::optional<double> Fields::Real(std::string_view name) const {
  const rapidjson::Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->IsNumber()) RefuseField(name, "expected a number");
  const double real = value->GetDouble();
  if (!std::isfinite(real)) RefuseField(name, "expected a finite number");
  return real;
}

std::optional<std::string> Fields::String(std::string_view name) const {
  const rapidjson::Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->IsString()) RefuseField(name, "expected a string");
  return std::string(StringOf(*value));
}

std::optional<std::vector<std::string>> Fields::Strings(std::string_view name) const {
  const rapidjson::Value* value = Array(name);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> strings;
  for (const auto& item : value->GetArray()) {
    if (!item.IsString()) RefuseField(name, "expected an array of strings");
    strings.emplace_back(StringOf(item));
  }
  return strings;
}

const rapidjson::Value* Fields::Object(std::string_view name) const {
  const rapidjson::Value* value = Find(name);
  if (value != nullptr && !value->IsObject()) RefuseField(name, "expected an object");
  return value;
}

const rapidjson::Value* Fields::Array(std::string_view name) const {
  const rapidjson::Value* value = Find(name);
  if (value != nullptr && !value->IsArray()) RefuseField(name, "expected an array");
  return value;
}

}  // namespace bloomery::serve
