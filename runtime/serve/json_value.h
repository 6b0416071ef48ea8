// JSON values as answers are built from: ordered objects, written inline as nested lists. Plain
// owned data, no parsing (requests are read as rapidjson documents, runtime/base/json.h).
//
//   Json::Object({{"status", "ok"}, {"slots", Json::Array({1, 2})}}).Text()
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace bloomery::serve {

class Json {
 public:
  using Member = std::pair<std::string, Json>;

  // NOLINTBEGIN(google-explicit-constructor): values convert where an object lists them.
  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool value) : data_(value) {}
  Json(int value) : data_(int64_t{value}) {}
  Json(int64_t value) : data_(value) {}
  Json(uint32_t value) : data_(int64_t{value}) {}
  Json(uint64_t value) : data_(static_cast<int64_t>(value)) {}  // sizes and counts: below 2^63
  Json(double value) : data_(value) {}
  Json(const char* value) : data_(std::string(value)) {}
  Json(std::string_view value) : data_(std::string(value)) {}
  Json(std::string value) : data_(std::move(value)) {}
  // NOLINTEND(google-explicit-constructor)

  static Json Object(std::vector<Member> members = {});
  static Json Array(std::vector<Json> items = {});
  // An array of numbers 0 to 255: text that may end inside a character.
  static Json Bytes(std::string_view bytes);

  // A value as Text() gave it, to be written as it is: long lists take a tenth of the memory so.
  static Json Written(std::string text);

  // Of an object: appends a member (the caller does not repeat names).
  void Set(std::string name, Json value);
  // Of an array.
  void Append(Json value);
  // Of an object: the member's value, or null when there is none.
  const Json* Find(std::string_view name) const;

  // Of a string: its value; "" of any other.
  std::string_view TextValue() const;
  // Of a value made by Written: the length of its text; 0 of any other.
  size_t WrittenBytes() const;

  // Compact, one line; invalid UTF-8 becomes U+FFFD, numbers that are not finite become null.
  std::string Text() const;

 private:
  friend struct JsonAccess;
  struct WrittenText {
    std::string text;
  };
  std::variant<std::monostate, bool, int64_t, double, std::string, WrittenText, std::vector<Json>,
               std::vector<Member>>
      data_;
};

}  // namespace bloomery::serve
