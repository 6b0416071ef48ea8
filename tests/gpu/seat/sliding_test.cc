// Models of sliding layers (rings, sinks, keys wider than values, sigmoid routers with a bias, a
// dense first layer) on a card against the CPU: bits of decode wherever a slot's rings stand, of
// what is cut, copied, saved and restored; prompts in their band. The mini model has float weights;
// $BLOOMERY_TEST_SLIDING names a file of integer ones, of whose prompts attention alone is a band.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "runtime/base/error.h"
#include "runtime/exec/seat.h"
#include "tests/gpu/seat/placed.h"
#include "tests/gpu/seat/rows.h"
#include "tests/oracle/seat_fixture.h"

namespace bloomery::test {
namespace {

// Rings of these are 384 rows: 31 before the next one, and what may be cut back.
constexpr int32_t kRing = 384;
constexpr int32_t kBefore = 31;

std::string MiniSlidingPath() { return SourceDir() + "/tests/data/mini/mimo2/model.gguf"; }

exec::SeatOptions Options(const char* device, bl_dtype kv_type = BL_F16, int32_t slots = 1,
                          int32_t rows_max = 64) {
  return {.slots = slots,
          .slot_context = 1280,
          .rows_max = rows_max,
          .threads = 8,
          .pin = false,
          .k_type = kv_type,
          .v_type = kv_type,
          .device = device};
}

std::vector<int32_t> Ids(const exec::Seat& seat, size_t count) {
  return SomeIds(count, seat.limits().vocabulary, 777);
}

// The mini model, and the file of integer weights where there is one.
std::vector<std::string> Files() {
  std::vector<std::string> files = {MiniSlidingPath()};
  if (const char* path = std::getenv("BLOOMERY_TEST_SLIDING")) files.emplace_back(path);
  return files;
}

std::span<const int32_t> First(const std::vector<int32_t>& ids, int32_t count) {
  return std::span(ids).first(static_cast<size_t>(count));
}
std::span<const int32_t> From(const std::vector<int32_t>& ids, int32_t first, int32_t count) {
  return std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

class CardSliding : public PlacedTest {};
INSTANTIATE_TEST_SUITE_P(OneCard, CardSliding, ::testing::Values(kOneCard), NameOfPlacing);
INSTANTIATE_TEST_SUITE_P(CardStages, CardSliding, ::testing::Values(kHalves), NameOfPlacing);

TEST_P(CardSliding, DecodeHasTheBitsOfTheCpu) {
  for (const std::string& path : Files()) {
    for (const bl_dtype type : {BL_F32, BL_F16, BL_Q8_0}) {
      SCOPED_TRACE(path + ", planes of type " + std::to_string(type));
      const LoadedSeat cpu = LoadThroughPlugin(path, Options("cpu", type));
      const LoadedSeat card = LoadThroughPlugin(path, Placed(Options("CUDA0", type)));
      // Past the ring's end, and a window of 128 keys.
      const std::vector<int32_t> ids = Ids(*cpu.seat, type == BL_F16 ? 450 : 170);
      const Rows expected = RunAll(*cpu.seat, ids, 64);
      for (const int32_t batch : {1, 2, 7, 8}) {
        card.seat->Cut(0, 0);
        EXPECT_EQ(FirstDifference(RunAll(*card.seat, ids, batch), expected), "") << batch;
      }
    }
  }
}

TEST_F(CardSliding, PromptsAreWithinTheBandOfDecode) {
  for (const std::string& path : Files()) {
    for (const bl_dtype type : {BL_F32, BL_F16, BL_Q8_0}) {
      const LoadedSeat card = LoadThroughPlugin(path, Options("CUDA0", type, 1, 512));
      const std::vector<int32_t> ids = Ids(*card.seat, 700);
      const Rows expected = RunAll(*card.seat, ids, 8);
      for (const int32_t batch : {16, 33, 512}) {
        card.seat->Cut(0, 0);
        const Rows got = RunAll(*card.seat, ids, batch);
        float worst = 0;
        float largest = 0;
        size_t same = 0;
        for (size_t row = 0; row < got.size(); ++row) {
          same += Argmax(got[row]) == Argmax(expected[row]) ? 1 : 0;
          for (size_t i = 0; i < got[row].size(); ++i) {
            const float difference = std::fabs(got[row][i] - expected[row][i]);
            if (!(difference <= worst)) worst = difference;  // NaN counts
            largest = std::max(largest, std::fabs(expected[row][i]));
          }
        }
        std::printf("%s, planes of type %d, batches of %d: worst difference %g of %g, %zu of %zu\n",
                    path.c_str(), type, batch, static_cast<double>(worst),
                    static_cast<double>(largest), same, got.size());
        EXPECT_GE(static_cast<double>(same), 0.95 * static_cast<double>(got.size()));
      }
    }
  }
}

TEST_P(CardSliding, SlotsTogetherHaveTheBitsOfEachAlone) {
  constexpr int32_t kSlots = 4;
  constexpr int32_t kSteps = 30;
  constexpr int32_t kDepths[kSlots] = {0, 20, 376, 500};  // the third comes over its rings' end
  for (const std::string& path : Files()) {
    SCOPED_TRACE(path);
    const LoadedSeat card = LoadThroughPlugin(path, Placed(Options("CUDA0", BL_F16, kSlots)));
    const std::vector<int32_t> ids = Ids(*card.seat, 900);
    const auto of = [&](int32_t slot) { return From(ids, slot * 70 + kDepths[slot], kSteps); };
    const auto prefill = [&](int32_t slot) {
      card.seat->Cut(slot, 0);
      RunAll(*card.seat, From(ids, slot * 70, kDepths[slot]), 8, slot);
    };
    std::vector<Rows> alone;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      prefill(slot);
      alone.push_back(GoOn(*card.seat, of(slot), kDepths[slot], slot));
    }
    for (int32_t slot = 0; slot < kSlots; ++slot) prefill(slot);
    std::vector<Rows> together(kSlots);
    for (int32_t step = 0; step < kSteps; step += 2) {  // two rows of each slot, out of order
      std::vector<exec::PassRow> rows;
      for (const int32_t slot : {2, 0, 3, 1}) {
        for (const int32_t at : {step, step + 1}) {
          const int32_t token = of(slot)[static_cast<size_t>(at)];
          rows.push_back(
              {.slot = slot, .index = kDepths[slot] + at, .token = token, .logits = true});
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
}

TEST_P(CardSliding, LaunchesOneByOneHaveTheBitsOfTheReplayedGraph) {
  class Nobody : public exec::StepObserver {
    void StepDone(const exec::StepTime& /*step*/) override {}
  };
  for (const std::string& path : Files()) {
    const LoadedSeat card = LoadThroughPlugin(path, Placed(Options("CUDA0")));
    const std::vector<int32_t> ids = Ids(*card.seat, 40);
    for (const int32_t batch : {1, 8, 64}) {
      card.seat->SetObserver(nullptr);
      card.seat->Cut(0, 0);
      const Rows replayed = RunAll(*card.seat, ids, batch);
      Nobody nobody;
      card.seat->SetObserver(&nobody);
      card.seat->Cut(0, 0);
      EXPECT_EQ(FirstDifference(RunAll(*card.seat, ids, batch), replayed), "") << batch;
      card.seat->SetObserver(nullptr);
    }
  }
}

TEST_P(CardSliding, ASlotIsCutBackAsFarAsItsRingsReachAndGoesOnBitForBit) {
  const LoadedSeat card = LoadThroughPlugin(MiniSlidingPath(), Placed(Options("CUDA0")));
  exec::Seat& seat = *card.seat;
  const std::vector<int32_t> ids = Ids(seat, 1101);
  const Rows cold = RunAll(seat, First(ids, 1100), 8);
  constexpr int32_t kFarthest = 1100 - kRing + kBefore;
  EXPECT_EQ(seat.Keepable(0, 1100), 1100);
  EXPECT_EQ(seat.Keepable(0, kFarthest), kFarthest);
  EXPECT_EQ(seat.Keepable(0, kFarthest - 1), 0);
  for (const int32_t length : {1099, 1000, 900, kFarthest}) {
    seat.Cut(0, length);
    // Another text first, so that what is cut off was really written over.
    GoOn(seat, First(ids, std::min(12, 1100 - length)), length, 0);
    seat.Cut(0, length);
    EXPECT_EQ(FirstDifference(GoOn(seat, From(ids, length, 1), length, 0),
                              {cold[static_cast<size_t>(length)]}),
              "")
        << length;
  }
  seat.Cut(0, kFarthest - 1);
  const exec::PassRow next{.slot = 0, .index = kFarthest - 1, .token = 5};
  EXPECT_THROW(seat.Run({&next, 1}), Error);  // rows without the state behind them
  seat.Cut(0, 0);
  EXPECT_EQ(FirstDifference(GoOn(seat, First(ids, 2), 0, 0), {cold[0], cold[1]}), "");
}

TEST_P(CardSliding, AStateOfTheCpuGoesOnOnTheCardAndBackWithTheSameBits) {
  for (const std::string& path : Files()) {
    const LoadedSeat cpu = LoadThroughPlugin(path, Options("cpu", BL_F16, 2));
    const LoadedSeat card = LoadThroughPlugin(path, Placed(Options("CUDA0", BL_F16, 2)));
    const std::vector<int32_t> ids = Ids(*cpu.seat, 1200);
    const auto move = [&](exec::Seat& from, exec::Seat& to, int32_t slot, int32_t kept) {
      ASSERT_EQ(from.StateFormat(), to.StateFormat());
      std::vector<std::byte> state(from.CheckpointBytes());
      from.ReadCheckpoint(0, state);
      to.Cut(slot, 0);
      constexpr int32_t kChunk = exec::RowChunk::kRowsMax;
      for (int32_t first = 0; first < kept; first += kChunk) {
        const int32_t rows = std::min(kChunk, kept - first);
        std::vector<std::byte> bytes(static_cast<size_t>(rows) * from.StateRowBytes());
        from.ReadRows(0, first, rows, bytes);
        to.AppendRows(slot, {.rows = rows, .bytes = bytes}, 0, rows);
      }
      const exec::PassRow next{.slot = slot, .index = kept, .token = 3};
      EXPECT_THROW(to.Run({&next, 1}), Error);  // rows without the state behind them
      to.RestoreCheckpoint(slot, kept, state);
    };
    for (const int32_t kept : {20, 200, 420}) {
      SCOPED_TRACE(path + " " + std::to_string(kept));
      for (exec::Seat* seat : {cpu.seat.get(), card.seat.get()}) {
        for (const int32_t slot : {0, 1}) seat->Cut(slot, 0);
      }
      RunAll(*card.seat, First(ids, 500), 64, 1);  // another state lies there
      const std::span<const int32_t> rest = From(ids, kept, 40);
      RunAll(*cpu.seat, First(ids, kept), 64);
      move(*cpu.seat, *card.seat, 1, kept);
      move(*cpu.seat, *card.seat, 0, kept);
      const Rows expected = GoOn(*cpu.seat, rest, kept, 0);
      EXPECT_EQ(FirstDifference(GoOn(*card.seat, rest, kept, 1), expected), "");
      move(*card.seat, *cpu.seat, 1, kept);
      EXPECT_EQ(FirstDifference(GoOn(*cpu.seat, rest, kept, 1), expected), "");
      // Back in the slot's own path.
      std::vector<std::byte> state(card.seat->CheckpointBytes());
      card.seat->ReadCheckpoint(0, state);
      EXPECT_EQ(FirstDifference(GoOn(*card.seat, rest, kept, 0), expected), "");
      GoOn(*card.seat, From(ids, 0, 400), kept + 40, 0);
      EXPECT_EQ(card.seat->Keepable(0, kept), 0);
      card.seat->RestoreCheckpoint(0, kept, state);
      EXPECT_EQ(FirstDifference(GoOn(*card.seat, rest, kept, 0), expected), "");
    }
  }
}

TEST_P(CardSliding, ASlotIsCopiedWithWhatItsRingsHold) {
  const LoadedSeat card =
      LoadThroughPlugin(MiniSlidingPath(), Placed(Options("CUDA0", BL_Q8_0, 3)));
  exec::Seat& seat = *card.seat;
  const std::vector<int32_t> ids = Ids(seat, 800);
  RunAll(seat, First(ids, 700), 64, 0);
  RunAll(seat, First(ids, 500), 64, 1);
  seat.Cut(1, 0);
  seat.CopySlot(0, 1, 700);
  seat.CopySlot(0, 2, 560);
  const std::span<const int32_t> rest = From(ids, 700, 8);
  const Rows cold = GoOn(seat, rest, 700, 0);
  EXPECT_EQ(FirstDifference(GoOn(seat, rest, 700, 1), cold), "");
  seat.Cut(0, 560);
  const std::span<const int32_t> other = From(ids, 100, 8);
  EXPECT_EQ(FirstDifference(GoOn(seat, other, 560, 2), GoOn(seat, other, 560, 0)), "");
}

TEST_P(CardSliding, APartOfTheExpertsOnTheHostChangesNoBit) {
  for (const std::string& path : Files()) {
    const LoadedSeat whole = LoadThroughPlugin(path, Options("CUDA0"));
    const std::vector<int32_t> ids = Ids(*whole.seat, 60);
    const Rows expected = RunAll(*whole.seat, ids, 1);
    for (const int32_t frames : {0, 3}) {
      exec::SeatOptions options = Placed(Options("CUDA0"));
      options.card_frames = frames;
      const LoadedSeat split = LoadThroughPlugin(path, options);
      for (const int32_t batch : {1, 6}) {
        split.seat->Cut(0, 0);
        EXPECT_EQ(FirstDifference(RunAll(*split.seat, ids, batch), expected), "")
            << path << ", " << frames << " frames, batches of " << batch;
      }
    }
  }
}

// With integer weights nothing of a row depends on the others: a slot that decodes beside a prompt,
// and prompts that share a pass, have the bits that they have alone.
TEST_P(CardSliding, DecodeBesideAPromptAndPromptsTogetherHaveTheBitsOfEachAlone) {
  const char* path = std::getenv("BLOOMERY_TEST_SLIDING");
  if (path == nullptr) GTEST_SKIP() << "BLOOMERY_TEST_SLIDING names no file";
  constexpr int32_t kSlots = 4;
  const LoadedSeat card = LoadThroughPlugin(path, Placed(Options("CUDA0", BL_F16, kSlots, 512)));
  const std::vector<int32_t> ids = Ids(*card.seat, 900);
  // Rows of each slot in the shared pass: one that decodes, and three prompts.
  constexpr int32_t kBefore4[kSlots] = {140, 0, 130, 600};
  constexpr int32_t kRows[kSlots] = {1, 25, 150, 8};
  const auto stretch = [&](int32_t slot) {
    std::vector<exec::PassRow> rows;
    for (int32_t i = kBefore4[slot]; i < kBefore4[slot] + kRows[slot]; ++i) {
      rows.push_back({.slot = slot,
                      .index = i,
                      .token = ids[static_cast<size_t>((i * 3 + slot * 11) % 900)],
                      .logits = true});
    }
    return rows;
  };
  const auto before = [&](int32_t slot) {
    card.seat->Cut(slot, 0);
    RunAll(*card.seat, First(ids, kBefore4[slot]), 8, slot);
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

}  // namespace
}  // namespace bloomery::test
