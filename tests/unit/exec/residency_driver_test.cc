#include "runtime/exec/residency_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/exec/toy_seat.h"

namespace bloomery::exec {
namespace {

using memory::ExpertMove;
using memory::ResidencyKind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<plugin::Bank> OneBank(uint32_t experts) {
  plugin::Bank bank;
  bank.layer = 0;
  bank.experts = experts;
  bank.used = 1;
  return {bank};
}

// A seat of one bank whose copies arrive when they are waited for, or fail.
class FakeSeat : public ExpertMover {
 public:
  FakeSeat(int32_t experts, int32_t frames) : frames_(frames), frame_of_(experts, -1) {
    for (int32_t i = 0; i < frames; ++i) frame_of_[static_cast<size_t>(i)] = i;
  }

  int32_t CardFrames() const override { return frames_; }
  std::span<const int32_t> FramesOf(size_t /*bank*/) const override { return frame_of_; }
  void BeginMove(const ExpertMove& move) override {
    if (refuse_begin) throw Error(ErrorKind::kDevice, "no stream");
    begun.push_back(move);
    if (move.out != memory::kNoExpert) {
      free_.push_back(frame_of_[static_cast<size_t>(move.out)]);
      frame_of_[static_cast<size_t>(move.out)] = -1;
    }
    under_way.push_back(move);
    most_under_way = std::max(most_under_way, under_way.size());
  }
  int32_t LandMoves(bool /*wait*/) override {
    int32_t landed = 0;
    bool failed = false;
    for (const ExpertMove& move : under_way) {
      if (move.in == fail_in) {
        failed = true;
        continue;
      }
      frame_of_[static_cast<size_t>(move.in)] = free_.front();
      free_.pop_front();
      ++landed;
    }
    under_way.clear();
    if (failed) throw Error(ErrorKind::kDevice, "the copy engine is gone");
    return landed;
  }
  memory::ResidencyRates MeasureRates() override { return {.host_us = 10, .copy_us = 20}; }
  std::vector<ExpertMove> TakeSeated() override { return std::exchange(seated, {}); }
  // As a pass does with an expert that came for it.
  void SeatInPass(const ExpertMove& move) {
    std::swap(frame_of_[static_cast<size_t>(move.in)], frame_of_[static_cast<size_t>(move.out)]);
    seated.push_back(move);
  }

  std::vector<ExpertMove> seated;

  std::vector<ExpertMove> begun;
  std::vector<ExpertMove> under_way;
  size_t most_under_way = 0;
  int32_t fail_in = -1;
  bool refuse_begin = false;

 private:
  int32_t frames_;
  std::vector<int32_t> frame_of_;
  std::deque<int32_t> free_;
};

// Passes of one row of slot 0.
class Passes {
 public:
  explicit Passes(ResidencyDriver& driver) : driver_(driver) {}
  void Run(uint16_t expert) {
    const PassRow row{.slot = 0, .index = at_++};
    driver_.PassStarts({&row, 1});
    driver_.ledger()->Of(0)[0] = expert;
    driver_.PassRan({&row, 1});
  }
  int32_t at() const { return at_; }

 private:
  ResidencyDriver& driver_;
  int32_t at_ = 0;
};

TEST(ResidencyDriver, WhatAPassSeatsCountsForTheNextOneAndIsTakenBackByAReset) {
  FakeSeat seat(4, 2);
  ResidencyDriver driver(OneBank(4), 1, seat, {.kind = ResidencyKind::kPayback});
  ASSERT_TRUE(driver.seats_in_passes());
  const PassRow row{.slot = 0};
  const auto pass = [&](bool seats, uint16_t expert) {
    driver.PassStarts({&row, 1});
    if (seats) seat.SeatInPass({.bank = 0, .in = 3, .out = 1});
    driver.ledger()->Of(0)[0] = expert;
    driver.PassRan({&row, 1});
  };
  pass(true, 3);   // was the host's when it was picked: no hit
  pass(false, 3);  // is a hit
  pass(false, 3);
  const ResidencyStatus status = driver.Status();
  EXPECT_EQ(status.counters.moves, 1U);
  EXPECT_EQ(status.counters.picks, 2U);
  EXPECT_EQ(status.counters.hits, 1U);
  driver.RequestReset();
  pass(false, 0);
  EXPECT_EQ(seat.FramesOf(0)[1], 1);
  EXPECT_EQ(seat.FramesOf(0)[3], -1);
}

TEST(ResidencyDriver, OnlyOurPolicyLetsPassesSeatExperts) {
  for (const auto kind : {ResidencyKind::kOff, ResidencyKind::kLru, ResidencyKind::kLfu}) {
    FakeSeat seat(4, 2);
    EXPECT_FALSE(ResidencyDriver(OneBank(4), 1, seat, {.kind = kind}).seats_in_passes());
  }
  FakeSeat whole(4, -1);
  EXPECT_FALSE(
      ResidencyDriver(OneBank(4), 1, whole, {.kind = ResidencyKind::kPayback}).seats_in_passes());
}

TEST(ResidencyDriver, MovesBeginBeforeAPassAndLandBeforeTheNext) {
  FakeSeat seat(4, 2);
  ResidencyDriver driver(OneBank(4), 1, seat, {.kind = ResidencyKind::kLru});
  Passes passes(driver);
  passes.Run(0);
  passes.Run(3);
  EXPECT_THAT(seat.begun, IsEmpty());  // the pass that missed it was not settled before
  passes.Run(0);
  const ExpertMove move{.bank = 0, .in = 3, .out = 1};
  EXPECT_THAT(seat.begun, ElementsAre(move));
  EXPECT_THAT(seat.under_way, ElementsAre(move));
  passes.Run(0);
  EXPECT_THAT(seat.under_way, IsEmpty());
  EXPECT_EQ(seat.FramesOf(0)[3], 1);
  const ResidencyStatus status = driver.Status();
  EXPECT_EQ(status.counters.moves, 1);
  EXPECT_EQ(status.counters.rows, 3);
  EXPECT_EQ(status.counters.hits, 2);
  EXPECT_EQ(status.times.passes, 4);
  EXPECT_EQ(status.policy, ResidencyKind::kLru);
}

TEST(ResidencyDriver, BudgetComesFromTheMeasuredRates) {
  FakeSeat seat(4, 2);
  // Two of four on the card: 1 * (10 + 4) / 2 = 7 us a pass, a copy 20: one at least.
  EXPECT_EQ(
      ResidencyDriver(OneBank(4), 1, seat, {.kind = ResidencyKind::kPayback}).Status().moves_max,
      1);
  const memory::ResidencyRates rates{.host_us = 96, .card_us = 4, .copy_us = 10};
  EXPECT_EQ(ResidencyDriver(OneBank(4), 1, seat, {.rates = rates}).Status().moves_max, 5);
  EXPECT_EQ(ResidencyDriver(OneBank(4), 1, seat, {.moves_max = 3}).Status().moves_max, 3);
}

TEST(ResidencyDriver, RowsThatAreCutBeforeTheNextPassLeaveNoTrace) {
  FakeSeat seat(4, 2);
  ResidencyDriver driver(OneBank(4), 3, seat, {.kind = ResidencyKind::kLfu});
  const std::vector<PassRow> rows{
      {.slot = 0, .index = 0}, {.slot = 1, .index = 5}, {.slot = 1, .index = 6}};
  driver.PassStarts(rows);
  const std::vector<uint16_t> picks{0, 2, 3};
  std::ranges::copy(picks, driver.ledger()->Of(0).begin());
  driver.PassRan(rows);
  driver.RowsCut(1, 6);
  driver.RowsCut(0, 1);
  driver.PassStarts({rows.data(), 1});
  driver.PassRan({rows.data(), 1});
  EXPECT_EQ(driver.Status().counters.rows, 2);
  EXPECT_THAT(seat.begun, ElementsAre(ExpertMove{.bank = 0, .in = 2, .out = 1}));
}

TEST(ResidencyDriver, AFailedCopyStopsMovesAndIsToldByName) {
  FakeSeat seat(4, 2);
  ResidencyDriver driver(OneBank(4), 1, seat, {.kind = ResidencyKind::kLru});
  Passes passes(driver);
  seat.fail_in = 3;
  for (const int expert : {3, 3, 3, 2, 2, 2, 2}) passes.Run(static_cast<uint16_t>(expert));
  EXPECT_THAT(seat.begun, SizeIs(1));
  const ResidencyStatus status = driver.Status();
  EXPECT_THAT(status.stopped, HasSubstr("expert 3 of bank 0: the copy engine is gone"));
  EXPECT_EQ(status.counters.moves_failed, 1);
  // A reset fills the frame again, and moves go on.
  seat.fail_in = -1;
  driver.RequestReset();
  passes.Run(3);
  EXPECT_EQ(driver.Status().stopped, "");
  EXPECT_EQ(seat.FramesOf(0)[0], 0);
  EXPECT_EQ(seat.FramesOf(0)[1], 1);
  passes.Run(3);
  passes.Run(3);
  EXPECT_GE(seat.FramesOf(0)[3], 0);
}

TEST(ResidencyDriver, AMoveThatCannotBeginLeavesItsVictim) {
  FakeSeat seat(4, 2);
  ResidencyDriver driver(OneBank(4), 1, seat, {.kind = ResidencyKind::kLru});
  Passes passes(driver);
  seat.refuse_begin = true;
  for (int i = 0; i < 3; ++i) passes.Run(3);
  EXPECT_THAT(driver.Status().stopped, HasSubstr("no stream"));
  seat.refuse_begin = false;
  driver.RequestReset();
  passes.Run(0);
  EXPECT_THAT(seat.begun, IsEmpty());  // nothing had left
}

TEST(ResidencyDriver, ResetMakesTheSeedBeforeTheNextPassInPortions) {
  FakeSeat seat(200, 100);
  ResidencyDriver driver(OneBank(200), 1, seat, {.kind = ResidencyKind::kLru});
  Passes passes(driver);
  for (uint16_t expert = 100; expert < 200; ++expert) passes.Run(expert);
  ASSERT_GT(driver.Status().counters.moves, 90);
  driver.RequestReset();
  passes.Run(0);
  for (size_t expert = 0; expert < 200; ++expert) {
    EXPECT_EQ(seat.FramesOf(0)[expert] >= 0, expert < 100) << expert;
  }
  EXPECT_LE(seat.most_under_way, size_t{memory::ResidencyOptions::kMovesMax});
  EXPECT_EQ(driver.Status().counters.resets, 1);
}

// A router over four experts, two of which each row picks, whose ids can be observed.
class RoutedToy {
 public:
  RoutedToy() {
    table_ = toy_.Add("tokens", {256, 24});
    router_ = toy_.Add("router", {256, 4});
    bank_ = toy_.AddBank(4, 2, 256, model::TensorType::kF32, model::TensorType::kF32,
                         model::TensorType::kF32);
  }
  std::unique_ptr<Seat> Load(const ResidencyRequest& request) {
    return toy_.Load(
        [this](sdk::Graph& g) {
          const sdk::Value x = g.Embed(g.Tokens(), table_);
          const auto routed = g.Router(x, router_, {.used = 2});
          g.Export("ids", routed.ids);
          g.Export("logits",
                   g.Head(g.SelectRows(g.RoutedExperts(x, routed, x, bank_)), toy_.table));
        },
        {.slots = 2, .slot_context = 40, .rows_max = 20, .residency = request, .observe = {"ids"}});
  }

 private:
  test::ToySeat toy_;
  sdk::Weight table_;
  sdk::Weight router_;
  sdk::Bank bank_;
};

TEST(ResidencyOfTheCpuSeat, TraceHasWhatTheRouterChose) {
  const test::TempDir folder;
  const std::string path = folder.File("trace");
  RoutedToy toy;
  std::vector<std::vector<uint16_t>> chosen;
  {
    const std::unique_ptr<Seat> seat = toy.Load({.trace = path});
    const auto run = [&](const std::vector<PassRow>& rows) {
      seat->Run(rows);
      const std::span<const int32_t> ids = seat->Observe("ids").Ints();
      chosen.emplace_back(ids.begin(), ids.end());
    };
    run({{0, 0, 3, true}});
    run({{0, 1, 7, true}, {1, 0, 2, true}, {1, 1, 9, true}});
    seat->Cut(1, 1);  // a draft that was rejected
    run({{1, 1, 11, true}});
  }
  ASSERT_THAT(chosen, ElementsAre(SizeIs(2), SizeIs(6), SizeIs(2)));
  memory::TraceReader reader(RealFileSystem().Open(path));
  EXPECT_THAT(reader.banks(), ElementsAre(memory::TraceBank{.layer = -1, .experts = 4, .used = 2}));
  memory::TracePass pass;
  for (size_t i = 0; i < chosen.size(); ++i) {
    ASSERT_TRUE(reader.Next(&pass));
    EXPECT_THAT(pass.experts, ElementsAre(chosen[i])) << i;
    if (i == 1) {
      EXPECT_THAT(pass.slots, ElementsAre(0, 1, 1));
      EXPECT_THAT(pass.kept, ElementsAre(1, 1, 0));
    }
  }
  EXPECT_FALSE(reader.Next(&pass));
}

TEST(ResidencyOfTheCpuSeat, NothingMovesAndAResetIsRefusedByName) {
  RoutedToy toy;
  const std::unique_ptr<Seat> seat = toy.Load({});
  const PassRow row{0, 0, 3, true};
  seat->Run({&row, 1});
  const ResidencyStatus status = seat->ReadResidencyStatus();
  EXPECT_EQ(status.policy, std::nullopt);
  EXPECT_EQ(status.times.passes, 1);
  EXPECT_GT(status.times.seconds, 0);
  const test::Refusal refusal = test::RefusalOf([&] { seat->RequestResidencyReset(); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(refusal.message, HasSubstr("the whole model lies in one place"));
}

}  // namespace
}  // namespace bloomery::exec
