#include "runtime/apps/tools/folder_map.h"

#include <algorithm>
#include <array>
#include <optional>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/model/gguf_writer.h"

namespace bloomery::apps {
namespace {

using model::Metadata;
using model::MetadataValue;
using model::ValueKind;

constexpr const char* kLayers = "layers";
constexpr const char* kVocabulary = "vocabulary";

struct KindName {
  std::string_view name;
  ValueKind kind;
};
constexpr std::array kKinds{KindName{"u32", ValueKind::kU32}, KindName{"f32", ValueKind::kF32},
                            KindName{"bool", ValueKind::kBool},
                            KindName{"string", ValueKind::kString}};

FolderKey ReadSize(const RecipeObject& object) {
  object.CheckFields({"size", "from"});
  return {.key = object.Text("size"), .from = object.Texts("from")};
}

FolderKey ReadKey(const RecipeObject& object) {
  object.CheckFields({"key", "type", "from", "optional"});
  FolderKey key{
      .key = object.Text("key"), .from = object.Texts("from"), .optional = object.Flag("optional")};
  const std::string type = object.Text("type");
  const auto found = std::ranges::find(kKinds, type, &KindName::name);
  if (found == kKinds.end()) object.Refuse("'type' must be u32, f32, bool or string");
  key.kind = found->kind;
  return key;
}

FolderRequirement ReadRequirement(const RecipeObject& object) {
  object.CheckFields({"config", "is", "present"});
  FolderRequirement requirement{
      .config = object.Text("config"), .is = std::monostate(), .present = object.Flag("present")};
  const rapidjson::Value& is = object.Get("is");
  if (is.IsBool()) {
    requirement.is = is.GetBool();
  } else if (is.IsUint64()) {
    requirement.is = is.GetUint64();
  } else if (is.IsString()) {
    requirement.is = object.Text("is");
  } else if (!is.IsArray() || !is.Empty()) {
    object.Refuse("'is' must be true, false, a whole number, a text or []");
  }
  return requirement;
}

FolderRow ReadRow(const RecipeObject& object) {
  object.CheckFields({"name", "from", "ne", "unless"});
  FolderRow row{.name = object.Text("name"),
                .from = object.Text("from"),
                .ne = object.Texts("ne"),
                .unless = object.Find("unless") == nullptr ? "" : object.Text("unless")};
  const bool stacked = row.from.find(kExpertMark) != std::string::npos;
  if (row.ne.size() > 4 || (stacked && row.ne.size() < 2)) {
    object.Refuse("'ne' must have 1 to 4 axes, of stacked tensors 2 to 4");
  }
  return row;
}

// The first of `from` that the config has.
const std::string* FirstOf(const Metadata& config, const std::vector<std::string>& from) {
  const auto found =
      std::ranges::find_if(from, [&](const std::string& key) { return config.Has(key); });
  return found == from.end() ? nullptr : &*found;
}

const std::string& Require(const Metadata& config, const FolderKey& key) {
  const std::string* found = FirstOf(config, key.from);
  if (found != nullptr) return *found;
  std::string names;
  for (const std::string& name : key.from) names += (names.empty() ? "'" : " or '") + name + "'";
  throw Error(ErrorKind::kBadModel, config.source() + ": no key " + names);
}

MetadataValue ValueOf(const Metadata& config, const std::string& from, ValueKind kind) {
  if (kind == ValueKind::kF32) return model::F32Value(static_cast<float>(config.GetF64(from)));
  if (kind == ValueKind::kBool) return model::BoolValue(config.GetBool(from));
  if (kind == ValueKind::kString) {
    return model::StringValue(std::string(config.GetString(from)));
  }
  return model::U32Value(CheckedNarrow<uint32_t>(config.GetU64(from), ErrorKind::kBadModel,
                                                 config.source() + ": " + from));
}

std::string Spell(const FolderRequirement& requirement) {
  if (const bool* flag = std::get_if<bool>(&requirement.is)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<uint64_t>(&requirement.is)) return std::to_string(*number);
  if (const auto* text = std::get_if<std::string>(&requirement.is)) return "'" + *text + "'";
  return "[]";
}

bool Holds(const FolderRequirement& requirement, const Metadata& config) {
  const std::string& key = requirement.config;
  if (!config.Has(key)) return !requirement.present;
  if (const bool* flag = std::get_if<bool>(&requirement.is)) return config.GetBool(key) == *flag;
  if (const auto* number = std::get_if<uint64_t>(&requirement.is)) {
    return config.GetU64(key) == *number;
  }
  if (const auto* text = std::get_if<std::string>(&requirement.is)) {
    return config.GetString(key) == *text;
  }
  return config.GetArray(key).size() == 0;
}

}  // namespace

FolderMap FolderMap::Parse(std::string_view json, const std::string& path) {
  const std::string where = "folder map " + path;
  const rapidjson::Document document = ParseJson(
      json, where,
      {.kind = ErrorKind::kBadModel, .bytes_max = limits::kManifestBytesMax, .depth_max = 5});
  const RecipeObject object(document, where);
  object.CheckFields(
      {"model_types", "architectures", "pre_tokenizer", "require", "sizes", "keys", "tensors"});
  FolderMap map(where);
  map.model_types_ = object.Texts("model_types");
  map.architecture_ = object.Texts("architectures").front();
  map.pre_ = object.Text("pre_tokenizer");
  object.Each("require", "requirement", [&](const RecipeObject& requirement) {
    map.requirements_.push_back(ReadRequirement(requirement));
  });
  object.Each("sizes", "size",
              [&](const RecipeObject& size) { map.sizes_.push_back(ReadSize(size)); });
  for (const char* needed : {kLayers, kVocabulary}) {
    if (std::ranges::find(map.sizes_, needed, &FolderKey::key) == map.sizes_.end()) {
      object.Refuse(std::string("no size '") + needed + "'");
    }
  }
  object.Each("keys", "key", [&](const RecipeObject& key) { map.keys_.push_back(ReadKey(key)); });
  object.Each("tensors", "tensor",
              [&](const RecipeObject& row) { map.rows_.push_back(ReadRow(row)); });
  return map;
}

void FolderMap::Check(const Metadata& config) const {
  for (const FolderRequirement& requirement : requirements_) {
    if (Holds(requirement, config)) continue;
    throw Error(ErrorKind::kUnsupported, config.source() + ": '" + requirement.config +
                                             "' is not " + Spell(requirement) +
                                             ": this kind of model is not converted");
  }
}

uint64_t FolderMap::Vocabulary(const Metadata& config) const {
  return Sizes(config).Value(kVocabulary);
}

RecipeSizes FolderMap::Sizes(const Metadata& config) const {
  RecipeSizes sizes(where_);
  for (const FolderKey& size : sizes_) {
    const std::string& from = Require(config, size);
    const uint64_t value = config.GetU64(from);
    if (value == 0 || value > UINT32_MAX) {
      throw Error(ErrorKind::kBadModel, config.source() + ": key '" + from + "' is " +
                                            std::to_string(value) +
                                            ", not between 1 and 4294967295");
    }
    sizes.Set(size.key, value);
  }
  return sizes;
}

std::vector<std::pair<std::string, MetadataValue>> FolderMap::Keys(const Metadata& config) const {
  std::vector<std::pair<std::string, MetadataValue>> keys;
  for (const FolderKey& key : keys_) {
    if (key.optional && FirstOf(config, key.from) == nullptr) continue;
    keys.emplace_back(ReplaceMark(key.key, kArchMark, architecture_),
                      ValueOf(config, Require(config, key), key.kind));
  }
  return keys;
}

std::vector<MappedTensor> FolderMap::Tensors(const Metadata& config) const {
  const RecipeSizes sizes = Sizes(config);
  const uint64_t layers = sizes.Value(kLayers);
  if (layers > limits::kSeatLayersMax) {
    throw Error(ErrorKind::kBadModel, config.source() + ": " + std::to_string(layers) +
                                          " layers, at most " +
                                          std::to_string(limits::kSeatLayersMax) + " are read");
  }
  std::vector<MappedTensor> tensors;
  uint64_t sources = 0;
  InFileOrder(std::span(rows_), layers,
              [&](const FolderRow& row, const std::string& name, std::optional<uint64_t> layer) {
                MappedTensor tensor{.name = name, .ne = {}, .sources = {}};
                tensor.skipped = !row.unless.empty() && config.FindBool(row.unless).value_or(false);
                for (const std::string& n : row.ne) tensor.ne.push_back(sizes.Value(n));
                std::string from = row.from;
                if (layer) from = ReplaceMark(from, kLayerMark, std::to_string(*layer));
                tensor.stacked = from.find(kExpertMark) != std::string::npos;
                if (!tensor.stacked) {
                  tensor.sources.push_back(std::move(from));
                } else {
                  const uint64_t experts = tensor.ne.back();
                  if (experts > limits::kBankExpertsMax) {
                    throw Error(ErrorKind::kBadModel,
                                config.source() + ": " + std::to_string(experts) +
                                    " experts, at most " + std::to_string(limits::kBankExpertsMax) +
                                    " are read");
                  }
                  sources += experts;
                  if (sources > limits::kFolderTensorsMax) {
                    throw Error(ErrorKind::kBadModel,
                                config.source() + ": its layers and experts make more than " +
                                    std::to_string(limits::kFolderTensorsMax) + " tensors");
                  }
                  for (uint64_t e = 0; e < experts; ++e) {
                    tensor.sources.push_back(ReplaceMark(from, kExpertMark, std::to_string(e)));
                  }
                }
                tensors.push_back(std::move(tensor));
              });
  return tensors;
}

FolderMap FindFolderMap(const plugin::Discovery& discovery, const std::string& model_type) {
  const std::vector<std::string> paths =
      RecipePaths(discovery, ".folder.json", [](const plugin::Manifest&) { return true; });
  for (const std::string& path : paths) {
    FolderMap map =
        FolderMap::Parse(ReadWholeFile(RealFileSystem(), path, limits::kManifestBytesMax), path);
    if (std::ranges::find(map.model_types(), model_type) != map.model_types().end()) return map;
  }
  throw Error(ErrorKind::kBadModel, "no plugin says how a folder of model type '" +
                                        Printable(model_type) + "' becomes a model file\n" +
                                        plugin::Describe(discovery));
}

}  // namespace bloomery::apps
