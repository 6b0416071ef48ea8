// Residency on a card: the bits stay those of the CPU while a policy moves experts and is reset,
// and traces of a card, split or whole, have the picks that the CPU's has.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "runtime/exec/seat.h"
#include "runtime/memory/residency/trace.h"
#include "tests/gpu/seat/placed.h"
#include "tests/gpu/seat/split_options.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/temp_dir.h"

namespace bloomery::test {
namespace {

class CardResidency : public PlacedTest {};
INSTANTIATE_TEST_SUITE_P(OneCard, CardResidency, ::testing::Values(kOneCard), NameOfPlacing);
INSTANTIATE_TEST_SUITE_P(CardStages, CardResidency, ::testing::Values(kHalves), NameOfPlacing);

TEST_P(CardResidency, BitsStayWhileExpertsMoveAndAfterAReset) {
  const std::vector<int32_t> ids = LongIds(200);
  const LoadedSeat cpu = LoadThroughPlugin(SeedlingPath(), SplitOptions("cpu", -1));
  const auto expected = RunAll(*cpu.seat, ids, 1);
  for (const auto kind : {memory::ResidencyKind::kLru, memory::ResidencyKind::kPayback}) {
    exec::SeatOptions options = Placed(SplitOptions("CUDA0", 2));
    options.residency.kind = kind;
    options.residency.rates = memory::ResidencyRates{.host_us = 50, .card_us = 1, .copy_us = 1};
    const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), options);
    for (int round = 0; round < 2; ++round) {
      card.seat->Cut(0, 0);
      const auto got = RunAll(*card.seat, ids, 1);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t row = 0; row < got.size(); ++row) {
        for (size_t i = 0; i < got[row].size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[row][i]), std::bit_cast<uint32_t>(expected[row][i]))
              << memory::NameOf(kind) << ", row " << row;
        }
      }
      card.seat->RequestResidencyReset();
    }
    const exec::ResidencyStatus status = card.seat->ReadResidencyStatus();
    EXPECT_EQ(status.stopped, "");
    EXPECT_EQ(status.counters.moves_failed, 0U);
    EXPECT_EQ(status.counters.resets, 1U);
    if (kind == memory::ResidencyKind::kLru) {
      EXPECT_GT(status.counters.moves, 50U);
    }
  }
}

// Residency off, moving with every pass, and payback, each reset in the middle, with few frames and
// many: four slots together have the bits that each has alone on the CPU.
TEST_P(CardResidency, SlotsTogetherKeepTheirBitsThroughMovesAndAResetInMidRun) {
  const std::vector<int32_t> ids = LongIds(300);
  constexpr int32_t kSlots = 4;
  constexpr int32_t kRows = 40;
  const auto token = [&](int32_t slot, int32_t index) {
    return ids[static_cast<size_t>((index * 7 + slot * 13) % 300)];
  };
  const LoadedSeat cpu = LoadThroughPlugin(SeedlingPath(), SplitOptions("cpu", -1));
  std::vector<std::vector<std::vector<float>>> expected;
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    std::vector<int32_t> own;
    for (int32_t index = 0; index < kRows; ++index) own.push_back(token(slot, index));
    cpu.seat->Cut(0, 0);
    expected.push_back(RunAll(*cpu.seat, own, 1));
  }
  const auto experts = static_cast<int32_t>(cpu.seat->ReadResidency().banks.at(0).experts);
  for (const auto kind : {memory::ResidencyKind::kOff, memory::ResidencyKind::kLru,
                          memory::ResidencyKind::kPayback}) {
    for (const int32_t frames : {0, 1, experts / 2, experts - 1}) {
      SCOPED_TRACE(std::string(memory::NameOf(kind)) + ", frames " + std::to_string(frames));
      exec::SeatOptions options = Placed(SplitOptions("CUDA0", frames, kSlots));
      options.residency.kind = kind;
      options.residency.rates = memory::ResidencyRates{.host_us = 50, .card_us = 1, .copy_us = 1};
      const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), options);
      size_t differ = 0;
      for (int32_t index = 0; index < kRows; ++index) {
        if (index == kRows / 2) card.seat->RequestResidencyReset();
        std::vector<exec::PassRow> rows;
        for (int32_t slot = 0; slot < kSlots; ++slot) {
          rows.push_back(
              {.slot = slot, .index = index, .token = token(slot, index), .logits = true});
        }
        card.seat->Run(rows);
        for (int32_t slot = 0; slot < kSlots; ++slot) {
          const std::span<const float> got = card.seat->Logits(slot);
          const auto& alone = expected[static_cast<size_t>(slot)][static_cast<size_t>(index)];
          const auto same = [](float a, float b) {
            return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
          };
          differ += std::ranges::equal(got, alone, same) ? 0 : 1;
        }
      }
      EXPECT_EQ(differ, 0U) << "rows of " << kSlots * kRows;
      const exec::ResidencyStatus status = card.seat->ReadResidencyStatus();
      EXPECT_EQ(status.stopped, "");
      EXPECT_EQ(status.counters.resets, 1U);
      if (kind == memory::ResidencyKind::kOff || frames == 0) {
        EXPECT_EQ(status.counters.moves, 0U);
      } else if (kind == memory::ResidencyKind::kLru) {
        EXPECT_GT(status.counters.moves, 20U);
      }
    }
  }
}

TEST_P(CardResidency, WhatExpertsCostIsMeasuredWhenLoading) {
  exec::SeatOptions options = Placed(SplitOptions("CUDA0", 2));
  options.residency.kind = memory::ResidencyKind::kPayback;
  const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), options);
  const memory::ResidencyRates rates = card.seat->ReadResidencyStatus().rates;
  EXPECT_GT(rates.host_us, 0.1);
  EXPECT_LT(rates.host_us, 10000);
  EXPECT_GT(rates.card_us, 0.0);
  EXPECT_LT(rates.card_us, 10000);
  EXPECT_GT(rates.copy_us, 1);
  EXPECT_GT(rates.begin_us, 0);
  EXPECT_EQ(card.seat->counters().host_experts, 0U);  // measuring counts nothing
}

TEST_P(CardResidency, TracesOfTheCardHaveThePicksOfTheCpu) {
  const std::vector<int32_t> ids = LongIds(120);
  const TempDir folder;
  const auto trace = [&](const char* name, exec::SeatOptions options) {
    options.residency.trace = folder.File(name);
    const LoadedSeat seat = LoadThroughPlugin(SeedlingPath(), options);
    for (const int32_t batch : {1, 5, 40}) {
      seat.seat->Cut(0, 0);
      RunAll(*seat.seat, ids, batch);
    }
    return folder.File(name);
  };
  const std::string cpu = trace("cpu", SplitOptions("cpu", -1));
  const std::string whole = trace("whole", SplitOptions("CUDA0", -1));
  const std::string split = trace("split", Placed(SplitOptions("CUDA0", 3)));
  memory::TraceReader expected(RealFileSystem().Open(cpu));
  memory::TraceReader of_whole(RealFileSystem().Open(whole));
  memory::TraceReader of_split(RealFileSystem().Open(split));
  memory::TracePass a;
  memory::TracePass b;
  memory::TracePass c;
  size_t passes = 0;
  // Prompts' attention is a band on the card: picks of passes of few rows are the CPU's.
  while (expected.Next(&a)) {
    ASSERT_TRUE(of_whole.Next(&b));
    ASSERT_TRUE(of_split.Next(&c));
    ASSERT_EQ(b.rows, a.rows);
    EXPECT_EQ(c.experts, b.experts) << "pass " << passes;
    if (a.rows <= 8) {
      EXPECT_EQ(b.experts, a.experts) << "pass " << passes;
    }
    ++passes;
  }
  EXPECT_EQ(passes, 120U + 24 + 3);
}

}  // namespace
}  // namespace bloomery::test
