// Stages whose banks are split between their cards and the host, and what a seat in stages tells of
// its memory, its experts and its plan; what it refuses. The bits are one card's.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/base/error.h"
#include "runtime/exec/seat.h"
#include "tests/gpu/seat/rows.h"
#include "tests/gpu/seat/staged_models.h"
#include "tests/support/refusal.h"

namespace bloomery::test {
namespace {

TEST(CardStages, BanksOfThreeStagesSplitWithAnyFramesHaveTheBitsOfTheCpu) {
  for (const StagedModel& model : StagedModels()) {
    SCOPED_TRACE(model.path);
    const LoadedSeat cpu = LoadThroughPlugin(model.path, SplitOptions("cpu", -1));
    const std::vector<int32_t> ids = SomeIds(70, cpu.seat->limits().vocabulary);
    const Rows expected = RunAll(*cpu.seat, ids, 64);
    const auto experts = static_cast<int32_t>(cpu.seat->ReadResidency().banks.at(0).experts);
    for (const int32_t frames : {0, 3, experts - 1}) {
      const LoadedSeat staged = LoadThroughPlugin(model.path, OnStages(Thirds(model), 1, frames));
      EXPECT_EQ(staged.seat->CardFrames(), frames);
      for (const int32_t batch : {1, 6}) {
        EXPECT_EQ(FirstDifference(Again(*staged.seat, ids, batch), expected), "")
            << frames << " frames, batches of " << batch;
      }
      EXPECT_GT(staged.seat->counters().host_experts, 0U);
    }
  }
}

// Of integer experts; float ones of prompts are a band.
TEST(CardStages, PromptsOverSplitBanksOfThreeStagesHaveTheBitsOfOneCard) {
  const std::vector<int32_t> ids = LongIds(300);
  const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OnOneCard());
  for (const memory::ShareRates& rates : {kAllLink, kAllHost, kHalf}) {
    exec::SeatOptions options = OnStages({2, 3, 1}, 1, 3);
    options.share_rates = rates;
    const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, options);
    for (const int32_t batch : {9, 16, 100, 300}) {
      EXPECT_EQ(FirstDifference(Again(*staged.seat, ids, batch), Again(*one.seat, ids, batch)), "")
          << "a copy " << rates.copy_us << ", batches of " << batch;
    }
  }
}

// A prompt, tokens, slots together: experts move and are reset in the middle.
TEST(CardStages, ResidencyOverThreeStagesMovesInEveryBankAndTheBitsStay) {
  constexpr int32_t kSlots = 2;
  const std::vector<int32_t> ids = LongIds(300);
  const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OnOneCard(kSlots));
  const auto run = [&](exec::Seat& seat, bool resets) {
    Rows logits;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const auto prompt = std::span(ids).subspan(static_cast<size_t>(slot) * 100, 100);
      for (std::vector<float>& row : Again(seat, prompt, 100, slot)) {
        logits.push_back(std::move(row));
      }
    }
    for (int32_t index = 100; index < 180; ++index) {
      if (resets && index == 140) seat.RequestResidencyReset();
      std::vector<exec::PassRow> rows;
      for (int32_t slot = 0; slot < kSlots; ++slot) {
        const auto at = static_cast<size_t>((index * 7 + slot * 13) % 300);
        rows.push_back({.slot = slot, .index = index, .token = ids[at], .logits = true});
      }
      seat.Run(rows);
      for (std::vector<float>& row : LogitsOf(seat, kSlots)) logits.push_back(std::move(row));
    }
    return logits;
  };
  const Rows expected = run(*one.seat, false);
  for (const auto kind : {memory::ResidencyKind::kLru, memory::ResidencyKind::kPayback}) {
    exec::SeatOptions options = OnStages({2, 2, 2}, kSlots, 3);
    options.residency.kind = kind;
    options.residency.rates = memory::ResidencyRates{.host_us = 50, .card_us = 1, .copy_us = 1};
    options.share_rates = kAllLink;
    const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, options);
    EXPECT_EQ(FirstDifference(run(*staged.seat, true), expected), "") << memory::NameOf(kind);
    const exec::ResidencyStatus status = staged.seat->ReadResidencyStatus();
    EXPECT_EQ(status.stopped, "");
    EXPECT_EQ(status.counters.resets, 1U);
    EXPECT_GT(status.counters.moves, 0U);
    if (kind != memory::ResidencyKind::kLru) continue;
    for (const exec::BankPicks& bank : staged.seat->ReadResidency().banks) {
      EXPECT_NE(bank.frame_of,
                (std::vector<int32_t>{0, 1, 2, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}))
          << "nothing moved in layer " << bank.layer;
    }
  }
}

// A copy that fails on the first card: the second one's expert lands all the same.
TEST(CardStages, AMoveThatFailsOnOneCardDoesNotKeepThoseOfOthersFromLanding) {
  bool fails = true;
  exec::SeatOptions options = OnStages({3, 3}, 1, 5);
  options.split_hooks.copy_fails = [&] { return fails; };
  const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, options);
  exec::Seat& seat = *staged.seat;
  seat.BeginMove({.bank = 0, .in = 10, .out = 0});
  fails = false;
  seat.BeginMove({.bank = 5, .in = 11, .out = 1});
  const Refusal refusal = RefusalOf([&] { seat.LandMoves(true); });
  EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
  EXPECT_NE(refusal.message.find("expert 10 of bank 0"), std::string::npos) << refusal.message;
  EXPECT_EQ(seat.FramesOf(0)[10], -1);
  EXPECT_EQ(seat.FramesOf(5)[11], 1);
  EXPECT_EQ(seat.FramesOf(5)[1], -1);
  const std::vector<int32_t> ids = LongIds(60);
  const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OnOneCard());
  EXPECT_EQ(FirstDifference(Again(seat, ids, 1), Again(*one.seat, ids, 1)), "");
}

TEST(CardStages, LayersWhoseExpertsStayWithTheHostLieBesideWholeOnes) {
  const std::vector<int32_t> ids = LongIds(120);
  const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OnOneCard());
  for (const uint32_t layers : {2U, 3U, 5U}) {  // of the first stage; all of it; of the second, too
    exec::SeatOptions options = OnStages({3, 3});
    options.placing.host_expert_layers = layers;
    const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, options);
    const std::vector<uint32_t>& frames = staged.seat->placement().frames;
    for (size_t bank = 0; bank < frames.size(); ++bank) {
      EXPECT_EQ(frames[bank], bank < layers ? 0U : 16U) << bank;
    }
    for (const int32_t batch : {1, 8, 120}) {
      EXPECT_EQ(FirstDifference(Again(*staged.seat, ids, batch), Again(*one.seat, ids, batch)), "")
          << layers << " layers, batches of " << batch;
    }
  }
}

// What a placement would be, without loading it.
memory::Placement PlannedOf(exec::SeatOptions options) {
  memory::Placement planned;
  options.planned = [&](const memory::Placement& placement) {
    planned = placement;
    throw Error(ErrorKind::kUsage, "only planned");
  };
  RefusalOf([&] { LoadThroughPlugin(kSeedling.path, options); });
  return planned;
}

// Every stage fills its own card: five layers on one leave more with the host than one on another.
// A layer is kept with the host, or the whole model, which needs no room for moves, would fit.
TEST(CardStages, EachStageHasTheFramesThatItsCardHasRoomFor) {
  exec::SeatOptions options = OnStages({5, 1});
  options.placing.host_expert_layers = 1;
  constexpr uint64_t kMiB = 1 << 20;
  memory::Placement planned;
  const auto uneven = [&] {
    return !planned.frames.empty() && planned.frames[1] > 0 &&
           planned.frames[1] < planned.frames.back();
  };
  options.card_budget = 64 * kMiB;
  while (!uneven() && options.card_budget > 8 * kMiB) {
    options.card_budget -= 2 * kMiB;
    planned = PlannedOf(options);
  }
  ASSERT_TRUE(uneven()) << planned.Line();
  std::printf("%s\n", planned.Line().c_str());
  const std::vector<int32_t> ids = LongIds(120);
  const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OnOneCard());
  options.residency.kind = memory::ResidencyKind::kLru;
  const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, options);
  EXPECT_EQ(staged.seat->placement().frames, planned.frames);
  EXPECT_EQ(staged.seat->CardFrames(), static_cast<int32_t>(planned.frames.back()));
  for (const int32_t batch : {1, 8, 120}) {
    EXPECT_EQ(FirstDifference(Again(*staged.seat, ids, batch), Again(*one.seat, ids, batch)), "")
        << batch;
  }
}

TEST(CardStages, PicksCountsAndTiersAreThoseOfOneCard) {
  const std::vector<int32_t> ids = LongIds(200);
  const Cut cut = {2, 4};
  const std::vector<std::string> cards = CardsOfStages(cut.size());
  for (const int32_t frames : {-1, 3}) {
    SCOPED_TRACE(frames);
    const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OnOneCard(1, frames));
    const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, OnStages(cut, 1, frames));
    for (const int32_t batch : {1, 3, 8, 200}) {
      Again(*one.seat, ids, batch);
      Again(*staged.seat, ids, batch);
      const exec::SeatCounters got = staged.seat->counters();
      const exec::SeatCounters expected = one.seat->counters();
      EXPECT_EQ(got.passes, expected.passes);
      EXPECT_EQ(got.experts_picked, expected.experts_picked);
      EXPECT_EQ(got.expert_bytes, expected.expert_bytes);
      EXPECT_EQ(got.weight_bytes_read, expected.weight_bytes_read);
      EXPECT_GE(got.dispatches, expected.dispatches);
      if (batch <= 8) {  // prompts share experts as link and host are measured
        EXPECT_EQ(got.host_experts, expected.host_experts);
        EXPECT_EQ(got.host_bytes, expected.host_bytes);
        EXPECT_EQ(got.hand_offs, expected.hand_offs);
      }
    }
    const exec::Residency got = staged.seat->ReadResidency();
    const exec::Residency expected = one.seat->ReadResidency();
    ASSERT_EQ(got.tiers.size(), 3U);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(got.tiers[i].name, cards[i]);
      EXPECT_EQ(got.tiers[i].device, expected.tiers[0].device);
      EXPECT_FALSE(got.tiers[i].classes.empty());
    }
    EXPECT_EQ(got.tiers[2].name, "host");
    ASSERT_EQ(got.banks.size(), expected.banks.size());
    for (size_t bank = 0; bank < got.banks.size(); ++bank) {
      EXPECT_EQ(got.banks[bank].layer, expected.banks[bank].layer);
      EXPECT_EQ(got.banks[bank].tier, cards[bank < 2 ? 0 : 1]) << bank;
      EXPECT_EQ(got.banks[bank].picks, expected.banks[bank].picks) << bank;
      EXPECT_EQ(got.banks[bank].frames, expected.banks[bank].frames) << bank;
      EXPECT_EQ(got.banks[bank].frame_of, expected.banks[bank].frame_of) << bank;
    }
    const memory::Placement& placement = staged.seat->placement();
    EXPECT_EQ(placement.device, Joined(cards));
    EXPECT_EQ(placement.StageOf(1), placement.stages.data());
    EXPECT_EQ(placement.StageOf(2), placement.stages.data() + 1);
    EXPECT_NE(staged.seat->PlanLine().find("layers 0 to 1, 2 to 5"), std::string::npos)
        << staged.seat->PlanLine();
  }
}

TEST(CardStages, ABudgetThatOneStageExceedsIsRefusedNamingItsCard) {
  for (const Cut& cut : {Cut{5, 1}, Cut{1, 5}}) {
    SCOPED_TRACE(NameOf(cut));
    exec::SeatOptions options = OnStages(cut);
    options.placing.place = memory::Place::kCard;
    memory::Placement planned = PlannedOf(options);
    const size_t large = cut[0] > cut[1] ? 0 : 1;
    const uint64_t most = planned.stages.at(large).plan.total();
    const uint64_t least = planned.stages.at(1 - large).plan.total();
    ASSERT_GT(most, least) << planned.Line();
    options.card_budget = (most + least) / 2;
    options.planned = [&](const memory::Placement& placement) { planned = placement; };
    const Refusal refusal = RefusalOf([&] { LoadThroughPlugin(kSeedling.path, options); });
    EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
    EXPECT_FALSE(planned.stages[large].plan.Fits());
    EXPECT_TRUE(planned.stages[1 - large].plan.Fits());
    const std::string& lacking = planned.stages[large].device;
    for (const std::string& part :
         {lacking + " plan:", "does not fit " + lacking + ", with layers ", std::string("budget"),
          std::string("--tensor-split")}) {
      EXPECT_NE(refusal.message.find(part), std::string::npos) << refusal.message;
    }
  }
}

TEST(CardStages, CardsThatCannotBeAreRefusedByName) {
  struct Case {
    std::string device;
    std::vector<double> shares;
    ErrorKind kind;
    const char* named;
  };
  const std::string first = TestCards().front();
  std::string many = first;
  for (int i = 0; i < 6; ++i) many += "," + first;  // Seedling has six layers
  for (const Case& of :
       {Case{first + ",CUDA99", {}, ErrorKind::kDevice, "CUDA99"},
        Case{many, {}, ErrorKind::kUsage, "layers"},
        Case{first, {1, 1}, ErrorKind::kUsage, "2 shares"},
        Case{Joined(CardsOfStages(2)), {0, 0}, ErrorKind::kUsage, "no share is above 0"},
        Case{Joined(CardsOfStages(2)), {2, -1}, ErrorKind::kUsage, "must be 0 or more"}}) {
    SCOPED_TRACE(of.device);
    exec::SeatOptions options = SplitOptions(of.device, -1);
    options.shares = of.shares;
    const Refusal refusal = RefusalOf([&] { LoadThroughPlugin(kSeedling.path, options); });
    EXPECT_EQ(refusal.kind, of.kind) << refusal.message;
    EXPECT_NE(refusal.message.find(of.named), std::string::npos) << refusal.message;
  }
}

}  // namespace
}  // namespace bloomery::test
