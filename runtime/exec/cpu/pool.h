// A pool of pinned threads that runs a program's steps, one at a time, together with the thread
// that calls it. Each thread has a share of a step's tasks and then takes from the others'; waiting
// threads move what they will read next into their caches, spin for a moment, then park. Run takes
// no lock and allocates nothing. One thread calls; the workers belong to the pool and keep the
// floating-point environment of the numeric rule.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/exec/cpu/ahead.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/ops/step.h"

namespace bloomery::exec {

// One logical CPU of each physical core among the logical CPUs `allowed`, by the sibling lists
// under `cpu_folder`; a CPU without one counts as a core.
std::vector<int> CoresAmong(std::span<const int> allowed,
                            const std::string& cpu_folder = "/sys/devices/system/cpu");

// Of those the calling thread may run on, which is what the process may use where nobody has pinned
// the thread; at least one.
std::vector<int> PhysicalCores();

// Threads where the user names no number: the physical cores, or fewer where the process's control
// group may use less processor time than that.
int32_t DefaultThreads();

// Whole processors that the text of a cpu.max file ("200000 100000", "max 100000") grants, rounded
// up; 0: no limit, or not understood.
int32_t ProcessorsOf(const std::string& cpu_max);

// A step's failure: the status a task returned, and the lowest row any task named.
struct StepFailure {
  bl_status status = BL_OK;
  int64_t row = -1;
  bool late = false;  // the deadline passed; threads may still be at it
};

class Pool {
 public:
  // `threads` in all, the caller's included; worker i runs on the i-th core where `pin`, or where
  // the system lets it. Each has `scratch_bytes` of its own. Throws Error(kNoMemory) when threads
  // or memory cannot be had.
  Pool(int32_t threads, uint64_t scratch_bytes, bool pin);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int32_t threads() const { return static_cast<int32_t>(workers_.size()); }

  // Runs all tasks of the step and returns when they are done. A step of one task runs on the
  // calling thread alone. Threads without work ask for the weights of the steps `ahead`.
  StepFailure Run(const ops::Step& step, const Ahead& ahead = {});

  // As Run, but the calling thread waits no longer than `deadline` for the others. After a late
  // step the pool takes none before WaitUntilIdle says so; the step must live until then.
  StepFailure RunUntil(std::chrono::steady_clock::time_point deadline, const ops::Step& step);
  // False where threads are still at a late step at `deadline`.
  bool WaitUntilIdle(std::chrono::steady_clock::time_point deadline);

  // While set, waiting threads spin and do not park: between steps that follow each other at
  // distances that are not theirs to know. Sleeping ones are woken.
  void StayAwake(bool awake);

  // Workers that sleep now, or are about to; a moment later it may be another number.
  int32_t parked() const { return parked_.load(std::memory_order_seq_cst); }

  // What tasks counted since the pool began.
  struct Counts {
    uint64_t weight_bytes_read = 0;
    uint64_t experts_picked = 0;
    uint64_t expert_bytes = 0;
    double wait_seconds = 0;  // the caller's, at the ends of steps for the others
  };
  Counts counts() const;

  // Most tasks of a step.
  static constexpr int32_t kTasksMax = (1 << 20) - 4096;

 private:
  // On a cache line of its own each: counters are written by every task.
  struct alignas(64) Slot {
    ops::Worker worker;
    memory::HostBuffer scratch;
    Prefetcher prefetcher;  // its thread's alone
    // step number << 20 | tasks taken of this thread's share. A word of an earlier step says that
    // none is taken yet: whoever comes first, its thread or another, makes it this step's.
    alignas(64) std::atomic<uint64_t> taken{0};
  };

  StepFailure Run(std::chrono::steady_clock::time_point deadline, const ops::Step& step,
                  const Ahead& ahead);
  void WorkerLoop(size_t index, int core);
  void DoTasks(size_t index, uint64_t ticket);
  int32_t RunShare(size_t index, size_t of, uint64_t ticket);
  int32_t Take(size_t of, uint64_t ticket);
  void RunTask(size_t index, const ops::Step& step, int32_t task);
  // False where they are not done at `deadline`.
  bool WaitForOthers(int32_t tasks, std::chrono::steady_clock::time_point deadline);

  std::vector<std::unique_ptr<Slot>> workers_;  // [0] is the caller's
  std::vector<std::thread> threads_;

  // step number << 20 | tasks: one word, so that a late thread can never pair a step with another
  // one's tasks. On its line what it publishes; nobody writes there during a step.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  const ops::Step* step_ = nullptr;
  const Ahead* ahead_ = nullptr;
  Ahead none_ahead_{};      // of late steps, whose caller is gone
  int32_t late_tasks_ = 0;  // of a step that was late and may still run; the caller's
  alignas(64) std::atomic<int32_t> done_{0};
  alignas(64) std::atomic<bl_status> status_{BL_OK};
  std::atomic<int64_t> failed_row_{-1};
  alignas(64) std::atomic<int32_t> parked_{0};
  std::atomic<uint32_t> wake_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> awake_{false};
  std::chrono::steady_clock::duration waited_{};  // the caller's
};

}  // namespace bloomery::exec
