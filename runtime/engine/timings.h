// How the numbers of `timings` follow from what was measured. Pure functions.
#pragma once

#include <cstdint>

#include "runtime/engine/request.h"

namespace bloomery::engine {

// How a choice came by its prompt: cached + evaluated tokens are the whole prompt.
struct PromptStats {
  int32_t cached = 0;
  int32_t evaluated = 0;
  double ms = 0;  // from the slot's start to the first token
  int32_t total() const { return cached + evaluated; }
};

// `predicted_ms`: from the first generated token to the last. A rate whose time or count is 0 is 0.
Timings MakeTimings(const PromptStats& prompt, int32_t predicted_n, double predicted_ms);

}  // namespace bloomery::engine
