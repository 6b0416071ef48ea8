#include "runtime/exec/pick_ledger.h"

#include <string>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"

namespace bloomery::exec {

static_assert(limits::kSlotsMax <= UINT8_MAX);

PickLedger::PickLedger(std::span<const plugin::Bank> banks, int32_t rows_max) {
  const auto rows = static_cast<size_t>(rows_max);
  for (const plugin::Bank& bank : banks) {
    if (bank.experts > UINT16_MAX) {
      throw Error(ErrorKind::kUnsupported, "a bank of " + std::to_string(bank.experts) +
                                               " experts: picks of at most " +
                                               std::to_string(UINT16_MAX) + " can be kept");
    }
    used_.push_back(bank.used);
    experts_.emplace_back(rows * bank.used);
  }
  views_.resize(banks.size());
  slots_.reserve(rows);
  indices_.reserve(rows);
  kept_.reserve(rows);
}

void PickLedger::Ran(std::span<const PassRow> rows) {
  Clear();
  for (const PassRow& row : rows) {
    slots_.push_back(static_cast<uint8_t>(row.slot));
    indices_.push_back(row.index);
    kept_.push_back(1);
  }
}

void PickLedger::Cut(int32_t slot, int32_t length) {
  for (size_t row = 0; row < slots_.size(); ++row) {
    if (slots_[row] == slot && indices_[row] >= length) kept_[row] = 0;
  }
}

memory::PassPicks PickLedger::Picks() {
  const size_t rows = slots_.size();
  for (size_t bank = 0; bank < views_.size(); ++bank) {
    views_[bank] = std::span<const uint16_t>(experts_[bank]).first(rows * used_[bank]);
  }
  return {.rows = static_cast<int32_t>(rows), .kept = kept_, .experts = views_};
}

void PickLedger::Clear() {
  slots_.clear();
  indices_.clear();
  kept_.clear();
}

}  // namespace bloomery::exec
