#include "runtime/apps/folder/recipe.h"

#include <charconv>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace bloomery::apps {

std::string ReplaceMark(std::string text, std::string_view what, std::string_view with) {
  const size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), with);
  return text;
}

RecipeObject::RecipeObject(const rapidjson::Value& value, std::string where)
    : value_(value), where_(std::move(where)) {
  if (!value.IsObject()) Refuse("not an object");
}

void RecipeObject::Refuse(const std::string& problem) const {
  throw Error(ErrorKind::kBadModel, where_ + ": " + problem);
}

void RecipeObject::CheckFields(std::initializer_list<std::string_view> known) const {
  for (const auto& member : value_.GetObject()) {
    const std::string_view name(member.name.GetString(), member.name.GetStringLength());
    if (std::ranges::find(known, name) == known.end()) {
      Refuse("unknown field '" + Printable(name) + "'");
    }
  }
}

const rapidjson::Value* RecipeObject::Find(const char* name) const {
  const auto found = value_.FindMember(name);
  return found == value_.MemberEnd() ? nullptr : &found->value;
}

const rapidjson::Value& RecipeObject::Get(const char* name) const {
  const rapidjson::Value* found = Find(name);
  if (found == nullptr) Refuse(std::string("no field '") + name + "'");
  return *found;
}

std::string RecipeObject::Text(const char* name) const {
  const rapidjson::Value& value = Get(name);
  if (!value.IsString() || value.GetStringLength() == 0 ||
      value.GetStringLength() > limits::kPluginTextBytesMax) {
    Refuse(std::string("'") + name + "' must be a text that is not empty");
  }
  return {value.GetString(), value.GetStringLength()};
}

std::vector<std::string> RecipeObject::Texts(const char* name) const {
  std::vector<std::string> texts;
  for (const auto& item : Array(name)) {
    if (!item.IsString()) Refuse(std::string("'") + name + "' must hold texts only");
    texts.emplace_back(item.GetString(), item.GetStringLength());
  }
  return texts;
}

bool RecipeObject::Flag(const char* name) const {
  const rapidjson::Value* value = Find(name);
  if (value == nullptr) return false;
  if (!value->IsBool()) Refuse(std::string("'") + name + "' must be true or false");
  return value->GetBool();
}

rapidjson::Value::ConstArray RecipeObject::Array(const char* name) const {
  const rapidjson::Value& value = Get(name);
  if (!value.IsArray() || value.Empty()) {
    Refuse(std::string("'") + name + "' must be an array that is not empty");
  }
  return value.GetArray();
}

void RecipeObject::Each(const char* name, const std::string& what,
                        const std::function<void(const RecipeObject&)>& read) const {
  size_t number = 0;
  for (const auto& item : Array(name)) {
    read(Inner(item, what + " " + std::to_string(number)));
    ++number;
  }
}

uint64_t RecipeSizes::Value(std::string_view expression) const {
  uint64_t sum = 0;
  for (std::string_view rest = expression;;) {
    const size_t plus = std::min(rest.find('+'), rest.size());
    sum = CheckedAdd(sum, Product(rest.substr(0, plus), expression), ErrorKind::kBadModel,
                     where_ + ": " + Printable(expression));
    if (plus == rest.size()) return sum;
    rest.remove_prefix(plus + 1);
  }
}

uint64_t RecipeSizes::Product(std::string_view text, std::string_view expression) const {
  uint64_t product = 1;
  for (std::string_view rest = text;;) {
    const size_t star = std::min(rest.find('*'), rest.size());
    const std::string_view factor = rest.substr(0, star);
    uint64_t value = 0;
    const char* begin = factor.data();
    const char* end = begin + factor.size();
    const auto [next, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || next != end) {
      const auto size = sizes_.find(factor);
      if (size == sizes_.end()) {
        throw Error(ErrorKind::kBadModel, where_ + ": '" + Printable(expression) + "': '" +
                                              Printable(factor) + "' is no size");
      }
      value = size->second;
    }
    product =
        CheckedMul(product, value, ErrorKind::kBadModel, where_ + ": " + Printable(expression));
    if (star == rest.size()) return product;
    rest.remove_prefix(star + 1);
  }
}

std::vector<std::string> RecipePaths(const plugin::Discovery& discovery, std::string_view suffix,
                                     const std::function<bool(const plugin::Manifest&)>& wanted) {
  constexpr std::string_view kJson = ".json";
  std::vector<const plugin::Candidate*> candidates;
  for (const plugin::Candidate& candidate : discovery.candidates) {
    if (wanted(candidate.manifest)) candidates.push_back(&candidate);
  }
  std::ranges::stable_sort(candidates, std::greater(), [](const plugin::Candidate* candidate) {
    return candidate->manifest.version_parts;
  });
  std::vector<std::string> paths;
  for (const plugin::Candidate* candidate : candidates) {
    const std::string& manifest = candidate->manifest_path;
    const std::string path =
        manifest.substr(0, manifest.size() - kJson.size()) + std::string(suffix);
    if (RealFileSystem().Exists(path)) paths.push_back(path);
  }
  return paths;
}

}  // namespace bloomery::apps
