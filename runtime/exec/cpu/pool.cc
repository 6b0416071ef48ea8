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

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels-common/cpu/fp_environment.h"
#include "runtime/base/error.h"

namespace bloomery::exec {
namespace {

constexpr uint64_t kTaskBits = 20;
constexpr uint64_t kTaskMask = (uint64_t{1} << kTaskBits) - 1;

// Spins before parking: about 100 µs, longer than the gaps between the steps of a pass, shorter
// than anyone would notice as load.
constexpr int kSpinsBeforeParking = 2000;
// Spins before the caller offers its core: a worker that was preempted may wait for it.
constexpr int kSpinsBeforeYield = 500;

// What one look at the pool's word says. Both numbers come from the same look, so that a late
// thread can never pair a task with another step's count.
struct Ticket {
  int32_t task;
  int32_t tasks;

  explicit Ticket(uint64_t word)
      : task(static_cast<int32_t>(word & kTaskMask)),
        tasks(static_cast<int32_t>(word >> kTaskBits & kTaskMask)) {}
};

void Relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

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

StepFailure Pool::Run(const ops::Step& step) {
  const int32_t tasks = step.Tasks();
  if (tasks < 0 || tasks > kTasksMax) return {BL_INTERNAL, -1};
  if (tasks == 0) return {};
  status_.store(BL_OK, std::memory_order_relaxed);
  failed_row_.store(-1, std::memory_order_relaxed);
  if (tasks == 1 || threads_.empty()) {
    for (int32_t task = 0; task < tasks; ++task) RunTask(0, step, task);
  } else {
    step_ = &step;
    done_.store(0, std::memory_order_relaxed);
    const uint64_t generation = (ticket_.load(std::memory_order_relaxed) >> (2 * kTaskBits)) + 1;
    ticket_.store(generation << (2 * kTaskBits) | static_cast<uint64_t>(tasks) << kTaskBits,
                  std::memory_order_seq_cst);
    if (parked_.load(std::memory_order_seq_cst) > 0) {
      wake_.fetch_add(1);
      wake_.notify_all();
    }
    DoTasks(0);
    WaitForOthers(tasks);
  }
  return {status_.load(std::memory_order_relaxed), failed_row_.load(std::memory_order_relaxed)};
}

void Pool::WaitForOthers(int32_t tasks) {
  if (done_.load(std::memory_order_acquire) == tasks) return;
  const auto start = std::chrono::steady_clock::now();
  for (int spins = 0; done_.load(std::memory_order_acquire) != tasks; ++spins) {
    if (spins < kSpinsBeforeYield) {
      Relax();
    } else {
      sched_yield();
    }
  }
  waited_ += std::chrono::steady_clock::now() - start;
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

bool Pool::HasWork() const {
  const Ticket next(ticket_.load(std::memory_order_seq_cst));
  return next.task < next.tasks;
}

// One read-modify-write of a shared line a task, and one more a thread and step. The step cannot
// end before this thread's tasks are counted as done, so step_ is the ticket's, and all tickets
// drawn here after the first task are of one step.
void Pool::DoTasks(size_t index) {
  if (!HasWork()) return;
  int32_t ran = 0;
  for (;;) {
    const Ticket drawn(ticket_.fetch_add(1, std::memory_order_acq_rel));
    if (drawn.task >= drawn.tasks) break;
    RunTask(index, *step_, drawn.task);
    ++ran;
    if (drawn.task + 1 == drawn.tasks) break;
  }
  if (ran > 0) done_.fetch_add(ran, std::memory_order_acq_rel);
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
  int spins = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    if (HasWork()) {
      DoTasks(index);
      spins = 0;
      continue;
    }
    if (++spins < kSpinsBeforeParking) {
      Relax();
      continue;
    }
    // Say "parked" first, look once more, then sleep: the caller looks at parked_ after it has
    // published, so one of the two sees the other.
    const uint32_t wake = wake_.load(std::memory_order_seq_cst);
    parked_.fetch_add(1, std::memory_order_seq_cst);
    if (!HasWork() && !stop_.load()) wake_.wait(wake);
    parked_.fetch_sub(1, std::memory_order_seq_cst);
    spins = 0;
  }
}

}  // namespace bloomery::exec
