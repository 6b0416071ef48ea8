#include "runtime/memory/placement.h"

#include <algorithm>
#include <cassert>
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

// Experts of a bank on its card where a free bank has `frames`.
uint32_t FramesOf(const SeatSizes& sizes, const SplitWishes& wishes, size_t bank, uint32_t frames) {
  const BankWish wish = wishes.banks.empty() ? BankWish::kFree : wishes.banks.at(bank);
  const uint32_t experts = sizes.banks[bank].experts;
  return wish == BankWish::kHost   ? 0
         : wish == BankWish::kCard ? experts
                                   : std::min(frames, experts);
}

uint64_t ExpertBytes(const SeatSizes& sizes, const StageSizes& stage,
                     std::span<const uint32_t> frames) {
  uint64_t bytes = 0;
  for (const uint32_t bank : stage.banks) {
    bytes = Add(bytes, sizes.banks.at(bank).CardBytes(frames[bank]), "experts on the card");
  }
  return bytes;
}

// Of several cards a plan says which is its own.
MemoryPlan CardPlanOf(const SeatSizes& sizes, const StageSizes& stage, const CardRoom& card,
                      std::span<const uint32_t> frames) {
  // A card has no more than it shows: a budget can only lower that.
  const uint64_t budget =
      card.budget <= card.free - std::min(card.free, card.reserve) ? card.budget : 0;
  MemoryPlan plan(budget, HostLimit{card.Room(), card.id + " free but a reserve for the driver"},
                  PlanOf::kCard, sizes.stages.size() > 1 ? card.id : "");
  const uint64_t experts = ExpertBytes(sizes, stage, frames);
  const uint64_t weights = Granules(Add(stage.dense, experts, "weights on the card"), card);
  plan.Add("weights", weights - experts);
  if (experts > 0) plan.Add("experts", experts);
  for (const PlanTerm& term : stage.beside) plan.Add(term.name, term.bytes);
  if (stage.moving) plan.Add("maps and rooms of experts", stage.moving(frames));
  const uint64_t beside = SumOf(stage.beside);
  const uint64_t loading = Granules(stage.loading, card);
  if (loading > beside) plan.Add("loading", loading - beside);
  return plan;
}

// The most frames a bank of the stage with which everything of it fits in what frames may fill; 0
// where none do. One after the other: with few banks, rooms for experts may shrink faster than
// frames grow. `of_banks` is overwritten for the stage's banks.
uint32_t MostFrames(const SeatSizes& sizes, const StageSizes& stage, const CardRoom& card,
                    const SplitWishes& wishes, std::vector<uint32_t>* of_banks) {
  uint32_t most = 0;
  for (const uint32_t bank : stage.banks) most = std::max(most, sizes.banks.at(bank).experts);
  for (uint32_t frames = most; frames > 0; --frames) {
    for (const uint32_t bank : stage.banks) {
      of_banks->at(bank) = FramesOf(sizes, wishes, bank, frames);
    }
    const MemoryPlan plan = CardPlanOf(sizes, stage, card, *of_banks);
    if (plan.total() <= card.RoomForFrames()) return frames;
  }
  return 0;
}

std::vector<uint32_t> SplitFrames(const SeatSizes& sizes, std::span<const CardRoom> cards,
                                  const SplitWishes& wishes) {
  std::vector<uint32_t> of_banks(sizes.banks.size(), 0);
  for (size_t i = 0; i < sizes.stages.size(); ++i) {
    const StageSizes& stage = sizes.stages[i];
    const uint32_t frames =
        wishes.frames ? *wishes.frames : MostFrames(sizes, stage, cards[i], wishes, &of_banks);
    for (const uint32_t bank : stage.banks) {
      of_banks.at(bank) = FramesOf(sizes, wishes, bank, frames);
    }
  }
  return of_banks;
}

Placement Started(Place place, const SeatSizes& sizes, const HostRoom& host) {
  Placement placement;
  placement.place = place;
  placement.slots = sizes.slots;
  placement.slot_context = sizes.slot_context;
  placement.rows_max = sizes.rows_max;
  placement.batch_rows = sizes.batch_rows;
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

uint64_t HostExpertBytes(const SeatSizes& sizes, std::span<const uint32_t> frames) {
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

// "CUDA0", "CUDA0<between>CUDA1".
std::string NamesOf(const std::vector<PlacedStage>& stages, const char* between) {
  std::string names;
  for (const PlacedStage& stage : stages) names += (names.empty() ? "" : between) + stage.device;
  return names;
}

// "0 to 23", or "7" of one alone.
std::string RangeText(const LayerRange& layers) {
  const std::string first = std::to_string(layers.first);
  return layers.size() == 1 ? first : first + " to " + std::to_string(layers.end - 1);
}

// "; experts on the card: 24 of 128 in 48 banks (1152 of 6144)".
std::string FramesText(const Placement& placement) {
  struct Group {
    uint32_t frames;
    uint32_t experts;
    uint64_t banks;
  };
  std::vector<Group> groups;
  for (size_t i = 0; i < placement.experts.size(); ++i) {
    const auto same = std::ranges::find_if(groups, [&](const Group& group) {
      return group.frames == placement.frames[i] && group.experts == placement.experts[i];
    });
    if (same == groups.end()) {
      groups.push_back({placement.frames[i], placement.experts[i], 1});
    } else {
      ++same->banks;
    }
  }
  std::string text =
      placement.stages.size() > 1 ? "experts on the cards: " : "experts on the card: ";
  for (const Group& group : groups) {
    text += std::to_string(group.frames) + " of " + std::to_string(group.experts) + " in " +
            Count(group.banks, "bank") + (&group == &groups.back() ? "" : ", ");
  }
  return text + " (" + std::to_string(placement.ExpertsOnCard()) + " of " +
         std::to_string(placement.Experts()) + "); ";
}

// Of the cards that lack memory the one that lacks most; null where none does.
const PlacedStage* MostLacking(const std::vector<PlacedStage>& stages) {
  const PlacedStage* most = nullptr;
  const auto lack = [](const PlacedStage& stage) {
    return stage.plan.total() - std::min(stage.plan.total(), stage.plan.limit());
  };
  for (const PlacedStage& stage : stages) {
    if (stage.plan.Fits()) continue;
    if (most == nullptr || lack(stage) > lack(*most)) most = &stage;
  }
  return most;
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

const PlacedStage* Placement::StageOf(size_t bank) const {
  const auto holds = [&](const PlacedStage& stage) {
    return std::ranges::binary_search(stage.banks, bank);
  };
  const auto stage = std::ranges::find_if(stages, holds);
  return stage == stages.end() ? nullptr : &*stage;
}

std::vector<MemoryPlan> Placement::Plans() const {
  std::vector<MemoryPlan> plans;
  for (const PlacedStage& stage : stages) plans.push_back(stage.plan);
  plans.push_back(host);
  return plans;
}

bool Placement::CardFits() const {
  return std::ranges::all_of(stages, [](const PlacedStage& stage) { return stage.plan.Fits(); });
}

bool Placement::SplitUnasked() const {
  return std::ranges::any_of(stages,
                             [](const PlacedStage& stage) { return stage.whole.has_value(); });
}

ContextNeed Placement::Need() const {
  // Below 0: what is lacking.
  const auto left = [](const ContextNeed& of) {
    return of.room >= of.need
               ? static_cast<int64_t>(std::min<uint64_t>(of.room - of.need, INT64_MAX))
               : -static_cast<int64_t>(std::min<uint64_t>(of.need - of.room, INT64_MAX));
  };
  ContextNeed least{host.total(), host.limit() == 0 ? UINT64_MAX : host.limit()};
  for (const PlacedStage& stage : stages) {
    const ContextNeed of{(stage.whole ? *stage.whole : stage.plan).total(), stage.fit_room};
    if (left(of) <= left(least)) least = of;
  }
  return least;
}

void Placement::Check() const {
  const PlacedStage* lacking = MostLacking(stages);
  const bool split = place == Place::kSplit;
  if (lacking != nullptr && stages.size() == 1 && !split) {
    try {
      lacking->plan.Check();
    } catch (const Error& error) {
      if (no_split.empty()) throw;
      throw Error(error.kind(), std::string(error.what()) + "; nor is it split: " + no_split);
    }
  }
  if (lacking != nullptr) {
    uint64_t there = 0;
    for (const uint32_t bank : lacking->banks) there += frames.at(bank);
    const bool several = stages.size() > 1;
    throw Error(
        ErrorKind::kNoMemory,
        Line() + ": it does not fit " +
            (several ? lacking->device + ", with layers " + RangeText(lacking->layers) + " and "
                     : std::string("the card, with ")) +
            (there == 0 ? "no expert" : Count(there, "expert")) +
            " there; choose fewer slots, a smaller context or ubatch, a smaller cache type, " +
            (!several ? "or run without the card (--device none)"
             : lacking->plan.limit_source() == "budget"
                 ? "other shares of the layers (--tensor-split), or raise the budget"
                 : "other shares of the layers (--tensor-split), or run without the cards "
                   "(--device none)") +
            (no_split.empty() ? "" : "; nor is it split: " + no_split));
  }
  if (!split) return host.Check();
  if (!host.Fits()) {
    throw Error(ErrorKind::kNoMemory,
                Line() + ": it does not fit the host's memory; " +
                    FormatBytes(host.total() - host.limit()) +
                    " would have to be paged from disk, which is not offered in this version");
  }
}

std::string Placement::Choice() const {
  std::string cards;
  for (const PlacedStage& stage : stages) {
    if (!stage.whole) continue;
    cards += (cards.empty() ? "" : ", and ") + FormatBytes(stage.whole->total()) + " of " +
             stage.device + ", which has " + FormatBytes(stage.whole->limit()) + " (" +
             stage.whole->limit_source() + ")";
  }
  if (cards.empty()) return "";
  return "the whole model takes " + cards + ": it is split, " + std::to_string(ExpertsOnCard()) +
         " of " + Count(Experts(), "expert") +
         " lie there and the host computes the picks of the others (--place chooses another way)";
}

std::string Placement::Line() const {
  std::string line = "plan: " + std::string(NameOf(place));
  const bool several = stages.size() > 1;
  if (place != Place::kHost) line += " on " + NamesOf(stages, ", ");
  if (several) {
    std::string ranges;
    for (const PlacedStage& stage : stages) {
      ranges += (ranges.empty() ? " (layers " : ", ") + RangeText(stage.layers);
    }
    line += ranges + ")";
  }
  line += "; ";
  if (place == Place::kCard && !experts.empty()) {
    line += "all " + Count(Experts(), "expert") + " on the card" + (several ? "s; " : "; ");
  }
  if (place == Place::kSplit) line += FramesText(*this);
  line += Count(static_cast<uint64_t>(slots), "slot") + " of " +
          Count(static_cast<uint64_t>(slot_context), "row") + ", ubatch " +
          std::to_string(rows_max) +
          (batch_rows > rows_max ? " of a batch of " + std::to_string(batch_rows) : "") + "; ";
  for (const PlacedStage& stage : stages) line += stage.plan.Line() + "; ";
  return line + host.Line();
}

Placement PlaceOnCards(Place place, const SeatSizes& sizes, std::span<const CardRoom> cards,
                       const HostRoom& host, const SplitWishes& wishes) {
  assert(!cards.empty() && cards.size() == sizes.stages.size());
  Placement placement = Started(place, sizes, host);
  if (place == Place::kSplit) {
    placement.frames = SplitFrames(sizes, cards, wishes);
    const uint64_t experts = HostExpertBytes(sizes, placement.frames);
    if (experts > 0) placement.host.Add("experts", experts);
  } else {
    placement.frames = placement.experts;
  }
  for (size_t i = 0; i < cards.size(); ++i) {
    const StageSizes& stage = sizes.stages[i];
    placement.stages.push_back({.device = cards[i].id,
                                .layers = stage.layers,
                                .banks = stage.banks,
                                .plan = CardPlanOf(sizes, stage, cards[i], placement.frames),
                                .fit_room = cards[i].RoomForFrames(),
                                .whole = std::nullopt});
  }
  placement.device = NamesOf(placement.stages, ",");
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
