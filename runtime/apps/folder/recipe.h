// What the JSON files that a plugin ships for tools have in common (fixture_recipe.h,
// folder_map.h): checked access to fields, sizes by name with products of them, the order of
// tensors in a file, and which plugin's file counts. Nothing in such a file is believed. Values
// only; an object views the document it was made from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/plugin/discovery.h"

namespace bloomery::apps {

// Placeholders in names and keys.
inline constexpr std::string_view kLayerMark = "{l}";
inline constexpr std::string_view kExpertMark = "{e}";
inline constexpr std::string_view kArchMark = "{arch}";

// The text with the first `what` in it replaced.
std::string ReplaceMark(std::string text, std::string_view what, std::string_view with);

// One JSON object of a recipe, and where it is, for messages. All access throws Error(kBadModel)
// naming that place and the field.
class RecipeObject {
 public:
  RecipeObject(const rapidjson::Value& value, std::string where);

  const std::string& where() const { return where_; }
  [[noreturn]] void Refuse(const std::string& problem) const;
  void CheckFields(std::initializer_list<std::string_view> known) const;
  const rapidjson::Value* Find(const char* name) const;
  const rapidjson::Value& Get(const char* name) const;
  // Not empty, at most limits::kPluginTextBytesMax.
  std::string Text(const char* name) const;
  std::vector<std::string> Texts(const char* name) const;
  bool Flag(const char* name) const;  // false when absent
  // Not empty.
  rapidjson::Value::ConstArray Array(const char* name) const;
  RecipeObject Inner(const rapidjson::Value& value, const std::string& what) const {
    return {value, where_ + ", " + what};
  }
  // Each object of the array `name`: read(object), its place "<what> <number>".
  void Each(const char* name, const std::string& what,
            const std::function<void(const RecipeObject&)>& read) const;

 private:
  const rapidjson::Value& value_;
  std::string where_;
};

// Sizes by name, and sums of products of names and numbers: "2*heads*head+width".
class RecipeSizes {
 public:
  explicit RecipeSizes(std::string where) : where_(std::move(where)) {}

  void Set(const std::string& name, uint64_t value) { sizes_[name] = value; }
  const std::map<std::string, uint64_t, std::less<>>& all() const { return sizes_; }
  // Throws Error(kBadModel) for a name that is no size and for values beyond 64 bits.
  uint64_t Value(std::string_view expression) const;

 private:
  uint64_t Product(std::string_view product, std::string_view expression) const;

  std::string where_;
  std::map<std::string, uint64_t, std::less<>> sizes_;
};

// Calls add(row, name, layer) in file order: what stands before the first row whose name has a
// "{l}", the layers, the rest. Outside the layers there is no layer.
template <typename Row, typename Add>
void InFileOrder(std::span<const Row> rows, uint64_t layers, Add add) {
  const auto layered = [](const Row& row) { return row.name.find(kLayerMark) != row.name.npos; };
  const auto first = std::ranges::find_if(rows, layered);
  const std::optional<uint64_t> none;
  for (auto it = rows.begin(); it != first; ++it) add(*it, it->name, none);
  for (uint64_t l = 0; l < layers; ++l) {
    for (const Row& row : rows) {
      if (layered(row)) {
        add(row, ReplaceMark(row.name, kLayerMark, std::to_string(l)), std::optional(l));
      }
    }
  }
  for (auto it = first; it != rows.end(); ++it) {
    if (!layered(*it)) add(*it, it->name, none);
  }
}

// Paths of "<seat><suffix>" beside the manifests of the plugins that `wanted` takes, those of
// higher versions first, then in the order of discovery. Only files that exist.
std::vector<std::string> RecipePaths(const plugin::Discovery& discovery, std::string_view suffix,
                                     const std::function<bool(const plugin::Manifest&)>& wanted);

}  // namespace bloomery::apps
