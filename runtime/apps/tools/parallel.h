// Runs a function over [0, count) on several threads, for tools outside the pass loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace bloomery::apps {

// Calls fn(i) once for every i, in any order, from `threads` threads (the caller's included);
// returns when all are done. The first exception is thrown again here, and no further calls begin.
void ParallelFor(int32_t threads, size_t count, const std::function<void(size_t)>& fn);

// 0: one thread a physical core.
int32_t ThreadsOf(int64_t wanted);

}  // namespace bloomery::apps
