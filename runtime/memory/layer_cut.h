// Which card holds which layers: a model is cut over its cards into runs of whole layers, one a
// card, in the order of the cards; what comes before the layers goes with the first run, what comes
// behind with the last. By the room of each card, or by shares as the user says. Pure: bytes in,
// ranges out; the planner (placement.h) then says whether they fit.
//
//   CutByRoom({.layers = {4, 4, 4, 4}, .last = 2}, {{10, 10}});  // [0, 2), [2, 4)
//   CutByShares(4, {{3, 1}}, 2);                                 // [0, 4), [4, 4)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/memory/placement.h"

namespace bloomery::memory {

// Bytes on a card.
struct CutSizes {
  std::vector<uint64_t> layers = {};  // of each layer
  uint64_t first = 0;                 // before the layers
  uint64_t last = 0;                  // behind them
  uint64_t each = 0;                  // of every card
};

// A run a card, none empty: of all cuts one whose fullest card, by its bytes over its room, is
// least full; of several such, the one that gives the first card most layers, then the second, and
// so on. Error(kUsage) for no card, and for more cards than layers.
std::vector<LayerRange> CutByRoom(const CutSizes& sizes, std::span<const uint64_t> rooms);

// As llama.cpp's --tensor-split: layer i of n lies on the first card whose share, summed with those
// before it and over the sum of all, is above i / (n + 1). The + 1 is what comes behind the layers,
// which here always lies with the last of them. A missing share is 0. A run may be empty: that card
// is not used. Error(kUsage) for no card, more shares than cards, a share that is negative or not
// finite, and for none above 0.
std::vector<LayerRange> CutByShares(uint32_t layers, std::span<const double> shares, size_t cards);

}  // namespace bloomery::memory
