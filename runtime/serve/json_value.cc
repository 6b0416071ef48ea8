#include "runtime/serve/json_value.h"

#include "runtime/base/json.h"

namespace bloomery::serve {

struct JsonAccess {
  static void AppendText(std::string& out, std::string_view text) {
    out += WriteJson(rapidjson::Value(rapidjson::StringRef(text.data(), text.size())));
  }

  static void Append(std::string& out, const Json& json) {
    const auto& data = json.data_;
    if (const auto* flag = std::get_if<bool>(&data)) {
      out += *flag ? "true" : "false";
    } else if (const auto* integer = std::get_if<int64_t>(&data)) {
      out += std::to_string(*integer);
    } else if (const auto* real = std::get_if<double>(&data)) {
      out += WriteJson(rapidjson::Value(*real));
    } else if (const auto* text = std::get_if<std::string>(&data)) {
      AppendText(out, *text);
    } else if (const auto* written = std::get_if<Json::WrittenText>(&data)) {
      out += written->text;
    } else if (const auto* items = std::get_if<std::vector<Json>>(&data)) {
      out += '[';
      for (const Json& item : *items) {
        if (&item != items->data()) out += ',';
        Append(out, item);
      }
      out += ']';
    } else if (const auto* members = std::get_if<std::vector<Json::Member>>(&data)) {
      out += '{';
      for (const auto& member : *members) {
        if (&member != members->data()) out += ',';
        AppendText(out, member.first);
        out += ':';
        Append(out, member.second);
      }
      out += '}';
    } else {
      out += "null";
    }
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
  std::string text = "[";
  for (char c : bytes) {
    if (text.size() > 1) text += ',';
    text += std::to_string(static_cast<unsigned char>(c));
  }
  return Written(text + "]");
}

Json Json::Written(std::string text) {
  Json json;
  json.data_ = WrittenText{std::move(text)};
  return json;
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

std::string_view Json::TextValue() const {
  const auto* text = std::get_if<std::string>(&data_);
  return text == nullptr ? std::string_view() : *text;
}

size_t Json::WrittenBytes() const {
  const auto* written = std::get_if<WrittenText>(&data_);
  return written == nullptr ? 0 : written->text.size();
}

std::string Json::Text() const {
  std::string text;
  JsonAccess::Append(text, *this);
  return text;
}

}  // namespace bloomery::serve
