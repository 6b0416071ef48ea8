// What /metrics says, as Prometheus text: llama-server's names (llamacpp:) and ours (bloomery:).
// The two speeds are averages of the time between two readings, so the one who reads them keeps the
// last reading here. Any thread.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "runtime/engine/engine.h"
#include "runtime/exec/residency.h"
#include "runtime/exec/residency_driver.h"

namespace bloomery::serve {

// The numbers of GET /residency in the same form: tiers, banks, moves, and the time of passes by
// what it was about.
std::string ResidencyMetrics(const exec::Residency& residency, const exec::ResidencyStatus& status);

class MetricsReadings {
 public:
  // The text of a reading, of a seat of so many rows over all slots.
  std::string Next(const engine::Metrics& now, int64_t rows_of_all_slots);
  // When this was made, seconds since 1970: the start of the program, near enough.
  int64_t started() const { return started_; }

 private:
  const int64_t started_ = std::chrono::duration_cast<std::chrono::seconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  std::mutex mutex_;
  engine::Metrics last_;
};

}  // namespace bloomery::serve
