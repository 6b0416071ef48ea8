#include "runtime/exec/placing.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <map>
#include <set>
#include <tuple>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace bloomery::exec {
namespace {

std::set<uint32_t> WeightsOfBanks(const plugin::Description& description) {
  std::set<uint32_t> weights;
  for (const plugin::Bank& bank : description.banks) {
    weights.insert({bank.gate, bank.up, bank.down});
  }
  return weights;
}

// Of the banks' weights that may not lie on a card as a whole: how much of them may.
std::map<uint32_t, double> BankShares(const SeatOptions& options,
                                      const plugin::Description& description) {
  const memory::LayerRange layers = {0, description.layers};
  const std::vector<memory::BankWish> wishes =
      BankWishesOf(description, options.placing, {}, {&layers, 1});
  std::map<uint32_t, double> shares;
  for (size_t i = 0; i < description.banks.size(); ++i) {
    const plugin::Bank& bank = description.banks[i];
    double share = 1;
    if (options.card_frames >= 0 && wishes[i] == memory::BankWish::kFree) {
      share = std::min(1.0, static_cast<double>(options.card_frames) / bank.experts);
    }
    if (wishes[i] == memory::BankWish::kHost) share = 0;
    if (share == 1) continue;
    for (const uint32_t weight : {bank.gate, bank.up, bank.down}) shares[weight] = share;
  }
  return shares;
}

size_t StageOfLayer(int32_t layer, std::span<const memory::LayerRange> stages) {
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].Has(layer)) return i;
  }
  return stages.size() - 1;
}

}  // namespace

size_t StageOf(const plugin::Weight& weight, std::span<const memory::LayerRange> stages) {
  if (weight.owner != BL_OWNER_MAIN) return stages.size() - 1;
  if (weight.layer < 0 && weight.role == BL_ROLE_TABLE) return 0;
  return StageOfLayer(weight.layer, stages);
}

size_t StageOf(const plugin::Bank& bank, std::span<const memory::LayerRange> stages) {
  return bank.owner == BL_OWNER_MAIN ? StageOfLayer(bank.layer, stages) : stages.size() - 1;
}

size_t StageOf(const plugin::Plane& plane, std::span<const memory::LayerRange> stages) {
  return StageOfLayer(plane.layer, stages);
}

std::vector<memory::LayerRange> CutLayers(
    const SeatOptions& options, const plugin::Description& description,
    std::span<const memory::CardRoom> cards,
    const std::function<uint64_t(uint32_t weight)>& weight_bytes,
    const std::function<uint64_t(uint32_t plane)>& plane_bytes) {
  if (!options.shares.empty()) {
    return memory::CutByShares(description.layers, options.shares, cards.size());
  }
  // Every layer, and what is before and behind them, as if each were a stage.
  std::vector<memory::LayerRange> parts = {{0, 0}};
  for (uint32_t layer = 0; layer < description.layers; ++layer) parts.push_back({layer, layer + 1});
  parts.emplace_back(description.layers, description.layers);
  std::vector<uint64_t> bytes(parts.size(), 0);
  const auto add = [&](size_t part, uint64_t more) {
    bytes[part] = CheckedAdd(bytes[part], more, ErrorKind::kNoMemory, "layers on a card");
  };
  const std::map<uint32_t, double> shares = BankShares(options, description);
  std::set<std::tuple<size_t, size_t, uint64_t>> counted;  // part, tensor, offset
  for (uint32_t i = 0; i < description.weights.size(); ++i) {
    const plugin::Weight& weight = description.weights[i];
    if (!weight.present) continue;
    const size_t part = StageOf(weight, parts);
    if (!counted.emplace(part, weight.tensor, weight.offset).second) continue;
    const auto share = shares.find(i);
    const uint64_t all = weight_bytes(i);
    add(part, share == shares.end()
                  ? all
                  : static_cast<uint64_t>(share->second * static_cast<double>(all)));
  }
  for (uint32_t i = 0; i < description.planes.size(); ++i) {
    add(StageOf(description.planes[i], parts), plane_bytes(i));
  }
  std::vector<uint64_t> rooms;
  for (const memory::CardRoom& card : cards) rooms.push_back(card.Room());
  return memory::CutByRoom({.layers = {bytes.begin() + 1, bytes.end() - 1},
                            .first = bytes.front(),
                            .last = bytes.back()},
                           rooms);
}

std::vector<memory::BankWish> BankWishesOf(const plugin::Description& description,
                                           const memory::PlacementRequest& request,
                                           std::span<const std::string> cards,
                                           std::span<const memory::LayerRange> layers) {
  const std::set<uint32_t> of_banks = WeightsOfBanks(description);
  std::vector<memory::BankNames> banks;
  const auto card_of = [&](const auto& item) {
    return cards.empty() ? std::string() : cards[StageOf(item, layers)];
  };
  for (const plugin::Bank& bank : description.banks) {
    memory::BankNames names{.layer = bank.layer, .card = card_of(bank), .tensors = {}};
    const std::array<uint32_t, 3> parts = {bank.gate, bank.up, bank.down};
    for (size_t i = 0; i < parts.size(); ++i) {
      names.tensors.at(i) = description.weights[parts.at(i)].name;
    }
    banks.push_back(std::move(names));
  }
  std::vector<memory::OtherName> others;
  for (uint32_t i = 0; i < description.weights.size(); ++i) {
    const plugin::Weight& weight = description.weights[i];
    if (!weight.present || of_banks.contains(i)) continue;
    others.push_back({.tensor = weight.name, .card = card_of(weight)});
  }
  return memory::WishesOf(request, description.layers, banks, others, cards);
}

memory::Placement ChooseOnCards(const SeatOptions& options, const plugin::Description& description,
                                std::span<const memory::CardRoom> cards,
                                std::span<const memory::LayerRange> layers,
                                const std::function<memory::SeatSizes(memory::Place)>& sizes) {
  using enum memory::Place;
  assert(!cards.empty() && cards.size() == layers.size());
  const memory::HostRoom host = HostRoomOf(options);
  std::vector<std::string> names;
  for (const memory::CardRoom& card : cards) names.push_back(card.id);
  memory::SplitWishes wishes = {.banks = BankWishesOf(description, options.placing, names, layers),
                                .frames = std::nullopt};
  uint32_t most = 0;
  for (const plugin::Bank& bank : description.banks) most = std::max(most, bank.experts);
  if (options.card_frames > static_cast<int64_t>(most)) {
    throw Error(ErrorKind::kUsage,
                "frames of a bank on its card are " + std::to_string(options.card_frames) +
                    ", must be from 0 to " + std::to_string(most) + ", the experts of a bank");
  }
  if (options.card_frames >= 0) wishes.frames = static_cast<uint32_t>(options.card_frames);
  const bool kept = std::ranges::find(wishes.banks, memory::BankWish::kHost) != wishes.banks.end();
  const bool frames = wishes.frames && *wishes.frames < most;
  const bool asked =
      !description.banks.empty() && (options.placing.place == kSplit || kept || frames);
  const auto split_up = [&] {
    return memory::PlaceOnCards(kSplit, sizes(kSplit), cards, host, wishes);
  };
  if (kept || frames) return split_up();
  memory::Placement whole = memory::PlaceOnCards(kCard, sizes(kCard), cards, host);
  if (whole.Fits() || options.placing.place == kCard || wishes.frames) return whole;
  if (asked) return split_up();
  // Where it is the host that lacks memory, a split, which keeps the experts there, has no more.
  if (!options.auto_splits || description.banks.empty() || whole.CardFits()) return whole;
  try {
    memory::Placement split = split_up();
    for (size_t i = 0; i < split.stages.size(); ++i) {
      split.stages[i].whole = std::move(whole.stages[i].plan);
    }
    return split;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    whole.no_split = error.what();
    return whole;
  }
}

memory::SeatWork WorkOf(const plugin::Description& description) {
  memory::SeatWork work;
  work.layers = description.layers;
  work.of_layers.resize(description.layers);
  // Adds to the sum, and to the layer that it is of.
  const auto add = [&](int32_t layer, auto field, uint64_t more) {
    work.*field += more;
    if (layer >= 0 && static_cast<size_t>(layer) < work.of_layers.size()) {
      work.of_layers[static_cast<size_t>(layer)].*field += more;
    }
  };
  const std::set<uint32_t> of_banks = WeightsOfBanks(description);
  for (uint32_t i = 0; i < description.weights.size(); ++i) {
    const plugin::Weight& weight = description.weights[i];
    if (!weight.present || weight.role == BL_ROLE_TABLE || of_banks.contains(i)) continue;
    const int32_t layer = weight.owner == BL_OWNER_MAIN ? weight.layer : -1;
    add(layer, &memory::DenseWork::dense_bytes, weight.bytes);
    // The head multiplies one row of a pass; it is a small part of a prompt's work.
    if (weight.n_dims > 1 && weight.ne[1] != description.vocabulary) {
      add(layer, &memory::DenseWork::dense_macs,
          weight.ne[0] * weight.ne[1] * weight.ne[2] * weight.ne[3]);
    }
  }
  for (const plugin::Bank& bank : description.banks) {
    memory::BankWork& of = work.banks.emplace_back();
    of.experts = bank.experts;
    of.used = bank.used;
    of.width = bank.width;
    for (const uint32_t part : {bank.gate, bank.up, bank.down}) {
      of.bytes += description.weights[part].bytes / bank.experts;
      of.macs += bank.width * bank.ff;
    }
  }
  const std::vector<memory::PlaneSpec> planes = PlanesOf(description);
  for (size_t i = 0; i < planes.size(); ++i) {
    if (planes[i].rule != BL_PLANE_APPEND) continue;
    add(description.planes[i].layer, &memory::DenseWork::context_row_bytes,
        memory::PlaneRowBytes(planes[i]));
  }
  return work;
}

}  // namespace bloomery::exec
