// What an expert takes the host in prompts, from passes whose experts all have as many rows: at
// least the time to read its weights, from many rows on so much and so much for each. One owner of
// the rates that seats measure when loading and those that `bloomery doctor` keeps.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/memory/residency/sharing.h"

namespace bloomery::exec {

struct ComputingCase {
  int64_t experts = 0;   // pick i is expert i % experts
  int64_t used = 0;      // picks of a row
  int32_t rows_max = 1;  // of a pass
};

// `compute` runs a pass of so many rows and is timed. copy_us and answer_us stay 0.
memory::ShareRates ComputingRates(const ComputingCase& of,
                                  const std::function<void(int32_t rows)>& compute);

}  // namespace bloomery::exec
