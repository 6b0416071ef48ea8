// What flags ask of a placement, and what that means for a model's banks. The flags have
// llama.cpp's names; what each does here is in docs/serving.md: dense weights and states of a layer
// always lie where the passes run, so a layer "on the host" is one whose routed experts are. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/memory/placement.h"

namespace bloomery::memory {

// One "REGEX=PLACE" of --override-tensor: tensors in whose name the expression is found.
struct TensorRule {
  std::string pattern = {};  // PCRE2's syntax, which takes what llama.cpp's does
  std::string place = {};    // as written: "CPU", "host", "card", "CUDA0"

  bool OnHost() const { return place == "CPU" || place == "host"; }
  std::string Text() const { return pattern + "=" + place; }
};

// "REGEX=PLACE,REGEX=PLACE"; a comma that no known place stands before belongs to the expression.
// Error(kUsage) for a part without a place, an unknown place, and an expression that is none.
std::vector<TensorRule> ParseTensorRules(std::string_view text);

struct PlacementRequest {
  Place place = Place::kAuto;
  // --gpu-layers: the last so many layers may have experts on the card; none: all.
  std::optional<uint32_t> card_layers = {};
  // --n-cpu-moe: layers below this one keep their experts with the host; UINT32_MAX: --cpu-moe.
  uint32_t host_expert_layers = 0;
  std::vector<TensorRule> rules = {};  // the first that is found in a name counts

  // "--n-cpu-moe 4", "--cpu-moe", "--gpu-layers 20": the flag that keeps the experts of `layer`, of
  // a model of `layers`, with the host; empty where none does.
  std::string KeptFromCard(int32_t layer, uint32_t layers) const;
};

// A bank's tensors in the file: gate, up, down; and the card on which its layer lies.
struct BankNames {
  int32_t layer = -1;
  std::string card = {};  // "CUDA0"
  std::array<std::string, 3> tensors = {};
};

// A tensor that is no bank's, and the card on which it lies.
struct OtherName {
  std::string tensor = {};
  std::string card = {};
};

// By bank, what the request says of a model that is planned for `cards`; none: before it is known
// what lies on which card, and rules may name any. Error(kUsage) naming rule
// and tensor, or both flags: a rule that is found in no name, that puts anything but whole banks on
// the host, that names none of the cards, or one on which what it is found in does not lie (rules
// move no layers), or that contradicts a flag or another rule; a place that the wishes leave no
// room for.
std::vector<BankWish> WishesOf(const PlacementRequest& request, uint32_t layers,
                               std::span<const BankNames> banks, std::span<const OtherName> others,
                               std::span<const std::string> cards);

}  // namespace bloomery::memory
