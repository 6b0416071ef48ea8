// The placement decision of a seat on the host: every term by name, decided before anything is
// allocated. Either it fits the budget, or it is refused naming every term.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bloomery::memory {

struct PlanTerm {
  std::string name;  // "weights", "planes k", "scratch"
  uint64_t bytes = 0;
};

class HostPlan {
 public:
  // `budget` bytes of host memory; 0: no limit.
  explicit HostPlan(uint64_t budget) : budget_(budget) {}

  void Add(std::string name, uint64_t bytes);
  const std::vector<PlanTerm>& terms() const { return terms_; }
  uint64_t total() const;
  uint64_t budget() const { return budget_; }

  // Throws Error(kNoMemory) with the line when the total is above the budget.
  void Check() const;

  // "host plan: weights 13.1 MiB + planes k 3.0 MiB + … = 20.4 MiB of a budget of 1.0 GiB".
  std::string Line() const;

 private:
  uint64_t budget_;
  std::vector<PlanTerm> terms_;
};

// "512 B", "13.1 MiB", "1.0 GiB".
std::string FormatBytes(uint64_t bytes);

}  // namespace bloomery::memory
