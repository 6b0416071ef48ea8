#include "runtime/memory/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/refusal.h"

namespace bloomery::memory {
namespace {

// Independent of the planner: bytes that some two buffers, alive at one step, would both use.
void ExpectNoLiveOverlap(const std::vector<BufferLife>& lives, const ArenaPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), lives.size());
  for (size_t a = 0; a < lives.size(); ++a) {
    EXPECT_EQ(plan.offsets[a] % kArenaAlignment, 0U);
    EXPECT_LE(plan.offsets[a] + lives[a].bytes, plan.bytes);
    for (size_t b = a + 1; b < lives.size(); ++b) {
      bool together = false;
      for (int32_t step = lives[a].first; step <= lives[a].last; ++step) {
        together = together || (step >= lives[b].first && step <= lives[b].last);
      }
      const bool overlap = plan.offsets[a] < plan.offsets[b] + lives[b].bytes &&
                           plan.offsets[b] < plan.offsets[a] + lives[a].bytes;
      EXPECT_FALSE(together && overlap) << "buffers " << a << " and " << b;
    }
  }
}

TEST(Arena, BuffersNeverAliveTogetherShareBytes) {
  const std::vector<BufferLife> lives = {{1000, 0, 1}, {1000, 2, 3}, {1000, 4, 5}};
  const ArenaPlan plan = PlanArena(lives);
  EXPECT_EQ(plan.bytes, 1024U);
  ExpectNoLiveOverlap(lives, plan);
}

TEST(Arena, AChainOfStepsNeedsTwoBuffersOnly) {
  std::vector<BufferLife> lives;
  lives.reserve(50);
  for (int32_t step = 0; step < 50; ++step) lives.push_back({256, step, step + 1});
  const ArenaPlan plan = PlanArena(lives);
  EXPECT_EQ(plan.bytes, 512U);
  ExpectNoLiveOverlap(lives, plan);
}

TEST(Arena, BuffersThatMeetInOneStepAreApart) {
  const std::vector<BufferLife> lives = {{64, 0, 3}, {64, 3, 4}};
  const ArenaPlan plan = PlanArena(lives);
  EXPECT_EQ(plan.bytes, 128U);
  ExpectNoLiveOverlap(lives, plan);
}

TEST(Arena, ABufferFillsTheGapBetweenTwoLongerLived) {
  const std::vector<BufferLife> lives = {{640, 0, 9}, {576, 0, 1}, {512, 0, 9}, {256, 2, 9}};
  const ArenaPlan plan = PlanArena(lives);
  EXPECT_EQ(plan.bytes, 640U + 576U + 512U);
  ExpectNoLiveOverlap(lives, plan);
}

TEST(Arena, EmptyAndZeroByteBuffersAreFine) {
  EXPECT_EQ(PlanArena({}).bytes, 0U);
  const std::vector<BufferLife> lives = {{0, 0, 1}, {64, 0, 1}};
  EXPECT_EQ(PlanArena(lives).bytes, 64U);
}

TEST(Arena, SizesWhoseSumWrapsAreRefusedAndNotPlaced) {
  constexpr uint64_t kMost = UINT64_MAX;
  const auto refused = [](const std::vector<BufferLife>& lives) {
    return test::RefusalOf([&] { PlanArena(lives); });
  };
  EXPECT_EQ(refused({{kMost, 0, 1}}).kind, ErrorKind::kNoMemory);  // rounded up it would be 0
  EXPECT_EQ(refused({{kMost - 63, 0, 1}, {64, 1, 2}}).kind, ErrorKind::kNoMemory);
  EXPECT_EQ(PlanArena(std::vector<BufferLife>{{kMost - 63, 0, 1}}).bytes, kMost - 63);
}

TEST(Arena, RandomLivesNeverOverlapAndNeverCostMoreThanAll) {
  std::mt19937 random(20260801);
  for (int round = 0; round < 50; ++round) {
    std::vector<BufferLife> lives;
    uint64_t all = 0;
    for (int i = 0; i < 60; ++i) {
      const auto first = static_cast<int32_t>(random() % 40);
      const auto last = first + static_cast<int32_t>(random() % 12);
      lives.push_back({random() % 5000, first, last});
      all += (lives.back().bytes + 63) / 64 * 64;
    }
    const ArenaPlan plan = PlanArena(lives);
    EXPECT_LE(plan.bytes, all);
    ExpectNoLiveOverlap(lives, plan);
  }
}

}  // namespace
}  // namespace bloomery::memory
