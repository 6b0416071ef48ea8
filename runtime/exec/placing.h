// From a seat's description and options to the planner of memory/placement.h: how the layers are
// cut over cards, what the user's wishes mean for the banks, and which of the cards' places the
// seat takes. Needs no card.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/exec/seat.h"
#include "runtime/memory/layer_cut.h"
#include "runtime/memory/placement.h"
#include "runtime/memory/predict.h"
#include "runtime/plugin/description.h"

namespace bloomery::exec {

// Of the stages of a seat, which may not be empty, the one that the weight, bank or plane belongs
// to: that of its layer. A token table of no layer is the first one's; everything else of no layer,
// and what is the draft head's, the last one's.
size_t StageOf(const plugin::Weight& weight, std::span<const memory::LayerRange> stages);
size_t StageOf(const plugin::Bank& bank, std::span<const memory::LayerRange> stages);
size_t StageOf(const plugin::Plane& plane, std::span<const memory::LayerRange> stages);

// The layers of each card: by options.shares where there are some (a card's may be empty: it is not
// used), else by the cards' rooms. `weight_bytes` and `plane_bytes` give what a weight (by index)
// and a plane take of a card; absent weights are not asked for, the same bytes of the file count
// once for each layer, and once for what is before or behind the layers. Of a bank only what may
// lie there counts: nothing where the user keeps it with the host, options.card_frames of its
// experts where they say so. Throws Error(kUsage) as memory::CutByRoom, CutByShares and WishesOf
// do.
std::vector<memory::LayerRange> CutLayers(
    const SeatOptions& options, const plugin::Description& description,
    std::span<const memory::CardRoom> cards,
    const std::function<uint64_t(uint32_t weight)>& weight_bytes,
    const std::function<uint64_t(uint32_t plane)>& plane_bytes);

// By bank, on cards called `cards` with the stages' layers; memory::WishesOf says what is refused,
// also of no cards.
std::vector<memory::BankWish> BankWishesOf(const plugin::Description& description,
                                           const memory::PlacementRequest& request,
                                           std::span<const std::string> cards,
                                           std::span<const memory::LayerRange> layers);

// The seat on cards, a stage on each with its `layers`: whole where the wishes allow it and it
// fits, else as a split, where that was asked for (by place, by experts kept with the host, by
// options.card_frames) or may be taken unasked (options.auto_splits); one that nobody asked for and
// that cannot be (sizes throws Error(kUnsupported)) is left out, and the placement says why. A
// split whose every expert has room on the cards is whole. `sizes` gives what each of the two
// takes, with a stage for each card; the last one that it gave is the one that was chosen. The
// placement may not fit. Throws Error(kUsage) as BankWishesOf does, and for frames that banks do
// not have.
memory::Placement ChooseOnCards(const SeatOptions& options, const plugin::Description& description,
                                std::span<const memory::CardRoom> cards,
                                std::span<const memory::LayerRange> layers,
                                const std::function<memory::SeatSizes(memory::Place)>& sizes);

// What a row of the seat reads and computes, for memory::Predict.
memory::SeatWork WorkOf(const plugin::Description& description);

}  // namespace bloomery::exec
