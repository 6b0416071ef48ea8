// What the host's experts are measured with: the dispatch of few rows, over all of its own weights.
#include "runtime/exec/split/expert_rate.h"

#include <gtest/gtest.h>

namespace bloomery::exec {
namespace {

TEST(ExpertRate, EachDispatchReadsEveryWeightOfItsExpertsOnce) {
  const ops::Backend& backend = ops::FindBackend("auto");
  constexpr int32_t kThreads = 3;
  ExpertRate rate(backend, kThreads, 0);  // the fewest: 64
  Pool pool(kThreads, rate.scratch_bytes(), false);
  // Q4_K: 144 bytes for 256 values; gate and up 768 rows of 2,048, down 2,048 rows of 768.
  EXPECT_EQ(rate.expert_bytes(), 2U * 768 * 2048 / 256 * 144 + 2048U * 768 / 256 * 144);
  for (const int32_t experts : {1, 2, 5, ExpertRate::kUsed}) {
    const uint64_t before = pool.counts().weight_bytes_read;
    const double seconds = rate.Measure(pool, experts);
    EXPECT_GT(seconds, 0);
    const auto dispatches = static_cast<uint64_t>(64 / experts);
    EXPECT_EQ(pool.counts().weight_bytes_read - before,
              dispatches * static_cast<uint64_t>(experts) * rate.expert_bytes())
        << experts;
  }
}

}  // namespace
}  // namespace bloomery::exec
