#include "runtime/apps/tools/fixture_recipe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/model/gguf_writer.h"

namespace bloomery::apps {
namespace {

struct FillName {
  std::string_view name;
  Fill fill;
};
constexpr std::array kFills{FillName{"normal", Fill::kNormal},
                            FillName{"embedding", Fill::kEmbedding},
                            FillName{"gains", Fill::kGains}, FillName{"router", Fill::kRouter}};

constexpr std::string_view kLayer = "{l}";
constexpr std::string_view kArch = "{arch}";
constexpr std::string_view kLayers = "layers";
constexpr std::string_view kVocabulary = "vocabulary";

std::string Replace(std::string text, std::string_view what, std::string_view with) {
  const size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), with);
  return text;
}

// One JSON object of the recipe, and where it is, for messages.
class Object {
 public:
  Object(const rapidjson::Value& value, std::string where)
      : value_(value), where_(std::move(where)) {
    if (!value.IsObject()) Refuse("not an object");
  }

  [[noreturn]] void Refuse(const std::string& problem) const {
    throw Error(ErrorKind::kBadModel, "fixture recipe " + where_ + ": " + problem);
  }
  void CheckFields(std::initializer_list<std::string_view> known) const {
    for (const auto& member : value_.GetObject()) {
      const std::string_view name(member.name.GetString(), member.name.GetStringLength());
      if (std::ranges::find(known, name) == known.end()) {
        Refuse("unknown field '" + Printable(name) + "'");
      }
    }
  }
  const rapidjson::Value* Find(const char* name) const {
    const auto found = value_.FindMember(name);
    return found == value_.MemberEnd() ? nullptr : &found->value;
  }
  const rapidjson::Value& Get(const char* name) const {
    const rapidjson::Value* found = Find(name);
    if (found == nullptr) Refuse(std::string("no field '") + name + "'");
    return *found;
  }
  std::string Text(const char* name) const {
    const rapidjson::Value& value = Get(name);
    if (!value.IsString() || value.GetStringLength() == 0 ||
        value.GetStringLength() > limits::kPluginTextBytesMax) {
      Refuse(std::string("'") + name + "' must be a text that is not empty");
    }
    return {value.GetString(), value.GetStringLength()};
  }
  std::vector<std::string> Texts(const char* name) const {
    std::vector<std::string> texts;
    for (const auto& item : Array(name)) {
      if (!item.IsString()) Refuse(std::string("'") + name + "' must hold texts only");
      texts.emplace_back(item.GetString(), item.GetStringLength());
    }
    return texts;
  }
  rapidjson::Value::ConstArray Array(const char* name) const {
    const rapidjson::Value& value = Get(name);
    if (!value.IsArray() || value.Empty()) {
      Refuse(std::string("'") + name + "' must be an array that is not empty");
    }
    return value.GetArray();
  }
  Object Inner(const rapidjson::Value& value, const std::string& what) const {
    return {value, where_ + ", " + what};
  }

 private:
  const rapidjson::Value& value_;
  std::string where_;
};

RecipeKey ReadKey(const Object& object) {
  object.CheckFields({"key", "type", "value"});
  RecipeKey key{.key = object.Text("key")};
  const std::string type = object.Text("type");
  if (type == "u32") {
    key.expression = object.Text("value");
  } else if (type == "f32") {
    key.kind = model::ValueKind::kF32;
    if (!object.Get("value").IsNumber()) object.Refuse("'value' must be a number");
    key.number = object.Get("value").GetDouble();
  } else {
    object.Refuse("'type' must be u32 or f32");
  }
  return key;
}

RecipeTensor ReadTensor(const Object& object) {
  object.CheckFields({"name", "ne", "fill", "gain", "picks"});
  RecipeTensor tensor{.name = object.Text("name"), .ne = object.Texts("ne")};
  const std::string fill = object.Text("fill");
  const auto found = std::ranges::find(kFills, fill, &FillName::name);
  if (found == kFills.end()) {
    object.Refuse("'fill' must be normal, embedding, gains or router");
  }
  tensor.fill = found->fill;
  if (const rapidjson::Value* gain = object.Find("gain")) {
    if (!gain->IsNumber() || !std::isfinite(gain->GetDouble())) {
      object.Refuse("'gain' must be a number");
    }
    tensor.gain = gain->GetDouble();
  }
  if (tensor.fill == Fill::kRouter) tensor.picks = object.Text("picks");
  return tensor;
}

}  // namespace

FixtureRecipe FixtureRecipe::Parse(std::string_view json, const std::string& path) {
  const rapidjson::Document document = ParseJson(
      json, "fixture recipe " + path,
      {.kind = ErrorKind::kBadModel, .bytes_max = limits::kManifestBytesMax, .depth_max = 5});
  const Object object(document, path);
  object.CheckFields({"model", "architectures", "sizes", "keys", "tensors"});
  FixtureRecipe recipe;
  recipe.path_ = path;
  recipe.model_ = object.Text("model");
  recipe.architectures_ = object.Texts("architectures");
  const Object sizes = object.Inner(object.Get("sizes"), "sizes");
  for (const auto& member : object.Get("sizes").GetObject()) {
    if (!member.value.IsUint64()) sizes.Refuse("a size is no whole number");
    recipe.sizes_[member.name.GetString()] = member.value.GetUint64();
  }
  recipe.sizes_.try_emplace(std::string(kLayers), 1);
  recipe.sizes_.try_emplace(std::string(kVocabulary), 1);
  for (const auto& key : object.Array("keys")) {
    recipe.keys_.push_back(
        ReadKey(object.Inner(key, "key " + std::to_string(recipe.keys_.size()))));
  }
  for (const auto& tensor : object.Array("tensors")) {
    recipe.tensors_.push_back(
        ReadTensor(object.Inner(tensor, "tensor " + std::to_string(recipe.tensors_.size()))));
  }
  return recipe;
}

void FixtureRecipe::Set(const std::string& name, uint64_t value) {
  const auto found = sizes_.find(name);
  if (found == sizes_.end()) {
    std::string known;
    for (const auto& [size, number] : sizes_) {
      known += " " + size + "=" + std::to_string(number);
    }
    throw Error(ErrorKind::kUsage,
                "'" + Printable(name) + "' is no size of " + path_ + "; it has" + known);
  }
  found->second = value;
}

uint64_t FixtureRecipe::Value(std::string_view expression) const {
  uint64_t product = 1;
  for (std::string_view rest = expression;;) {
    const size_t star = std::min(rest.find('*'), rest.size());
    const std::string_view factor = rest.substr(0, star);
    uint64_t value = 0;
    const char* begin = factor.data();
    const char* end = begin + factor.size();
    const auto [next, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || next != end) {
      const auto size = sizes_.find(factor);
      if (size == sizes_.end()) {
        throw Error(ErrorKind::kBadModel, "fixture recipe " + path_ + ": '" +
                                              Printable(expression) + "': '" + Printable(factor) +
                                              "' is no size");
      }
      value = size->second;
    }
    product = CheckedMul(product, value, ErrorKind::kBadModel,
                         "fixture recipe " + path_ + ": " + Printable(expression));
    if (star == rest.size()) return product;
    rest.remove_prefix(star + 1);
  }
}

std::vector<std::pair<std::string, model::MetadataValue>> FixtureRecipe::Keys(
    const std::string& arch) const {
  std::vector<std::pair<std::string, model::MetadataValue>> keys;
  keys.reserve(keys_.size());
  for (const RecipeKey& key : keys_) {
    keys.emplace_back(
        Replace(key.key, kArch, arch),
        key.kind == model::ValueKind::kF32
            ? model::F32Value(static_cast<float>(key.number))
            : model::U32Value(CheckedNarrow<uint32_t>(Value(key.expression), ErrorKind::kBadModel,
                                                      "fixture recipe " + path_ + ": " + key.key)));
  }
  return keys;
}

FixtureTensor FixtureRecipe::TensorOf(const RecipeTensor& tensor, std::string name) const {
  FixtureTensor out{.name = std::move(name),
                    .ne = {},
                    .fill = tensor.fill,
                    .gain = tensor.gain,
                    .picks = tensor.picks.empty() ? 0 : Value(tensor.picks)};
  for (const std::string& n : tensor.ne) out.ne.push_back(Value(n));
  if (tensor.fill == Fill::kRouter &&
      (out.ne.size() != 2 || out.picks == 0 || out.picks > out.ne[1])) {
    throw Error(ErrorKind::kBadModel, "fixture recipe " + path_ + ": router '" + out.name +
                                          "' picks " + std::to_string(out.picks) +
                                          ": not between 1 and its rows");
  }
  return out;
}

std::vector<FixtureTensor> FixtureRecipe::Tensors() const {
  std::vector<FixtureTensor> tensors;
  const auto layered = [](const RecipeTensor& tensor) {
    return tensor.name.find(kLayer) != std::string::npos;
  };
  // In file order: what stands before the first layered tensor, the layers, the rest.
  const auto first = std::ranges::find_if(tensors_, layered);
  for (auto it = tensors_.begin(); it != first; ++it) tensors.push_back(TensorOf(*it, it->name));
  for (uint64_t l = 0; l < layers(); ++l) {
    for (const RecipeTensor& tensor : tensors_) {
      if (!layered(tensor)) continue;
      tensors.push_back(TensorOf(tensor, Replace(tensor.name, kLayer, std::to_string(l))));
    }
  }
  for (auto it = first; it != tensors_.end(); ++it) {
    if (!layered(*it)) tensors.push_back(TensorOf(*it, it->name));
  }
  return tensors;
}

FixtureRecipe FindRecipe(const plugin::Discovery& discovery, const std::string& architecture) {
  const plugin::Candidate* best = nullptr;
  const auto path_of = [](const plugin::Candidate& candidate) {
    constexpr std::string_view kJson = ".json";
    const std::string& path = candidate.manifest_path;
    return path.substr(0, path.size() - kJson.size()) + ".fixture.json";
  };
  for (const plugin::Candidate& candidate : discovery.candidates) {
    const auto& claimed = candidate.manifest.architectures;
    if (std::ranges::find(claimed, architecture) == claimed.end()) continue;
    if (!RealFileSystem().Exists(path_of(candidate))) continue;
    if (best == nullptr || best->manifest.version_parts < candidate.manifest.version_parts) {
      best = &candidate;
    }
  }
  if (best == nullptr) {
    throw Error(ErrorKind::kBadModel, "no plugin for '" + Printable(architecture) +
                                          "' ships a fixture recipe\n" +
                                          plugin::Describe(discovery));
  }
  const std::string path = path_of(*best);
  FixtureRecipe recipe =
      FixtureRecipe::Parse(ReadWholeFile(RealFileSystem(), path, limits::kManifestBytesMax), path);
  const auto& served = recipe.architectures();
  if (std::ranges::find(served, architecture) == served.end()) {
    throw Error(ErrorKind::kBadModel,
                "fixture recipe " + path + ": not for '" + Printable(architecture) + "'");
  }
  return recipe;
}

}  // namespace bloomery::apps
