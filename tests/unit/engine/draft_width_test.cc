#include "runtime/engine/draft_width.h"

#include <gtest/gtest.h>

#include <vector>

namespace bloomery::engine {
namespace {

std::vector<DraftCandidate> Candidates(double acceptance, int32_t count) {
  std::vector<DraftCandidate> candidates;
  double p = 1;
  for (int32_t depth = 0; depth < count; ++depth) {
    candidates.push_back({.slot = 0, .depth = depth, .p = p *= acceptance});
  }
  return candidates;
}

// What most of many choices are, each followed by a pass that takes `seconds(rows)`.
template <typename Seconds>
int32_t Settled(DraftWidth& width, std::span<const DraftCandidate> candidates, Seconds seconds) {
  std::vector<int> chosen(candidates.size() + 1);
  for (int i = 0; i < 800; ++i) {
    const int32_t rows = width.Choose(1, candidates);
    width.LearnPass(1 + rows, seconds(1 + rows));
    if (i >= 400) ++chosen[static_cast<size_t>(rows)];
  }
  return static_cast<int32_t>(std::max_element(chosen.begin(), chosen.end()) - chosen.begin());
}

TEST(DraftWidth, RowsThatCostLittleAreAllVerified) {
  DraftWidth width;
  EXPECT_EQ(Settled(width, Candidates(0.8, 3), [](int32_t rows) { return 1 + 0.05 * rows; }), 3);
}

TEST(DraftWidth, RowsThatCostWhatTheyBringAreNot) {
  DraftWidth width;
  EXPECT_EQ(Settled(width, Candidates(0.8, 3), [](int32_t rows) { return 1.0 * rows; }), 0);
}

TEST(DraftWidth, TheBestIsBetween) {
  // 1.6 tokens in 1.2, 1.96 in 1.4, 2.176 in 2.4: by hand, two rows.
  DraftWidth width;
  EXPECT_EQ(Settled(width, Candidates(0.6, 3),
                    [](int32_t rows) { return rows <= 3 ? 0.8 + 0.2 * rows : 2.4; }),
            2);
}

TEST(DraftWidth, StepsOfMakingThemCount) {
  DraftWidth width;
  for (int i = 0; i < 8; ++i) width.LearnStep(0.9);
  EXPECT_EQ(Settled(width, Candidates(0.8, 3), [](int32_t rows) { return 1 + 0.05 * rows; }), 0);
}

TEST(DraftWidth, ACostThatChangedIsNoticed) {
  DraftWidth width;
  EXPECT_EQ(Settled(width, Candidates(0.9, 3), [](int32_t rows) { return 1.0 * rows; }), 0);
  EXPECT_EQ(Settled(width, Candidates(0.9, 3), [](int32_t) { return 1.0; }), 3);
}

TEST(DraftWidth, NothingIsVerifiedBeforeItIsKnownWhatNothingCosts) {
  DraftWidth width;
  EXPECT_EQ(width.Choose(1, Candidates(0.99, 3)), 0);
}

TEST(DraftWidth, AcceptanceFollowsWhatHappened) {
  DraftWidth width;
  for (int i = 0; i < 200; ++i) width.LearnToken(1, 0, true);
  for (int i = 0; i < 200; ++i) width.LearnToken(1, 1, i % 2 == 0);
  EXPECT_GT(width.Acceptance(1, 0), 0.99);
  EXPECT_NEAR(width.Acceptance(1, 1), 0.5, 0.05);
}

}  // namespace
}  // namespace bloomery::engine
