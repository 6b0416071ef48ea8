// Reads the fields of a JSON request body. null counts as absent everywhere; a wrong type or a
// value out of range is Error(kBadRequest) that names the field. A Fields refers to the document it
// reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"

namespace bloomery::serve {

// Error(kBadRequest, "Field 'name': why").
[[noreturn]] void RefuseField(std::string_view name, const std::string& why);
// Error(kUnsupported, "Field 'name': why"): a 501.
[[noreturn]] void RefuseFeature(std::string_view name, const std::string& why);

class Fields {
 public:
  // Error(kBadRequest) unless `value` is an object.
  Fields(const rapidjson::Value& value, std::string_view what);

  const rapidjson::Value& value() const { return *object_; }
  // The member, or null when it is absent or null.
  const rapidjson::Value* Find(std::string_view name) const;

  std::optional<bool> Bool(std::string_view name) const;
  // Also takes a number with a fraction of zero (8.0), as some clients write integers.
  std::optional<int64_t> Integer(std::string_view name, int64_t min = INT64_MIN,
                                 int64_t max = INT64_MAX) const;
  std::optional<double> Real(std::string_view name) const;
  std::optional<std::string> String(std::string_view name) const;
  std::optional<std::vector<std::string>> Strings(std::string_view name) const;
  const rapidjson::Value* Object(std::string_view name) const;
  const rapidjson::Value* Array(std::string_view name) const;

 private:
  const rapidjson::Value* object_;
};

std::string_view StringOf(const rapidjson::Value& value);
// An integer, also when written as 8.0; nothing for anything else.
std::optional<int64_t> IntegerOf(const rapidjson::Value& value);

}  // namespace bloomery::serve
