#include "runtime/memory/plan.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace bloomery::memory {

void MemoryPlan::Add(std::string name, uint64_t bytes) {
  terms_.push_back({std::move(name), bytes});
}

void MemoryPlan::AddMapped(std::string name, uint64_t bytes) {
  mapped_.push_back({std::move(name), bytes});
}

uint64_t MemoryPlan::total() const {
  uint64_t sum = 0;
  for (const PlanTerm& term : terms_) {
    sum = CheckedAdd(sum, term.bytes, ErrorKind::kNoMemory, "plan, term " + term.name);
  }
  return sum;
}

std::optional<uint64_t> MemoryPlan::Left() const {
  if (budget_ == 0 && !available_) return std::nullopt;
  const uint64_t limit = budget_ == 0 ? available_->bytes : budget_;
  return limit - std::min(limit, total());
}

std::string MemoryPlan::limit_source() const {
  if (budget_ != 0) return "budget";
  return available_ ? available_->source : "";
}

bool MemoryPlan::Fits() const {
  if (budget_ == 0 && !available_) return true;
  return total() <= limit();
}

void MemoryPlan::Check() const {
  if (Fits()) return;
  const bool own = budget_ == 0;
  throw Error(
      ErrorKind::kNoMemory,
      Line() +
          ": it does not fit; choose fewer slots, a smaller context or ubatch, a "
          "smaller cache type, or " +
          (of_ == PlanOf::kCard ? own ? "run without the card (--device none)" : "raise the budget"
           : own ? "override with --host-budget what the machine shows as available (a "
                   "virtual machine may show less than it grows to)"
                 : "raise the budget"));
}

std::string MemoryPlan::Line() const {
  std::string line = of_ == PlanOf::kHost ? "host" : card_.empty() ? "card" : card_;
  line += " plan: ";
  for (size_t i = 0; i < terms_.size(); ++i) {
    line += (i == 0 ? "" : " + ") + terms_[i].name + " " + FormatBytes(terms_[i].bytes);
  }
  line += " = " + FormatBytes(total());
  if (budget_ != 0) {
    line += " of a budget of " + FormatBytes(budget_);
  } else if (available_) {
    line += " of " + FormatBytes(available_->bytes) + " available (" + available_->source + ")";
  }
  for (const PlanTerm& term : mapped_) {
    line +=
        "; beside it " + term.name + " " + FormatBytes(term.bytes) + " mapped, held as page cache";
  }
  return line;
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  auto value = static_cast<double>(bytes) / 1024.0;
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", value, kUnits[unit]);
  return text.data();
}

}  // namespace bloomery::memory
