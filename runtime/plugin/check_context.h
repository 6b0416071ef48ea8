// What every part of the description check needs: where it is, and the words of a refusal. Values
// and references for the length of one check.
#pragma once

#include <bloomery/seat.h>

#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/model/inventory.h"
#include "runtime/plugin/description.h"
#include "runtime/plugin/sized.h"

namespace bloomery::plugin {

struct CheckContext {
  std::string_view plugin;
  const model::ModelFile& model;
  std::span<const bl_plane_type> plane_types;
};

// One item of a description ("weight 3 'blk.0.attn_q.weight'") and the ways it is refused.
class Item {
 public:
  Item(const CheckContext& context, std::string what) : context_(context), what_(std::move(what)) {}

  // The plugin broke the ABI: its author must act.
  [[noreturn]] void Broken(std::string_view field, const std::string& problem) const {
    Throw(ErrorKind::kBadModel, ", field " + std::string(field) + ": " + problem + Author());
  }
  // The ABI has it, this host does not: named so that nobody takes it for served.
  [[noreturn]] void NotOffered(std::string_view field, const std::string& value) const {
    Throw(ErrorKind::kUnsupported,
          ", field " + std::string(field) + ": " + value + " is not offered by this host");
  }
  // The files do not hold what the description says.
  [[noreturn]] void Misfit(const std::string& problem) const {
    Throw(ErrorKind::kBadModel, ": " + problem + " in " + context_.model.path());
  }

  void Require(bool holds, std::string_view field, const std::string& problem) const {
    if (!holds) Broken(field, problem);
  }
  // An enum's value, at least 0 and below `end`.
  void Enum(std::string_view field, int32_t value, int32_t end) const {
    Require(value >= 0 && value < end, field,
            std::to_string(value) + " is not one of the ABI's values");
  }
  void Reserved(uint32_t value) const {
    Require(value == 0, "reserved", std::to_string(value) + ", but reserved members are 0");
  }
  void Flags(std::string_view field, uint32_t value, uint32_t known) const {
    Require((value & ~known) == 0, field,
            "bits " + std::to_string(value & ~known) + " are not known to this ABI");
  }
  // A layer of the seat, or -1 where `outside` allows it.
  void Layer(int32_t layer, uint32_t layers, bool outside) const {
    const bool inside = layer >= 0 && static_cast<uint32_t>(layer) < layers;
    Require(inside || (outside && layer == -1), "layer",
            std::to_string(layer) + ", but the seat has " + std::to_string(layers) + " layers");
  }
  void Owner(bl_owner owner) const {
    Enum("owner", owner, BL_OWNER_TASK + 1);
    static constexpr std::string_view kNames[] = {"main", "draft", "encoder", "task"};
    const bool offered = owner == BL_OWNER_MAIN || owner == BL_OWNER_DRAFT;
    if (!offered) NotOffered("owner", std::string(kNames[owner]));
  }
  // Text of a plugin: not null, not empty, bounded, printable UTF-8.
  std::string Text(std::string_view field, const char* text) const {
    Require(text != nullptr, field, "null");
    const size_t bytes = ::strnlen(text, limits::kPluginTextBytesMax + 1);
    Require(bytes > 0, field, "empty");
    Require(bytes <= limits::kPluginTextBytesMax, field,
            "longer than " + std::to_string(limits::kPluginTextBytesMax) + " bytes");
    const std::string_view view(text, bytes);
    Require(IsValidUtf8(view) && Printable(view, bytes) == view, field,
            "'" + Printable(view) + "' is not printable UTF-8");
    return std::string(view);
  }

  // The same item under a name that is known only after a part of it was read.
  Item Named(const std::string& name) const {
    return {context_, what_ + " '" + Printable(name, limits::kPluginTextBytesMax) + "'"};
  }
  Item Part(const std::string& part) const { return {context_, what_ + ", " + part}; }
  const std::string& what() const { return what_; }
  // An array that belongs to this item; "weight 3, source 0".
  template <class S>
  SizedArray<S> Array(const S* items, uint32_t n, const std::string& part) const {
    return SizedArray<S>(items, n, full() + ", " + part);
  }

 private:
  std::string full() const { return "plugin '" + std::string(context_.plugin) + "': " + what_; }
  [[noreturn]] void Throw(ErrorKind kind, const std::string& rest) const {
    throw Error(kind, full() + rest);
  }
  static std::string Author() { return " (a fault of the plugin)"; }

  const CheckContext& context_;
  std::string what_;
};

// The parts of the check, one file each.
std::vector<Weight> CheckWeights(const CheckContext& context, const bl_seat& seat);
std::vector<Bank> CheckBanks(const CheckContext& context, const bl_seat& seat,
                             std::span<const Weight> weights);
std::vector<Plane> CheckPlanes(const CheckContext& context, const bl_seat& seat);
std::vector<Operator> CheckOperators(const CheckContext& context, const bl_seat& seat);

}  // namespace bloomery::plugin
