#include "runtime/apps/tools/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/exec/cpu/pool.h"

namespace bloomery::apps {

void ParallelFor(int32_t threads, size_t count, const std::function<void(size_t)>& fn) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        fn(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::thread> others;
  const size_t most = std::min(static_cast<size_t>(std::max(threads, 1)), count);
  for (size_t i = 1; i < most; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
}

int32_t ThreadsOf(int64_t wanted) {
  return wanted > 0 ? static_cast<int32_t>(wanted)
                    : static_cast<int32_t>(exec::PhysicalCores().size());
}

}  // namespace bloomery::apps
