#include "runtime/memory/placement.h"

#include <algorithm>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace bloomery::memory {
namespace {

constexpr std::array<std::pair<Place, std::string_view>, 4> kPlaces = {{
    {Place::kAuto, "auto"},
    {Place::kCard, "card"},
    {Place::kSplit, "split"},
    {Place::kHost, "host"},
}};

uint64_t Add(uint64_t a, uint64_t b, const char* what) {
  return CheckedAdd(a, b, ErrorKind::kNoMemory, what);
}

uint64_t SumOf(const std::vector<PlanTerm>& terms) {
  uint64_t sum = 0;
  for (const PlanTerm& term : terms) sum = Add(sum, term.bytes, "terms of a plan");
  return sum;
}

uint64_t Granules(uint64_t bytes, const CardRoom& card) {
  return CheckedAlignUp(bytes, card.granule, ErrorKind::kNoMemory, "memory of a card");
}

// Experts of each bank on the card where a free bank has `frames`.
std::vector<uint32_t> FramesOf(const SeatSizes& sizes, const SplitWishes& wishes, uint32_t frames) {
  std::vector<uint32_t> of_banks;
  for (size_t i = 0; i < sizes.banks.size(); ++i) {
    const BankWish wish = wishes.banks.empty() ? BankWish::kFree : wishes.banks.at(i);
    const uint32_t experts = sizes.banks[i].experts;
    of_banks.push_back(wish == BankWish::kHost   ? 0
                       : wish == BankWish::kCard ? experts
                                                 : std::min(frames, experts));
  }
  return of_banks;
}

uint64_t ExpertBytes(const SeatSizes& sizes, const std::vector<uint32_t>& frames) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < sizes.banks.size(); ++i) {
    bytes = Add(bytes, sizes.banks[i].CardBytes(frames[i]), "experts on the card");
  }
  return bytes;
}

MemoryPlan CardPlanOf(const SeatSizes& sizes, const CardRoom& card,
                      const std::vector<uint32_t>& frames) {
  // A card has no more than it shows: a budget can only lower that.
  const uint64_t budget =
      card.budget <= card.free - std::min(card.free, card.reserve) ? card.budget : 0;
  MemoryPlan plan(budget, HostLimit{card.Room(), card.id + " free but a reserve for the driver"},
                  PlanOf::kCard);
  const uint64_t experts = ExpertBytes(sizes, frames);
  const uint64_t weights = Granules(Add(sizes.card_dense, experts, "weights on the card"), card);
  plan.Add("weights", weights - experts);
  if (experts > 0) plan.Add("experts", experts);
  for (const PlanTerm& term : sizes.card_beside) plan.Add(term.name, term.bytes);
  if (sizes.card_moving) plan.Add("maps and rooms of experts", sizes.card_moving(frames));
  const uint64_t beside = SumOf(sizes.card_beside);
  const uint64_t loading = Granules(sizes.card_loading, card);
  if (loading > beside) plan.Add("loading", loading - beside);
  return plan;
}

// The most frames a bank with which everything fits in what frames may fill; 0 where none do. One
// after the other: with few banks, rooms for experts may shrink faster than frames grow.
uint32_t MostFrames(const SeatSizes& sizes, const CardRoom& card, const SplitWishes& wishes) {
  uint32_t most = 0;
  for (const BankShape& bank : sizes.banks) most = std::max(most, bank.experts);
  for (uint32_t frames = most; frames > 0; --frames) {
    const MemoryPlan plan = CardPlanOf(sizes, card, FramesOf(sizes, wishes, frames));
    if (plan.total() <= card.RoomForFrames()) return frames;
  }
  return 0;
}

Placement Started(Place place, const SeatSizes& sizes, const HostRoom& host) {
  Placement placement;
  placement.place = place;
  placement.slots = sizes.slots;
  placement.slot_context = sizes.slot_context;
  placement.rows_max = sizes.rows_max;
  for (const BankShape& bank : sizes.banks) placement.experts.push_back(bank.experts);
  placement.host = MemoryPlan(host.budget, host.budget == 0 ? host.available : std::nullopt);
  return placement;
}

void AddHostTerms(const SeatSizes& sizes, MemoryPlan& plan) {
  for (const PlanTerm& term : sizes.host_beside) plan.Add(term.name, term.bytes);
  const uint64_t beside = SumOf(sizes.host_beside);
  if (sizes.host_loading > beside) {
    plan.Add("pinned while loading", sizes.host_loading - beside);
  }
}

uint64_t HostExpertBytes(const SeatSizes& sizes, const std::vector<uint32_t>& frames) {
  if (sizes.host_experts) return *sizes.host_experts;
  uint64_t bytes = 0;
  for (size_t i = 0; i < sizes.banks.size(); ++i) {
    const BankShape& bank = sizes.banks[i];
    const uint64_t held = bank.experts - frames[i];
    bytes =
        Add(bytes, CheckedMul(held, bank.host_bytes, ErrorKind::kNoMemory, "experts with the host"),
            "experts with the host");
  }
  return bytes;
}

std::string Count(uint64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

std::string_view NameOf(Place place) {
  for (const auto& [known, name] : kPlaces) {
    if (known == place) return name;
  }
  return "";
}

Place PlaceOf(std::string_view name) {
  for (const auto& [place, known] : kPlaces) {
    if (known == name) return place;
  }
  throw Error(ErrorKind::kUsage, "'" + std::string(name) + "' is none of auto, card, split, host");
}

uint64_t BankShape::CardBytes(uint32_t frames) const {
  uint64_t bytes = 0;
  for (const uint64_t part : card_parts) {
    const uint64_t array = CheckedMul(part, uint64_t{frames}, ErrorKind::kNoMemory, "a bank");
    bytes = Add(bytes, CheckedAlignUp(array, kCardAlignment, ErrorKind::kNoMemory, "a bank"),
                "a bank on the card");
  }
  return bytes;
}

uint64_t CardRoom::Room() const {
  const uint64_t room = free - std::min(free, reserve);
  return budget == 0 ? room : std::min(room, budget);
}

uint64_t CardRoom::RoomForFrames() const {
  const uint64_t room = free - std::min(free, std::max(reserve, margin));
  return budget == 0 ? room : std::min(room, budget);
}

uint64_t Placement::ExpertsOnCard() const {
  uint64_t sum = 0;
  for (const uint32_t of_bank : frames) sum += of_bank;
  return sum;
}

uint64_t Placement::Experts() const {
  uint64_t sum = 0;
  for (const uint32_t of_bank : experts) sum += of_bank;
  return sum;
}

std::vector<MemoryPlan> Placement::Plans() const {
  std::vector<MemoryPlan> plans;
  if (card) plans.push_back(*card);
  plans.push_back(host);
  return plans;
}

ContextNeed Placement::Need() const {
  const ContextNeed of_host{host.total(), host.limit() == 0 ? UINT64_MAX : host.limit()};
  if (!card) return of_host;
  const ContextNeed of_card{(whole_card ? *whole_card : *card).total(), card_fit_room};
  const bool card_fits = of_card.need <= of_card.room;
  return card_fits && of_host.need > of_host.room ? of_host : of_card;
}

void Placement::Check() const {
  if (place != Place::kSplit) {
    try {
      if (card) card->Check();
    } catch (const Error& error) {
      if (no_split.empty()) throw;
      throw Error(error.kind(), std::string(error.what()) + "; nor is it split: " + no_split);
    }
    host.Check();
    return;
  }
  if (!CardFits()) {
    throw Error(ErrorKind::kNoMemory,
                Line() + ": it does not fit the card, with " +
                    (ExpertsOnCard() == 0 ? "no expert" : Count(ExpertsOnCard(), "expert")) +
                    " there; choose fewer slots, a smaller context or ubatch, a smaller cache "
                    "type, or run without the card (--device none)");
  }
  if (!host.Fits()) {
    throw Error(ErrorKind::kNoMemory,
                Line() + ": it does not fit the host's memory; " +
                    FormatBytes(host.total() - host.limit()) +
                    " would have to be paged from disk, which is not offered in this version");
  }
}

std::string Placement::Choice() const {
  if (!whole_card) return "";
  return "the whole model takes " + FormatBytes(whole_card->total()) + " of " + device +
         ", which has " + FormatBytes(whole_card->limit()) + " (" + whole_card->limit_source() +
         "): it is split, " + std::to_string(ExpertsOnCard()) + " of " +
         Count(Experts(), "expert") +
         " lie there and the host computes the picks of the others (--place chooses another way)";
}

std::string Placement::Line() const {
  std::string line = "plan: " + std::string(NameOf(place));
  if (place != Place::kHost) line += " on " + device;
  line += "; ";
  if (place == Place::kCard && !experts.empty()) {
    line += "all " + Count(Experts(), "expert") + " on the card; ";
  }
  if (place == Place::kSplit) {
    struct Group {
      uint32_t frames;
      uint32_t experts;
      uint64_t banks;
    };
    std::vector<Group> groups;
    for (size_t i = 0; i < experts.size(); ++i) {
      const auto same = std::ranges::find_if(groups, [&](const Group& group) {
        return group.frames == frames[i] && group.experts == experts[i];
      });
      if (same == groups.end()) {
        groups.push_back({frames[i], experts[i], 1});
      } else {
        ++same->banks;
      }
    }
    line += "experts on the card: ";
    for (const Group& group : groups) {
      line += std::to_string(group.frames) + " of " + std::to_string(group.experts) + " in " +
              Count(group.banks, "bank") + (&group == &groups.back() ? "" : ", ");
    }
    line += " (" + std::to_string(ExpertsOnCard()) + " of " + std::to_string(Experts()) + "); ";
  }
  line += Count(static_cast<uint64_t>(slots), "slot") + " of " +
          Count(static_cast<uint64_t>(slot_context), "row") + ", ubatch " +
          std::to_string(rows_max) + "; ";
  if (card) line += card->Line() + "; ";
  return line + host.Line();
}

Placement PlaceOnCard(Place place, const SeatSizes& sizes, const CardRoom& card,
                      const HostRoom& host, const SplitWishes& wishes) {
  Placement placement = Started(place, sizes, host);
  placement.device = card.id;
  if (place == Place::kSplit) {
    const uint32_t frames = wishes.frames ? *wishes.frames : MostFrames(sizes, card, wishes);
    placement.frames = FramesOf(sizes, wishes, frames);
    const uint64_t experts = HostExpertBytes(sizes, placement.frames);
    if (experts > 0) placement.host.Add("experts", experts);
  } else {
    placement.frames = placement.experts;
  }
  placement.card = CardPlanOf(sizes, card, placement.frames);
  placement.card_fit_room = card.RoomForFrames();
  AddHostTerms(sizes, placement.host);
  return placement;
}

Placement PlaceOnHost(const SeatSizes& sizes, uint64_t weights, WeightSource source,
                      const HostRoom& host) {
  const auto plan = [&](WeightSource from) {
    Placement placement = Started(Place::kHost, sizes, host);
    placement.device = "host";
    placement.frames.assign(sizes.banks.size(), 0);
    placement.host_weights = from;
    if (from == WeightSource::kMap) {
      placement.host.AddMapped("weights", weights);
    } else {
      placement.host.Add("weights", weights);
    }
    AddHostTerms(sizes, placement.host);
    return placement;
  };
  if (source != WeightSource::kAuto) return plan(source);
  Placement read = plan(WeightSource::kRead);
  return read.Fits() ? read : plan(WeightSource::kMap);
}

std::optional<int32_t> LargestContext(int32_t least, int32_t most,
                                      const std::function<ContextNeed(int32_t)>& need) {
  const auto fits = [](const ContextNeed& of) { return of.need <= of.room; };
  ContextNeed high = need(most);
  if (fits(high)) return most;
  if (least >= most) return std::nullopt;
  ContextNeed low = need(least);
  if (!fits(low)) return std::nullopt;
  int32_t fit = least;
  int32_t over = most;
  constexpr int kInterpolations = 4;  // then halves: where it is far from linear
  for (int asked = 0;; ++asked) {
    const int32_t next = (fit / kContextStep + 1) * kContextStep;
    if (next >= over) return fit;
    // Where the line through both ends meets the room; at most the last step below `over`.
    const double share =
        static_cast<double>(low.room - low.need) /
        std::max(1.0, static_cast<double>(high.need) - static_cast<double>(low.need));
    const double guess =
        fit + (asked < kInterpolations ? share : 0.5) * static_cast<double>(over - fit);
    const int32_t last = (over - 1) / kContextStep * kContextStep;
    const int32_t context =
        std::clamp(static_cast<int32_t>(guess) / kContextStep * kContextStep, next, last);
    const ContextNeed here = need(context);
    (fits(here) ? low : high) = here;
    (fits(here) ? fit : over) = context;
  }
}

}  // namespace bloomery::memory
