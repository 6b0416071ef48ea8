// Weights of one layer by the names of GGUF files: "blk.{l}.attn_norm.weight". What the blocks of
// this folder describe their weights with.
#pragma once

#include <bloomery/seat.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bloomery::sdk::blocks {

class LayerWeights {
 public:
  LayerWeights(Seat& seat, int32_t layer, bl_owner owner = BL_OWNER_MAIN)
      : seat_(seat), layer_(layer), owner_(owner) {}

  Seat& seat() const { return seat_; }
  int32_t layer() const { return layer_; }
  bl_owner owner() const { return owner_; }

  // `name` without its layer and with its suffix: "attn_q.weight", "ssm_a".
  Weight Add(const std::string& name, bl_role role, std::vector<uint64_t> ne,
             uint32_t flags = 0) const {
    return seat_.AddWeight({.pattern = "blk.{l}." + name,
                            .role = role,
                            .owner = owner_,
                            .layer = layer_,
                            .ne = std::move(ne),
                            .flags = flags});
  }
  Weight AddRouted(const std::string& name, Bank bank, bl_bank_part part,
                   std::vector<uint64_t> ne) const {
    return seat_.AddWeight({.pattern = "blk.{l}." + name,
                            .role = BL_ROLE_ROUTED,
                            .owner = owner_,
                            .layer = layer_,
                            .ne = std::move(ne),
                            .bank = bank,
                            .part = part});
  }
  // An append plane "k.3", a row a position.
  Plane AddRows(const std::string& name, bl_plane_class plane_class, uint64_t width) const {
    return seat_.AddPlane({.name = name + "." + std::to_string(layer_),
                           .owner = owner_,
                           .layer = layer_,
                           .plane_class = plane_class,
                           .width = width});
  }
  // `rows` rows from `row0` on of a matrix that holds several, named as in Add.
  Weight AddPart(const std::string& name, bl_role role, uint64_t width, uint64_t row0,
                 uint64_t rows) const {
    const std::string pattern = "blk.{l}." + name;
    return seat_.AddWeight(
        {.pattern = pattern,
         .role = role,
         .owner = owner_,
         .layer = layer_,
         .ne = {width, rows},
         .sources = {{.pattern = pattern, .verb = BL_VERB_ROW_RANGE, .row0 = row0, .rows = rows}}});
  }
  // A ring plane: of the same rows, those that a row's last `window` keys are.
  Plane AddRing(const std::string& name, bl_plane_class plane_class, uint64_t width,
                uint64_t window) const {
    return seat_.AddPlane({.name = name + "." + std::to_string(layer_),
                           .owner = owner_,
                           .layer = layer_,
                           .rule = BL_PLANE_RING,
                           .plane_class = plane_class,
                           .width = width,
                           .window = window});
  }
  // A fixed plane of one lane, zeros at first: a state that rows overwrite.
  Plane AddState(const std::string& name, uint64_t width,
                 bl_plane_class plane_class = BL_CLASS_RECURRENT) const {
    return seat_.AddPlane({.name = name + "." + std::to_string(layer_),
                           .owner = owner_,
                           .layer = layer_,
                           .rule = BL_PLANE_FIXED,
                           .plane_class = plane_class,
                           .width = width,
                           .types_allowed = {BL_F32},
                           .lanes = 1,
                           .init = BL_INIT_ZERO});
  }

 private:
  Seat& seat_;
  int32_t layer_;
  bl_owner owner_;
};

}  // namespace bloomery::sdk::blocks
