#include <algorithm>
#include <optional>
#include <set>

#include "runtime/plugin/check_context.h"

namespace bloomery::plugin {
namespace {

constexpr std::string_view kActivationNames[] = {"SILU", "GELU", "GELU_TANH", "RELU2"};

void CheckBank(const Item& item, const bl_bank& raw, uint32_t layers) {
  item.Layer(raw.layer, layers, false);
  item.Owner(raw.owner);
  item.Require(
      raw.experts > 0 && raw.experts <= limits::kBankExpertsMax, "experts",
      std::to_string(raw.experts) + ", outside 1 … " + std::to_string(limits::kBankExpertsMax));
  item.Require(raw.used > 0 && raw.used <= raw.experts, "used",
               std::to_string(raw.used) + " of " + std::to_string(raw.experts) + " experts");
  item.Enum("activation", raw.activation, BL_ACT_RELU2 + 1);
  if (raw.activation != BL_ACT_SILU) {
    item.NotOffered("activation", std::string(kActivationNames[raw.activation]));
  }
  for (const double parameter : raw.act_params) {
    item.Require(parameter == 0.0, "act_params",
                 std::to_string(parameter) + ", but SILU has no parameters");
  }
  if (raw.clamp != 0.0) item.NotOffered("clamp", std::to_string(raw.clamp));
  item.Enum("weight_place", raw.weight_place, BL_BEFORE_DOWN + 1);
  if (raw.weight_place != BL_AFTER_DOWN) item.NotOffered("weight_place", "BEFORE_DOWN");
  item.Require(raw.ids_known_ahead <= 1, "ids_known_ahead", "neither 0 nor 1");
  if (raw.ids_known_ahead != 0) item.NotOffered("ids_known_ahead", "1");
  item.Require(raw.width > 0, "width", "0");
  item.Require(raw.ff > 0, "ff", "0");
}

// The one weight that is this part of bank `bank`, present and shaped [ne0, ne1, experts].
uint32_t FindPart(const Item& item, std::span<const Weight> weights, uint32_t bank,
                  bl_bank_part part, const char* name, std::array<uint64_t, 4> ne) {
  std::optional<uint32_t> found;
  for (uint32_t i = 0; i < weights.size(); ++i) {
    const Weight& weight = weights[i];
    if (weight.bank != bank || weight.part != part || !weight.present) continue;
    item.Require(!found, "part", std::string("two weights are its ") + name);
    found = i;
  }
  if (!found) item.Broken("part", std::string("no weight of the file is its ") + name);
  if (weights[*found].ne != ne) {
    item.Misfit("weight '" + weights[*found].name + "' as " + name + " must have the shape [" +
                std::to_string(ne[0]) + ", " + std::to_string(ne[1]) + ", " +
                std::to_string(ne[2]) + "], and has another,");
  }
  return *found;
}

}  // namespace

std::vector<Bank> CheckBanks(const CheckContext& context, const bl_seat& seat,
                             std::span<const Weight> weights) {
  const SizedArray<bl_bank> raw = Item(context, "seat").Array(seat.banks, seat.n_banks, "bank");
  std::vector<Bank> banks;
  std::set<int32_t> layers;
  for (uint32_t i = 0; i < raw.size(); ++i) {
    const bl_bank b = raw[i];
    const Item item(context, "bank " + std::to_string(i));
    CheckBank(item, b, seat.layers);
    item.Require(layers.insert(b.layer).second, "layer",
                 "another bank is that of layer " + std::to_string(b.layer));
    const std::array<uint64_t, 4> in = {b.width, b.ff, b.experts, 1};
    const std::array<uint64_t, 4> out = {b.ff, b.width, b.experts, 1};
    item.Require(b.owner != BL_OWNER_MAIN || banks.empty() || banks.back().owner == BL_OWNER_MAIN,
                 "owner", "the banks of the main entry come before others");
    Bank bank{b.layer, b.owner, b.experts, b.used, b.width, b.ff, 0, 0, 0};
    bank.gate = FindPart(item, weights, i, BL_PART_GATE, "gate", in);
    bank.up = FindPart(item, weights, i, BL_PART_UP, "up", in);
    bank.down = FindPart(item, weights, i, BL_PART_DOWN, "down", out);
    for (const uint32_t part : {bank.gate, bank.up, bank.down}) {
      item.Require(weights[part].layer == b.layer, "layer",
                   "its weight '" + weights[part].name + "' is of another layer");
    }
    banks.push_back(bank);
  }
  return banks;
}

}  // namespace bloomery::plugin
