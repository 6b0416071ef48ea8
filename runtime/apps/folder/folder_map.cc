#include "runtime/apps/folder/folder_map.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

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

constexpr const char* kLayers = "layers";
constexpr const char* kDrafts = "drafts";
constexpr const char* kVocabulary = "vocabulary";
constexpr std::string_view kDraftMark = "{d}";
constexpr const char* kDraftKind = "draft";

struct FormName {
  std::string_view name;
  FolderKeyForm form;
};
constexpr std::array kForms{
    FormName{"u32", FolderKeyForm::kU32},   FormName{"f32", FolderKeyForm::kF32},
    FormName{"bool", FolderKeyForm::kBool}, FormName{"string", FolderKeyForm::kString},
    FormName{"i32s", FolderKeyForm::kI32s}, FormName{"flags", FolderKeyForm::kFlags}};

struct ChangeName {
  std::string_view name;
  FolderChange change;
};
constexpr std::array kChanges{ChangeName{"1+", FolderChange::kAddOne},
                              ChangeName{"-exp", FolderChange::kNegativeExp}};

std::optional<uint64_t> FindNumber(const RecipeObject& object, const char* name) {
  const rapidjson::Value* value = object.Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->IsUint64()) object.Refuse(std::string("'") + name + "' must be a whole number");
  return value->GetUint64();
}

std::string TextOr(const RecipeObject& object, const char* name, const char* otherwise) {
  return object.Find(name) == nullptr ? otherwise : object.Text(name);
}

std::vector<std::string> TextsOr(const RecipeObject& object, const char* name) {
  return object.Find(name) == nullptr ? std::vector<std::string>() : object.Texts(name);
}

FolderSize ReadSize(const RecipeObject& object) {
  object.CheckFields({"size", "from", "otherwise", "with"});
  FolderSize size{.name = object.Text("size"),
                  .from = object.Texts("from"),
                  .otherwise = FindNumber(object, "otherwise"),
                  .with = TextOr(object, "with", "")};
  if (!size.with.empty() && !size.otherwise) object.Refuse("'with' needs an 'otherwise'");
  return size;
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

FolderKinds ReadKinds(const RecipeObject& object) {
  object.CheckFields({"from", "interval", "each", "others"});
  return {.from = object.Texts("from"),
          .interval = object.Texts("interval"),
          .each = object.Text("each"),
          .others = object.Text("others")};
}

FolderRename ReadRename(const RecipeObject& object) {
  object.CheckFields({"from", "to"});
  return {.from = object.Text("from"), .to = object.Text("to")};
}

// A name, or several forms that folders have; of a form, which part of its tensor.
std::vector<FolderFrom> ReadFrom(const RecipeObject& object) {
  if (object.Get("from").IsString()) return {{.name = object.Text("from"), .first = "", .of = ""}};
  std::vector<FolderFrom> forms;
  for (const rapidjson::Value& item : object.Array("from")) {
    if (item.IsString()) {
      forms.push_back({.name = {item.GetString(), item.GetStringLength()}, .first = "", .of = ""});
      continue;
    }
    const RecipeObject form = object.Inner(item, "form " + std::to_string(forms.size()));
    form.CheckFields({"name", "first", "of"});
    forms.push_back(
        {.name = form.Text("name"), .first = form.Text("first"), .of = form.Text("of")});
  }
  return forms;
}

RegroupOf<std::string> ReadRegroup(const RecipeObject& object) {
  object.CheckFields({"axis", "first", "block", "groups"});
  const uint64_t axis = FindNumber(object, "axis").value_or(0);
  if (axis > 1) object.Refuse("'axis' must be 0 or 1");
  return {.axis = static_cast<size_t>(axis),
          .first = TextOr(object, "first", "0"),
          .block = object.Text("block"),
          .groups = object.Text("groups")};
}

std::vector<PreRule> ReadPreRules(const RecipeObject& object) {
  if (object.Get("pre_tokenizer").IsString()) {
    return {{.pre = object.Text("pre_tokenizer"), .has = ""}};
  }
  std::vector<PreRule> rules;
  object.Each("pre_tokenizer", "pre-tokenizer", [&](const RecipeObject& rule) {
    rule.CheckFields({"pre", "has"});
    rules.push_back({.pre = rule.Text("pre"), .has = TextOr(rule, "has", "")});
  });
  return rules;
}

// The number where `name` has "{d}", and `name` with `rename` done; nullopt: it is another.
std::optional<std::string> Renamed(const std::string& name, const FolderRename& rename,
                                   uint64_t layers) {
  const size_t mark = rename.from.find(kDraftMark);
  if (mark == std::string::npos) {
    if (!name.starts_with(rename.from)) return std::nullopt;
    return rename.to + name.substr(rename.from.size());
  }
  const std::string_view behind = std::string_view(rename.from).substr(mark + kDraftMark.size());
  if (name.compare(0, mark, rename.from, 0, mark) != 0) return std::nullopt;
  uint64_t draft = 0;
  const char* end = name.data() + name.size();
  const auto [next, error] = std::from_chars(name.data() + mark, end, draft);
  const std::string_view rest(next, static_cast<size_t>(end - next));
  if (error != std::errc() || draft > limits::kSeatLayersMax || !rest.starts_with(behind)) {
    return std::nullopt;
  }
  return ReplaceMark(rename.to, kLayerMark, std::to_string(layers + draft)) +
         std::string(rest.substr(behind.size()));
}

std::string Spell(const FolderRequirement& requirement) {
  if (const bool* flag = std::get_if<bool>(&requirement.is)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<uint64_t>(&requirement.is)) return std::to_string(*number);
  if (const auto* text = std::get_if<std::string>(&requirement.is)) return "'" + *text + "'";
  return "[]";
}

// What the config has, and zeros up to `count`.
MetadataValue NumbersValue(const Metadata& config, const std::string& at, uint64_t count) {
  std::vector<int32_t> numbers;
  for (const int64_t number : config.GetI64Array(at)) {
    numbers.push_back(
        CheckedNarrow<int32_t>(number, ErrorKind::kBadModel, config.source() + ": " + at));
  }
  if (count != 0 && numbers.size() > count) {
    throw Error(ErrorKind::kBadModel, config.source() + ": key '" + at + "' has " +
                                          std::to_string(numbers.size()) + " numbers, at most " +
                                          std::to_string(count) + " are read");
  }
  numbers.resize(std::max<size_t>(numbers.size(), count));
  return model::I32ArrayValue(numbers);
}

}  // namespace

std::string FolderMap::Config::At(const std::string& key) const {
  if (inner.empty()) return key;
  std::string inside = inner;
  inside += "." + key;
  return data.Has(inside) ? inside : key;
}

std::optional<std::string> FolderMap::Config::FirstOf(const std::vector<std::string>& keys) const {
  for (const std::string& key : keys) {
    std::string at = At(key);
    if (data.Has(at)) return at;
  }
  return std::nullopt;
}

std::string FolderMap::Config::Require(const std::vector<std::string>& keys) const {
  std::optional<std::string> found = FirstOf(keys);
  if (found) return std::move(*found);
  std::string names;
  for (const std::string& name : keys) names += (names.empty() ? "'" : " or '") + name + "'";
  throw Error(ErrorKind::kBadModel, data.source() + ": no key " + names);
}

FolderKey FolderMap::ReadKey(const RecipeObject& object) {
  object.CheckFields({"key", "type", "from", "value", "times", "count", "is", "optional"});
  FolderKey key{.key = object.Text("key"),
                .from = TextsOr(object, "from"),
                .value = TextOr(object, "value", ""),
                .times = TextsOr(object, "times"),
                .count = FindNumber(object, "count").value_or(0),
                .is = TextOr(object, "is", ""),
                .optional = object.Flag("optional")};
  const std::string type = object.Text("type");
  const auto* const found = std::ranges::find(kForms, type, &FormName::name);
  if (found == kForms.end()) {
    object.Refuse("'type' must be u32, f32, bool, string, i32s or flags");
  }
  key.form = found->form;
  constexpr uint64_t kNumbersMax = 64;
  if (key.count > kNumbersMax) object.Refuse("'count' is above " + std::to_string(kNumbersMax));
  const int given =
      (key.from.empty() ? 0 : 1) + (key.value.empty() ? 0 : 1) + (key.is.empty() ? 0 : 1);
  if (given != 1) object.Refuse("one of 'from', 'value' and 'is' says where it comes from");
  if (!key.value.empty() && key.form != FolderKeyForm::kU32) object.Refuse("'value' is of a u32");
  if (key.is.empty() == (key.form == FolderKeyForm::kFlags)) object.Refuse("'is' is of flags");
  return key;
}

FolderRow FolderMap::ReadRow(const RecipeObject& object) {
  object.CheckFields({"name", "from", "ne", "unless", "in", "change", "regroup"});
  FolderRow row{.name = object.Text("name"),
                .from = ReadFrom(object),
                .ne = object.Texts("ne"),
                .unless = TextOr(object, "unless", ""),
                .in = TextsOr(object, "in"),
                .regroup = std::nullopt};
  if (row.ne.size() > 4) object.Refuse("'ne' must have 1 to 4 axes, of stacked tensors 2 to 4");
  for (const FolderFrom& from : row.from) {
    const bool needs_two = !from.of.empty() || from.name.find(kExpertMark) != std::string::npos;
    if (needs_two && row.ne.size() < 2) {
      object.Refuse("'ne' must have 1 to 4 axes, of stacked tensors 2 to 4");
    }
  }
  if (object.Find("change") != nullptr) {
    const std::string change = object.Text("change");
    const auto* const found = std::ranges::find(kChanges, change, &ChangeName::name);
    if (found == kChanges.end()) object.Refuse("'change' must be 1+ or -exp");
    row.change = found->change;
  }
  if (const rapidjson::Value* regroup = object.Find("regroup")) {
    row.regroup = ReadRegroup(object.Inner(*regroup, "regroup"));
    const bool one = row.from.size() == 1 && row.from.front().of.empty() &&
                     row.from.front().name.find(kExpertMark) == std::string::npos;
    if (!one || row.ne.size() > 2 || row.regroup->axis >= row.ne.size()) {
      object.Refuse("'regroup' is of a tensor of one or two axes that is one of the folder's");
    }
  }
  return row;
}

FolderMap::FolderMap(const RecipeObject& object) : where_(object.where()) {
  object.CheckFields({"model_types", "architectures", "pre_tokenizer", "inner", "rename", "ignore",
                      "layer_kinds", "require", "sizes", "keys", "tensors"});
  model_types_ = object.Texts("model_types");
  architecture_ = object.Texts("architectures").front();
  pre_ = ReadPreRules(object);
  inner_ = TextOr(object, "inner", "");
  ignored_ = TextsOr(object, "ignore");
  if (object.Find("rename") != nullptr) {
    object.Each("rename", "rename",
                [&](const RecipeObject& rename) { renames_.push_back(ReadRename(rename)); });
  }
  if (const rapidjson::Value* kinds = object.Find("layer_kinds")) {
    kinds_ = ReadKinds(object.Inner(*kinds, "layer_kinds"));
  }
  object.Each("require", "requirement", [&](const RecipeObject& requirement) {
    requirements_.push_back(ReadRequirement(requirement));
  });
  object.Each("sizes", "size", [&](const RecipeObject& size) { sizes_.push_back(ReadSize(size)); });
  for (const char* needed : {kLayers, kVocabulary}) {
    if (std::ranges::find(sizes_, needed, &FolderSize::name) == sizes_.end()) {
      object.Refuse(std::string("no size '") + needed + "'");
    }
  }
  object.Each("keys", "key", [&](const RecipeObject& key) { keys_.push_back(ReadKey(key)); });
  object.Each("tensors", "tensor", [&](const RecipeObject& row) { rows_.push_back(ReadRow(row)); });
}

std::vector<FolderMap> FolderMap::Parse(std::string_view json, const std::string& path) {
  const std::string where = "folder map " + path;
  const rapidjson::Document document = ParseJson(
      json, where,
      {.kind = ErrorKind::kBadModel, .bytes_max = limits::kManifestBytesMax, .depth_max = 8});
  std::vector<FolderMap> maps;
  if (!document.IsArray()) {
    maps.push_back(FolderMap(RecipeObject(document, where)));
    return maps;
  }
  for (const rapidjson::Value& item : document.GetArray()) {
    const std::string at = where + ", map " + std::to_string(maps.size());
    maps.push_back(FolderMap(RecipeObject(item, at)));
  }
  return maps;
}

bool FolderMap::Holds(const FolderRequirement& requirement, const Config& config) {
  const std::string at = config.At(requirement.config);
  if (!config.data.Has(at)) return !requirement.present;
  if (const bool* flag = std::get_if<bool>(&requirement.is)) {
    return config.data.GetBool(at) == *flag;
  }
  if (const auto* number = std::get_if<uint64_t>(&requirement.is)) {
    return config.data.GetU64(at) == *number;
  }
  if (const auto* text = std::get_if<std::string>(&requirement.is)) {
    return config.data.GetString(at) == *text;
  }
  return config.data.GetArray(at).size() == 0;
}

void FolderMap::Check(const Metadata& config) const {
  for (const FolderRequirement& requirement : requirements_) {
    if (Holds(requirement, Of(config))) continue;
    throw Error(ErrorKind::kUnsupported, config.source() + ": '" + requirement.config +
                                             "' is not " + Spell(requirement) +
                                             ": this kind of model is not converted");
  }
}

std::optional<std::string> FolderMap::NameOf(const std::string& folder_name,
                                             const Metadata& config) const {
  for (const std::string& ignored : ignored_) {
    if (folder_name.starts_with(ignored)) return std::nullopt;
  }
  const auto* const layers = &*std::ranges::find(sizes_, kLayers, &FolderSize::name);
  for (const FolderRename& rename : renames_) {
    const auto renamed = Renamed(folder_name, rename, SizeOf(*layers, Of(config), {}));
    if (renamed) return renamed;
  }
  return folder_name;
}

uint64_t FolderMap::Vocabulary(const Metadata& config) const {
  return Sizes(Of(config), {}).Value(kVocabulary);
}

uint64_t FolderMap::SizeOf(const FolderSize& size, const Config& config,
                           const HasTensor& has) const {
  if (!size.with.empty() && !(has && has(size.with))) return *size.otherwise;
  if (size.otherwise && !config.FirstOf(size.from)) return *size.otherwise;
  const std::string at = config.Require(size.from);
  const uint64_t value = config.data.GetU64(at);
  if ((value == 0 && !size.otherwise) || value > UINT32_MAX) {
    throw Error(ErrorKind::kBadModel, config.data.source() + ": key '" + at + "' is " +
                                          std::to_string(value) + ", not between 1 and 4294967295");
  }
  return value;
}

RecipeSizes FolderMap::Sizes(const Config& config, const HasTensor& has) const {
  RecipeSizes sizes(where_);
  sizes.Set(kDrafts, 0);
  for (const FolderSize& size : sizes_) sizes.Set(size.name, SizeOf(size, config, has));
  for (const char* name : {kLayers, kDrafts}) {
    if (sizes.Value(name) <= limits::kSeatLayersMax) continue;
    throw Error(ErrorKind::kBadModel,
                config.data.source() + ": " + std::to_string(sizes.Value(name)) + " " + name +
                    ", at most " + std::to_string(limits::kSeatLayersMax) + " are read");
  }
  return sizes;
}

std::vector<std::string> FolderMap::Kinds(const Config& config, const RecipeSizes& sizes) const {
  const uint64_t layers = sizes.Value(kLayers);
  std::vector<std::string> kinds(layers);
  if (kinds_) {
    const std::optional<std::string> list = config.FirstOf(kinds_->from);
    if (list) {
      const model::MetadataArray& names = config.data.GetStringArray(*list);
      if (names.size() != layers) {
        throw Error(ErrorKind::kBadModel, config.data.source() + ": key '" + *list + "' has " +
                                              std::to_string(names.size()) + " values for " +
                                              std::to_string(layers) + " layers");
      }
      for (uint64_t l = 0; l < layers; ++l) kinds[l] = names.String(l);
    } else {
      const std::string at = config.Require(kinds_->interval);
      const uint64_t interval = config.data.GetU64(at);
      if (interval == 0) {
        throw Error(ErrorKind::kBadModel, config.data.source() + ": key '" + at + "' is 0");
      }
      for (uint64_t l = 0; l < layers; ++l) {
        kinds[l] = (l + 1) % interval == 0 ? kinds_->each : kinds_->others;
      }
    }
    for (uint64_t l = 0; l < layers; ++l) {
      if (kinds[l] == kinds_->each || kinds[l] == kinds_->others) continue;
      throw Error(ErrorKind::kUnsupported, config.data.source() + ": layer " + std::to_string(l) +
                                               " is of the kind '" + Printable(kinds[l]) +
                                               "', which this plugin's folder map does not know");
    }
  }
  kinds.resize(layers + sizes.Value(kDrafts), kDraftKind);
  return kinds;
}

MetadataValue FolderMap::ValueOf(const FolderKey& key, const Config& config,
                                 const RecipeSizes& sizes) const {
  const Metadata& data = config.data;
  const auto u32 = [&](uint64_t value, const std::string& what) {
    return model::U32Value(
        CheckedNarrow<uint32_t>(value, ErrorKind::kBadModel, data.source() + ": " + what));
  };
  if (key.form == FolderKeyForm::kFlags) {
    std::vector<bool> flags;
    for (const std::string& kind : Kinds(config, sizes)) flags.push_back(kind == key.is);
    return model::BoolArrayValue(flags);
  }
  if (!key.value.empty()) return u32(sizes.Value(key.value), key.value);
  const std::string at = config.Require(key.from);
  switch (key.form) {
    case FolderKeyForm::kF32:
      return model::F32Value(static_cast<float>(data.GetF64(at)));
    case FolderKeyForm::kBool:
      return model::BoolValue(data.GetBool(at));
    case FolderKeyForm::kString:
      return model::StringValue(std::string(data.GetString(at)));
    case FolderKeyForm::kI32s:
      return NumbersValue(data, at, key.count);
    default:
      break;
  }
  const uint64_t value = data.GetU64(at);
  if (key.times.empty()) return u32(value, at);
  const std::string factor_at = config.Require(key.times);
  const double product = std::floor(static_cast<double>(value) * data.GetF64(factor_at));
  if (!(product >= 0 && product <= static_cast<double>(UINT32_MAX))) {
    throw Error(ErrorKind::kBadModel,
                data.source() + ": '" + at + "' times '" + factor_at + "' is no size");
  }
  return u32(static_cast<uint64_t>(product), at);
}

std::vector<std::pair<std::string, MetadataValue>> FolderMap::Keys(const Metadata& data,
                                                                   const HasTensor& has) const {
  const Config config = Of(data);
  const RecipeSizes sizes = Sizes(config, has);
  std::vector<std::pair<std::string, MetadataValue>> keys;
  for (const FolderKey& key : keys_) {
    const bool absent = !key.from.empty() && !config.FirstOf(key.from);
    if (key.optional && absent) continue;
    keys.emplace_back(ReplaceMark(key.key, kArchMark, architecture_), ValueOf(key, config, sizes));
  }
  return keys;
}

MappedTensor FolderMap::Mapped(const FolderRow& row, std::string name,
                               std::optional<uint64_t> layer, const RecipeSizes& sizes,
                               const HasTensor& has) const {
  MappedTensor tensor{
      .name = std::move(name), .ne = {}, .sources = {}, .change = row.change, .regroup = {}};
  for (const std::string& n : row.ne) tensor.ne.push_back(sizes.Value(n));
  const auto named = [&](const FolderFrom& from) {
    return layer ? ReplaceMark(from.name, kLayerMark, std::to_string(*layer)) : from.name;
  };
  const auto there = std::ranges::find_if(row.from, [&](const FolderFrom& from) {
    return has && has(ReplaceMark(named(from), kExpertMark, "0"));
  });
  const FolderFrom& from = there == row.from.end() ? row.from.front() : *there;
  if (!from.of.empty()) {
    tensor.first = sizes.Value(from.first);
    tensor.of = sizes.Value(from.of);
    if (tensor.first > tensor.of || tensor.ne[1] > tensor.of - tensor.first) {
      throw Error(ErrorKind::kBadModel,
                  where_ + ": '" + row.name + "' goes past the end of '" + from.name + "'");
    }
  }
  if (row.regroup) {
    tensor.regroup = {.axis = row.regroup->axis,
                      .first = sizes.Value(row.regroup->first),
                      .block = sizes.Value(row.regroup->block),
                      .groups = sizes.Value(row.regroup->groups)};
  }
  tensor.stacked = from.name.find(kExpertMark) != std::string::npos;
  if (!tensor.stacked) {
    tensor.sources.push_back(named(from));
    return tensor;
  }
  const uint64_t experts = tensor.ne.back();
  if (experts > limits::kBankExpertsMax) {
    throw Error(ErrorKind::kBadModel, "a model of " + std::to_string(experts) +
                                          " experts, at most " +
                                          std::to_string(limits::kBankExpertsMax) + " are read: '" +
                                          tensor.name + "' by " + where_);
  }
  for (uint64_t e = 0; e < experts; ++e) {
    tensor.sources.push_back(ReplaceMark(named(from), kExpertMark, std::to_string(e)));
  }
  return tensor;
}

std::vector<MappedTensor> FolderMap::Tensors(const Metadata& data, const HasTensor& has) const {
  const Config config = Of(data);
  const RecipeSizes sizes = Sizes(config, has);
  const std::vector<std::string> kinds = Kinds(config, sizes);
  std::vector<MappedTensor> tensors;
  uint64_t sources = 0;
  InFileOrder(std::span(rows_), kinds.size(),
              [&](const FolderRow& row, const std::string& name, std::optional<uint64_t> layer) {
                if (!row.in.empty() &&
                    !(layer && std::ranges::find(row.in, kinds[*layer]) != row.in.end())) {
                  return;
                }
                MappedTensor tensor = Mapped(row, name, layer, sizes, has);
                tensor.skipped =
                    !row.unless.empty() && data.FindBool(config.At(row.unless)).value_or(false);
                if (tensor.stacked) sources += tensor.sources.size();
                if (sources > limits::kFolderTensorsMax) {
                  throw Error(ErrorKind::kBadModel,
                              data.source() + ": its layers and experts make more than " +
                                  std::to_string(limits::kFolderTensorsMax) + " tensors");
                }
                tensors.push_back(std::move(tensor));
              });
  return tensors;
}

FolderMap FindFolderMap(const plugin::Discovery& discovery, const std::string& model_type) {
  const std::vector<std::string> paths =
      RecipePaths(discovery, ".folder.json", [](const plugin::Manifest&) { return true; });
  for (const std::string& path : paths) {
    std::vector<FolderMap> maps =
        FolderMap::Parse(ReadWholeFile(RealFileSystem(), path, limits::kManifestBytesMax), path);
    for (FolderMap& map : maps) {
      if (std::ranges::find(map.model_types(), model_type) != map.model_types().end()) {
        return std::move(map);
      }
    }
  }
  throw Error(ErrorKind::kBadModel, "no plugin says how a folder of model type '" +
                                        Printable(model_type) + "' becomes a model file\n" +
                                        plugin::Describe(discovery));
}

}  // namespace bloomery::apps
