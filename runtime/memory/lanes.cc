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
  const int32_t held = Holding(slot, length);
  int32_t claimed = kNone;
  for (int32_t lane = 0; lane < lanes_of_slot_; ++lane) {
    if (lane == held) continue;
    if (claimed == kNone || At(slot, lane) < At(slot, claimed)) claimed = lane;
  }
  assert(claimed != kNone);
  At(slot, claimed) = 0;
  return claimed;
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
