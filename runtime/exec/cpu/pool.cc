#include "runtime/exec/cpu/pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

#include "kernels-common/cpu/fp_environment.h"
#include "runtime/base/error.h"
#include "runtime/exec/cpu/relax.h"

namespace bloomery::exec {

using Clock = std::chrono::steady_clock;

namespace {

constexpr uint64_t kTaskBits = 20;
constexpr uint64_t kTaskMask = (uint64_t{1} << kTaskBits) - 1;

// Spins before parking: about 100 µs, longer than the gaps between the steps of a pass, shorter
// than anyone would notice as load.
constexpr int kSpinsBeforeParking = 2000;
// Spins before the caller offers its core: a worker that was preempted may wait for it.
constexpr int kSpinsBeforeYield = 500;

}  // namespace

std::vector<int> CoresAmong(std::span<const int> allowed, const std::string& cpu_folder) {
  std::vector<int> cores;
  std::set<std::string> seen;
  for (const int cpu : allowed) {
    std::ifstream file(cpu_folder + "/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = "cpu" + std::to_string(cpu);
    if (seen.insert(siblings).second) cores.push_back(cpu);
  }
  return cores;
}

std::vector<int> PhysicalCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  std::vector<int> allowed;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
  }
  return allowed.empty() ? std::vector<int>{0} : CoresAmong(allowed);
}

int32_t ProcessorsOf(const std::string& cpu_max) {
  std::istringstream text(cpu_max);
  int64_t quota = 0;
  int64_t period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 0;
  const int64_t processors = (quota - 1) / period + 1;
  return processors < CPU_SETSIZE ? static_cast<int32_t>(processors) : 0;
}

int32_t DefaultThreads() {
  const auto cores = static_cast<int32_t>(PhysicalCores().size());
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string line;
  if (!std::getline(file, line)) return cores;
  const int32_t granted = ProcessorsOf(line);
  return granted == 0 ? cores : std::min(cores, granted);
}

Pool::Pool(int32_t threads, uint64_t scratch_bytes, bool pin) {
  assert(threads >= 1);
  const std::vector<int> cores = pin ? PhysicalCores() : std::vector<int>();
  for (int32_t i = 0; i < threads; ++i) {
    auto slot = std::make_unique<Slot>();
    slot->scratch = memory::HostBuffer(scratch_bytes, "scratch of a worker thread");
    slot->worker.scratch = slot->scratch.bytes();
    workers_.push_back(std::move(slot));
  }
  try {
    for (size_t i = 1; i < workers_.size(); ++i) {
      // More threads than cores: the rest float.
      const int core = i < cores.size() ? cores[i] : -1;
      threads_.emplace_back([this, i, core] { WorkerLoop(i, core); });
    }
  } catch (const std::system_error& error) {
    stop_.store(true);
    wake_.fetch_add(1);
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    throw Error(ErrorKind::kNoMemory,
                "the system gives no " + std::to_string(threads) + " threads: " + error.what());
  }
}

Pool::~Pool() {
  stop_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

StepFailure Pool::Run(const ops::Step& step, const Ahead& ahead) {
  return Run(Clock::time_point::max(), step, ahead);
}

void Pool::StayAwake(bool awake) {
  awake_.store(awake, std::memory_order_seq_cst);
  if (awake && parked_.load(std::memory_order_seq_cst) > 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
}

StepFailure Pool::RunUntil(Clock::time_point deadline, const ops::Step& step) {
  return Run(deadline, step, none_ahead_);
}

bool Pool::WaitUntilIdle(Clock::time_point deadline) {
  if (late_tasks_ == 0) return true;
  if (!WaitForOthers(late_tasks_, deadline)) return false;
  late_tasks_ = 0;
  return true;
}

StepFailure Pool::Run(Clock::time_point deadline, const ops::Step& step, const Ahead& ahead) {
  const int32_t tasks = step.Tasks();
  if (tasks < 0 || tasks > kTasksMax || late_tasks_ != 0) return {BL_INTERNAL, -1};
  if (tasks == 0) return {};
  status_.store(BL_OK, std::memory_order_relaxed);
  failed_row_.store(-1, std::memory_order_relaxed);
  if (tasks == 1 || threads_.empty()) {
    for (int32_t task = 0; task < tasks; ++task) RunTask(0, step, task);
  } else {
    step_ = &step;
    ahead_ = &ahead;
    done_.store(0, std::memory_order_relaxed);
    const uint64_t number = (ticket_.load(std::memory_order_relaxed) >> kTaskBits) + 1;
    const uint64_t ticket = number << kTaskBits | static_cast<uint64_t>(tasks);
    ticket_.store(ticket, std::memory_order_seq_cst);
    if (parked_.load(std::memory_order_seq_cst) > 0) {
      wake_.fetch_add(1);
      wake_.notify_all();
    }
    DoTasks(0, ticket);
    if (!WaitForOthers(tasks, deadline)) {
      late_tasks_ = tasks;
      return {BL_INTERNAL, -1, true};
    }
  }
  return {status_.load(std::memory_order_relaxed), failed_row_.load(std::memory_order_relaxed)};
}

bool Pool::WaitForOthers(int32_t tasks, Clock::time_point deadline) {
  if (done_.load(std::memory_order_acquire) == tasks) return true;
  const auto start = Clock::now();
  for (int spins = 0; done_.load(std::memory_order_acquire) != tasks; ++spins) {
    if (workers_[0]->prefetcher.Next()) continue;
    if (spins < kSpinsBeforeYield) {
      Relax();
    } else {
      sched_yield();  // takes a time slice where others want the core
      if (Clock::now() >= deadline) return false;
    }
  }
  waited_ += Clock::now() - start;
  return true;
}

Pool::Counts Pool::counts() const {
  Counts sum;
  sum.wait_seconds = std::chrono::duration<double>(waited_).count();
  for (const auto& slot : workers_) {
    sum.weight_bytes_read += slot->worker.weight_bytes_read;
    sum.experts_picked += slot->worker.experts_picked;
    sum.expert_bytes += slot->worker.expert_bytes;
  }
  return sum;
}

// Claims one task of thread `of`'s share; -1: none is left, or the step has ended. A step cannot
// end before each claimed task is counted as done, so a word of a later step means that all are.
int32_t Pool::Take(size_t of, uint64_t ticket) {
  const ops::Shares shares{static_cast<int32_t>(ticket & kTaskMask), threads()};
  const auto thread = static_cast<int32_t>(of);
  const int32_t begin = shares.begin(thread);
  const auto share = static_cast<uint64_t>(shares.begin(thread + 1) - begin);
  const uint64_t none = ticket >> kTaskBits << kTaskBits;
  std::atomic<uint64_t>& taken = workers_[of]->taken;
  uint64_t word = taken.load(std::memory_order_acquire);
  for (;;) {
    if (word >> kTaskBits > ticket >> kTaskBits) return -1;
    const uint64_t next = std::max(word, none);
    if ((next & kTaskMask) >= share) return -1;
    if (taken.compare_exchange_weak(word, next + 1, std::memory_order_acq_rel)) {
      return begin + static_cast<int32_t>(next & kTaskMask);
    }
  }
}

// Runs what is left of thread `of`'s share and returns how many tasks that was.
int32_t Pool::RunShare(size_t index, size_t of, uint64_t ticket) {
  int32_t ran = 0;
  for (int32_t task = Take(of, ticket); task >= 0; task = Take(of, ticket)) {
    RunTask(index, *step_, task);
    ++ran;
  }
  return ran;
}

void Pool::DoTasks(size_t index, uint64_t ticket) {
  bool collected = false;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const int32_t ran = RunShare(index, (index + i) % workers_.size(), ticket);
    if (ran == 0) continue;
    // Before they count as done: the step cannot end, nor what it foresees from change.
    if (!collected) {
      workers_[index]->prefetcher.Collect(*ahead_, static_cast<int32_t>(index), threads());
    }
    collected = true;
    done_.fetch_add(ran, std::memory_order_acq_rel);
  }
}

void Pool::RunTask(size_t index, const ops::Step& step, int32_t task) {
  ops::Worker& worker = workers_[index]->worker;
  worker.failed_row = -1;
  const bl_status status = step.Run(task, &worker);
  if (status == BL_OK) return;
  bl_status none = BL_OK;
  status_.compare_exchange_strong(none, status);
  int64_t lowest = failed_row_.load();
  while (worker.failed_row >= 0 && (lowest < 0 || worker.failed_row < lowest) &&
         !failed_row_.compare_exchange_weak(lowest, worker.failed_row)) {
  }
}

void Pool::WorkerLoop(size_t index, int core) {
  if (core >= 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
  }
  const kernels::ScopedFpEnvironment environment;
  uint64_t seen = 0;
  int spins = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint64_t ticket = ticket_.load(std::memory_order_acquire);
    if (ticket != seen) {
      DoTasks(index, ticket);
      seen = ticket;
      spins = 0;
      continue;
    }
    if (workers_[index]->prefetcher.Next()) continue;
    // Once nobody keeps it awake it spins as long as after a step: the next pass may be close.
    if (awake_.load(std::memory_order_relaxed)) spins = 0;
    if (++spins < kSpinsBeforeParking) {
      Relax();
      continue;
    }
    // Say "parked" first, look once more, then sleep: the caller looks at parked_ after it has
    // published, so one of the two sees the other.
    const uint32_t wake = wake_.load(std::memory_order_seq_cst);
    parked_.fetch_add(1, std::memory_order_seq_cst);
    if (ticket_.load(std::memory_order_seq_cst) == seen && !stop_.load()) wake_.wait(wake);
    parked_.fetch_sub(1, std::memory_order_seq_cst);
    spins = 0;
  }
}

}  // namespace bloomery::exec
