// Hybrid models (recurrent layers between layers of attention) on a card against the CPU: bits of
// decode, of prompts where all is integers, of states that go from one to the other.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "runtime/exec/seat.h"
#include "tests/gpu/seat/placed.h"
#include "tests/gpu/seat/rows.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/refusal.h"

namespace bloomery::test {
namespace {

constexpr int32_t kMiniVocabulary = 2012;

std::string MiniHybridPath() { return SourceDir() + "/tests/data/mini/qwen35moe/model.gguf"; }

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

class CardHybrid : public PlacedTest {};
INSTANTIATE_TEST_SUITE_P(OneCard, CardHybrid, ::testing::Values(kOneCard), NameOfPlacing);
INSTANTIATE_TEST_SUITE_P(CardStages, CardHybrid, ::testing::Values(kHalves), NameOfPlacing);

TEST_P(CardHybrid, DecodeHasTheBitsOfTheCpu) {
  const std::vector<int32_t> ids = SomeIds(200, kMiniVocabulary);
  for (const bl_dtype type : {BL_F32, BL_F16, BL_Q8_0}) {
    SCOPED_TRACE("planes of type " + std::to_string(type));
    const LoadedSeat cpu = LoadThroughPlugin(MiniHybridPath(), Options("cpu", type));
    const LoadedSeat card = LoadThroughPlugin(MiniHybridPath(), Placed(Options("CUDA0", type)));
    const Rows expected = RunAll(*cpu.seat, ids, 1);
    EXPECT_EQ(FirstDifference(RunAll(*card.seat, ids, 1), expected), "");
    for (const int32_t batch : {2, 7, 8}) {
      card.seat->Cut(0, 0);
      EXPECT_EQ(FirstDifference(RunAll(*card.seat, ids, batch), expected), "") << batch;
    }
  }
}

TEST_F(CardHybrid, ChunksOfTheDeltaRuleAreRefusedWhereACardWouldRunIt) {
  for (const char* device : {"CUDA0", "auto"}) {
    exec::SeatOptions options = Options(device);
    options.delta_chunks = true;
    const Refusal refusal = RefusalOf([&] { LoadThroughPlugin(MiniHybridPath(), options); });
    EXPECT_EQ(refusal.kind, ErrorKind::kUsage) << device;
    EXPECT_NE(refusal.message.find("--delta-rule chunks"), std::string::npos) << refusal.message;
  }
}

TEST_P(CardHybrid, SlotsTogetherHaveTheBitsOfEachAlone) {
  constexpr int32_t kSlots = 4;
  constexpr int32_t kSteps = 30;
  const LoadedSeat card =
      LoadThroughPlugin(MiniHybridPath(), Placed(Options("CUDA0", BL_F16, kSlots)));
  const std::vector<int32_t> ids = SomeIds(400, kMiniVocabulary);
  const auto of = [&](int32_t slot) {
    return std::span(ids).subspan(static_cast<size_t>(slot) * 70, kSteps);
  };
  std::vector<Rows> alone;
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    alone.push_back(GoOn(*card.seat, of(slot), 0, slot));
    card.seat->Cut(slot, 0);
  }
  std::vector<Rows> together(kSlots);
  for (int32_t step = 0; step < kSteps; step += 2) {  // two rows of each slot, slots out of order
    std::vector<exec::PassRow> rows;
    for (const int32_t slot : {2, 0, 3, 1}) {
      for (const int32_t at : {step, step + 1}) {
        const int32_t token = of(slot)[static_cast<size_t>(at)];
        rows.push_back({.slot = slot, .index = at, .token = token, .logits = true});
      }
    }
    card.seat->Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span<const float> logits = card.seat->Logits(static_cast<int32_t>(i));
      together[static_cast<size_t>(rows[i].slot)].emplace_back(logits.begin(), logits.end());
    }
  }
  for (size_t slot = 0; slot < kSlots; ++slot) {
    EXPECT_EQ(FirstDifference(together[slot], alone[slot]), "") << slot;
  }
}

TEST_P(CardHybrid, LaunchesOneByOneHaveTheBitsOfTheReplayedGraph) {
  class Nobody : public exec::StepObserver {
    void StepDone(const exec::StepTime& /*step*/) override {}
  };
  const std::vector<int32_t> ids = SomeIds(150, kMiniVocabulary);
  const LoadedSeat card = LoadThroughPlugin(MiniHybridPath(), Placed(Options("CUDA0")));
  for (const int32_t batch : {1, 8, 64}) {
    card.seat->SetObserver(nullptr);
    card.seat->Cut(0, 0);
    const Rows replayed = RunAll(*card.seat, ids, batch);
    Nobody nobody;
    card.seat->SetObserver(&nobody);
    card.seat->Cut(0, 0);
    EXPECT_EQ(FirstDifference(RunAll(*card.seat, ids, batch), replayed), "") << batch;
  }
}

TEST_P(CardHybrid, AStateOfTheCpuGoesOnOnTheCardAndBackWithTheSameBits) {
  const std::vector<int32_t> ids = SomeIds(140, kMiniVocabulary);
  const LoadedSeat cpu = LoadThroughPlugin(MiniHybridPath(), Options("cpu"));
  const LoadedSeat card = LoadThroughPlugin(MiniHybridPath(), Placed(Options("CUDA0", BL_F16, 2)));
  constexpr int32_t kKept = 100;
  const std::span<const int32_t> rest = std::span(ids).subspan(kKept);
  RunAll(*cpu.seat, std::span(ids).first(kKept), 64);
  const auto move = [&](exec::Seat& from, exec::Seat& to, int32_t slot) {
    ASSERT_EQ(from.StateFormat(), to.StateFormat());
    std::vector<std::byte> rows(kKept * from.StateRowBytes());
    std::vector<std::byte> state(from.CheckpointBytes());
    from.ReadRows(0, 0, kKept, rows);
    from.ReadCheckpoint(0, state);
    to.AppendRows(slot, {.rows = kKept, .bytes = rows}, 0, kKept);
    to.RestoreCheckpoint(slot, kKept, state);
  };
  move(*cpu.seat, *card.seat, 1);
  move(*cpu.seat, *card.seat, 0);
  const Rows expected = GoOn(*cpu.seat, rest, kKept, 0);
  EXPECT_EQ(FirstDifference(GoOn(*card.seat, rest, kKept, 1), expected), "");
  cpu.seat->Cut(0, 0);
  move(*card.seat, *cpu.seat, 0);
  EXPECT_EQ(FirstDifference(GoOn(*cpu.seat, rest, kKept, 0), expected), "");
}

TEST_P(CardHybrid, APartOfTheExpertsOnTheHostChangesNoBit) {
  const std::vector<int32_t> ids = SomeIds(60, kMiniVocabulary);
  const LoadedSeat whole = LoadThroughPlugin(MiniHybridPath(), Options("CUDA0"));
  const Rows expected = RunAll(*whole.seat, ids, 1);
  for (const int32_t frames : {0, 3}) {
    exec::SeatOptions options = Placed(Options("CUDA0"));
    options.card_frames = frames;
    const LoadedSeat split = LoadThroughPlugin(MiniHybridPath(), options);
    for (const int32_t batch : {1, 6}) {
      split.seat->Cut(0, 0);
      EXPECT_EQ(FirstDifference(RunAll(*split.seat, ids, batch), expected), "")
          << frames << " frames, batches of " << batch;
    }
  }
}

// A file of integer weights whose layers are all recurrent: nothing of it is a band.
TEST_P(CardHybrid, PromptsOfRecurrentLayersHaveTheBitsOfTheCpuRowByRow) {
  const char* path = std::getenv("BLOOMERY_TEST_RECURRENT");
  if (path == nullptr) GTEST_SKIP() << "BLOOMERY_TEST_RECURRENT names no file";
  const LoadedSeat cpu = LoadThroughPlugin(path, Options("cpu"));
  const LoadedSeat card = LoadThroughPlugin(path, Placed(Options("CUDA0", BL_F16, 2)));
  const std::vector<int32_t> ids = SomeIds(300, card.seat->limits().vocabulary);
  const Rows expected = RunAll(*cpu.seat, ids, 128);
  for (const int32_t batch : {1, 5, 8, 16, 33, 300}) {
    card.seat->Cut(0, 0);
    EXPECT_EQ(FirstDifference(RunAll(*card.seat, ids, batch), expected), "") << batch;
  }
  // A slot that decodes beside a prompt.
  card.seat->Cut(0, 0);
  RunAll(*card.seat, std::span(ids).first(40), 40);
  std::vector<exec::PassRow> rows = {{.slot = 0, .index = 40, .token = ids[40], .logits = true}};
  for (int32_t i = 0; i < 90; ++i) {
    rows.push_back({.slot = 1, .index = i, .token = ids[static_cast<size_t>(i)], .logits = true});
  }
  card.seat->Run(rows);
  Rows got;
  for (int32_t i = 0; i < 91; ++i) {
    const std::span<const float> logits = card.seat->Logits(i);
    got.emplace_back(logits.begin(), logits.end());
  }
  EXPECT_EQ(FirstDifference({got[0]}, {expected[40]}), "");
  EXPECT_EQ(FirstDifference(Rows(got.begin() + 1, got.end()),
                            Rows(expected.begin(), expected.begin() + 90)),
            "");
}

// A whole model of both kinds of layers, decode of some rows.
class CardHybridModel : public PlacedTest {};
INSTANTIATE_TEST_SUITE_P(OneCard, CardHybridModel, ::testing::Values(kOneCard), NameOfPlacing);
INSTANTIATE_TEST_SUITE_P(CardStages, CardHybridModel, ::testing::Values(kHalves), NameOfPlacing);

TEST_P(CardHybridModel, DecodeHasTheBitsOfTheCpu) {
  const char* path = std::getenv("BLOOMERY_TEST_HYBRID");
  if (path == nullptr) GTEST_SKIP() << "BLOOMERY_TEST_HYBRID names no file";
  exec::SeatOptions options = Options("cpu");
  options.threads = 0;
  const LoadedSeat cpu = LoadThroughPlugin(path, options);
  const LoadedSeat card = LoadThroughPlugin(path, Placed(Options("CUDA0")));
  const std::vector<int32_t> ids = SomeIds(40, card.seat->limits().vocabulary);
  const Rows expected = RunAll(*cpu.seat, ids, 1);
  for (const int32_t batch : {1, 3, 8}) {
    card.seat->Cut(0, 0);
    EXPECT_EQ(FirstDifference(RunAll(*card.seat, ids, batch), expected), "") << batch;
  }
}

}  // namespace
}  // namespace bloomery::test
