// A seat's description as the host believes it: what a plugin's bl_seat says, copied into
// host-owned structs after every size, enum, count, index, name and shape was checked against the
// ABI and against the model's files. Weights are resolved to tensors. Whatever this host does not
// offer yet is refused by name here, so that lowering and the engine meet only what they can run.
// Immutable; any thread.
#pragma once

#include <bloomery/plugin.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/inventory.h"

namespace bloomery::plugin {

// One weight, at the index the plugin gave it: nodes name weights by this index.
struct Weight {
  std::string name;  // of the tensor in the file: the pattern with its layer put in
  bl_role role = BL_ROLE_DENSE;
  bl_owner owner = BL_OWNER_MAIN;
  int32_t layer = -1;
  bool present = false;  // false: optional and not in the file, or ignored
  bool alias = false;    // another weight owns the same bytes (tied head)

  // Where present: the bytes [offset, offset + bytes) of the model's tensor, and their shape.
  size_t tensor = 0;  // index into ModelFile::tensors()
  uint64_t offset = 0;
  uint64_t bytes = 0;
  model::TensorType type = model::TensorType::kF32;
  uint32_t n_dims = 0;
  std::array<uint64_t, 4> ne = {1, 1, 1, 1};

  std::optional<uint32_t> bank = {};  // index into banks
  bl_bank_part part = BL_PART_NONE;
};

// The routed experts of one layer: silu(gate x) · (up x), then down, weighted after down.
struct Bank {
  int32_t layer = -1;
  bl_owner owner = BL_OWNER_MAIN;  // those of the main entry come first
  uint32_t experts = 0;
  uint32_t used = 0;
  uint64_t width = 0;  // input and output
  uint64_t ff = 0;     // inner width of one expert
  uint32_t gate = 0;   // indices into weights: [width, ff, experts]
  uint32_t up = 0;     // [width, ff, experts]
  uint32_t down = 0;   // [ff, width, experts]
};

// An append plane of rate 1 (one row for each position of a slot), a ring (the last rows alone), or
// a fixed one (a state of one lane that rows overwrite; it starts as zeros).
struct Plane {
  std::string name;
  int32_t layer = -1;
  bl_plane_rule rule = BL_PLANE_APPEND;
  bl_plane_class plane_class = BL_CLASS_K;
  uint64_t width = 0;      // values of a row or lane; whole blocks of `type`
  bl_dtype type = BL_F16;  // chosen: the flag for the class, or the plugin's default
  uint64_t window = 0;     // ring: rows that a row may read, its own included
};

struct Port {
  std::string name;
  bool optional = false;
};

// A CPU kernel of a plugin's operator. Function pointers stay good for the process's life.
struct Kernel {
  bl_numeric_class numeric_class = BL_EXACT;
  std::vector<bl_encoding> in;
  std::vector<bl_encoding> out;
  int32_t priority = 0;
  decltype(bl_kernel::supports) supports = nullptr;    // may be null: always
  decltype(bl_kernel::workspace) workspace = nullptr;  // may be null: none
  decltype(bl_kernel::prepare) prepare = nullptr;      // may be null
  decltype(bl_kernel::tasks) tasks = nullptr;
  decltype(bl_kernel::run) run = nullptr;
};

// An operator of the plugin's own, "<plugin>.<something>".
struct Operator {
  std::string name;
  uint32_t version = 1;
  std::vector<Port> inputs;
  std::vector<Port> weights;
  std::vector<Port> outputs;
  std::vector<std::string> attrs;  // keys it knows
  decltype(bl_op::infer) infer = nullptr;
  decltype(bl_op::expand) expand = nullptr;  // null where kernels are not
  std::vector<Kernel> kernels;               // CPU kernels, highest priority first
};

struct Entry {
  std::string name;
  bl_entry_kind kind = BL_ENTRY_MAIN;
  uint32_t needs = 0;
  decltype(bl_entry::build) build = nullptr;  // called through Instance::Build
};

struct Description {
  uint32_t layers = 0;
  uint64_t vocabulary = 0;       // length of a logits row
  uint64_t context_trained = 0;  // 0: unknown
  std::vector<Weight> weights;
  std::vector<Bank> banks;
  std::vector<Plane> planes;
  std::vector<Operator> operators;
  std::vector<Entry> entries;
  uint32_t main_entry = 0;                   // index into entries
  std::optional<uint32_t> draft_entry = {};  // the step of the model's own draft
};

// Checks and copies. `plugin` is the plugin's name: its operators must be "<plugin>.…".
// `plane_types` is what the user's cache-type flags chose, by class. Throws Error(kBadModel) naming
// the plugin, the item, the field and the value, or the tensor that is missing, misshapen or
// claimed by nothing; Error(kUnsupported) naming what this host does not offer.
Description CheckDescription(const bl_seat& seat, std::string_view plugin,
                             const model::ModelFile& model,
                             std::span<const bl_plane_type> plane_types);

}  // namespace bloomery::plugin
