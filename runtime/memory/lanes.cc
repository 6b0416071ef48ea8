#include "runtime/memory/lanes.h"

#include <algorithm>
#include <cassert>

namespace bloomery::memory {

int32_t Lanes::Holding(int32_t slot, int32_t length) const {
  for (int32_t lane = 0; length > 0 && lane < lanes_of_slot_; ++lane) {
    if (At(slot, lane) == length) return lane;
  }
  return kNone;
}

int32_t Lanes::Claim(int32_t slot, int32_t length) {
  int32_t claimed = kNone;
  Claim(slot, length, std::span(&claimed, 1));
  return claimed;
}

void Lanes::Claim(int32_t slot, int32_t length, std::span<int32_t> claimed, int32_t before) {
  assert(!claimed.empty() && claimed.size() < static_cast<size_t>(lanes_of_slot_));
  const int32_t held = Holding(slot, length);
  const int32_t kept = Holding(slot, before);
  for (size_t n = 0; n < claimed.size(); ++n) {
    const auto taken = claimed.first(n);
    int32_t best = kNone;
    for (int32_t lane = 0; lane < lanes_of_slot_; ++lane) {
      if (lane == held || lane == kept || std::ranges::find(taken, lane) != taken.end()) continue;
      if (best == kNone || At(slot, lane) < At(slot, best)) best = lane;
    }
    claimed[n] = best;
  }
  for (const int32_t lane : claimed) At(slot, lane) = 0;
}

void Lanes::Cut(int32_t slot, int32_t length) {
  for (int32_t lane = 0; lane < lanes_of_slot_; ++lane) {
    if (At(slot, lane) > length) At(slot, lane) = 0;
  }
}

int32_t Lanes::Keepable(int32_t slot, int32_t length) const {
  int32_t best = 0;
  for (int32_t lane = 0; lane < lanes_of_slot_; ++lane) {
    if (At(slot, lane) <= length) best = std::max(best, At(slot, lane));
  }
  return best;
}

}  // namespace bloomery::memory
