// What the rows of the last pass picked, kept until it is certain which of them stay: rows that are
// cut before the next pass (a rejected draft, a failed request) leave no trace in counts or files.
// Written by the passes of one thread, and owned by whoever runs them; sized once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/exec/pass.h"
#include "runtime/memory/residency/policy.h"
#include "runtime/plugin/description.h"

namespace bloomery::exec {

class PickLedger {
 public:
  // Throws Error(kUnsupported) for a bank of more experts than 16 bits tell apart.
  PickLedger(std::span<const plugin::Bank> banks, int32_t rows_max);

  // Where a pass puts what its rows picked of a bank: `used` experts a row, room for rows_max rows.
  // Whoever writes there does so after Ran of the pass before was settled.
  std::span<uint16_t> Of(size_t bank) { return experts_[bank]; }

  // The pass of these rows ran, and has put its picks.
  void Ran(std::span<const PassRow> rows);
  // Rows of the slot from `length` on are gone.
  void Cut(int32_t slot, int32_t length);

  // Whether there are picks of a pass. Those of it that was Ran last; valid until Clear.
  bool holds() const { return !slots_.empty(); }
  std::span<const uint8_t> slots() const { return slots_; }
  memory::PassPicks Picks();
  void Clear();

 private:
  std::vector<uint32_t> used_;                  // by bank
  std::vector<std::vector<uint16_t>> experts_;  // by bank
  std::vector<std::span<const uint16_t>> views_;
  std::vector<uint8_t> slots_;    // by row of the pass
  std::vector<int32_t> indices_;  // by row of the pass
  std::vector<uint8_t> kept_;
};

}  // namespace bloomery::exec
