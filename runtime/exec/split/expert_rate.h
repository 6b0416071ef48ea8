// How fast the pool's threads compute the host's experts of a split, without a model: the steps
// that passes have (bank_steps.h), over experts of its own that no cache holds. The thread that
// calls the pool; owns weights and rows. `bloomery doctor` keeps what it says for predictions.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/exec/cpu/pool.h"
#include "runtime/exec/split/bank_steps.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/memory/predict.h"

namespace bloomery::exec {

class ExpertRate {
 public:
  // For a pool of `threads`, with experts of `bytes` in all, at least kLeast of them. Throws
  // Error(kNoMemory).
  ExpertRate(const ops::Backend& backend, int32_t threads, uint64_t bytes);

  // Scratch that the pool's workers need.
  uint64_t scratch_bytes() const;
  // Bytes of one expert, as reading it takes.
  uint64_t expert_bytes() const { return steps_->expert_bytes(); }

  int32_t experts() const { return experts_; }

  // Seconds of a dispatch of `experts` (1 to kUsed) experts of one row, the mean over all weights.
  // Between two of them the pool waits as long as a card takes for a layer, and no two that follow
  // each other in memory are of one dispatch.
  double Measure(Pool& pool, int32_t experts);
  // Seconds of an expert of a prompt, with kPromptRows rows each.
  double MeasurePrompt(Pool& pool);
  // All that predictions need of the host's experts. Of dispatches of few and of many experts what
  // is in the middle of a few: what is usual, not what was once possible.
  memory::HostExpertRates MeasureRates(Pool& pool);

  static constexpr int32_t kUsed = 8;         // experts of a row
  static constexpr int32_t kPromptRows = 24;  // of an expert of MeasurePrompt
  static constexpr int32_t kLeast = 64;       // experts

 private:
  void Compute(Pool& pool, int32_t rows);
  // Other experts each time, so that no cache has them.
  void PickForPrompts();

  const ops::Backend& backend_;
  int32_t experts_;
  memory::HostBuffer weights_;
  memory::HostBuffer rows_;
  std::vector<int32_t> ids_;
  std::chrono::steady_clock::time_point until_ = std::chrono::steady_clock::time_point::max();
  int32_t live_ = 1;
  int32_t prompts_ = 0;
  std::unique_ptr<BankSteps> steps_;
};

}  // namespace bloomery::exec
