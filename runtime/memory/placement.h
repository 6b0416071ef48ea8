// The planner: which memory holds the parts of a seat. Dense weights, states and buffers lie on the
// card, or everything lies with the host; routed experts get frames on the card, an equal number a
// bank, and what is left of them the host. Pure: sizes and limits in, a placement out, with every
// term of both memories by name; it asks no driver, takes no memory and opens no file. The seats
// give it their sizes (exec), apps the user's wishes. There is no other sum of what a seat takes.
//
//   Placement placement = PlaceOnCard(Place::kSplit, sizes, card, host, wishes);
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

// kCard: all on one card. kSplit: dense weights and states on the card, a part of the routed
// experts there and the rest with the host. kHost: no card. kAuto: the first of these that fits.
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

// What a seat takes: as its kernels, planes and buffers are sized, before anything is allocated.
struct SeatSizes {
  int32_t slots = 1;
  int32_t slot_context = 0;
  int32_t rows_max = 0;

  // Weights but the banks', aligned, and the banks'.
  uint64_t card_dense = 0;
  std::vector<BankShape> banks = {};
  // Beside the weights, as taken: whole granules in sum.
  std::vector<PlanTerm> card_beside = {};
  // By the frames of the banks: maps of experts, and rooms for those that come for a pass. May be
  // empty: none.
  std::function<uint64_t(std::span<const uint32_t> frames)> card_moving = {};
  // Rooms of the card for weights on their way, given back before card_beside is taken.
  uint64_t card_loading = 0;

  // Of the host beside experts; and what only loading needs, given back before `host_beside` is.
  std::vector<PlanTerm> host_beside = {};
  uint64_t host_loading = 0;
  // What the host holds of experts, where it keeps those of the card too (residency moves them
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
  std::optional<uint32_t> frames = {};  // experts a free bank on the card; none: as many as fit
};

// What a placement takes and may take, in bytes of the memory that is nearest to being full.
struct ContextNeed {
  uint64_t need = 0;
  uint64_t room = 0;
};

// What was decided, and with which terms. The plans are complete also where they do not fit.
struct Placement {
  Place place = Place::kHost;  // never kAuto
  std::string device = {};     // "CUDA0"; "host"
  int32_t slots = 1;
  int32_t slot_context = 0;
  int32_t rows_max = 0;
  // By bank: how many there are, and how many lie on the card: those of ids [0, frames).
  std::vector<uint32_t> experts = {};
  std::vector<uint32_t> frames = {};
  std::optional<MemoryPlan> card = {};
  MemoryPlan host{0};
  WeightSource host_weights = WeightSource::kRead;  // kHost: read or mapped
  uint64_t card_fit_room = 0;                       // of the card, for what is sized to fit
  // The card's plan of the whole model, where a split was taken because that does not fit.
  std::optional<MemoryPlan> whole_card = {};
  std::string no_split = {};  // of a whole one that does not fit: why it was not split

  uint64_t ExpertsOnCard() const;
  uint64_t Experts() const;
  // Both plans, the card's first.
  std::vector<MemoryPlan> Plans() const;
  bool CardFits() const { return !card || card->Fits(); }
  bool Fits() const { return CardFits() && host.Fits(); }
  // Of the memory that lacks most, or has least left: what sizing a context goes by. Of the whole
  // model on the card where a split stands in for it.
  ContextNeed Need() const;
  // Throws Error(kNoMemory) with the line and what to do: where a split's rest does not fit the
  // host, how much of it would have to be paged.
  void Check() const;

  // Of a split that nobody asked for, what was chosen and why, for the log; "" for any other.
  std::string Choice() const;

  // "plan: split on CUDA0; experts on the card: 24 of 128 in 48 banks (1152 of 6144); 1 slot of
  // 4096 rows, ubatch 512; card plan: …; host plan: …".
  std::string Line() const;
};

// A seat on one card, whole (kCard) or as a split (kSplit) with as many frames a bank as fit, or as
// the wishes say. A split whose dense part does not fit has no frames and does not fit.
Placement PlaceOnCard(Place place, const SeatSizes& sizes, const CardRoom& card,
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
