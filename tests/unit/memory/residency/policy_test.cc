#include "runtime/memory/residency/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "runtime/base/error.h"
#include "tests/unit/memory/residency/routing.h"

namespace bloomery::memory {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Picks written out, of one bank.
class Picks {
 public:
  explicit Picks(std::vector<uint16_t> experts, int32_t rows = 1) : experts_(std::move(experts)) {
    picks_.rows = rows;
    picks_.experts = std::span(&span_, 1);
  }
  Picks(const Picks&) = delete;
  Picks& operator=(const Picks&) = delete;
  const PassPicks& get() {
    span_ = experts_;
    picks_.kept = kept_;
    return picks_;
  }
  void Keep(std::vector<uint8_t> kept) { kept_ = std::move(kept); }

 private:
  std::vector<uint16_t> experts_;
  std::vector<uint8_t> kept_;
  std::span<const uint16_t> span_;
  PassPicks picks_;
};

constexpr int kBanks = 8;

std::vector<BankFrames> Banks(uint32_t frames) {
  return std::vector<BankFrames>(kBanks, {.experts = 64, .used = 4, .frames = frames});
}

// What a run of passes of one row comes to.
struct Outcome {
  double hit_rate = 0;  // of the second half
  uint64_t moves = 0;
  double time_us = 0;  // of host and moves, as the rates say
  std::vector<ExpertMove> all;
};

Outcome RunPasses(ResidencyPolicy& policy, Routing& routing, int passes) {
  Outcome outcome;
  std::vector<ExpertMove> begun;
  ResidencyCounters half;
  for (int pass = 0; pass < passes; ++pass) {
    for (const ExpertMove& move : begun) policy.Landed(move);
    const auto plan = policy.Plan(1);
    begun.assign(plan.begin(), plan.end());
    outcome.all.insert(outcome.all.end(), begun.begin(), begun.end());
    policy.Count(routing.Next());
    if (pass == passes / 2) half = policy.counters();
  }
  for (const ExpertMove& move : begun) policy.Landed(move);
  const ResidencyCounters& end = policy.counters();
  outcome.hit_rate =
      static_cast<double>(end.hits - half.hits) / static_cast<double>(end.picks - half.picks);
  outcome.moves = end.moves;
  const ResidencyRates& rates = policy.options().rates;
  outcome.time_us = static_cast<double>(end.picks - end.hits) * rates.host_us +
                    static_cast<double>(end.hits) * rates.card_us +
                    static_cast<double>(end.moves) * rates.MoveCost();
  return outcome;
}

Outcome RunKind(ResidencyKind kind, double share, double stay, int passes = 2000,
                ResidencyRates rates = {}) {
  const std::vector<BankFrames> banks = Banks(16);
  ResidencyPolicy policy(banks, {.kind = kind, .rates = rates});
  Routing routing(banks, share, stay);
  return RunPasses(policy, routing, passes);
}

TEST(ResidencyPolicyTest, KindsHaveNames) {
  EXPECT_EQ(ResidencyKindOf("on"), ResidencyKind::kPayback);
  EXPECT_EQ(ResidencyKindOf("payback"), ResidencyKind::kPayback);
  EXPECT_EQ(ResidencyKindOf("lfu"), ResidencyKind::kLfu);
  EXPECT_EQ(ResidencyKindOf("LRU"), std::nullopt);
  EXPECT_EQ(NameOf(ResidencyKind::kPayback), "payback");
  EXPECT_EQ(NameOf(ResidencyKind::kOff), "off");
}

TEST(ResidencyPolicyTest, BudgetIsWhatTheLinkCarriesBesideAPass) {
  const ResidencyRates rates{.copy_us = 60};
  EXPECT_EQ(MovesBeside(600, rates), 10);
  EXPECT_EQ(MovesBeside(659, rates), 10);
  EXPECT_EQ(MovesBeside(10, rates), 1);
  EXPECT_EQ(MovesBeside(1e6, rates), ResidencyOptions::kMovesMax);
  EXPECT_EQ(MovesBeside(100, {.copy_us = 0}), ResidencyOptions::kMovesMax);
}

TEST(ResidencyPolicyTest, RejectedRowsLeaveNoTrace) {
  const std::vector<BankFrames> bank{{.experts = 4, .used = 1, .frames = 2}};
  ResidencyPolicy policy(bank, {.kind = ResidencyKind::kLfu});
  Picks picks({0, 3, 3}, 3);
  picks.Keep({1, 0, 0});
  policy.Count(picks.get());
  EXPECT_EQ(policy.counters().rows, 1);
  EXPECT_EQ(policy.counters().picks, 1);
  EXPECT_EQ(policy.counters().hits, 1);
  EXPECT_THAT(policy.Plan(1), IsEmpty());
  picks.Keep({1, 1, 0});
  policy.Count(picks.get());
  EXPECT_THAT(policy.Plan(1), ElementsAre(ExpertMove{.bank = 0, .in = 3, .out = 1}));
}

TEST(ResidencyPolicyTest, VictimLeavesAtOnceAndTheOtherComesWhenItLanded) {
  const std::vector<BankFrames> bank{{.experts = 4, .used = 1, .frames = 2}};
  ResidencyPolicy policy(bank, {.kind = ResidencyKind::kLru});
  policy.Count(Picks({0}).get());
  policy.Count(Picks({2}).get());
  const ExpertMove move{.bank = 0, .in = 2, .out = 1};
  ASSERT_THAT(policy.Plan(1), ElementsAre(move));
  EXPECT_THAT(policy.map().FramesOf(0), ElementsAre(0, kOnHost, kOnHost, kOnHost));
  EXPECT_EQ(policy.under_way(), 1U);
  policy.Count(Picks({3}).get());
  EXPECT_THAT(policy.Plan(1), IsEmpty());  // while one is under way
  policy.Landed(move);
  EXPECT_THAT(policy.map().FramesOf(0), ElementsAre(0, kOnHost, 1, kOnHost));
  EXPECT_EQ(policy.counters().moves, 1);
  EXPECT_THROW(policy.Landed(move), Error);
}

TEST(ResidencyPolicyTest, LruAndLfuDisagreeWhereTheyShould) {
  // Expert 1 was picked often and long ago, expert 0 once and lately.
  const std::vector<BankFrames> bank{{.experts = 3, .used = 1, .frames = 2}};
  for (const ResidencyKind kind : {ResidencyKind::kLru, ResidencyKind::kLfu}) {
    ResidencyPolicy policy(bank, {.kind = kind});
    policy.Count(Picks({1, 1, 1, 0, 2, 2}, 6).get());
    const int32_t victim = kind == ResidencyKind::kLru ? 1 : 0;
    EXPECT_THAT(policy.Plan(1), ElementsAre(ExpertMove{.bank = 0, .in = 2, .out = victim}));
  }
}

TEST(ResidencyPolicyTest, TiesGoToTheLowerBankAndExpert) {
  const std::vector<BankFrames> banks(3, {.experts = 4, .used = 1, .frames = 1});
  ResidencyPolicy policy(banks, {.kind = ResidencyKind::kLfu, .moves_max = 2});
  const std::vector<uint16_t> picks{3, 2};  // two rows: both missed, once each
  const std::vector<std::span<const uint16_t>> spans(3, picks);
  policy.Count({.rows = 2, .experts = spans});
  EXPECT_THAT(policy.Plan(1), ElementsAre(ExpertMove{.bank = 0, .in = 2, .out = 0},
                                          ExpertMove{.bank = 1, .in = 2, .out = 0}));
}

TEST(ResidencyPolicyTest, AFailedCopyFreesItsFrameAndStopsAllMoves) {
  const std::vector<BankFrames> bank{{.experts = 4, .used = 1, .frames = 2}};
  ResidencyPolicy policy(bank, {.kind = ResidencyKind::kLru});
  policy.Count(Picks({3}).get());
  const ExpertMove move = policy.Plan(1).front();
  policy.Failed(move);
  EXPECT_TRUE(policy.counters().stopped);
  EXPECT_EQ(policy.map().FreeFrame(0), 0);
  policy.Count(Picks({2}).get());
  EXPECT_THAT(policy.Plan(1), IsEmpty());
  // A reset fills the frame from the host again.
  EXPECT_THAT(policy.Reset(), ElementsAre(ExpertMove{.bank = 0, .in = 0, .out = kNoExpert}));
  policy.Landed({.bank = 0, .in = 0, .out = kNoExpert});
  EXPECT_FALSE(policy.counters().stopped);
  EXPECT_THAT(policy.map().FramesOf(0), ElementsAre(0, 1, kOnHost, kOnHost));
}

TEST(ResidencyPolicyTest, AMoveThatDidNotBeginLeavesItsVictimSeated) {
  const std::vector<BankFrames> bank{{.experts = 4, .used = 1, .frames = 2}};
  ResidencyPolicy policy(bank, {.kind = ResidencyKind::kLru});
  policy.Count(Picks({3}).get());
  policy.Failed(policy.Plan(1).front(), true);
  EXPECT_THAT(policy.map().FramesOf(0), ElementsAre(0, 1, kOnHost, kOnHost));
  EXPECT_TRUE(policy.counters().stopped);
}

TEST(ResidencyPolicyTest, ResetMakesTheSeedAgainAndForgets) {
  const std::vector<BankFrames> banks = Banks(16);
  ResidencyPolicy policy(banks, {});
  Routing routing(banks, 0.9, 0.99);
  const Outcome first = RunPasses(policy, routing, 500);
  ASSERT_GT(first.moves, 0);
  const auto moves = policy.Reset();
  const std::vector<ExpertMove> back(moves.begin(), moves.end());
  for (const ExpertMove& move : back) policy.Landed(move);
  const FrameMap seed(banks);
  for (size_t bank = 0; bank < banks.size(); ++bank) {
    for (uint32_t expert = 0; expert < 64; ++expert) {
      EXPECT_EQ(policy.map().Seated(bank, static_cast<int32_t>(expert)), expert < 16);
    }
  }
  // The same routing from its start moves the same experts as it did then.
  Routing again(banks, 0.9, 0.99);
  EXPECT_EQ(RunPasses(policy, again, 500).all, first.all);
}

TEST(ResidencyPolicyTest, PicksOfAnotherShapeAreRefused) {
  ResidencyPolicy policy(std::vector<BankFrames>{{.experts = 4, .used = 2, .frames = 2}}, {});
  EXPECT_THROW(policy.Count(Picks({1}).get()), Error);
  EXPECT_THROW(policy.Count({.rows = 1}), Error);
}

TEST(ResidencyPolicyTest, OffNeverMoves) {
  EXPECT_EQ(RunKind(ResidencyKind::kOff, 0.9, 0.99).moves, 0);
}

TEST(ResidencyPolicyTest, TheBudgetHoldsAtEveryBoundary) {
  const std::vector<BankFrames> banks = Banks(16);
  ResidencyPolicy policy(banks, {.moves_max = 3, .moves_max_many = 5});
  Routing routing(banks, 0.9, 0.99);
  size_t few = 0;
  size_t many = 0;
  for (int pass = 0; pass < 300; ++pass) {
    policy.Count(routing.Next());
    const int32_t rows = pass % 2 == 0 ? 1 : ResidencyOptions::kManyRows;
    const auto plan = policy.Plan(rows);
    (rows == 1 ? few : many) = std::max(rows == 1 ? few : many, plan.size());
    const std::vector<ExpertMove> begun(plan.begin(), plan.end());
    for (const ExpertMove& move : begun) policy.Landed(move);
  }
  EXPECT_EQ(few, 3U);
  EXPECT_EQ(many, 5U);
}

// 16 of 64 experts have a frame: a quarter of uniform picks hit, whatever is moved.
TEST(ResidencyPolicyTest, UniformRoutingIsNeverSlowerThanStatic) {
  for (const double copy_us : {6.0, 60.0, 300.0}) {
    const ResidencyRates rates{.copy_us = copy_us};
    const Outcome off = RunKind(ResidencyKind::kOff, 0, 0, 4000, rates);
    const Outcome on = RunKind(ResidencyKind::kPayback, 0, 0, 4000, rates);
    EXPECT_NEAR(off.hit_rate, 0.25, 0.01);
    EXPECT_GE(off.time_us / on.time_us, 0.99) << copy_us << ": " << on.moves << " moves";
    // What is not asked whether it pays does not.
    const Outcome lru = RunKind(ResidencyKind::kLru, 0, 0, 4000, rates);
    EXPECT_LT(off.time_us / lru.time_us, 0.99);
  }
}

// The hot set of the present topic, 4 of 64, get most picks: static has a quarter of them.
TEST(ResidencyPolicyTest, LocalRoutingIsFollowed) {
  const Outcome off = RunKind(ResidencyKind::kOff, 0.8, 0.98);
  const Outcome on = RunKind(ResidencyKind::kPayback, 0.8, 0.98);
  const Outcome lru = RunKind(ResidencyKind::kLru, 0.8, 0.98);
  const Outcome lfu = RunKind(ResidencyKind::kLfu, 0.8, 0.98);
  EXPECT_NEAR(off.hit_rate, 0.25, 0.03);
  // LRU takes whatever was missed, without delay: few could hit more.
  EXPECT_GT(on.hit_rate, 0.9 * lru.hit_rate);
  EXPECT_GT(off.time_us / on.time_us, 1.7);
  // It pays for ten times the moves.
  EXPECT_GT(lru.moves, 5 * on.moves);
  EXPECT_LT(on.time_us, lru.time_us);
  EXPECT_LT(on.time_us, lfu.time_us);
}

// Topics change with every row, and some are more frequent than others: what a static list could
// know, if it knew the text.
TEST(ResidencyPolicyTest, ALastingSkewIsFollowedWithFewMoves) {
  const Outcome off = RunKind(ResidencyKind::kOff, 0.8, kFrequent, 4000);
  const Outcome on = RunKind(ResidencyKind::kPayback, 0.8, kFrequent, 4000);
  // The four most frequent of 16 topics have (1 + 1/2 + 1/3 + 1/4) / H(16) = 0.616 of the rows.
  EXPECT_NEAR(off.hit_rate, 0.25, 0.05);
  EXPECT_GT(on.hit_rate, 0.9 * (0.8 * 0.616 + 0.2 * 0.25));
  EXPECT_GT(off.time_us / on.time_us, 1.3);
}

}  // namespace
}  // namespace bloomery::memory
