// Asks for weights before their step begins: a thread that waits for a step's end, or for a step
// that runs on one thread, moves the first weights of its next share into its own cache, so that
// memory is not idle meanwhile. Owned by one thread of the pool; it holds addresses only, collected
// while the step that it follows runs, and touches nothing but the cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/ops/step.h"

namespace bloomery::exec {

// How many steps are looked ahead: the next one whose weights are known, and one behind it.
inline constexpr size_t kAheadSteps = 2;
using Ahead = std::array<const ops::Step*, kAheadSteps>;

class Prefetcher {
 public:
  // [task of the step before] What thread `thread` of `threads` will read first in the steps
  // `ahead`. A step that was collected before keeps its place.
  void Collect(const Ahead& ahead, int32_t thread, int32_t threads);
  // Asks for the next few cache lines; false when there are none.
  bool Next();

 private:
  static constexpr size_t kStretches = 8;
  struct Target {
    const ops::Step* step = nullptr;
    std::array<std::span<const std::byte>, kStretches> stretches;
    size_t count = 0;
    size_t at = 0;      // stretch
    size_t offset = 0;  // in it
  };

  std::array<Target, kAheadSteps> targets_;
  size_t target_ = 0;
};

}  // namespace bloomery::exec
