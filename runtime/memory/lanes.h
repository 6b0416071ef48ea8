// Which lane of its fixed planes holds a slot's state after how many rows. A recurrent state is
// overwritten by the next row and cannot be cut by position; so a pass reads one lane and writes
// others, one behind each row that its slot may be cut back to, and the lane that it read still
// holds the state from before it: what a failed pass goes back to. A pass in parts takes one more:
// each part reads what the one before wrote, and the state from before all of them stays.
// Bookkeeping alone: the bytes lie in the stores of planes. The engine's thread, between passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bloomery::memory {

// Lanes of a slot that passes take turns on, where a pass writes one.
inline constexpr int32_t kLanesOfSlot = 2;
// The same where a pass writes up to `window_rows`, and may have `parts`.
constexpr int32_t LanesOfWindow(int32_t window_rows, int32_t parts = 1) {
  return window_rows + (parts > 1 ? 2 : 1);
}

class Lanes {
 public:
  static constexpr int32_t kNone = -1;

  Lanes(int32_t slots, int32_t lanes_of_slot)
      : lanes_of_slot_(lanes_of_slot),
        lengths_(static_cast<size_t>(slots) * static_cast<size_t>(lanes_of_slot), 0) {}

  int32_t lanes_of_slot() const { return lanes_of_slot_; }

  // The lane with the state behind `length` rows. kNone: there is none; of length 0 always, which
  // is the initial state.
  int32_t Holding(int32_t slot, int32_t length) const;
  // A lane to write the state behind a pass that starts at `length` into: not the one that holds
  // that length. Holds nothing from now on.
  int32_t Claim(int32_t slot, int32_t length);
  // The same for several rows of a pass: as many lanes as `claimed` has room for, at most all but
  // one. Nor the one that holds `before`, the length before a pass of which this is a later part:
  // then at most all but two.
  void Claim(int32_t slot, int32_t length, std::span<int32_t> claimed, int32_t before = 0);
  void Set(int32_t slot, int32_t lane, int32_t length) { At(slot, lane) = length; }
  // Forgets what lies behind `length`.
  void Cut(int32_t slot, int32_t length);
  // The longest length <= `length` whose state there is: 0, or a lane's.
  int32_t Keepable(int32_t slot, int32_t length) const;

 private:
  size_t Index(int32_t slot, int32_t lane) const {
    return static_cast<size_t>(slot) * static_cast<size_t>(lanes_of_slot_) +
           static_cast<size_t>(lane);
  }
  int32_t& At(int32_t slot, int32_t lane) { return lengths_[Index(slot, lane)]; }
  int32_t At(int32_t slot, int32_t lane) const { return lengths_[Index(slot, lane)]; }

  int32_t lanes_of_slot_;
  std::vector<int32_t> lengths_;  // [slots][lanes]; 0: holds nothing
};

}  // namespace bloomery::memory
