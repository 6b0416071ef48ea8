// The placement decision of a seat in one memory (the host's or a card's): every term by name,
// decided before anything is allocated. Either it fits the limit, or it is refused naming every
// term. Files mapped into the address space are named beside the sum: the kernel drops their pages
// under pressure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/memory/host_memory.h"

namespace bloomery::memory {

struct PlanTerm {
  std::string name;  // "weights", "planes k", "scratch"
  uint64_t bytes = 0;
};

// Whose memory a plan is of: what its line and its refusal say.
enum class PlanOf { kHost, kCard };

class MemoryPlan {
 public:
  // `budget`: bytes the user allows; 0: none given, then `available` holds, and where there is none
  // either, nothing does. `card`: which one, of several ("CUDA1"); empty: there is one.
  explicit MemoryPlan(uint64_t budget, std::optional<HostLimit> available = std::nullopt,
                      PlanOf of = PlanOf::kHost, std::string card = {})
      : of_(of), card_(std::move(card)), budget_(budget), available_(std::move(available)) {}

  void Add(std::string name, uint64_t bytes);
  // Bytes of files mapped: named in the line, not in the total.
  void AddMapped(std::string name, uint64_t bytes);
  const std::vector<PlanTerm>& terms() const { return terms_; }
  const std::vector<PlanTerm>& mapped() const { return mapped_; }
  // What the total must not pass: the budget, else what is available; 0 where neither is known.
  uint64_t limit() const { return budget_ != 0 ? budget_ : available_ ? available_->bytes : 0; }
  uint64_t total() const;
  PlanOf of() const { return of_; }
  // Whose number the limit is: "budget", "MemAvailable", …; empty where there is none.
  std::string limit_source() const;

  // Bytes of the limit that the total leaves (0 where it is above); nullopt where nothing limits
  // it.
  std::optional<uint64_t> Left() const;
  // Whether the total is within the limit.
  bool Fits() const;
  // Throws Error(kNoMemory) with the line when the total is above the limit.
  void Check() const;

  // "host plan: planes k 3.0 MiB + … = 20.4 MiB of a budget of 1.0 GiB; beside it weights
  // 13.1 MiB mapped, held as page cache". A card's: "card plan: …", of several "CUDA1 plan: …".
  std::string Line() const;

 private:
  PlanOf of_;
  std::string card_;
  uint64_t budget_;
  std::optional<HostLimit> available_;
  std::vector<PlanTerm> terms_;
  std::vector<PlanTerm> mapped_;
};

// "512 B", "13.1 MiB", "1.0 GiB".
std::string FormatBytes(uint64_t bytes);

}  // namespace bloomery::memory
