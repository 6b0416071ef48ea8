// A seat on a card against the same seat on the CPU: decode bit for bit, prompts within their band,
// rows alone and beside others, replayed graphs against launches one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/exec/seat.h"
#include "tests/gpu/seat/placed.h"
#include "tests/gpu/seat/rows.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/refusal.h"
#include "tests/support/safetensors.h"

namespace bloomery::test {
namespace {

exec::SeatOptions Options(const char* device, bl_dtype kv_type = BL_F16, int32_t slots = 1) {
  return {.slots = slots,
          .slot_context = 1024,
          .rows_max = 512,
          .threads = 8,
          .pin = false,
          .k_type = kv_type,
          .v_type = kv_type,
          .device = device};
}

std::vector<int32_t> Ids(const std::string& prompt) {
  const Safetensors golden(SourceDir() + "/tests/data/mini/qwen3moe/golden.safetensors");
  return golden.Get(prompt + ".ids").ints;
}

float Worst(const Rows& a, const Rows& b) {
  float worst = 0;
  for (size_t row = 0; row < a.size(); ++row) {
    for (size_t i = 0; i < a[row].size(); ++i) {
      const float difference = std::fabs(a[row][i] - b[row][i]);
      if (!(difference <= worst)) worst = difference;  // NaN counts
    }
  }
  return worst;
}

struct File {
  const char* name;
  std::string (*path)();
};
constexpr File kFiles[] = {{"mini", MiniPath}, {"seedling", SeedlingPath}};

class CardSeat : public PlacedTest {};
INSTANTIATE_TEST_SUITE_P(OneCard, CardSeat, ::testing::Values(kOneCard), NameOfPlacing);
INSTANTIATE_TEST_SUITE_P(CardStages, CardSeat, ::testing::Values(kHalves), NameOfPlacing);

TEST_P(CardSeat, DecodeHasTheBitsOfTheCpu) {
  std::vector<int32_t> ids = Ids("long");
  ids.resize(200);  // past a window of 128 keys
  for (const File& file : kFiles) {
    for (const bl_dtype type : {BL_F32, BL_F16, BL_Q8_0}) {
      SCOPED_TRACE(std::string(file.name) + ", planes of type " + std::to_string(type));
      const LoadedSeat cpu = LoadThroughPlugin(file.path(), Options("cpu", type));
      const LoadedSeat card = LoadThroughPlugin(file.path(), Placed(Options("CUDA0", type)));
      const Rows expected = RunAll(*cpu.seat, ids, 1);
      EXPECT_EQ(FirstDifference(RunAll(*card.seat, ids, 1), expected), "");
      for (const int32_t batch : {2, 7, 8}) {
        card.seat->Cut(0, 0);
        EXPECT_EQ(FirstDifference(RunAll(*card.seat, ids, batch), expected), "") << batch;
      }
    }
  }
}

TEST_F(CardSeat, PromptsAreWithinTheBandOfDecode) {
  const std::vector<int32_t> ids = Ids("long");
  for (const File& file : kFiles) {
    for (const bl_dtype type : {BL_F32, BL_F16, BL_Q8_0}) {
      SCOPED_TRACE(std::string(file.name) + ", planes of type " + std::to_string(type));
      const LoadedSeat card = LoadThroughPlugin(file.path(), Options("CUDA0", type));
      const Rows expected = RunAll(*card.seat, ids, 1);
      for (const int32_t batch : {16, 33, 512}) {
        card.seat->Cut(0, 0);
        const Rows got = RunAll(*card.seat, ids, batch);
        std::printf("%s, planes of type %d, batches of %d: worst difference %g\n", file.name, type,
                    batch, static_cast<double>(Worst(got, expected)));
        size_t same = 0;
        for (size_t row = 0; row < got.size(); ++row) {
          same += Argmax(got[row]) == Argmax(expected[row]) ? 1 : 0;
        }
        EXPECT_GE(static_cast<double>(same), 0.97 * static_cast<double>(got.size()));
      }
    }
  }
}

TEST_P(CardSeat, LaunchesOneByOneHaveTheBitsOfTheReplayedGraph) {
  class Nobody : public exec::StepObserver {
   public:
    void StepDone(const exec::StepTime& /*step*/) override { ++steps; }
    int steps = 0;
  };
  const std::vector<int32_t> ids = Ids("mid");
  for (const File& file : kFiles) {
    const LoadedSeat card = LoadThroughPlugin(file.path(), Placed(Options("CUDA0")));
    for (const int32_t batch : {1, 8, 64}) {
      card.seat->SetObserver(nullptr);
      card.seat->Cut(0, 0);
      const Rows replayed = RunAll(*card.seat, ids, batch);
      Nobody nobody;
      card.seat->SetObserver(&nobody);
      card.seat->Cut(0, 0);
      EXPECT_EQ(FirstDifference(RunAll(*card.seat, ids, batch), replayed), "") << file.name;
      EXPECT_GT(nobody.steps, 0);
    }
  }
}

TEST_P(CardSeat, EightSlotsTogetherHaveTheBitsOfEachAlone) {
  const std::vector<int32_t> ids = Ids("long");
  constexpr int32_t kSlots = 8;
  constexpr int32_t kSteps = 20;
  for (const File& file : kFiles) {
    const LoadedSeat card =
        LoadThroughPlugin(file.path(), Placed(Options("CUDA0", BL_F16, kSlots)));
    // Slot s holds s·9 rows before.
    const auto prefill = [&](int32_t slot) {
      for (int32_t i = 0; i < slot * 9; ++i) {
        const exec::PassRow row = {.slot = slot, .index = i, .token = ids[static_cast<size_t>(i)]};
        card.seat->Run({&row, 1});
      }
    };
    const auto row_of = [&](int32_t slot, int32_t step) {
      const int32_t index = slot * 9 + step;
      return exec::PassRow{.slot = slot,
                           .index = index,
                           .token = ids[static_cast<size_t>((index * 7 + slot) % 300)],
                           .logits = true};
    };
    std::vector<Rows> alone(kSlots);
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      prefill(slot);
      for (int32_t step = 0; step < kSteps; ++step) {
        const exec::PassRow row = row_of(slot, step);
        card.seat->Run({&row, 1});
        const std::span<const float> logits = card.seat->Logits(0);
        alone[static_cast<size_t>(slot)].emplace_back(logits.begin(), logits.end());
      }
      card.seat->Cut(slot, 0);
    }
    for (int32_t slot = 0; slot < kSlots; ++slot) prefill(slot);
    std::vector<Rows> together(kSlots);
    for (int32_t step = 0; step < kSteps; ++step) {
      std::vector<exec::PassRow> rows;
      for (int32_t slot = 0; slot < kSlots; ++slot) rows.push_back(row_of(slot, step));
      card.seat->Run(rows);
      for (int32_t slot = 0; slot < kSlots; ++slot) {
        const std::span<const float> logits = card.seat->Logits(slot);
        together[static_cast<size_t>(slot)].emplace_back(logits.begin(), logits.end());
      }
    }
    for (size_t slot = 0; slot < kSlots; ++slot) {
      EXPECT_EQ(FirstDifference(together[slot], alone[slot]), "") << file.name << " slot " << slot;
    }
  }
}

// With integer weights nothing of a row depends on the others: a slot that decodes beside a prompt,
// and prompts that share a pass, have the bits that they have alone.
TEST_P(CardSeat, DecodeBesideAPromptAndPromptsTogetherHaveTheBitsOfEachAlone) {
  const std::vector<int32_t> ids = Ids("long");
  constexpr int32_t kSlots = 4;
  const LoadedSeat card =
      LoadThroughPlugin(SeedlingPath(), Placed(Options("CUDA0", BL_F16, kSlots)));
  // Rows of each slot in the shared pass: one that decodes after 30 others, and three prompts.
  constexpr int32_t kBefore[kSlots] = {30, 0, 0, 0};
  constexpr int32_t kRows[kSlots] = {1, 25, 150, 8};
  const auto stretch = [&](int32_t slot) {
    std::vector<exec::PassRow> rows;
    for (int32_t i = kBefore[slot]; i < kBefore[slot] + kRows[slot]; ++i) {
      const auto at = static_cast<size_t>((i * 3 + slot * 11) % 300);
      rows.push_back({.slot = slot, .index = i, .token = ids[at], .logits = true});
    }
    return rows;
  };
  const auto before = [&](int32_t slot) {
    card.seat->Cut(slot, 0);
    for (int32_t i = 0; i < kBefore[slot]; ++i) {
      const exec::PassRow row = {.slot = slot, .index = i, .token = ids[static_cast<size_t>(i)]};
      card.seat->Run({&row, 1});
    }
  };
  Rows alone;
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    before(slot);
    card.seat->Run(stretch(slot));
    for (std::vector<float>& row : LogitsOf(*card.seat, static_cast<size_t>(kRows[slot]))) {
      alone.push_back(std::move(row));
    }
  }
  std::vector<exec::PassRow> all;
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    before(slot);
    for (const exec::PassRow& row : stretch(slot)) all.push_back(row);
  }
  card.seat->Run(all);
  EXPECT_EQ(FirstDifference(LogitsOf(*card.seat, all.size()), alone), "");
}

TEST_P(CardSeat, TheBestLogitsAreThoseOfTheRow) {
  const std::vector<int32_t> ids = Ids("long");
  const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), Placed(Options("CUDA0", BL_F16, 2)));
  std::vector<exec::PassRow> rows;
  for (int32_t i = 0; i < 40; ++i) {
    rows.push_back({.slot = 0, .index = i, .token = ids[static_cast<size_t>(i)], .logits = i > 37});
  }
  card.seat->Run(rows);
  for (const int32_t row : {0, 1}) {
    const std::span<const exec::BestLogit> best = card.seat->BestLogits(row);
    ASSERT_EQ(best.size(), 64U);
    const std::span<const float> logits = card.seat->Logits(row);
    std::vector<int32_t> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    for (size_t i = 0; i < best.size(); ++i) {
      EXPECT_EQ(best[i].token, order[i]) << row << ' ' << i;
      EXPECT_EQ(best[i].logit, logits[static_cast<size_t>(order[i])]);
    }
  }
}

TEST_P(CardSeat, ACopiedSlotGoesOnAsTheOneItWasCopiedFrom) {
  const std::vector<int32_t> ids = Ids("long");
  const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), Placed(Options("CUDA0", BL_Q8_0, 2)));
  const Rows first = RunAll(*card.seat, std::span(ids).first(50), 50);
  card.seat->CopySlot(0, 1, 50);
  const auto next = [&](int32_t slot) {
    const exec::PassRow row = {.slot = slot, .index = 50, .token = ids[50], .logits = true};
    card.seat->Run({&row, 1});
    const std::span<const float> logits = card.seat->Logits(0);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const std::vector<float> from = next(0);
  EXPECT_EQ(FirstDifference({next(1)}, {from}), "");
  card.seat->Cut(0, 50);
  EXPECT_EQ(FirstDifference({next(0)}, {from}), "");
}

TEST_P(CardSeat, PicksOfPassesOfAnySizeAreCounted) {
  std::vector<int32_t> ids = Ids("long");
  ids.resize(200);
  for (const File& file : kFiles) {
    SCOPED_TRACE(file.name);
    const LoadedSeat cpu = LoadThroughPlugin(file.path(), Options("cpu"));
    const LoadedSeat card = LoadThroughPlugin(file.path(), Placed(Options("CUDA0")));
    for (const int32_t batch : {1, 3, 8}) {  // the same bits, so the same picks
      cpu.seat->Cut(0, 0);
      card.seat->Cut(0, 0);
      RunAll(*cpu.seat, ids, batch);
      RunAll(*card.seat, ids, batch);
      EXPECT_EQ(card.seat->counters().experts_picked, cpu.seat->counters().experts_picked) << batch;
      EXPECT_EQ(card.seat->counters().expert_bytes, cpu.seat->counters().expert_bytes) << batch;
    }
    const auto same = [](const exec::BankPicks& a, const exec::BankPicks& b) {
      return a.picks == b.picks && !a.picks.empty();
    };
    EXPECT_TRUE(std::ranges::equal(card.seat->ReadResidency().banks,
                                   cpu.seat->ReadResidency().banks, same));
    const uint64_t before = card.seat->counters().experts_picked;
    card.seat->Cut(0, 0);
    RunAll(*card.seat, ids, 200);
    uint64_t experts = 0;
    for (const exec::BankPicks& bank : card.seat->ReadResidency().banks) {
      experts += bank.experts;
      // Every row of every pass picked as many as it must.
      EXPECT_EQ(std::accumulate(bank.picks.begin(), bank.picks.end(), uint64_t{0}),
                4 * ids.size() * bank.used);
    }
    EXPECT_GT(card.seat->counters().experts_picked, before);
    EXPECT_LE(card.seat->counters().experts_picked, before + experts);
  }
}

TEST_F(CardSeat, ABudgetBelowThePlanIsRefusedNamingItsTerms) {
  exec::SeatOptions options = Options("CUDA0");
  options.card_budget = 1 << 20;
  const Refusal refusal = RefusalOf([&] { LoadThroughPlugin(SeedlingPath(), options); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  for (const char* part : {"card plan:", "weights", "planes k", "logits", "budget"}) {
    EXPECT_NE(refusal.message.find(part), std::string::npos) << refusal.message;
  }
}

TEST_F(CardSeat, ACardThatIsNotThereIsRefusedNamingThoseThatAre) {
  const Refusal refusal = RefusalOf([&] { LoadThroughPlugin(SeedlingPath(), Options("CUDA99")); });
  EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
  EXPECT_NE(refusal.message.find("CUDA0: "), std::string::npos) << refusal.message;
}

}  // namespace
}  // namespace bloomery::test
