#include "runtime/text/jinja/json.h"

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/text/jinja/format.h"
#include "runtime/text/jinja/heap.h"

namespace bloomery::jinja {
namespace {

Value Convert(const rapidjson::Value& json, Origin origin, int depth) {
  if (depth > limits::kJinjaValueDepthMax) {
    throw Error(
        ErrorKind::kBadRequest,
        "JSON nested deeper than " + std::to_string(limits::kJinjaValueDepthMax) + " levels");
  }
  switch (json.GetType()) {
    case rapidjson::kNullType:
      return None{};
    case rapidjson::kFalseType:
      return false;
    case rapidjson::kTrueType:
      return true;
    case rapidjson::kStringType:
      return Text({json.GetString(), json.GetStringLength()}, origin);
    case rapidjson::kNumberType:
      return json.IsInt64() ? Value(int64_t{json.GetInt64()}) : Value(json.GetDouble());
    case rapidjson::kArrayType: {
      std::vector<Value> items;
      items.reserve(json.Size());
      for (const auto& item : json.GetArray()) {
        items.push_back(Convert(item, origin, depth + 1));
      }
      return Value::List(std::move(items));
    }
    case rapidjson::kObjectType:
      break;
  }
  std::vector<Value::DictEntry> entries;
  entries.reserve(json.MemberCount());
  for (const auto& member : json.GetObject()) {
    entries.emplace_back(Text({member.name.GetString(), member.name.GetStringLength()}, origin),
                         Convert(member.value, origin, depth + 1));
  }
  return Value::Dict(std::move(entries));
}

}  // namespace

Value FromJson(const rapidjson::Value& json, Origin origin) { return Convert(json, origin, 1); }

Value TryParseJson(std::string_view text, Origin origin) {
  try {
    return FromJson(ParseJson(text, "JSON text"), origin);
  } catch (const Error&) {
    return Value();
  }
}

std::string ToJson(const Value& value) {
  try {
    return JsonDumps(Heap(nullptr), value, {}).bytes();
  } catch (const Failure& failure) {
    throw Error(ErrorKind::kBadRequest, failure.message);
  }
}

}  // namespace bloomery::jinja
