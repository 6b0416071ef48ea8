// Which type each tensor of a model gets when the whole is to be of one of the known mixes
// ("Q4_K_M"): a table of tensor-name patterns, the same for every architecture, that gives the
// types public tools give. Constants and pure functions; encodes nothing.
//
//   const QuantMix& mix = GetQuantMix("Q4_K_M");
//   TensorType type = TypeInMix(mix, {.layers = 48}, "blk.0.attn_v.weight", ne, TensorType::kF16);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/model/tensor_type.h"

namespace bloomery::model {

// Where a rule holds: everywhere; in the layers of the "more bits" rule, which are the first
// eighth, the last eighth, and every third between; in models of eight experts.
enum class QuantMixWhen { kAlways, kChosenLayers, kEightExperts };

// One exception of a mix: tensors whose name contains `part` get `type`.
struct QuantMixRule {
  std::string_view part;
  TensorType type;
  QuantMixWhen when;
};

struct QuantMix {
  std::string_view name;
  uint32_t file_type;  // general.file_type
  TensorType base;     // of tensors without a rule
  TensorType head;     // of output.weight, or of token_embd.weight where that serves as head
  TensorType dense;    // like base, for tensors that are not stacked experts
  std::span<const QuantMixRule> rules;  // the first that holds counts
};

std::span<const QuantMix> QuantMixes();
// By name, without regard to case. Throws Error(kUsage) with the known names.
const QuantMix& GetQuantMix(std::string_view name);

// What the rules look at beside the tensor.
struct MixModel {
  uint64_t layers = 0;
  bool tied_head = false;  // no output.weight
  uint64_t experts = 0;
};

// True for tensors that a mix changes: matrices named "….weight" but norms, routers and
// convolutions.
bool IsQuantisable(std::string_view name, std::span<const uint64_t> ne);

// The tensor's type in the mix; `source` where IsQuantisable is false. A row that is no whole
// number of the type's blocks gets the type of 32-value blocks that public tools take in its place.
// Throws Error(kBadModel) naming the tensor when no block fits its row.
TensorType TypeInMix(const QuantMix& mix, const MixModel& model, std::string_view name,
                     std::span<const uint64_t> ne, TensorType source);

}  // namespace bloomery::model
