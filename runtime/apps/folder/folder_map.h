// How a model folder of a hub becomes a model file: sizes and metadata keys out of config.json,
// which tensors of the folder make which tensor of the file and how, and what the config must say
// for that to be true. Read from the file "<seat>.folder.json" that a plugin ships beside its
// binary, so the host knows no model's names. Nothing in the file is believed. Values only.
// docs/tools.md describes the form.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/apps/folder/folder_tokenizer.h"
#include "runtime/apps/folder/recipe.h"
#include "runtime/model/metadata.h"
#include "runtime/plugin/discovery.h"

namespace bloomery::apps {

// A size that comes out of config.json, from the first of `from` that it has.
struct FolderSize {
  std::string name;
  std::vector<std::string> from;
  std::optional<uint64_t> otherwise;  // where the config has none of `from`
  std::string with;  // a tensor of the folder, without which the size is `otherwise`
};

enum class FolderKeyForm { kU32, kF32, kBool, kString, kI32s, kFlags };

// A metadata key of the model file.
struct FolderKey {
  std::string key;  // with "{arch}"
  FolderKeyForm form = FolderKeyForm::kU32;
  std::vector<std::string> from;
  std::string value;               // in place of `from`: an expression of sizes
  std::vector<std::string> times;  // a u32 is multiplied by the first of these, rounded down
  uint64_t count = 0;              // i32s: so many, zeros behind what the config has
  std::string is;                  // flags: one a layer, whether it is of this kind
  bool optional = false;           // left out where the config has none of `from`
};

// What config.json must say at `config`.
struct FolderRequirement {
  std::string config;
  std::variant<bool, uint64_t, std::string, std::monostate> is;  // monostate: an empty array
  bool present = false;  // must be there; else only: where it is there
};

// Kinds of layers, by name: a list with one a layer, or every so-manieth of one kind.
struct FolderKinds {
  std::vector<std::string> from;
  std::vector<std::string> interval;
  std::string each;    // the kind of every interval-th layer
  std::string others;  // of the ones between
};

// A tensor of the folder by another name: what begins with `from` begins with `to` instead. With
// "{d}" in `from`, a number of a draft block, `to` has its layer as "{l}".
struct FolderRename {
  std::string from;
  std::string to;
};

// A tensor of the folder; with `of`, ne[1] entries of its second axis from `first` on.
struct FolderFrom {
  std::string name;   // with "{e}": as many as the last axis, stacked
  std::string first;  // expressions of sizes; "": the whole
  std::string of;
};

enum class FolderChange { kNone, kAddOne, kNegativeExp };

// A regrouping of blocks along an axis as the row has it and as it comes out.
template <typename Size>
struct RegroupOf {
  size_t axis;
  Size first;   // entries in front of it stay
  Size block;   // entries that stay together
  Size groups;  // groups of blocks: block b of group g becomes block b * groups + g
};

struct FolderRow {
  std::string name;              // in the model file; with "{l}": one a layer
  std::vector<FolderFrom> from;  // the first that the folder has
  std::vector<std::string> ne;   // expressions of sizes, as the model file has it
  std::string unless;            // a bool of the config; where it is true, there is no such tensor
  std::vector<std::string> in;   // kinds of layers that have it; empty: all
  FolderChange change = FolderChange::kNone;
  std::optional<RegroupOf<std::string>> regroup;
};

// A tensor of the model file, with sizes worked out.
struct MappedTensor {
  std::string name;
  std::vector<uint64_t> ne;
  std::vector<std::string> sources;  // one; of a stacked tensor, one for each of its last axis
  bool stacked = false;
  bool skipped = false;  // by "unless": not written, its sources may be there
  uint64_t first = 0;    // of the sources' second axis
  uint64_t of = 0;       // how long that is; 0: as the tensor's
  FolderChange change = FolderChange::kNone;
  std::optional<RegroupOf<uint64_t>> regroup;
};

class FolderMap {
 public:
  using HasTensor = std::function<bool(const std::string&)>;  // by the map's names

  // A file holds one map or an array of them. Throws Error(kBadModel) naming `path` and the field
  // that is absent, unknown or wrong.
  static std::vector<FolderMap> Parse(std::string_view json, const std::string& path);

  const std::vector<std::string>& model_types() const { return model_types_; }
  const std::string& architecture() const { return architecture_; }
  const std::vector<PreRule>& pre_tokenizers() const { return pre_; }
  const std::string& inner() const { return inner_; }

  // Throws Error(kUnsupported) naming the requirement that `config` does not meet.
  void Check(const model::Metadata& config) const;
  // By which name the map knows a tensor of the folder; nullopt: it is not read.
  std::optional<std::string> NameOf(const std::string& folder_name,
                                    const model::Metadata& config) const;
  // Throw Error(kBadModel) naming the key that is absent or of another kind. Without `has` a folder
  // has what is asked for first, and nothing that may be missing.
  uint64_t Vocabulary(const model::Metadata& config) const;
  std::vector<std::pair<std::string, model::MetadataValue>> Keys(const model::Metadata& config,
                                                                 const HasTensor& has = {}) const;
  std::vector<MappedTensor> Tensors(const model::Metadata& config, const HasTensor& has = {}) const;

 private:
  // The config's keys, inside `inner` where they are there.
  struct Config {
    const model::Metadata& data;
    const std::string& inner;
    std::string At(const std::string& key) const;
    bool Has(const std::string& key) const { return data.Has(At(key)); }
    // The place of the first that is there.
    std::optional<std::string> FirstOf(const std::vector<std::string>& keys) const;
    std::string Require(const std::vector<std::string>& keys) const;
  };

  explicit FolderMap(const RecipeObject& object);
  static FolderKey ReadKey(const RecipeObject& object);
  static FolderRow ReadRow(const RecipeObject& object);

  Config Of(const model::Metadata& config) const { return {config, inner_}; }
  uint64_t SizeOf(const FolderSize& size, const Config& config, const HasTensor& has) const;
  RecipeSizes Sizes(const Config& config, const HasTensor& has) const;
  // Of each layer, draft blocks last.
  std::vector<std::string> Kinds(const Config& config, const RecipeSizes& sizes) const;
  model::MetadataValue ValueOf(const FolderKey& key, const Config& config,
                               const RecipeSizes& sizes) const;
  static bool Holds(const FolderRequirement& requirement, const Config& config);
  MappedTensor Mapped(const FolderRow& row, std::string name, std::optional<uint64_t> layer,
                      const RecipeSizes& sizes, const HasTensor& has) const;

  std::string where_;
  std::vector<std::string> model_types_;
  std::string architecture_;
  std::vector<PreRule> pre_;
  std::string inner_;
  std::vector<FolderRename> renames_;
  std::vector<std::string> ignored_;  // beginnings of names
  std::optional<FolderKinds> kinds_;
  std::vector<FolderRequirement> requirements_;
  std::vector<FolderSize> sizes_;
  std::vector<FolderKey> keys_;
  std::vector<FolderRow> rows_;
};

// The map of the plugin that has one for this "model_type" of config.json, of the highest version.
// Throws Error(kBadModel) with every folder and verdict when there is none.
FolderMap FindFolderMap(const plugin::Discovery& discovery, const std::string& model_type);

}  // namespace bloomery::apps
