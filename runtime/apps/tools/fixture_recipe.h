// What a model of random weights is made of: sizes by name, metadata keys and tensors, read from
// the file "<seat>.fixture.json" that a plugin ships beside its binary. So the host knows no
// model's shapes, and a third party's plugin brings its own. Nothing in the file is believed.
// Values only. docs/tools.md describes the form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/apps/folder/recipe.h"
#include "runtime/model/metadata.h"
#include "runtime/plugin/discovery.h"

namespace bloomery::apps {

// How a tensor is filled. docs/tools.md says what each keeps near one.
enum class Fill { kNormal, kEmbedding, kGains, kRouter, kResidual, kHead, kUniform, kFirstHalf };

// Some of a model's layers. Of `every`, `first`, `below` and `from` at most one is given.
struct RecipeLayers {
  std::string every = {};          // each so-many-th; empty: all
  bool with_first = false;         // and the first one
  bool others = false;             // those that `every` leaves out instead
  std::optional<bool> first = {};  // the first one alone, or all but it
  std::string below = {};          // so many first ones
  std::string from = {};           // all but so many first ones
  // Whether draft layers, which lie behind the others, have it, and whether they alone do.
  bool in_drafts = false;
  bool drafts_only = false;
};

struct RecipeTensor {
  std::string name;  // with "{l}": one a layer
  std::vector<std::string> ne = {};
  Fill fill = Fill::kNormal;
  double gain = 1.0;
  std::string picks = {};  // of a router: experts a row takes
  std::string over = {};   // the gain is divided by this size
  double low = 0;          // of kUniform
  double high = 0;
  RecipeLayers layers = {};
};

struct RecipeKey {
  std::string key;                                 // with "{arch}"
  model::ValueKind kind = model::ValueKind::kU32;  // kArray: i32, one a layer
  std::string expression = {};                     // of u32; of i32 in `layers`
  std::string otherwise = {};                      // of i32 in the other layers
  double number = 0;                               // of f32
  bool flag = false;                               // of bool
  RecipeLayers layers = {};
};

// A tensor of one layer with its sizes worked out.
struct FixtureTensor {
  std::string name;
  std::vector<uint64_t> ne;
  Fill fill;
  double gain;
  uint64_t picks;  // routers only
  double low = 0;  // kUniform only
  double high = 0;
};

class FixtureRecipe {
 public:
  // One recipe, or an array of them. Throws Error(kBadModel) naming `path` and the field that is
  // absent, unknown or wrong.
  static std::vector<FixtureRecipe> ParseAll(std::string_view json, const std::string& path);

  const std::string& model() const { return model_; }
  const std::vector<std::string>& architectures() const { return architectures_; }
  // Other sizes by name, also "layers", "drafts" and "vocabulary". Throws Error(kUsage) for a name
  // the recipe does not have.
  void Set(const std::string& name, uint64_t value);

  // With sizes worked out. Throws Error(kBadModel) for a name that is no size and for products
  // beyond 64 bits.
  std::vector<std::pair<std::string, model::MetadataValue>> Keys(const std::string& arch) const;
  std::vector<FixtureTensor> Tensors() const;
  uint64_t layers() const;
  uint64_t drafts() const;
  uint64_t vocabulary() const;

 private:
  explicit FixtureRecipe(const std::string& where) : where_(where), sizes_(where) {}
  static FixtureRecipe Read(const RecipeObject& object);
  bool InLayer(const RecipeLayers& layers, const std::string& of, uint64_t layer) const;
  model::MetadataValue ValueOf(const RecipeKey& key) const;
  double Over(const RecipeTensor& tensor) const;
  FixtureTensor TensorOf(const RecipeTensor& tensor, std::string name) const;

  std::string where_;  // for messages
  std::string model_;
  std::vector<std::string> architectures_;
  RecipeSizes sizes_;
  std::vector<RecipeKey> keys_;
  std::vector<RecipeTensor> tensors_;
};

// The recipe of the plugin that claims `architecture`, of the highest version that ships one; of an
// array the first that is for it.
// Throws Error(kBadModel) with every folder and verdict when there is none.
FixtureRecipe FindRecipe(const plugin::Discovery& discovery, const std::string& architecture);

}  // namespace bloomery::apps
