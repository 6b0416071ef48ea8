// How a model folder of a hub becomes a model file: sizes and metadata keys out of config.json,
// which tensors of the folder make which tensor of the file, and what the config must say for that
// to be true. Read from the file "<seat>.folder.json" that a plugin ships beside its binary, so the
// host knows no model's names. Nothing in the file is believed. Values only. docs/tools.md
// describes the form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/apps/tools/recipe.h"
#include "runtime/model/metadata.h"
#include "runtime/plugin/discovery.h"

namespace bloomery::apps {

// A size or a key that comes out of config.json, from the first of `from` that it has.
struct FolderKey {
  std::string key;  // of the model file, with "{arch}"; of a size: its name
  model::ValueKind kind = model::ValueKind::kU32;
  std::vector<std::string> from;
  bool optional = false;  // left out where the config has none of `from`
};

// What config.json must say at `config`.
struct FolderRequirement {
  std::string config;
  std::variant<bool, uint64_t, std::string, std::monostate> is;  // monostate: an empty array
  bool present = false;  // must be there; else only: where it is there
};

struct FolderRow {
  std::string name;             // in the model file; with "{l}": one a layer
  std::string from;             // in the folder; with "{e}": as many as the last axis, stacked
  std::vector<std::string> ne;  // products of sizes, as the model file has it
  std::string unless;           // a bool of the config; where it is true, there is no such tensor
};

// A tensor of the model file, with sizes worked out.
struct MappedTensor {
  std::string name;
  std::vector<uint64_t> ne;
  std::vector<std::string> sources;  // one; of a stacked tensor, one for each of its last axis
  bool stacked = false;
  bool skipped = false;  // by "unless": not written, its sources may be there
};

class FolderMap {
 public:
  // Throws Error(kBadModel) naming `path` and the field that is absent, unknown or wrong.
  static FolderMap Parse(std::string_view json, const std::string& path);

  const std::vector<std::string>& model_types() const { return model_types_; }
  const std::string& architecture() const { return architecture_; }
  const std::string& pre_tokenizer() const { return pre_; }

  // Throws Error(kUnsupported) naming the requirement that `config` does not meet.
  void Check(const model::Metadata& config) const;
  // Throw Error(kBadModel) naming the key that is absent or of another kind.
  uint64_t Vocabulary(const model::Metadata& config) const;
  std::vector<std::pair<std::string, model::MetadataValue>> Keys(
      const model::Metadata& config) const;
  std::vector<MappedTensor> Tensors(const model::Metadata& config) const;

 private:
  RecipeSizes Sizes(const model::Metadata& config) const;

  explicit FolderMap(std::string where) : where_(std::move(where)) {}

  std::string where_;
  std::vector<std::string> model_types_;
  std::string architecture_;
  std::string pre_;
  std::vector<FolderRequirement> requirements_;
  std::vector<FolderKey> sizes_;
  std::vector<FolderKey> keys_;
  std::vector<FolderRow> rows_;
};

// The map of the plugin that has one for this "model_type" of config.json, of the highest version.
// Throws Error(kBadModel) with every folder and verdict when there is none.
FolderMap FindFolderMap(const plugin::Discovery& discovery, const std::string& model_type);

}  // namespace bloomery::apps
