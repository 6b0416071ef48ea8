// Who takes which expert of a prompt, with costs and picks that are made up.
#include "runtime/memory/residency/sharing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <vector>

namespace bloomery::memory {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr ShareRates kRates = {.copy_us = 50, .read_us = 28, .fixed_us = 4, .row_us = 3};

constexpr int32_t kRows = 240;  // does not matter where sums cost nothing

PromptSharing Sharing(uint32_t experts, uint32_t used = 2) {
  const PromptSharing::Bank bank{.experts = experts, .used = used};
  return PromptSharing({&bank, 1});
}

// No expert has a frame.
std::vector<int32_t> Away(size_t experts) { return std::vector<int32_t>(experts, -1); }

TEST(ShareRates, TheHostTakesTheTimeToReadOrToCompute) {
  EXPECT_EQ(kRates.HostUs(1), 28);
  EXPECT_EQ(kRates.HostUs(8), 28);
  EXPECT_EQ(kRates.HostUs(32), 100);
  EXPECT_EQ(kRates.Scaled(2).HostUs(32), 200);
  EXPECT_EQ(kRates.Scaled(2).copy_us, 100);
}

TEST(PromptSharingTest, TheHottestComeOverTheLinkAndBothSidesEndTogether) {
  // Host: 304, 154, 154, 100, 28, 28 us. With two on the link: 100 beside 310; with three: 150
  // beside 156; with four: 200 beside 56.
  const std::vector<int32_t> counts = {8, 50, 100, 0, 32, 1, 50};
  const auto division = PromptSharing::Divide(kRates, counts, Away(7), kRows, 0, 7);
  EXPECT_THAT(division.link, ElementsAre(1, 2, 6));
  EXPECT_THAT(division.host, ElementsAre(0, 4, 5));
}

TEST(PromptSharingTest, ALinkThatIsBusyTakesFewerAndOneThatIsFullNoMore) {
  const std::vector<int32_t> counts = {8, 50, 100, 0, 32, 1, 50};
  // Host alone: 768. One more at a time: 250 beside 464, 300 beside 310, 350 beside 156 (worse).
  EXPECT_THAT(PromptSharing::Divide(kRates, counts, Away(7), kRows, 200, 7).link,
              ElementsAre(1, 2));
  EXPECT_THAT(PromptSharing::Divide(kRates, counts, Away(7), kRows, 0, 1).link, ElementsAre(2));
  EXPECT_THAT(PromptSharing::Divide(kRates, counts, Away(7), kRows, 0, 0).link, IsEmpty());
  EXPECT_THAT(PromptSharing::Divide(kRates, counts, Away(7), kRows, 0, 0).host, SizeIs(6));
  EXPECT_THAT(PromptSharing::Divide(kRates, counts, Away(7), kRows, 1e6, 7).link, IsEmpty());
}

TEST(PromptSharingTest, ExpertsWithAFrameAndThoseNobodyPickedAreNobodysWork) {
  std::vector<int32_t> frames = Away(4);
  frames[0] = 3;
  const auto division =
      PromptSharing::Divide(kRates, std::vector{90, 0, 80, 2}, frames, kRows, 0, 4);
  EXPECT_THAT(division.link, ElementsAre(2));
  EXPECT_THAT(division.host, ElementsAre(3));
}

// Whatever the numbers, no other border between hot and cold ends earlier.
TEST(PromptSharingTest, NoOtherBorderEndsEarlier) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> counts(24);
    for (int32_t& count : counts) count = static_cast<int32_t>(random() % 80);
    const double busy = static_cast<double>(random() % 400);
    const auto division = PromptSharing::Divide(kRates, counts, Away(24), kRows, busy, 24);
    std::vector<double> host;
    for (const int32_t count : counts) {
      if (count > 0) host.push_back(kRates.HostUs(count));
    }
    std::ranges::sort(host, std::greater<>());
    double best = 1e18;
    for (size_t link = 0; link <= host.size(); ++link) {
      const double left =
          std::accumulate(host.begin() + static_cast<ptrdiff_t>(link), host.end(), 0.0);
      best = std::min(best, std::max(busy + 50.0 * static_cast<double>(link), left));
    }
    double took = 0;
    for (const int32_t expert : division.host) {
      took += kRates.HostUs(counts[static_cast<size_t>(expert)]);
    }
    EXPECT_EQ(std::max(busy + 50.0 * static_cast<double>(division.link.size()), took), best);
  }
}

TEST(PromptSharingTest, BeforeAnyPromptAllAreAlikeAndRoomIsLeftToPutTheGuessRight) {
  // 64 experts of 32 rows: 100 us on the host, 50 on the link: 43 beside 21; three of four set out.
  const PromptSharing sharing = Sharing(64, 4);
  const std::vector<int32_t> ahead = sharing.Ahead(0, kRates, Away(64), 512, 64);
  EXPECT_THAT(ahead, SizeIs(32));
  EXPECT_EQ(ahead.back(), 31);
  // A row an expert: many of them will not be picked.
  EXPECT_THAT(sharing.Ahead(0, kRates, Away(64), 16, 64), IsEmpty());
  EXPECT_THAT(sharing.Ahead(0, kRates, Away(64), 512, 4), SizeIs(3));
}

TEST(PromptSharingTest, WhereTheHostsSumsTakeLongerThanItSavesAllComeOverTheLink) {
  ShareRates rates = kRates;
  const std::vector<int32_t> counts(10, 32);
  // Seven over the link: 350 beside 300, and the sums; all ten: 500.
  rates.answer_us = 0.3;
  EXPECT_THAT(PromptSharing::Divide(rates, counts, Away(10), 240, 0, 10).host, SizeIs(3));
  EXPECT_THAT(PromptSharing::Divide(rates, counts, Away(10), 260, 0, 10).host, IsEmpty());
  EXPECT_THAT(PromptSharing::Divide(rates, counts, Away(10), 260, 0, 9).host, SizeIs(3));
  // Then all of them may set out, too.
  rates.answer_us = 10;
  EXPECT_THAT(Sharing(64, 4).Ahead(0, rates, Away(64), 512, 64), SizeIs(64));
}

TEST(PromptSharingTest, WhatEarlierPromptsPickedSetsOutFirstAndIsForgottenByHalves) {
  PromptSharing sharing = Sharing(64, 4);
  std::vector<int32_t> counts(64, 1);
  for (size_t i = 40; i < 50; ++i) counts[i] = 150;
  sharing.Count(0, counts, 400);
  const std::vector<int32_t> ahead = sharing.Ahead(0, kRates, Away(64), 512, 64);
  for (int32_t hot = 40; hot < 50; ++hot) {
    EXPECT_TRUE(std::ranges::binary_search(ahead, hot)) << hot;
  }
  EXPECT_THAT(ahead, SizeIs(10));  // the cold ones may not be picked at all
  std::vector<int32_t> later(64, 1);
  for (size_t i = 0; i < 10; ++i) later[i] = 150;
  sharing.Count(0, later, 512);  // two halvings
  const std::vector<int32_t> now = sharing.Ahead(0, kRates, Away(64), 512, 14);
  EXPECT_THAT(now, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(PromptSharingTest, TheHottestThatCameTakeTheFramesOfTheColdest) {
  PromptSharing sharing = Sharing(8);
  sharing.Count(0, std::vector{3, 100, 20, 0, 90, 2, 70, 1}, 143);
  std::vector<int32_t> frames = Away(8);
  frames[0] = 0;
  frames[1] = 1;
  frames[2] = 2;
  EXPECT_THAT(sharing.Seats(0, frames, std::vector{4, 5, 6}),
              ElementsAre(ExpertMove{.bank = 0, .in = 4, .out = 0},
                          ExpertMove{.bank = 0, .in = 6, .out = 2}));
  EXPECT_THAT(sharing.Seats(0, frames, {}), IsEmpty());
  EXPECT_THAT(sharing.Seats(0, Away(8), std::vector{4}), IsEmpty());
}

TEST(PromptSharingTest, ALeadThatChanceMakesMovesNothing) {
  PromptSharing sharing = Sharing(2);
  const std::vector<int32_t> frames = {0, -1};
  sharing.Count(0, std::vector{20, 38}, 29);  // a lead of 18; 2.5 * sqrt(58) = 19.04
  EXPECT_THAT(sharing.Seats(0, frames, std::vector{1}), IsEmpty());
  PromptSharing clear = Sharing(2);
  clear.Count(0, std::vector{20, 42}, 31);  // 22; 2.5 * sqrt(62) = 19.7
  EXPECT_THAT(clear.Seats(0, frames, std::vector{1}), SizeIs(1));
}

// With even picks few move, about two of 85 a prompt: 128 experts, of which 8 are picked.
TEST(PromptSharingTest, EvenPicksMoveFew) {
  PromptSharing sharing = Sharing(128, 8);
  std::mt19937 random(3);
  std::vector<int32_t> frames = Away(128);
  for (int32_t i = 0; i < 43; ++i) frames[static_cast<size_t>(i)] = i;
  std::vector<int32_t> came(85);
  std::iota(came.begin(), came.end(), 43);
  size_t moves = 0;
  constexpr int kPrompts = 50;
  for (int prompt = 0; prompt < kPrompts; ++prompt) {
    std::vector<int32_t> counts(128, 0);
    for (int pick = 0; pick < 512 * 8; ++pick) ++counts[random() % 128];
    sharing.Count(0, counts, 512);
    moves += sharing.Seats(0, frames, came).size();
  }
  EXPECT_LE(moves, static_cast<size_t>(3 * kPrompts));
}

}  // namespace
}  // namespace bloomery::memory
