// Places buffers with known lifetimes in one stretch of memory, so that those never alive together
// share bytes. Pure planning: allocates no memory of theirs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bloomery::memory {

// Alive from step `first` to step `last`, both included.
struct BufferLife {
  uint64_t bytes = 0;
  int32_t first = 0;
  int32_t last = 0;
};

struct ArenaPlan {
  std::vector<uint64_t> offsets;  // one a buffer, multiples of kArenaAlignment
  uint64_t bytes = 0;
};

inline constexpr uint64_t kArenaAlignment =
    64;  // a cache line, and the widest vector of the kernels

// Largest first, each at the lowest place that is free for its whole life. Throws
// Error(kNoMemory) when the sum does not fit in 64 bits.
ArenaPlan PlanArena(std::span<const BufferLife> lives);

}  // namespace bloomery::memory
