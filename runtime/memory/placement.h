// The planner: which memory holds the parts of a seat. A seat on cards has a stage on each: a run
// of layers with their dense weights and states, and buffers of its own; or everything lies with
// the host. Routed experts get frames on the card of their layer, an equal number in each bank of a
// stage, and what is left of them the host. Pure: sizes and limits in, a placement out, with every
// term of every memory by name; it asks no driver, takes no memory and opens no file. The seats
// give it their sizes (exec), apps the user's wishes. There is no other sum of what a seat takes.
//
//   Placement placement = PlaceOnCards(Place::kSplit, sizes, cards, host, wishes);
//   placement.Check();              // refuses with every term
//   layout for placement.frames ...
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/memory/plan.h"
#include "runtime/memory/weight_source.h"

namespace bloomery::memory {

// kCard: all on cards. kSplit: dense weights and states on cards, a part of the routed experts
// there and the rest with the host. kHost: no card. kAuto: the first of these that fits.
enum class Place { kAuto, kCard, kSplit, kHost };

// "auto", "card", "split", "host".
std::string_view NameOf(Place place);
inline constexpr std::string_view kPlaceChoices = "auto|card|split|host";
// Of one of kPlaceChoices.
Place PlaceOf(std::string_view name);

// What the user says of one bank's experts.
enum class BankWish { kFree, kHost, kCard };

// The routed experts of one layer.
struct BankShape {
  int32_t layer = -1;
  uint32_t experts = 0;
  uint32_t used = 0;                     // a row picks
  std::array<uint64_t, 3> card_parts{};  // bytes of one expert's gate, up and down on the card
  uint64_t host_bytes = 0;               // of one expert as the host holds it

  // What the parts of `frames` experts take on the card: each part is one array.
  uint64_t CardBytes(uint32_t frames) const;
};

// From where to where a weight of the card is aligned.
inline constexpr uint64_t kCardAlignment = 256;

// A run of the model's layers, [first, end).
struct LayerRange {
  uint32_t first = 0;
  uint32_t end = 0;

  uint32_t size() const { return end - first; }
  bool Has(int64_t layer) const { return layer >= first && layer < end; }
  bool operator==(const LayerRange&) const = default;
};

// What one stage takes of its card.
struct StageSizes {
  LayerRange layers = {};
  // Of those layers, ascending indices into SeatSizes::banks; those of a draft head in the last.
  std::vector<uint32_t> banks = {};
  // Weights but the banks', aligned.
  uint64_t dense = 0;
  // Beside the weights, as taken: whole granules in sum.
  std::vector<PlanTerm> beside = {};
  // By the frames of all banks, of which only the stage's own count: maps of experts, and rooms for
  // those that come for a pass. May be empty: none.
  std::function<uint64_t(std::span<const uint32_t> frames)> moving = {};
  // Rooms of the card for weights on their way, given back before `beside` is taken.
  uint64_t loading = 0;
};

// What a seat takes: as its kernels, planes and buffers are sized, before anything is allocated.
struct SeatSizes {
  int32_t slots = 1;
  int32_t slot_context = 0;
  int32_t rows_max = 0;  // computed at once (the ubatch)
  // Of a pass, which stages take in parts of rows_max at the same time; fewer: it is no larger.
  int32_t batch_rows = 0;

  std::vector<BankShape> banks = {};
  std::vector<StageSizes> stages = {};  // one a card; none: on the host

  // Of the host beside experts; and what only loading needs, given back before `host_beside` is.
  std::vector<PlanTerm> host_beside = {};
  uint64_t host_loading = 0;
  // What the host holds of experts, where it keeps those of cards too (residency moves them
  // without copying back); none: it holds those that have no frame.
  std::optional<uint64_t> host_experts = std::nullopt;
};

struct CardRoom {
  std::string id = {};   // "CUDA0"
  uint64_t total = 0;    // the card's memory
  uint64_t free = 0;     // of it, when the card was opened
  uint64_t reserve = 0;  // what the driver takes beside what is allocated
  uint64_t granule = 1;  // allocations are multiples of it
  uint64_t budget = 0;   // the user's, bytes; 0: none
  uint64_t margin = 0;   // of what is free, left by what is sized automatically (--fit-target)

  // What a plan may take: all that is free but the reserve, and no more than the budget.
  uint64_t Room() const;
  // What frames may fill: the same with the margin in the reserve's place, where that is larger.
  uint64_t RoomForFrames() const;
};

struct HostRoom {
  uint64_t budget = 0;  // the user's, bytes; 0: none, then `available` holds
  std::optional<HostLimit> available = {};
};

// What the user fixed of a split.
struct SplitWishes {
  std::vector<BankWish> banks = {};     // one a bank, or empty: all free
  std::optional<uint32_t> frames = {};  // experts a free bank on its card; none: as many as fit
};

// What a placement takes and may take, in bytes of the memory that is nearest to being full.
struct ContextNeed {
  uint64_t need = 0;
  uint64_t room = 0;
};

// A stage on its card.
struct PlacedStage {
  std::string device = {};  // "CUDA0"
  LayerRange layers = {};
  std::vector<uint32_t> banks = {};  // indices into Placement::frames, ascending
  MemoryPlan plan{0};
  uint64_t fit_room = 0;  // of the card, for what is sized to fit
  // With every expert of its layers, where a split was taken because the whole model does not fit.
  std::optional<MemoryPlan> whole = {};
};

// What was decided, and with which terms. The plans are complete also where they do not fit.
struct Placement {
  Place place = Place::kHost;  // never kAuto
  std::string device = {};     // as --device takes it: "CUDA0"; "CUDA0,CUDA1"; "host"
  int32_t slots = 1;
  int32_t slot_context = 0;
  int32_t rows_max = 0;  // as SeatSizes has both
  int32_t batch_rows = 0;
  // By bank: how many there are, and how many lie on its card: those of ids [0, frames).
  std::vector<uint32_t> experts = {};
  std::vector<uint32_t> frames = {};
  std::vector<PlacedStage> stages = {};  // in the order of their layers; kHost: none
  MemoryPlan host{0};
  WeightSource host_weights = WeightSource::kRead;  // kHost: read or mapped
  std::string no_split = {};  // of a whole one that does not fit: why it was not split

  uint64_t ExpertsOnCard() const;
  uint64_t Experts() const;
  // The stage that holds the bank's frames; null on the host.
  const PlacedStage* StageOf(size_t bank) const;
  // The stages' plans, then the host's.
  std::vector<MemoryPlan> Plans() const;
  bool CardFits() const;  // every card
  bool Fits() const { return CardFits() && host.Fits(); }
  // Whether it is a split that nobody asked for.
  bool SplitUnasked() const;
  // Of the memory that lacks most, or has least left: what sizing a context goes by. Of the whole
  // model on the cards where a split stands in for it.
  ContextNeed Need() const;
  // Throws Error(kNoMemory) with the line, the card that lacks memory and what to do: where a
  // split's rest does not fit the host, how much of it would have to be paged.
  void Check() const;

  // Of a split that nobody asked for, what was chosen and why, for the log; "" for any other.
  std::string Choice() const;

  // "plan: split on CUDA0; experts on the card: 24 of 128 in 48 banks (1152 of 6144); 1 slot of
  // 4096 rows, ubatch 512; card plan: …; host plan: …"; of several cards "plan: split on CUDA0,
  // CUDA1 (layers 0 to 23, 24 to 47); …; CUDA0 plan: …; CUDA1 plan: …; host plan: …".
  std::string Line() const;
};

// A seat on cards, one for each of its stages, whole (kCard) or as a split (kSplit). A split has as
// many frames a bank as fit the bank's card, the same number in every bank of a stage, or as many
// as the wishes say. One whose dense part does not fit a card has no frames there and does not fit.
Placement PlaceOnCards(Place place, const SeatSizes& sizes, std::span<const CardRoom> cards,
                       const HostRoom& host, const SplitWishes& wishes = {});

// A seat on the host alone: `weights` bytes read into memory, or mapped and named beside the sum.
// kAuto reads where that fits. Of `sizes` only the host's fields count.
Placement PlaceOnHost(const SeatSizes& sizes, uint64_t weights, WeightSource source,
                      const HostRoom& host);

// Contexts of a slot that are sized automatically are multiples of this.
inline constexpr int32_t kContextStep = 256;

// The largest context in [least, most] that fits, a multiple of kContextStep (or `most` itself);
// nullopt where `least` does not. `need` grows with the context, about linearly, and is asked a few
// times.
std::optional<int32_t> LargestContext(int32_t least, int32_t most,
                                      const std::function<ContextNeed(int32_t context)>& need);

}  // namespace bloomery::memory
