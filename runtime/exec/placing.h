// From a seat's description and options to the planner of memory/placement.h: what the user's
// wishes mean for its banks, and which of a card's places it takes. Needs no card.
#pragma once

#include <functional>
#include <vector>

#include "runtime/exec/seat.h"
#include "runtime/memory/placement.h"
#include "runtime/memory/predict.h"
#include "runtime/plugin/description.h"

namespace bloomery::exec {

// By bank, on the card called `card`; memory::WishesOf says what is refused.
std::vector<memory::BankWish> BankWishesOf(const plugin::Description& description,
                                           const memory::PlacementRequest& request,
                                           const std::string& card);

// The seat on a card: whole where the wishes allow it and it fits, else as a split, where that was
// asked for (by place, by experts kept with the host, by options.card_frames) or may be taken
// unasked (options.auto_splits); one that nobody asked for and that cannot be (sizes throws
// Error(kUnsupported)) is left out, and the placement says why. A split whose every expert has room
// on the card is whole. `sizes` gives what each of the two takes; the last one that it gave is the
// one that was chosen. The placement may not fit. Throws Error(kUsage) as BankWishesOf does, and
// for frames that banks do not have.
memory::Placement ChooseOnCard(const SeatOptions& options, const plugin::Description& description,
                               const memory::CardRoom& card,
                               const std::function<memory::SeatSizes(memory::Place)>& sizes);

// What a row of the seat reads and computes, for memory::Predict.
memory::SeatWork WorkOf(const plugin::Description& description);

}  // namespace bloomery::exec
