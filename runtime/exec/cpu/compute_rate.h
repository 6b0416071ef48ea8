// How many int8 multiply-adds the pool's threads make together in the matrices of a prompt: the
// bound of prompts on the CPU. The thread that calls the pool; owns its matrix and rows.
#pragma once

#include "runtime/exec/cpu/pool.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/ops/backend.h"

namespace bloomery::exec {

class ComputeRate {
 public:
  explicit ComputeRate(const ops::Backend& backend);

  // Scratch that the pool's workers need.
  uint64_t scratch_bytes() const;
  // Multiplies once; multiply-adds a second.
  double Measure(Pool& pool);

 private:
  const ops::Backend& backend_;
  memory::HostBuffer weights_;
  memory::HostBuffer rows_;
  memory::HostBuffer results_;
};

}  // namespace bloomery::exec
