#include "runtime/serve/json_value.h"

#include "runtime/base/json.h"

namespace bloomery::serve {

struct JsonAccess {
  using Value = rapidjson::Value;
  using Allocator = rapidjson::Document::AllocatorType;

  // Strings are referred to, not copied: the Json outlives the write.
  static Value::StringRefType Ref(const std::string& text) {
    return rapidjson::StringRef(text.data(), text.size());
  }

  static Value Make(const Json& json, Allocator& allocator) {
    Value value;
    const auto& data = json.data_;
    if (const auto* flag = std::get_if<bool>(&data)) {
      value.SetBool(*flag);
    } else if (const auto* integer = std::get_if<int64_t>(&data)) {
      value.SetInt64(*integer);
    } else if (const auto* real = std::get_if<double>(&data)) {
      value.SetDouble(*real);
    } else if (const auto* text = std::get_if<std::string>(&data)) {
      value.SetString(Ref(*text));
    } else if (const auto* items = std::get_if<std::vector<Json>>(&data)) {
      value.SetArray();
      value.Reserve(static_cast<rapidjson::SizeType>(items->size()), allocator);
      for (const Json& item : *items) value.PushBack(Make(item, allocator), allocator);
    } else if (const auto* members = std::get_if<std::vector<Json::Member>>(&data)) {
      value.SetObject();
      for (const auto& [name, member] : *members) {
        value.AddMember(Value(Ref(name)), Make(member, allocator), allocator);
      }
    }
    return value;
  }
};

Json Json::Object(std::vector<Member> members) {
  Json json;
  json.data_ = std::move(members);
  return json;
}

Json Json::Array(std::vector<Json> items) {
  Json json;
  json.data_ = std::move(items);
  return json;
}

Json Json::Bytes(std::string_view bytes) {
  std::vector<Json> items;
  items.reserve(bytes.size());
  for (char c : bytes) items.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return Array(std::move(items));
}

void Json::Set(std::string name, Json value) {
  std::get<std::vector<Member>>(data_).emplace_back(std::move(name), std::move(value));
}

void Json::Append(Json value) { std::get<std::vector<Json>>(data_).push_back(std::move(value)); }

const Json* Json::Find(std::string_view name) const {
  const auto* members = std::get_if<std::vector<Member>>(&data_);
  if (members == nullptr) return nullptr;
  for (const auto& [key, value] : *members) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::string Json::Text() const {
  rapidjson::Document::AllocatorType allocator(1024);
  return WriteJson(JsonAccess::Make(*this, allocator));
}

}  // namespace bloomery::serve
