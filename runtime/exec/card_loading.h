// The way to the card's back end, for whoever loads seats: the same in builds without it, where it
// throws. Keeps CUDA's headers out of everything above exec/cuda.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/exec/seat.h"
#include "runtime/memory/predict.h"

namespace bloomery::exec {

// Whether a driver of cards is loaded here, so that going on without one is worth a warning.
bool DriverIsThere();

// A card each: "CUDA0: NVIDIA H200, compute capability 9.0, 139.7 GiB, 138.9 GiB free", and a line
// for each process that holds some of its memory. Throws Error(kDevice) saying what is missing.
std::vector<std::string> CardLines();

// What each card and the link to it do, measured now, in some hundred ms a card; takes memory of
// every card meanwhile. `beside` runs again and again while the link is measured once more: what
// the host does beside it; empty: that is not measured. Throws Error(kDevice), Error(kNoMemory).
std::vector<memory::CardRates> MeasureCards(const std::function<void()>& beside = {});

// A seat on the cards that options.device names ("auto": as SeatOptions has it). Throws
// Error(kDevice), Error(kNoMemory) with the plan's line, Error(kUnsupported) naming what has no
// kernel there, and what loading throws.
std::unique_ptr<Seat> LoadCardSeat(const model::ModelFile& model, const SeatSource& source,
                                   const SeatOptions& options);

}  // namespace bloomery::exec
