// The host's experts of a pass of few rows, in one dispatch of the pool: every thread takes pieces
// of gate and up until there are none, waits until the last of them is done, asking for what it
// reads next meanwhile, and takes pieces of down with the sums of picks. Pieces are small and
// claimed one by one, a thread's own first, so that all end at about the same time: reading weights
// is all that this should cost. Made and begun by the passes' thread; allocates only when made.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "runtime/ops/backend.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/moe.h"
#include "runtime/ops/step.h"

namespace bloomery::exec {

class FewRowsExperts : public ops::Step {
 public:
  // A counter on a cache line of its own.
  struct alignas(64) Count {
    std::atomic<int32_t> value{0};
  };
  // What threads count while one of them runs: banks come one after another and share it.
  struct Counts {
    Counts(int32_t threads, size_t experts)
        : gate_up(std::make_unique<Count[]>(static_cast<size_t>(threads))),
          down(std::make_unique<Count[]>(static_cast<size_t>(threads))),
          left(std::make_unique<Count[]>(experts)) {}

    std::unique_ptr<Count[]> gate_up;  // by thread: pieces taken of its share
    std::unique_ptr<Count[]> down;
    std::unique_ptr<Count[]> left;  // by active expert: pieces of gate and up
    Count done;                     // active experts whose h is there
  };
  struct Args {
    const ops::Backend* backend = nullptr;
    ops::BankRows bank;
    ops::Groups groups;      // of the pass
    ops::Activations x;      // by row
    ops::Activations inner;  // by place: h, and its codes where down has an integer format
    float* h = nullptr;      // by place
    float* y = nullptr;
    kernels::PickSumArgs sum;
    const int32_t* live = nullptr;
    int32_t threads = 1;
    std::shared_ptr<Counts> counts;
    const std::chrono::steady_clock::time_point* until = nullptr;  // nobody waits longer
  };
  explicit FewRowsExperts(Args args);

  // Before each dispatch, with the groups of the pass and no thread at it.
  void Begin();

  // A task is a thread's part in all of it; who comes late finds less to do, or nothing.
  int32_t Tasks() const override { return args_.threads; }
  // BL_INTERNAL: another thread was still at a piece at `until`.
  bl_status Run(int32_t task, ops::Worker* worker) const override;

 private:
  void GateUp(int32_t piece, ops::Worker* worker) const;
  bool WaitForOthers(int32_t thread) const;
  bl_status Down(int32_t piece, ops::Worker* worker) const;
  int32_t Active() const { return args_.groups->active_count; }
  size_t First(size_t expert) const {  // its first place
    return static_cast<size_t>(args_.groups->offsets[expert]);
  }

  Args args_;
  kernels::ExpertGateUpArgs gate_up_args_;
  ops::Split rows_;     // of gate and up, of an expert
  ops::Split columns_;  // of down
  ops::Shares gate_up_;
  ops::Shares down_;
};

}  // namespace bloomery::exec
