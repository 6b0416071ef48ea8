// Which steps are looked ahead to, and what of their weights is asked for.
#include "runtime/exec/cpu/ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "runtime/exec/cpu/pool.h"
#include "runtime/exec/lower/program.h"

namespace bloomery::exec {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr size_t kAtOnce = 512;  // bytes of eight cache lines

// Tasks of `task_bytes` each, one after the other, of which no thread foresees more than
// `stretches` pieces.
class Weights : public ops::Step {
 public:
  Weights(int32_t tasks, size_t task_bytes)
      : tasks_(tasks), task_bytes_(task_bytes), bytes_(static_cast<size_t>(tasks) * task_bytes) {}
  int32_t Tasks() const override { return tasks_; }
  bl_status Run(int32_t /*task*/, ops::Worker* /*worker*/) const override { return BL_OK; }
  size_t Foresee(int32_t begin, int32_t end,
                 std::span<std::span<const std::byte>> out) const override {
    out[0] = std::span(bytes_).subspan(static_cast<size_t>(begin) * task_bytes_,
                                       static_cast<size_t>(end - begin) * task_bytes_);
    asked.push_back({begin, end});
    return 1;
  }
  mutable std::vector<std::pair<int32_t, int32_t>> asked;

 private:
  int32_t tasks_;
  size_t task_bytes_;
  std::vector<std::byte> bytes_;
};

int Times(Prefetcher& prefetcher) {
  int times = 0;
  while (prefetcher.Next()) ++times;
  return times;
}

TEST(Shares, EveryTaskIsOneThreadsAndHasOneTurn) {
  for (int32_t threads = 1; threads <= 17; ++threads) {
    for (int32_t tasks = 0; tasks <= 70; ++tasks) {
      const ops::Shares shares{tasks, threads};
      ASSERT_EQ(shares.begin(0), 0);
      ASSERT_EQ(shares.begin(threads), tasks);
      std::vector<int> turns(static_cast<size_t>(tasks));
      for (int32_t thread = 0; thread < threads; ++thread) {
        const int32_t share = shares.begin(thread + 1) - shares.begin(thread);
        ASSERT_GE(share, tasks / threads);
        ASSERT_LE(share, (tasks + threads - 1) / threads);
        for (int32_t i = 0; i < share; ++i) {
          const int32_t turn = shares.InTurns(shares.begin(thread) + i);
          ASSERT_EQ(turn, i * threads + thread);
          ++turns[static_cast<size_t>(turn)];
        }
      }
      for (const int count : turns) ASSERT_EQ(count, 1);
    }
  }
}

TEST(Prefetcher, AThreadAsksForItsShareOfEachStepOnceAndNotAgain) {
  const Weights first(4, 3 * kAtOnce);
  const Weights second(3, 100);
  Prefetcher prefetcher;
  EXPECT_FALSE(prefetcher.Next());
  prefetcher.Collect({&first, &second}, 1, 2);
  EXPECT_THAT(first.asked, ElementsAre(std::pair(2, 4)));
  EXPECT_THAT(second.asked, ElementsAre(std::pair(2, 3)));
  EXPECT_EQ(Times(prefetcher), 6 + 1);
  // A step between that foresees the same: what was asked for stays in the cache.
  prefetcher.Collect({&second, nullptr}, 1, 2);
  EXPECT_EQ(Times(prefetcher), 0);
  prefetcher.Collect({&first, nullptr}, 1, 2);
  EXPECT_EQ(Times(prefetcher), 6);
}

TEST(Prefetcher, AStepThatComesNearerKeepsItsPlace) {
  const Weights first(1, kAtOnce);
  const Weights second(1, 4 * kAtOnce);
  Prefetcher prefetcher;
  prefetcher.Collect({&first, &second}, 0, 1);
  EXPECT_TRUE(prefetcher.Next());
  EXPECT_TRUE(prefetcher.Next());
  prefetcher.Collect({&second, nullptr}, 0, 1);
  EXPECT_EQ(Times(prefetcher), 3);
  EXPECT_EQ(second.asked.size(), 1U);
}

TEST(Prefetcher, AThreadWithoutTasksAsksForNothingAndALargeShareIsCut) {
  const Weights few(1, kAtOnce);
  Prefetcher prefetcher;
  prefetcher.Collect({&few, nullptr}, 1, 2);
  EXPECT_THAT(few.asked, IsEmpty());
  EXPECT_FALSE(prefetcher.Next());
  const Weights many(1, size_t{1} << 20);
  prefetcher.Collect({&many, nullptr}, 0, 1);
  const int times = Times(prefetcher);
  EXPECT_GT(times, 0);
  EXPECT_LT(times, 2048);
}

TEST(StepsAhead, AStepIsForeseenFromTheStepOnThatSettlesItsWeights) {
  std::vector<PendingStep> steps(6);
  steps[2].foreseen_after = PendingStep::kForeseenAlways;
  steps[4].foreseen_after = 1;
  steps[5].foreseen_after = PendingStep::kForeseenAlways;
  EXPECT_THAT(StepsAhead(steps, 0), ElementsAre(2, 5));
  EXPECT_THAT(StepsAhead(steps, 1), ElementsAre(2, 5));  // it runs, and is not done
  EXPECT_THAT(StepsAhead(steps, 2), ElementsAre(4, 5));
  EXPECT_THAT(StepsAhead(steps, 4), ElementsAre(5));
  EXPECT_THAT(StepsAhead(steps, 5), IsEmpty());
}

// What a step foresees from may change as soon as the step before has ended.
TEST(Pool, WeightsAreForeseenOnlyWhileTheStepBeforeRuns) {
  struct Now : ops::Step {
    int32_t Tasks() const override { return 8; }
    bl_status Run(int32_t /*task*/, ops::Worker* /*worker*/) const override { return BL_OK; }
  };
  struct Next : Now {
    std::atomic<bool>* runs;
    std::atomic<int>* early_or_late;
    size_t Foresee(int32_t /*begin*/, int32_t /*end*/,
                   std::span<std::span<const std::byte>> /*out*/) const override {
      if (!runs->load()) early_or_late->fetch_add(1);
      return 0;
    }
  };
  Pool pool(4, 64, false);
  std::atomic<bool> runs{false};
  std::atomic<int> wrong{0};
  const Now now;
  Next next;
  next.runs = &runs;
  next.early_or_late = &wrong;
  for (int round = 0; round < 20000; ++round) {
    runs = true;
    pool.Run(now, {&next, nullptr});
    runs = false;
    pool.Run(next);
  }
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace bloomery::exec
