// How a residency policy chooses its moves: what each kind counts of the kept rows and what it
// proposes. Used by ResidencyPolicy only, on its thread; allocates only when made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/memory/residency/policy.h"

namespace bloomery::memory {

class MoveChooser {
 public:
  virtual ~MoveChooser() = default;
  // One kept row's picks in one bank; every bank in turn, then RowDone.
  virtual void Pick(size_t bank, std::span<const uint16_t> experts, const FrameMap& map) = 0;
  virtual void RowDone(const FrameMap& map) = 0;
  // Appends at most `most` moves, the best first. No expert and no frame is in two of them.
  virtual void Choose(const FrameMap& map, size_t most, std::vector<ExpertMove>* moves) = 0;
  virtual void Forget() = 0;
};

// Ours (payback.cc). `map` gives the banks' shapes.
std::unique_ptr<MoveChooser> MakePayback(const FrameMap& map, const ResidencyRates& rates);
// Every missed expert of the last rows comes in, for the one whose last pick is longest ago.
std::unique_ptr<MoveChooser> MakeLru(const FrameMap& map);
// A missed expert of the last rows comes in where it has had more picks than the seated one that
// had the fewest.
std::unique_ptr<MoveChooser> MakeLfu(const FrameMap& map);

}  // namespace bloomery::memory
