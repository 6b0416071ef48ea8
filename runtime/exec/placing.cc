#include "runtime/exec/placing.h"

#include <algorithm>
#include <array>
#include <set>

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

}  // namespace

std::vector<memory::BankWish> BankWishesOf(const plugin::Description& description,
                                           const memory::PlacementRequest& request,
                                           const std::string& card) {
  const std::set<uint32_t> of_banks = WeightsOfBanks(description);
  std::vector<memory::BankNames> banks;
  for (const plugin::Bank& bank : description.banks) {
    memory::BankNames names{.layer = bank.layer, .tensors = {}};
    const std::array<uint32_t, 3> parts = {bank.gate, bank.up, bank.down};
    for (size_t i = 0; i < parts.size(); ++i) {
      names.tensors.at(i) = description.weights[parts.at(i)].name;
    }
    banks.push_back(std::move(names));
  }
  std::vector<std::string> others;
  for (uint32_t i = 0; i < description.weights.size(); ++i) {
    const plugin::Weight& weight = description.weights[i];
    if (weight.present && !of_banks.contains(i)) others.push_back(weight.name);
  }
  return memory::WishesOf(request, description.layers, banks, others, card);
}

memory::Placement ChooseOnCard(const SeatOptions& options, const plugin::Description& description,
                               const memory::CardRoom& card,
                               const std::function<memory::SeatSizes(memory::Place)>& sizes) {
  using enum memory::Place;
  const memory::HostRoom host = HostRoomOf(options);
  memory::SplitWishes wishes = {.banks = BankWishesOf(description, options.placing, card.id),
                                .frames = std::nullopt};
  uint32_t most = 0;
  for (const plugin::Bank& bank : description.banks) most = std::max(most, bank.experts);
  if (options.card_frames > static_cast<int64_t>(most)) {
    throw Error(ErrorKind::kUsage,
                "frames of a bank on the card are " + std::to_string(options.card_frames) +
                    ", must be from 0 to " + std::to_string(most) + ", the experts of a bank");
  }
  if (options.card_frames >= 0) wishes.frames = static_cast<uint32_t>(options.card_frames);
  const bool kept = std::ranges::find(wishes.banks, memory::BankWish::kHost) != wishes.banks.end();
  const bool frames = wishes.frames && *wishes.frames < most;
  const bool asked =
      !description.banks.empty() && (options.placing.place == kSplit || kept || frames);
  if (kept || frames) return memory::PlaceOnCard(kSplit, sizes(kSplit), card, host, wishes);
  memory::Placement whole = memory::PlaceOnCard(kCard, sizes(kCard), card, host);
  if (whole.Fits() || options.placing.place == kCard || wishes.frames) return whole;
  if (asked) return memory::PlaceOnCard(kSplit, sizes(kSplit), card, host, wishes);
  // Where it is the host that lacks memory, a split, which keeps the experts there, has no more.
  if (!options.auto_splits || description.banks.empty() || whole.CardFits()) return whole;
  try {
    memory::Placement split = memory::PlaceOnCard(kSplit, sizes(kSplit), card, host, wishes);
    split.whole_card = std::move(whole.card);
    return split;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    whole.no_split = error.what();
    return whole;
  }
}

memory::SeatWork WorkOf(const plugin::Description& description) {
  memory::SeatWork work{.layers = description.layers};
  const std::set<uint32_t> of_banks = WeightsOfBanks(description);
  for (uint32_t i = 0; i < description.weights.size(); ++i) {
    const plugin::Weight& weight = description.weights[i];
    if (!weight.present || weight.role == BL_ROLE_TABLE || of_banks.contains(i)) continue;
    work.dense_bytes += weight.bytes;
    // The head multiplies one row of a pass; it is a small part of a prompt's work.
    if (weight.n_dims > 1 && weight.ne[1] != description.vocabulary) {
      work.dense_macs += weight.ne[0] * weight.ne[1] * weight.ne[2] * weight.ne[3];
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
  for (const memory::PlaneSpec& plane : PlanesOf(description)) {
    if (plane.rule == BL_PLANE_APPEND) work.context_row_bytes += memory::PlaneRowBytes(plane);
  }
  return work;
}

}  // namespace bloomery::exec
