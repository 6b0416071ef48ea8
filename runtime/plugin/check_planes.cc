#include <algorithm>
#include <set>

#include "runtime/base/limits.h"
#include "runtime/model/tensor_type.h"
#include "runtime/plugin/check_context.h"

namespace bloomery::plugin {
namespace {

constexpr std::string_view kClassNames[] = {"K", "V", "LATENT", "INDEX", "RAW", "RECURRENT", "TAP"};
constexpr bl_dtype kTypesOffered[] = {BL_F32, BL_F16, BL_Q8_0};

std::string TypeName(bl_dtype type) {
  const auto* info = type < 0 ? nullptr : model::FindTensorType(static_cast<uint32_t>(type));
  return info == nullptr ? std::to_string(type) : std::string(info->name);
}

// The type for a plane: the flag for its class, or the first that the plugin allows.
bl_dtype ChooseType(const CheckContext& context, const Item& item, const bl_plane& raw) {
  const std::span<const bl_dtype> allowed(raw.types_allowed, raw.n_types);
  bl_dtype type = allowed.front();
  for (const bl_plane_type& flag : context.plane_types) {
    if (flag.plane_class == raw.plane_class) type = flag.type;
  }
  if (std::ranges::find(allowed, type) == allowed.end()) {
    std::string list;
    for (const bl_dtype a : allowed) list += (list.empty() ? "" : ", ") + TypeName(a);
    throw Error(ErrorKind::kUsage, "cache type " + TypeName(type) + " for planes of class " +
                                       std::string(kClassNames[raw.plane_class]) + ": " +
                                       item.what() + " of plugin '" + std::string(context.plugin) +
                                       "' allows " + list);
  }
  if (std::ranges::find(kTypesOffered, type) == std::end(kTypesOffered)) {
    item.NotOffered("types_allowed", TypeName(type));
  }
  return type;
}

void CheckTypes(const Item& item, const bl_plane& raw) {
  item.Require(raw.n_types > 0, "n_types", "0: allow at least one type");
  item.Require(raw.n_types <= 64, "n_types", std::to_string(raw.n_types) + ", at most 64");
  item.Require(raw.types_allowed != nullptr, "types_allowed", "null");
  for (uint32_t i = 0; i < raw.n_types; ++i) {
    const bl_dtype type = raw.types_allowed[i];
    item.Require(type >= 0 && model::FindTensorType(static_cast<uint32_t>(type)) != nullptr,
                 "types_allowed", std::to_string(type) + " is not one of the ABI's values");
  }
}

void CheckFixed(const Item& item, const bl_plane& raw) {
  if (raw.plane_class != BL_CLASS_RECURRENT && raw.plane_class != BL_CLASS_TAP) {
    item.NotOffered("plane_class",
                    std::string(kClassNames[raw.plane_class]) + " for a fixed plane");
  }
  item.Require(raw.rate <= 1, "rate", "has no meaning in a fixed plane");
  item.Require(raw.window == 0, "window", "has no meaning in a fixed plane");
  item.Require(raw.lanes > 0, "lanes", "0: a slot has at least one lane");
  if (raw.lanes != 1) item.NotOffered("lanes", std::to_string(raw.lanes));
  if (raw.init != BL_INIT_ZERO) item.NotOffered("init", "NONE for a fixed plane");
  for (uint32_t i = 0; i < raw.n_types; ++i) {
    if (raw.types_allowed[i] != BL_F32) {
      item.NotOffered("types_allowed", TypeName(raw.types_allowed[i]) + " for a fixed plane");
    }
  }
}

void CheckRule(const Item& item, const bl_plane& raw) {
  item.Enum("rule", raw.rule, BL_PLANE_FIXED + 1);
  item.Enum("plane_class", raw.plane_class, BL_CLASS_TAP + 1);
  item.Enum("init", raw.init, BL_INIT_ZERO + 1);
  if (raw.rule == BL_PLANE_FIXED) {
    CheckFixed(item, raw);
    return;
  }
  if (raw.plane_class != BL_CLASS_K && raw.plane_class != BL_CLASS_V) {
    item.NotOffered("plane_class", std::string(kClassNames[raw.plane_class]));
  }
  item.Require(raw.rate > 0, "rate", "0: a row stands for at least one position");
  if (raw.rate != 1) item.NotOffered("rate", std::to_string(raw.rate));
  const bool ring = raw.rule == BL_PLANE_RING;
  const std::string plane = ring ? "a ring plane" : "an append plane";
  if (ring) {
    item.Require(raw.window > 0 && raw.window <= limits::kSlotContextMax, "window",
                 std::to_string(raw.window) + " rows, must be from 1 to " +
                     std::to_string(limits::kSlotContextMax));
  } else {
    item.Require(raw.window == 0, "window", "has no meaning in " + plane);
  }
  item.Require(raw.lanes == 0, "lanes", "has no meaning in " + plane);
  if (raw.init != BL_INIT_NONE) item.NotOffered("init", "ZERO for " + plane);
}

}  // namespace

std::vector<Plane> CheckPlanes(const CheckContext& context, const bl_seat& seat) {
  const SizedArray<bl_plane> raw = Item(context, "seat").Array(seat.planes, seat.n_planes, "plane");
  std::vector<Plane> planes;
  std::set<std::pair<int32_t, std::string>> names;
  for (uint32_t i = 0; i < raw.size(); ++i) {
    const bl_plane p = raw[i];
    const Item unnamed(context, "plane " + std::to_string(i));
    const std::string name = unnamed.Text("name", p.name);
    const Item item = unnamed.Named(name);
    item.Layer(p.layer, seat.layers, true);
    item.Require(names.emplace(p.layer, name).second, "name", "another plane of the layer has it");
    item.Owner(p.owner);
    item.Reserved(p.reserved);
    CheckTypes(item, p);
    CheckRule(item, p);
    item.Require(p.width > 0 && p.width <= uint64_t{INT32_MAX}, "width",
                 std::to_string(p.width) + " values in a row");
    const bl_dtype type = ChooseType(context, item, p);
    const auto* info = model::FindTensorType(static_cast<uint32_t>(type));
    if (p.width % info->block_values != 0) {
      throw Error(ErrorKind::kUsage, "cache type " + TypeName(type) + ": " + item.what() +
                                         " has rows of " + std::to_string(p.width) +
                                         " values, no multiple of its block of " +
                                         std::to_string(info->block_values));
    }
    planes.push_back({name, p.layer, p.rule, p.plane_class, p.width, type, p.window});
  }
  return planes;
}

}  // namespace bloomery::plugin
