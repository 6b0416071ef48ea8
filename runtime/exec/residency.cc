#include "runtime/exec/residency.h"

#include <utility>

namespace bloomery::exec {
namespace {

std::vector<size_t> Ends(std::span<const plugin::Bank> banks) {
  std::vector<size_t> first{0};
  for (const plugin::Bank& bank : banks) first.push_back(first.back() + bank.experts);
  return first;
}

}  // namespace

MemoryTier TierOf(std::string name, std::string device, const memory::MemoryPlan& plan) {
  return {.name = std::move(name),
          .device = std::move(device),
          .limit_bytes = plan.limit(),
          .classes = plan.terms(),
          .mapped = plan.mapped()};
}

PickCounts::PickCounts(std::span<const plugin::Bank> banks)
    : first_(Ends(banks)), counts_(first_.back()) {}

std::span<std::atomic<uint64_t>> PickCounts::Of(size_t bank) {
  return std::span(counts_).subspan(first_[bank], first_[bank + 1] - first_[bank]);
}

std::vector<uint64_t> PickCounts::Read(size_t bank) const {
  std::vector<uint64_t> picks;
  for (size_t i = first_[bank]; i < first_[bank + 1]; ++i) {
    picks.push_back(counts_[i].load(std::memory_order_relaxed));
  }
  return picks;
}

}  // namespace bloomery::exec
