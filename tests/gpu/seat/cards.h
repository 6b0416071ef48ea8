// Which cards tests and benches put a seat's stages on: those of $BLOOMERY_TEST_CARDS
// ("CUDA0,CUDA1"), the first of all twice where it is not set: the same card twice tests everything
// but the copy between two. Stages beyond the named cards begin with the first one again.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/exec/seat.h"

namespace bloomery::test {

inline std::vector<std::string> TestCards() {
  const char* const given = std::getenv("BLOOMERY_TEST_CARDS");
  std::istringstream list(given != nullptr && *given != '\0' ? given : "CUDA0,CUDA0");
  std::vector<std::string> cards;
  for (std::string card; std::getline(list, card, ',');) cards.push_back(card);
  return cards;
}

// The card of each of so many stages.
inline std::vector<std::string> CardsOfStages(size_t stages) {
  const std::vector<std::string> cards = TestCards();
  std::vector<std::string> of;
  for (size_t stage = 0; stage < stages; ++stage) of.push_back(cards[stage % cards.size()]);
  return of;
}

inline std::string Joined(const std::vector<std::string>& cards) {
  std::string joined;
  for (const std::string& card : cards) joined += (joined.empty() ? "" : ",") + card;
  return joined;
}

// `shares` of the layers, one a stage.
inline exec::SeatOptions WithShares(exec::SeatOptions options, std::vector<double> shares) {
  options.device = Joined(CardsOfStages(shares.size()));
  options.shares = std::move(shares);
  return options;
}

// So many layers in each stage. A layer i goes to the first stage whose shares up to its own are
// above i of layers + 1: half a layer less in front meets that from below and above.
inline exec::SeatOptions InStages(exec::SeatOptions options, const std::vector<int32_t>& layers) {
  std::vector<double> shares(layers.begin(), layers.end());
  shares.front() -= 0.5;
  shares.back() += 1.5;
  return WithShares(std::move(options), std::move(shares));
}

}  // namespace bloomery::test
