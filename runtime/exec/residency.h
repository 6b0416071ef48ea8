// What a loaded seat tells of its memory and its experts: the plan's terms by tier, and how many
// rows each expert of each bank has had. For showing; nothing decides by it. PickCounts is written
// by the passes' thread and read by any; the rest are plain values.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/memory/plan.h"
#include "runtime/plugin/description.h"

namespace bloomery::exec {

// One memory that the seat uses: the host's, or a card's.
struct MemoryTier {
  std::string name;          // "host", or a card's id: "CUDA0"
  std::string device;        // what it belongs to: an instruction set, or a card's name
  uint64_t limit_bytes = 0;  // the budget, or what was available when it was planned; 0: not known
  std::vector<memory::PlanTerm> classes = {};
  std::vector<memory::PlanTerm> mapped = {};  // files, held as page cache: not in the plan's total
};

struct BankPicks {
  int32_t layer = -1;
  uint32_t experts = 0;
  uint32_t used = 0;                 // experts a row picks
  std::string tier;                  // where its weights lie
  std::vector<uint64_t> picks = {};  // rows of each expert since loading; empty: not counted
  // Of a bank that is split between a card (`tier`) and the host: frames it has there, and each
  // expert's, -1 on the host. -1 and empty: it is not split.
  int32_t frames = -1;
  std::vector<int32_t> frame_of = {};
};

struct Residency {
  std::vector<MemoryTier> tiers = {};
  std::vector<BankPicks> banks = {};
};

MemoryTier TierOf(std::string name, std::string device, const memory::MemoryPlan& plan);

// Rows of every expert. One thread adds at a time.
class PickCounts {
 public:
  explicit PickCounts(std::span<const plugin::Bank> banks);

  // The counters of a bank, one an expert.
  std::span<std::atomic<uint64_t>> Of(size_t bank);
  std::vector<uint64_t> Read(size_t bank) const;

 private:
  std::vector<size_t> first_;  // of each bank, and the end
  std::vector<std::atomic<uint64_t>> counts_;
};

}  // namespace bloomery::exec
