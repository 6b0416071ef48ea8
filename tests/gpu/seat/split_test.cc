// Banks split between card and host: the bits are those of the whole card and of the CPU whatever
// the number of frames, alone and beside other slots, while experts move, and after failures.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/exec/seat.h"
#include "tests/gpu/seat/placed.h"
#include "tests/gpu/seat/rows.h"
#include "tests/gpu/seat/split_options.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/refusal.h"

namespace bloomery::test {
namespace {

using namespace std::chrono_literals;

std::vector<int32_t> FrameCounts(const exec::Seat& seat) {
  const auto experts = static_cast<int32_t>(seat.ReadResidency().banks.at(0).experts);
  return {0, 1, experts / 2, experts - 1, experts};
}

constexpr uint32_t kLastBank = 5;  // of Seedling

const std::string kFiles[] = {MiniPath(), SeedlingPath()};

class CardSplit : public PlacedTest {};
INSTANTIATE_TEST_SUITE_P(OneCard, CardSplit, ::testing::Values(kOneCard), NameOfPlacing);
INSTANTIATE_TEST_SUITE_P(CardStages, CardSplit, ::testing::Values(kHalves), NameOfPlacing);

TEST_P(CardSplit, DecodeHasTheBitsOfTheCpuForEveryNumberOfFrames) {
  const std::vector<int32_t> ids = LongIds(150);
  for (const std::string& file : kFiles) {
    const LoadedSeat cpu = LoadThroughPlugin(file, SplitOptions("cpu", -1));
    const Rows expected = RunAll(*cpu.seat, ids, 1);
    for (const int32_t frames : FrameCounts(*cpu.seat)) {
      SCOPED_TRACE(file + ", frames " + std::to_string(frames));
      const LoadedSeat card = LoadThroughPlugin(file, Placed(SplitOptions("CUDA0", frames)));
      for (const int32_t batch : {1, 3, 8}) {
        EXPECT_EQ(FirstDifference(Again(*card.seat, ids, batch), expected), "") << batch;
      }
      const exec::SeatCounters counters = card.seat->counters();
      EXPECT_GT(counters.experts_picked, 0U);
      if (frames == 0) {
        EXPECT_EQ(counters.host_experts, counters.experts_picked);
      }
      EXPECT_EQ(counters.host_experts > 0, card.seat->CardFrames() >= 0);
    }
  }
}

// Of integer experts: float ones of a prompt meet tensor cores on the card (a band), and on the
// host they do not.
TEST_P(CardSplit, PromptsHaveTheBitsOfTheWholeCardHoweverTheyAreShared) {
  const std::vector<int32_t> ids = LongIds(300);
  const LoadedSeat whole = LoadThroughPlugin(SeedlingPath(), SplitOptions("CUDA0", -1));
  std::vector<Rows> expected;
  const std::vector<int32_t> batches = {16, 100, 300};
  for (const int32_t batch : batches) expected.push_back(Again(*whole.seat, ids, batch));
  for (const int32_t frames : FrameCounts(*whole.seat)) {
    for (const memory::ShareRates& rates : {kAllLink, kAllHost, kHalf}) {
      SCOPED_TRACE("frames " + std::to_string(frames) + ", a copy " +
                   std::to_string(rates.copy_us));
      exec::SeatOptions options = Placed(SplitOptions("CUDA0", frames));
      options.share_rates = rates;
      const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), options);
      for (size_t i = 0; i < batches.size(); ++i) {
        EXPECT_EQ(FirstDifference(Again(*card.seat, ids, batches[i]), expected[i]), "")
            << batches[i];
      }
      const exec::SeatCounters counters = card.seat->counters();
      if (card.seat->CardFrames() < 0) continue;
      // Two ways of one price end together when they have an expert each: a bank's only one takes
      // the link.
      const bool only_one = frames + 1 == FrameCounts(*whole.seat).back();
      if (rates.copy_us == 0) {
        EXPECT_EQ(counters.host_experts, 0U);
      } else if (rates.copy_us != 1 || !only_one) {
        EXPECT_GT(counters.host_experts, 0U);
      }
      if (rates.copy_us == 1) {
        EXPECT_LT(counters.host_experts, counters.experts_picked);
      }
    }
  }
}

TEST_P(CardSplit, PromptsAsMeasuredHaveTheBitsOfTheWholeCard) {
  const std::vector<int32_t> ids = LongIds(300);
  const LoadedSeat whole = LoadThroughPlugin(SeedlingPath(), SplitOptions("CUDA0", -1));
  const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), Placed(SplitOptions("CUDA0", 3)));
  EXPECT_NE(card.seat->LoadLine().find("an expert of a prompt takes the link"), std::string::npos);
  EXPECT_EQ(card.seat->counters().host_experts, 0U);  // measuring is not counted
  for (const int32_t batch : {16, 40, 300}) {
    EXPECT_EQ(FirstDifference(Again(*card.seat, ids, batch), Again(*whole.seat, ids, batch)), "")
        << batch;
  }
}

TEST_P(CardSplit, PromptsOfFloatExpertsStayWithinTheBand) {
  const std::vector<int32_t> ids = LongIds(300);
  const LoadedSeat whole = LoadThroughPlugin(MiniPath(), SplitOptions("CUDA0", -1));
  const LoadedSeat card = LoadThroughPlugin(MiniPath(), Placed(SplitOptions("CUDA0", 3)));
  EXPECT_TRUE(
      card.seat->inexact_operators().contains("routed_experts/1 on the card, prompts (band)"));
  const Rows expected = Again(*whole.seat, ids, 300);
  const Rows got = Again(*card.seat, ids, 300);
  size_t same = 0;
  for (size_t row = 0; row < got.size(); ++row) {
    same += Argmax(got[row]) == Argmax(expected[row]) ? 1 : 0;
  }
  EXPECT_GE(same, got.size() * 97 / 100);
}

TEST_P(CardSplit, PicksAreCountedWhereverTheyAreComputed) {
  const std::vector<int32_t> ids = LongIds(200);
  const LoadedSeat whole = LoadThroughPlugin(SeedlingPath(), SplitOptions("CUDA0", -1));
  const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), Placed(SplitOptions("CUDA0", 3)));
  for (const int32_t batch : {1, 3, 8, 200}) {
    Again(*whole.seat, ids, batch);
    Again(*card.seat, ids, batch);
    EXPECT_EQ(card.seat->counters().experts_picked, whole.seat->counters().experts_picked) << batch;
    const auto same = [](const exec::BankPicks& a, const exec::BankPicks& b) {
      return a.picks == b.picks;
    };
    EXPECT_TRUE(std::ranges::equal(card.seat->ReadResidency().banks,
                                   whole.seat->ReadResidency().banks, same))
        << batch;
  }
}

TEST_P(CardSplit, ASlotBesideThreeOthersHasTheBitsOfItselfAlone) {
  const std::vector<int32_t> ids = LongIds(300);
  constexpr int32_t kSlots = 4;
  const LoadedSeat whole = LoadThroughPlugin(SeedlingPath(), SplitOptions("CUDA0", -1));
  const LoadedSeat card =
      LoadThroughPlugin(SeedlingPath(), Placed(SplitOptions("CUDA0", 3, kSlots)));
  const auto token = [&](int32_t slot, int32_t index) {
    return ids[static_cast<size_t>((index * 5 + slot * 11) % 300)];
  };
  std::vector<Rows> together(kSlots);
  for (int32_t index = 0; index < 40; ++index) {
    std::vector<exec::PassRow> rows;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      rows.push_back({.slot = slot, .index = index, .token = token(slot, index), .logits = true});
    }
    card.seat->Run(rows);
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const std::span<const float> logits = card.seat->Logits(slot);
      together[static_cast<size_t>(slot)].emplace_back(logits.begin(), logits.end());
    }
  }
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    std::vector<int32_t> own;
    for (int32_t index = 0; index < 40; ++index) own.push_back(token(slot, index));
    EXPECT_EQ(FirstDifference(together[static_cast<size_t>(slot)], Again(*whole.seat, own, 1)), "")
        << slot;
  }
}

TEST_P(CardSplit, ExpertsMoveBetweenPassesAndTheBitsStay) {
  const std::vector<int32_t> ids = LongIds(150);
  for (const std::string& file : kFiles) {
    const LoadedSeat whole = LoadThroughPlugin(file, SplitOptions("CUDA0", -1));
    const Rows expected = RunAll(*whole.seat, ids, 1);
    const LoadedSeat card = LoadThroughPlugin(file, Placed(SplitOptions("CUDA0", 3)));
    exec::Seat& seat = *card.seat;
    const std::vector<exec::BankPicks> banks = seat.ReadResidency().banks;
    std::mt19937 random(7);
    Rows got;
    int32_t landed = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      landed += seat.LandMoves(i % 3 == 0);
      const auto bank = static_cast<uint32_t>(random() % banks.size());
      const std::span<const int32_t> map = seat.FramesOf(bank);
      std::vector<int32_t> here;
      std::vector<int32_t> away;
      for (size_t e = 0; e < map.size(); ++e) {
        (map[e] >= 0 ? here : away).push_back(static_cast<int32_t>(e));
      }
      const auto any = [&](const std::vector<int32_t>& of) { return of[random() % of.size()]; };
      try {
        if (!here.empty() && !away.empty()) {
          seat.BeginMove({.bank = bank, .in = any(away), .out = any(here)});
        }
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("on its way"), std::string::npos) << error.what();
      }
      const exec::PassRow row = {
          .slot = 0, .index = static_cast<int32_t>(i), .token = ids[i], .logits = true};
      seat.Run({&row, 1});
      const std::span<const float> logits = seat.Logits(0);
      got.emplace_back(logits.begin(), logits.end());
    }
    EXPECT_EQ(FirstDifference(got, expected), "") << file;
    EXPECT_GT(landed, 50);
    seat.LandMoves(true);
    for (const exec::BankPicks& bank : seat.ReadResidency().banks) {
      EXPECT_EQ(bank.frames, 3);
      std::vector<int32_t> used = bank.frame_of;
      std::erase(used, -1);
      std::ranges::sort(used);
      EXPECT_EQ(used, (std::vector<int32_t>{0, 1, 2}));
    }
    EXPECT_EQ(FirstDifference(Again(seat, ids, 8), expected), "") << file;
  }
}

TEST_P(CardSplit, PromptsWhoseExpertsComeToTheCardRunBesideMovesAndFreeFrames) {
  const std::vector<int32_t> ids = LongIds(300);
  const LoadedSeat whole = LoadThroughPlugin(SeedlingPath(), SplitOptions("CUDA0", -1));
  const Rows expected = RunAll(*whole.seat, ids, 300);
  exec::SeatOptions options = Placed(SplitOptions("CUDA0", 3));
  options.share_rates = kAllLink;
  bool fails = false;
  options.split_hooks.copy_fails = [&] { return fails; };
  const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), options);
  exec::Seat& seat = *card.seat;
  const auto banks = static_cast<uint32_t>(seat.ReadResidency().banks.size());
  for (uint32_t bank = 0; bank < banks; ++bank) seat.BeginMove({.bank = bank, .in = 4, .out = 1});
  EXPECT_EQ(FirstDifference(Again(seat, ids, 300), expected), "");
  EXPECT_EQ(seat.counters().host_experts, 0U);
  seat.LandMoves(true);
  fails = true;
  for (uint32_t bank = 0; bank < banks; ++bank) seat.BeginMove({.bank = bank, .in = 5, .out = 0});
  EXPECT_EQ(FirstDifference(Again(seat, ids, 300), expected), "");
  EXPECT_EQ(RefusalOf([&] { seat.LandMoves(true); }).kind, ErrorKind::kDevice);
  EXPECT_EQ(FirstDifference(Again(seat, ids, 300), expected), "");
  EXPECT_EQ(FirstDifference(Again(seat, ids, 100), Again(*whole.seat, ids, 100)), "");
}

TEST_P(CardSplit, AMoveWhoseCopyFailsIsNamedAndPassesGoOn) {
  const std::vector<int32_t> ids = LongIds(60);
  const LoadedSeat whole = LoadThroughPlugin(SeedlingPath(), SplitOptions("CUDA0", -1));
  const Rows expected = RunAll(*whole.seat, ids, 1);
  for (const uint32_t bank : {0U, kLastBank}) {
    exec::SeatOptions options = Placed(SplitOptions("CUDA0", 2));
    bool fails = true;
    options.split_hooks.copy_fails = [&] { return fails; };
    const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), options);
    exec::Seat& seat = *card.seat;
    seat.BeginMove({.bank = bank, .in = 5, .out = 0});
    const Refusal refusal = RefusalOf([&] { seat.LandMoves(true); });
    EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
    EXPECT_NE(refusal.message.find("expert 5 of bank " + std::to_string(bank)), std::string::npos)
        << refusal.message;
    EXPECT_EQ(FirstDifference(Again(seat, ids, 1), expected), "");
    fails = false;
    seat.BeginMove({.bank = bank, .in = 5});  // the frame is free
    EXPECT_EQ(seat.LandMoves(true), 1);
    EXPECT_EQ(seat.FramesOf(bank)[5], 0);
    EXPECT_EQ(FirstDifference(Again(seat, ids, 1), expected), "");
    EXPECT_EQ(RefusalOf([&] { seat.BeginMove({.bank = bank, .in = 0, .out = 4}); }).kind,
              ErrorKind::kInternal);
  }
}

TEST_P(CardSplit, AWorkerThatStallsEndsThePassByNameAndTheNextOneRuns) {
  const std::vector<int32_t> ids = LongIds(40);
  const LoadedSeat whole = LoadThroughPlugin(SeedlingPath(), SplitOptions("CUDA0", -1));
  const Rows expected = RunAll(*whole.seat, ids, 1);
  struct Case {
    bool caller;
    uint32_t bank;
  };
  for (const Case& of :
       {Case{false, 1}, Case{true, 1}, Case{false, kLastBank}, Case{true, kLastBank}}) {
    for (const int32_t batch : {1, 16}) {
      SCOPED_TRACE(std::to_string(batch) + (of.caller ? " caller, bank " : " worker, bank ") +
                   std::to_string(of.bank));
      exec::SeatOptions options = Placed(SplitOptions("CUDA0", 2));
      options.hand_off_deadline = 200ms;
      options.share_rates = kAllHost;
      std::atomic<bool> stalls{false};
      const std::thread::id own = std::this_thread::get_id();
      options.split_hooks.host_task = [&](uint32_t bank) {
        if (bank != of.bank || (std::this_thread::get_id() == own) != of.caller) return;
        if (stalls.exchange(false)) std::this_thread::sleep_for(500ms);
      };
      const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), options);
      stalls = true;
      bool refused = false;
      for (int32_t round = 0; round < 50 && !refused; ++round) {  // until a worker gets a task
        try {
          Again(*card.seat, ids, batch);
        } catch (const Error& error) {
          refused = true;
          EXPECT_EQ(error.kind(), ErrorKind::kDevice);
          EXPECT_NE(std::string(error.what()).find("within 200 ms"), std::string::npos)
              << error.what();
          EXPECT_NE(std::string(error.what()).find("layer"), std::string::npos) << error.what();
        }
      }
      EXPECT_TRUE(refused);
      // A thread may still be at it: refused by name again, not computed wrongly.
      for (int32_t round = 0; round < 20; ++round) {
        try {
          EXPECT_EQ(FirstDifference(Again(*card.seat, ids, 1), expected), "");
          break;
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::kDevice) << error.what();
          EXPECT_LT(round, 10);
        }
      }
    }
  }
}

TEST_P(CardSplit, LaunchesOneByOneHaveTheBitsOfTheReplayedGraph) {
  class Nobody : public exec::StepObserver {
   public:
    void StepDone(const exec::StepTime& /*step*/) override { ++steps; }
    int steps = 0;
  };
  const std::vector<int32_t> ids = LongIds(64);
  const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), Placed(SplitOptions("CUDA0", 3)));
  for (const int32_t batch : {1, 8, 64}) {
    card.seat->SetObserver(nullptr);
    const Rows replayed = Again(*card.seat, ids, batch);
    Nobody nobody;
    card.seat->SetObserver(&nobody);
    EXPECT_EQ(FirstDifference(Again(*card.seat, ids, batch), replayed), "") << batch;
    EXPECT_GT(nobody.steps, 0);
    card.seat->SetObserver(nullptr);
  }
}

TEST_P(CardSplit, MoreFramesThanExpertsAreRefused) {
  const Refusal refusal =
      RefusalOf([&] { LoadThroughPlugin(SeedlingPath(), Placed(SplitOptions("CUDA0", 1 << 20))); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
}

}  // namespace
}  // namespace bloomery::test
