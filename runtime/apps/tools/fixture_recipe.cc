#include "runtime/apps/tools/fixture_recipe.h"

#include <algorithm>
#include <array>
#include <cmath>
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
constexpr std::array kFills{
    FillName{"normal", Fill::kNormal},     FillName{"embedding", Fill::kEmbedding},
    FillName{"gains", Fill::kGains},       FillName{"router", Fill::kRouter},
    FillName{"residual", Fill::kResidual}, FillName{"head", Fill::kHead},
    FillName{"uniform", Fill::kUniform},   FillName{"first_half", Fill::kFirstHalf}};

constexpr const char* kLayers = "layers";
constexpr const char* kVocabulary = "vocabulary";
constexpr const char* kDrafts = "drafts";
constexpr const char* kBlocks = "blocks";  // layers and draft layers

std::optional<bool> Flag(const RecipeObject& object, const char* name) {
  const rapidjson::Value* value = object.Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->IsBool()) object.Refuse("'" + std::string(name) + "' must be true or false");
  return value->GetBool();
}

RecipeLayers ReadLayers(const RecipeObject& object) {
  RecipeLayers layers;
  for (const char* field : {"every", "except_every"}) {
    if (object.Find(field) == nullptr) continue;
    if (!layers.every.empty()) object.Refuse("'every' and 'except_every' exclude each other");
    layers.every = object.Text(field);
    layers.others = std::string_view(field) != "every";
  }
  const std::optional<bool> with_first = Flag(object, "with_first");
  layers.first = Flag(object, "first");
  if (object.Find("below") != nullptr) layers.below = object.Text("below");
  if (object.Find("from") != nullptr) layers.from = object.Text("from");
  if (with_first && layers.every.empty()) object.Refuse("'with_first' needs 'every'");
  const int given =
      static_cast<int>(!layers.every.empty()) + static_cast<int>(layers.first.has_value()) +
      static_cast<int>(!layers.below.empty()) + static_cast<int>(!layers.from.empty());
  if (given > 1) object.Refuse("'every', 'first', 'below' and 'from' exclude each other");
  layers.with_first = with_first.value_or(false);
  if (object.Find(kDrafts) == nullptr) return layers;
  const std::string drafts = object.Text(kDrafts);
  if (drafts != "also" && drafts != "only") object.Refuse("'drafts' must be also or only");
  layers.in_drafts = true;
  layers.drafts_only = drafts == "only";
  return layers;
}

RecipeKey ReadKey(const RecipeObject& object) {
  object.CheckFields(
      {"key", "type", "value", "otherwise", "every", "with_first", "first", "below", "from"});
  RecipeKey key{.key = object.Text("key")};
  const std::string type = object.Text("type");
  if (type == "u32") {
    key.expression = object.Text("value");
  } else if (type == "f32") {
    key.kind = model::ValueKind::kF32;
    if (!object.Get("value").IsNumber()) object.Refuse("'value' must be a number");
    key.number = object.Get("value").GetDouble();
  } else if (type == "bool") {
    key.kind = model::ValueKind::kBool;
    object.Get("value");
    key.flag = object.Flag("value");
  } else if (type == "i32s") {
    key.kind = model::ValueKind::kArray;
    key.expression = object.Text("value");
    key.otherwise = object.Text("otherwise");
    key.layers = ReadLayers(object);
  } else {
    object.Refuse("'type' must be u32, f32, bool or i32s");
  }
  return key;
}

double Number(const RecipeObject& object, const char* name, double otherwise) {
  const rapidjson::Value* value = object.Find(name);
  if (value == nullptr) return otherwise;
  if (!value->IsNumber() || !std::isfinite(value->GetDouble())) {
    object.Refuse("'" + std::string(name) + "' must be a number");
  }
  return value->GetDouble();
}

RecipeTensor ReadTensor(const RecipeObject& object) {
  object.CheckFields({"name", "ne", "fill", "gain", "picks", "low", "high", "every", "except_every",
                      "with_first", "first", "below", "from", kDrafts, "over"});
  RecipeTensor tensor{.name = object.Text("name"), .ne = object.Texts("ne")};
  const std::string fill = object.Text("fill");
  const auto found = std::ranges::find(kFills, fill, &FillName::name);
  if (found == kFills.end()) {
    object.Refuse(
        "'fill' must be normal, embedding, gains, router, residual, head, uniform or first_half");
  }
  tensor.fill = found->fill;
  tensor.gain = Number(object, "gain", 1.0);
  tensor.low = Number(object, "low", 0.0);
  tensor.high = Number(object, "high", 0.0);
  if (tensor.fill == Fill::kUniform && tensor.low >= tensor.high) {
    object.Refuse("'low' must be below 'high'");
  }
  tensor.layers = ReadLayers(object);
  if (tensor.fill == Fill::kRouter) tensor.picks = object.Text("picks");
  if (object.Find("over") != nullptr) tensor.over = object.Text("over");
  return tensor;
}

}  // namespace

std::vector<FixtureRecipe> FixtureRecipe::ParseAll(std::string_view json, const std::string& path) {
  const std::string where = "fixture recipe " + path;
  const rapidjson::Document document = ParseJson(
      json, where,
      {.kind = ErrorKind::kBadModel, .bytes_max = limits::kManifestBytesMax, .depth_max = 6});
  std::vector<FixtureRecipe> recipes;
  if (!document.IsArray()) {
    recipes.push_back(Read(RecipeObject(document, where)));
    return recipes;
  }
  for (const rapidjson::Value& value : document.GetArray()) {
    recipes.push_back(
        Read(RecipeObject(value, where + ", recipe " + std::to_string(recipes.size()))));
  }
  return recipes;
}

FixtureRecipe FixtureRecipe::Read(const RecipeObject& object) {
  const std::string& where = object.where();
  object.CheckFields({"model", "architectures", "sizes", "keys", "tensors"});
  FixtureRecipe recipe(where);
  recipe.model_ = object.Text("model");
  recipe.architectures_ = object.Texts("architectures");
  const rapidjson::Value& sizes = object.Get("sizes");
  const RecipeObject checked = object.Inner(sizes, "sizes");
  recipe.sizes_.Set(kLayers, 1);
  recipe.sizes_.Set(kVocabulary, 1);
  recipe.sizes_.Set(kDrafts, 0);
  recipe.sizes_.Set(kBlocks, 1);
  for (const auto& member : sizes.GetObject()) {
    if (!member.value.IsUint64()) checked.Refuse("a size is no whole number");
    recipe.sizes_.Set(member.name.GetString(), member.value.GetUint64());
  }
  recipe.sizes_.Set(
      kBlocks, CheckedAdd(recipe.layers(), recipe.drafts(), ErrorKind::kBadModel, checked.where()));
  object.Each("keys", "key",
              [&](const RecipeObject& key) { recipe.keys_.push_back(ReadKey(key)); });
  object.Each("tensors", "tensor",
              [&](const RecipeObject& tensor) { recipe.tensors_.push_back(ReadTensor(tensor)); });
  return recipe;
}

void FixtureRecipe::Set(const std::string& name, uint64_t value) {
  if (!sizes_.all().contains(name)) {
    std::string known;
    for (const auto& [size, number] : sizes_.all()) {
      known += " " + size + "=" + std::to_string(number);
    }
    throw Error(ErrorKind::kUsage,
                "'" + Printable(name) + "' is no size of " + where_ + "; it has" + known);
  }
  if (name == kBlocks) {
    throw Error(ErrorKind::kUsage, "'blocks' are layers and drafts together; set those");
  }
  sizes_.Set(name, value);
  sizes_.Set(kBlocks, CheckedAdd(layers(), drafts(), ErrorKind::kUsage, "layers and drafts"));
}

uint64_t FixtureRecipe::layers() const { return sizes_.Value(kLayers); }
uint64_t FixtureRecipe::drafts() const { return sizes_.Value(kDrafts); }
uint64_t FixtureRecipe::vocabulary() const { return sizes_.Value(kVocabulary); }

std::vector<std::pair<std::string, model::MetadataValue>> FixtureRecipe::Keys(
    const std::string& arch) const {
  std::vector<std::pair<std::string, model::MetadataValue>> keys;
  keys.reserve(keys_.size());
  for (const RecipeKey& key : keys_) {
    keys.emplace_back(ReplaceMark(key.key, kArchMark, arch), ValueOf(key));
  }
  return keys;
}

model::MetadataValue FixtureRecipe::ValueOf(const RecipeKey& key) const {
  if (key.kind == model::ValueKind::kF32) return model::F32Value(static_cast<float>(key.number));
  if (key.kind == model::ValueKind::kBool) return model::BoolValue(key.flag);
  const std::string what = where_ + ": " + key.key;
  if (key.kind != model::ValueKind::kArray) {
    return model::U32Value(
        CheckedNarrow<uint32_t>(sizes_.Value(key.expression), ErrorKind::kBadModel, what));
  }
  std::vector<int32_t> values;
  for (uint64_t layer = 0; layer < layers(); ++layer) {
    const bool in = InLayer(key.layers, "key '" + key.key + "'", layer);
    values.push_back(CheckedNarrow<int32_t>(sizes_.Value(in ? key.expression : key.otherwise),
                                            ErrorKind::kBadModel, what));
  }
  return model::I32ArrayValue(values);
}

double FixtureRecipe::Over(const RecipeTensor& tensor) const {
  const uint64_t over = tensor.over.empty() ? 1 : sizes_.Value(tensor.over);
  if (over > 0) return static_cast<double>(over);
  throw Error(ErrorKind::kBadModel, where_ + ": tensor '" + tensor.name + "': its gain over 0");
}

FixtureTensor FixtureRecipe::TensorOf(const RecipeTensor& tensor, std::string name) const {
  FixtureTensor out{.name = std::move(name),
                    .ne = {},
                    .fill = tensor.fill,
                    .gain = tensor.gain / Over(tensor),
                    .picks = tensor.picks.empty() ? 0 : sizes_.Value(tensor.picks),
                    .low = tensor.low,
                    .high = tensor.high};
  for (const std::string& n : tensor.ne) out.ne.push_back(sizes_.Value(n));
  if (tensor.fill == Fill::kRouter &&
      (out.ne.size() != 2 || out.picks == 0 || out.picks > out.ne[1])) {
    throw Error(ErrorKind::kBadModel, where_ + ": router '" + out.name + "' picks " +
                                          std::to_string(out.picks) +
                                          ": not between 1 and its rows");
  }
  return out;
}

bool FixtureRecipe::InLayer(const RecipeLayers& layers, const std::string& of,
                            uint64_t layer) const {
  if (layer >= this->layers()) return layers.in_drafts;
  if (layers.drafts_only) return false;
  if (layers.first) return (layer == 0) == *layers.first;
  if (!layers.below.empty()) return layer < sizes_.Value(layers.below);
  if (!layers.from.empty()) return layer >= sizes_.Value(layers.from);
  if (layers.every.empty()) return true;
  const uint64_t every = sizes_.Value(layers.every);
  if (every == 0) throw Error(ErrorKind::kBadModel, where_ + ": " + of + ": every 0 layers");
  const bool in = (layer + 1) % every == 0 || (layers.with_first && layer == 0);
  return in != layers.others;
}

std::vector<FixtureTensor> FixtureRecipe::Tensors() const {
  std::vector<FixtureTensor> tensors;
  InFileOrder(
      std::span(tensors_), sizes_.Value(kBlocks),
      [&](const RecipeTensor& tensor, const std::string& name, std::optional<uint64_t> layer) {
        const bool in = !layer || InLayer(tensor.layers, "tensor '" + tensor.name + "'", *layer);
        if (in) tensors.push_back(TensorOf(tensor, name));
      });
  return tensors;
}

FixtureRecipe FindRecipe(const plugin::Discovery& discovery, const std::string& architecture) {
  const std::vector<std::string> paths =
      RecipePaths(discovery, ".fixture.json", [&](const plugin::Manifest& manifest) {
        return std::ranges::find(manifest.architectures, architecture) !=
               manifest.architectures.end();
      });
  if (paths.empty()) {
    throw Error(ErrorKind::kBadModel, "no plugin for '" + Printable(architecture) +
                                          "' ships a fixture recipe\n" +
                                          plugin::Describe(discovery));
  }
  const std::string& path = paths.front();
  const std::vector<FixtureRecipe> recipes = FixtureRecipe::ParseAll(
      ReadWholeFile(RealFileSystem(), path, limits::kManifestBytesMax), path);
  const auto found = std::ranges::find_if(recipes, [&](const FixtureRecipe& recipe) {
    const std::vector<std::string>& served = recipe.architectures();
    return std::ranges::find(served, architecture) != served.end();
  });
  if (found == recipes.end()) {
    throw Error(ErrorKind::kBadModel,
                "fixture recipe " + path + ": not for '" + Printable(architecture) + "'");
  }
  return *found;
}

}  // namespace bloomery::apps
