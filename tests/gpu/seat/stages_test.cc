// Seats in stages on several cards against the same model on one: decode, passes of every size,
// slots together, what is observed, states that leave and come back, passes that fail. Every bit is
// one card's. What split banks add is in stages_split_test.cc; the suites of one card run in
// stages, too (CardStages/…).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "runtime/base/error.h"
#include "runtime/exec/seat.h"
#include "tests/gpu/seat/rows.h"
#include "tests/gpu/seat/staged_models.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::test {
namespace {

std::vector<int32_t> IdsFor(const LoadedSeat& loaded, size_t count) {
  return SomeIds(count, loaded.seat->limits().vocabulary);
}

void ExpectCut(const exec::Seat& seat, const Cut& cut) {
  const std::vector<memory::PlacedStage>& stages = seat.placement().stages;
  const std::vector<std::string> cards = CardsOfStages(cut.size());
  ASSERT_EQ(stages.size(), cut.size()) << seat.PlanLine();
  uint32_t first = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    EXPECT_EQ(stages[i].device, cards[i]);
    EXPECT_EQ(stages[i].layers.first, first);
    first += static_cast<uint32_t>(cut[i]);
    EXPECT_EQ(stages[i].layers.end, first);
  }
}

TEST(CardStages, DecodeHasTheBitsOfOneCardAndOfTheCpuHoweverLayersAreCut) {
  for (const StagedModel& model : StagedModels()) {
    SCOPED_TRACE(model.path);
    Rows expected;
    std::vector<int32_t> ids;
    {
      const LoadedSeat cpu = LoadThroughPlugin(model.path, SplitOptions("cpu", -1));
      ids = IdsFor(cpu, 150);  // past a window of 128 keys
      expected = RunAll(*cpu.seat, ids, 64);
      const LoadedSeat one = LoadThroughPlugin(model.path, OnOneCard());
      EXPECT_EQ(FirstDifference(RunAll(*one.seat, ids, 1), expected), "");
    }
    for (const Cut& cut : CutsOf(model)) {
      SCOPED_TRACE(NameOf(cut));
      const LoadedSeat staged = LoadThroughPlugin(model.path, OnStages(cut));
      ExpectCut(*staged.seat, cut);
      for (const int32_t batch : {1, 2, 7, 8}) {
        EXPECT_EQ(FirstDifference(Again(*staged.seat, ids, batch), expected), "") << batch;
      }
    }
  }
}

TEST(CardStages, LayersAreCutByRoomWhereNothingIsSaidAndTheBitsStay) {
  const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OnOneCard());
  exec::SeatOptions options = OnOneCard();
  options.device = Joined(CardsOfStages(2));
  const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, options);
  const std::vector<memory::PlacedStage>& stages = staged.seat->placement().stages;
  ASSERT_EQ(stages.size(), 2U);
  for (const memory::PlacedStage& stage : stages) {
    EXPECT_GE(stage.layers.end - stage.layers.first, 2U) << staged.seat->PlanLine();
  }
  const std::vector<int32_t> ids = IdsFor(one, 60);
  for (const int32_t batch : {1, 60}) {
    EXPECT_EQ(FirstDifference(Again(*staged.seat, ids, batch), Again(*one.seat, ids, batch)), "");
  }
}

TEST(CardStages, ACardWithoutAShareIsNotUsed) {
  const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OnOneCard());
  const std::vector<int32_t> ids = IdsFor(one, 40);
  for (const std::vector<double>& shares : {std::vector<double>{1, 0}, {0, 1}, {3, 0, 2}}) {
    const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, WithShares(OnOneCard(), shares));
    EXPECT_EQ(staged.seat->placement().stages.size(), shares.size() - 1);
    for (const int32_t batch : {1, 40}) {
      EXPECT_EQ(FirstDifference(Again(*staged.seat, ids, batch), Again(*one.seat, ids, batch)), "");
    }
  }
}

TEST(CardStages, PassesOfEveryRowBucketHaveTheBitsOfOneCard) {
  for (const StagedModel& model : StagedModels()) {
    SCOPED_TRACE(model.path);
    const LoadedSeat one = LoadThroughPlugin(model.path, OnOneCard());
    const std::vector<int32_t> ids = IdsFor(one, 513);
    for (const Cut& cut : {Halves(model), Thirds(model)}) {
      SCOPED_TRACE(NameOf(cut));
      const LoadedSeat staged = LoadThroughPlugin(model.path, OnStages(cut));
      for (const int32_t bucket : exec::RowBuckets(512)) {
        // Filled, and with rows of padding; a row behind it reads what all layers kept.
        for (const int32_t rows : {bucket, bucket - bucket / 3}) {
          const auto run = [&](exec::Seat& seat) {
            const auto count = static_cast<size_t>(rows);
            Rows logits = Again(seat, std::span(ids).first(count), 512);
            logits.push_back(GoOn(seat, std::span(ids).subspan(count, 1), rows, 0).front());
            return logits;
          };
          EXPECT_EQ(FirstDifference(run(*staged.seat), run(*one.seat)), "") << rows << " rows";
        }
      }
    }
  }
}

// Passes of several slots, cuts and copies, drawn from the seed: the same for seats that answer the
// same. All logits, and how far each cut went.
Rows Play(exec::Seat& seat, uint32_t seed, int32_t steps) {
  std::mt19937 random(seed);
  const auto below = [&](int32_t most) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(most));
  };
  const exec::SeatLimits limits = seat.limits();
  Rows seen;
  for (int32_t step = 0; step < steps; ++step) {
    const int32_t slot = below(limits.slots);
    const int32_t length = seat.Length(slot);
    const int32_t other = (slot + 1) % limits.slots;
    const int32_t what = below(5);
    if (what == 0) {
      const int32_t kept = seat.Keepable(slot, below(length + 1));
      seat.Cut(slot, kept);
      seen.push_back({static_cast<float>(kept)});
    } else if (what == 1 && length > 0) {
      seat.Cut(other, 0);
      seat.CopySlot(slot, other, length);
    }
    std::vector<exec::PassRow> rows;
    for (int32_t i = 0; i < limits.slots; ++i) {
      const int32_t of = (slot + i) % limits.slots;
      if (below(3) == 0) continue;
      const int32_t count = below(2) == 0 ? 1 : 1 + below(below(4) == 0 ? 150 : 12);
      if (count > limits.slot_context - seat.Length(of)) seat.Cut(of, 0);
      for (int32_t row = 0; row < count; ++row) {
        rows.push_back({.slot = of,
                        .index = seat.Length(of) + row,
                        .token = below(limits.vocabulary),
                        .logits = row + 1 == count || below(3) == 0});
      }
    }
    if (rows.empty()) continue;
    seat.Run(rows);
    const auto wanted = std::ranges::count_if(rows, [](const auto& row) { return row.logits; });
    for (std::vector<float>& row : LogitsOf(seat, static_cast<size_t>(wanted))) {
      seen.push_back(std::move(row));
    }
  }
  return seen;
}

TEST(CardStages, MixedPassesCutsAndCopiesOfSlotsHaveTheBitsOfOneCard) {
  constexpr int32_t kSlots = 3;
  for (const StagedModel& model : StagedModels()) {
    SCOPED_TRACE(model.path);
    for (const bl_dtype type : {BL_F16, BL_Q8_0}) {
      exec::SeatOptions options = OnOneCard(kSlots);
      options.k_type = type;
      options.v_type = type;
      for (const Cut& cut : {Halves(model), Thirds(model)}) {
        const LoadedSeat one = LoadThroughPlugin(model.path, options);
        const LoadedSeat staged = LoadThroughPlugin(model.path, InStages(options, cut));
        for (const uint32_t seed : {1U, 2U}) {
          SCOPED_TRACE(NameOf(cut) + ", seed " + std::to_string(seed));
          ASSERT_EQ(FirstDifference(Play(*staged.seat, seed, 25), Play(*one.seat, seed, 25)), "");
          for (int32_t slot = 0; slot < kSlots; ++slot) {
            ASSERT_EQ(staged.seat->Length(slot), one.seat->Length(slot));
            if (one.seat->Keepable(slot, one.seat->Length(slot)) < one.seat->Length(slot)) continue;
            EXPECT_TRUE(HeldBy(*staged.seat, slot) == HeldBy(*one.seat, slot)) << slot;
          }
        }
      }
    }
  }
}

TEST(CardStages, TheBestLogitsAreThoseOfOneCard) {
  const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OnOneCard(2));
  const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, OnStages({2, 4}, 2));
  const std::vector<int32_t> ids = IdsFor(one, 60);
  for (const size_t count : {1U, 2U, 40U}) {
    std::vector<exec::PassRow> rows;
    for (size_t i = 0; i < count; ++i) {
      rows.push_back(
          {.slot = 0, .index = static_cast<int32_t>(i), .token = ids[i], .logits = i + 2 >= count});
    }
    for (exec::Seat* seat : {one.seat.get(), staged.seat.get()}) {
      seat->Cut(0, 0);
      seat->Run(rows);
    }
    for (int32_t row = 0; row < static_cast<int32_t>(std::min<size_t>(2, count)); ++row) {
      const std::span<const exec::BestLogit> got = staged.seat->BestLogits(row);
      const auto same = [](const exec::BestLogit& a, const exec::BestLogit& b) {
        return a.token == b.token && a.logit == b.logit;
      };
      EXPECT_FALSE(got.empty());
      EXPECT_TRUE(std::ranges::equal(got, one.seat->BestLogits(row), same)) << count;
    }
  }
}

TEST(CardStages, ObservedValuesOfLayersOfEveryStageAreThoseOfOneCard) {
  for (const StagedModel& model : StagedModels()) {
    SCOPED_TRACE(model.path);
    exec::SeatOptions options = OnOneCard();
    options.observe = {"hidden"};
    for (int32_t layer = 0; layer < model.layers; ++layer) {
      options.observe.push_back("layer." + std::to_string(layer) + ".in");
    }
    const LoadedSeat one = LoadThroughPlugin(model.path, options);
    const std::vector<int32_t> ids = IdsFor(one, 40);
    for (const Cut& cut : {Halves(model), Thirds(model)}) {
      const LoadedSeat staged = LoadThroughPlugin(model.path, InStages(options, cut));
      for (const int32_t batch : {1, 5, 40}) {
        Again(*one.seat, ids, batch);
        Again(*staged.seat, ids, batch);
        for (const std::string& name : options.observe) {
          const exec::Observation expected = one.seat->Observe(name);
          const exec::Observation got = staged.seat->Observe(name);
          ASSERT_EQ(got.rows, expected.rows) << name;
          ASSERT_EQ(got.width, expected.width) << name;
          EXPECT_EQ(FirstDifference({{got.Floats().begin(), got.Floats().end()}},
                                    {{expected.Floats().begin(), expected.Floats().end()}}),
                    "")
              << NameOf(cut) << ", " << name << ", batches of " << batch;
        }
      }
    }
  }
}

TEST(CardStages, StepsOfAllStagesAreToldAsOnePass) {
  class Steps : public exec::StepObserver {
   public:
    void StepDone(const exec::StepTime& step) override {
      passes += step.first ? 1 : 0;
      if (step.layer >= 0) layers.insert(step.layer);
      ++steps;
    }
    int passes = 0;
    uint64_t steps = 0;
    std::set<int32_t> layers;
  };
  const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OnOneCard());
  const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, OnStages(Thirds(kSeedling)));
  const std::vector<int32_t> ids = IdsFor(one, 48);
  for (const int32_t batch : {1, 8, 16}) {
    const Rows expected = Again(*one.seat, ids, batch);
    Steps steps;
    staged.seat->SetObserver(&steps);
    EXPECT_EQ(FirstDifference(Again(*staged.seat, ids, batch), expected), "") << batch;
    staged.seat->SetObserver(nullptr);
    EXPECT_EQ(steps.passes, 48 / batch);
    EXPECT_EQ(steps.layers, (std::set<int32_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(FirstDifference(Again(*staged.seat, ids, batch), expected), "") << batch;
  }
}

TEST(CardStages, StatesGoFromOneCardToStagesAndBack) {
  constexpr int32_t kKept = 300;
  for (const StagedModel& model : StagedModels()) {
    SCOPED_TRACE(model.path);
    const LoadedSeat one = LoadThroughPlugin(model.path, OnOneCard(2));
    const std::vector<int32_t> ids = IdsFor(one, 340);
    const std::span<const int32_t> rest = std::span(ids).subspan(kKept);
    for (const Cut& cut : {Halves(model), Thirds(model)}) {
      SCOPED_TRACE(NameOf(cut));
      const LoadedSeat staged = LoadThroughPlugin(model.path, OnStages(cut, 2));
      EXPECT_EQ(staged.seat->StateFormat(), one.seat->StateFormat());
      ASSERT_EQ(staged.seat->StateRowBytes(), one.seat->StateRowBytes());
      ASSERT_EQ(staged.seat->CheckpointBytes(), one.seat->CheckpointBytes());
      for (exec::Seat* seat : {one.seat.get(), staged.seat.get()}) {
        Again(*seat, std::span(ids).first(kKept), 100);
        RunAll(*seat, std::span(ids).last(50), 50, 1);  // something else lies there
        seat->Cut(1, 0);
      }
      const std::vector<std::byte> held = HeldBy(*one.seat, 0);
      EXPECT_TRUE(HeldBy(*staged.seat, 0) == held);
      Restore(*one.seat, 1, kKept, HeldBy(*staged.seat, 0));
      Restore(*staged.seat, 1, kKept, held);
      EXPECT_TRUE(HeldBy(*staged.seat, 1) == held);
      const Rows expected = GoOn(*one.seat, rest, kKept, 0);
      EXPECT_EQ(FirstDifference(GoOn(*one.seat, rest, kKept, 1), expected), "");
      EXPECT_EQ(FirstDifference(GoOn(*staged.seat, rest, kKept, 0), expected), "");
      EXPECT_EQ(FirstDifference(GoOn(*staged.seat, rest, kKept, 1), expected), "");
      one.seat->Cut(1, 0);
    }
  }
}

TEST(CardStages, ASlotGoesBackToACheckpointOfItsOwn) {
  constexpr int32_t kKept = 90;
  for (const StagedModel& model : StagedModels()) {
    const LoadedSeat staged = LoadThroughPlugin(model.path, OnStages(Halves(model), 2));
    exec::Seat& seat = *staged.seat;
    if (seat.CheckpointBytes() == 0) continue;
    SCOPED_TRACE(model.path);
    const std::vector<int32_t> ids = IdsFor(staged, 400);
    RunAll(seat, std::span(ids).first(kKept), 64);
    std::vector<std::byte> state(seat.CheckpointBytes());
    seat.ReadCheckpoint(0, state);
    const Rows expected = GoOn(seat, std::span(ids).subspan(kKept, 12), kKept, 0);
    RunAll(seat, std::span(ids).first(60), 60, 1);
    seat.RestoreCheckpoint(0, kKept, state);
    EXPECT_EQ(seat.Length(0), kKept);
    EXPECT_EQ(FirstDifference(GoOn(seat, std::span(ids).subspan(kKept, 12), kKept, 0), expected),
              "");
  }
}

TEST(CardStages, PartsOfChunksAreAppendedAsOnOneCard) {
  const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OnOneCard());
  const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, OnStages({1, 5}, 2));
  const std::vector<int32_t> ids = IdsFor(one, 128);
  RunAll(*one.seat, ids, 128);
  std::vector<std::byte> chunk(128 * one.seat->StateRowBytes());
  one.seat->ReadRows(0, 0, 128, chunk);
  exec::Seat& seat = *staged.seat;
  for (const auto& [skip, count] : {std::pair{0, 50}, {50, 77}, {127, 1}}) {
    seat.AppendRows(1, {.rows = 128, .bytes = chunk}, skip, count);
  }
  EXPECT_TRUE(HeldBy(seat, 1) == chunk);
  std::vector<std::byte> part(31 * seat.StateRowBytes());
  std::vector<std::byte> expected(part.size());
  seat.ReadRows(1, 40, 31, part);
  one.seat->ReadRows(0, 40, 31, expected);
  EXPECT_TRUE(part == expected);
}

// The mini model with one expert of a layer whose answers are too large to be summed: rows that
// pick it fail, and no others.
std::string WithHugeExpert(const TempDir& folder, const model::ModelFile& model, int32_t layer,
                           size_t expert) {
  const std::string name = "blk." + std::to_string(layer) + ".ffn_down_exps.weight";
  const model::TensorInfo& down = model.tensors()[model.GetTensorIndex(name)];
  const uint64_t bytes = down.bytes / down.ne[2];
  std::string path = folder.File("layer" + std::to_string(layer) + ".gguf");
  std::filesystem::copy_file(model.path(), path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(down.offset + expert * bytes));
  for (uint64_t i = 0; i < bytes / 2; ++i) file.write("\x49\x71", 2);  // 1e30 in bf16
  return path;
}

TEST(CardStages, APassWhoseRowFailsInAnyStageIsNamedAndTheNextOneHasItsBits) {
  const TempDir folder;
  constexpr int32_t kSlots = 16;
  constexpr int32_t kBadRow = 9;
  for (const int32_t layer : {0, 2}) {
    exec::SeatOptions options = SplitOptions("cpu", -1, kSlots);
    const std::string ids = "layer." + std::to_string(layer) + ".router.ids";
    options.observe = {ids};
    const LoadedSeat cpu = LoadThroughPlugin(kMini.path, options);
    // First tokens of a slot that pick the expert, and such that do not.
    constexpr int32_t kExpert = 3;
    std::vector<int32_t> good;
    std::vector<int32_t> bad;
    for (int32_t token = 3; token < 1000; ++token) {
      cpu.seat->Cut(0, 0);
      const exec::PassRow row = {.slot = 0, .index = 0, .token = token};
      cpu.seat->Run({&row, 1});
      const exec::Observation seen = cpu.seat->Observe(ids);
      (std::ranges::count(seen.Ints(), kExpert) > 0 ? bad : good).push_back(token);
    }
    ASSERT_GE(good.size(), 2U * kSlots);
    ASSERT_FALSE(bad.empty());
    const std::string path = WithHugeExpert(folder, *cpu.model, layer, kExpert);
    {
      // In the second of three parts; the slots before and behind it are as before the pass.
      exec::SeatOptions in_parts = OnStages({1, 2}, kSlots);
      in_parts.rows_max = 4;
      in_parts.batch_rows = 12;
      const LoadedSeat staged = LoadThroughPlugin(path, in_parts);
      std::vector<exec::PassRow> rows;
      for (int32_t slot = 0; slot < 12; ++slot) {
        const int32_t token = slot == 6 ? bad.front() : good[static_cast<size_t>(slot)];
        rows.push_back({.slot = slot, .index = 0, .token = token, .logits = true});
      }
      const Refusal refusal = RefusalOf([&] { staged.seat->Run(rows); });
      EXPECT_NE(refusal.message.find("row 6 (slot 6, position 0)"), std::string::npos)
          << refusal.message;
      for (int32_t slot = 0; slot < 12; ++slot) EXPECT_EQ(staged.seat->Length(slot), 0);
      rows[6].token = good[6];
      staged.seat->Run(rows);
      const Rows got = LogitsOf(*staged.seat, 12);
      const LoadedSeat one = LoadThroughPlugin(kMini.path, OnOneCard(kSlots));
      for (const exec::PassRow& row : rows) {
        one.seat->Run({&row, 1});
        EXPECT_EQ(FirstDifference({got[static_cast<size_t>(row.slot)]}, LogitsOf(*one.seat, 1)),
                  "");
      }
    }
    for (const int32_t frames : {-1, 0, 5}) {
      SCOPED_TRACE("layer " + std::to_string(layer) + ", frames " + std::to_string(frames));
      const LoadedSeat staged = LoadThroughPlugin(path, OnStages({1, 2}, kSlots, frames));
      const LoadedSeat one = LoadThroughPlugin(kMini.path, OnOneCard(kSlots));
      const auto pass_of = [&](int32_t count) {
        std::vector<exec::PassRow> rows;
        for (int32_t slot = 0; slot < count; ++slot) {
          rows.push_back(
              {.slot = slot, .index = 0, .token = good[static_cast<size_t>(slot)], .logits = true});
        }
        return rows;
      };
      for (const int32_t count : {1, 8, kSlots}) {
        std::vector<exec::PassRow> rows = pass_of(count);
        const int32_t at = std::min(kBadRow, count - 1);
        rows[static_cast<size_t>(at)].token = bad.front();
        const Refusal refusal = RefusalOf([&] { staged.seat->Run(rows); });
        const std::string row =
            "row " + std::to_string(at) + " (slot " + std::to_string(at) + ", position 0)";
        EXPECT_NE(refusal.message.find(row), std::string::npos) << refusal.message;
        EXPECT_NE(refusal.message.find("not finite or out of range"), std::string::npos)
            << refusal.message;
        EXPECT_EQ(staged.seat->Length(0), 0);
        rows = pass_of(std::min(count, 8));  // of more rows float experts of the host are a band
        for (exec::Seat* seat : {staged.seat.get(), one.seat.get()}) seat->Run(rows);
        EXPECT_EQ(
            FirstDifference(LogitsOf(*staged.seat, rows.size()), LogitsOf(*one.seat, rows.size())),
            "");
        for (int32_t slot = 0; slot < kSlots; ++slot) {
          staged.seat->Cut(slot, 0);
          one.seat->Cut(slot, 0);
        }
      }
    }
  }
}

// Seats of 32 rows at once: a pass of more goes through stages in parts of that, and is what passes
// of 32 rows one after another are.
constexpr int32_t kPartRows = 32;

exec::SeatOptions InParts(const Cut& cut, int32_t slots, int32_t parts) {
  exec::SeatOptions options = OnStages(cut, slots);
  options.rows_max = kPartRows;
  options.batch_rows = parts * kPartRows;
  return options;
}

exec::SeatOptions OneAfterAnother(int32_t slots) {
  exec::SeatOptions options = OnOneCard(slots);
  options.rows_max = kPartRows;
  return options;
}

TEST(CardStages, APassInPartsIsAsManyPassesOneAfterAnother) {
  for (const StagedModel& model : StagedModels()) {
    SCOPED_TRACE(model.path);
    const LoadedSeat one = LoadThroughPlugin(model.path, OneAfterAnother(2));
    const std::vector<int32_t> ids = IdsFor(one, 300);
    const Rows expected = Again(*one.seat, ids, kPartRows);
    for (const Cut& cut : {Halves(model), Thirds(model)}) {
      SCOPED_TRACE(NameOf(cut));
      const LoadedSeat staged = LoadThroughPlugin(model.path, InParts(cut, 2, 4));
      const int32_t most = staged.seat->limits().rows_max;
      EXPECT_EQ(most, 4 * kPartRows);
      EXPECT_EQ(staged.seat->placement().rows_max, kPartRows);
      for (const int32_t batch : {most, most - 5, kPartRows, 1}) {
        if (batch % kPartRows != 0 && batch > 1) {
          // The last part of each pass is a short one: other passes than those of 32 rows.
          staged.seat->Cut(0, 0);
          RunAll(*staged.seat, std::span(ids).first(static_cast<size_t>(batch)), batch);
          one.seat->Cut(0, 0);
          RunAll(*one.seat, std::span(ids).first(static_cast<size_t>(batch)), kPartRows);
          EXPECT_TRUE(HeldBy(*staged.seat, 0) == HeldBy(*one.seat, 0)) << batch;
          continue;
        }
        const Rows of_one = batch == 1 ? Again(*one.seat, ids, 1) : expected;
        EXPECT_EQ(FirstDifference(Again(*staged.seat, ids, batch), of_one), "") << batch;
      }
    }
  }
}

// The state from before a pass is there when its last part has failed, and rows go on from it.
TEST(CardStages, APassThatFailsInALaterPartLeavesTheStateFromBeforeIt) {
  const TempDir folder;
  const std::string path = SourceDir() + "/tests/data/mini/qwen35moe/model.gguf";
  constexpr int32_t kBefore = 2;
  constexpr int32_t kRows =
      9;  // of the first slot in the pass: parts of 4, 4 and 1 with the bad one
  exec::SeatOptions on_cpu = SplitOptions("cpu", -1, 2);
  on_cpu.observe = {"layer.3.router.ids"};
  const LoadedSeat cpu = LoadThroughPlugin(path, on_cpu);
  const auto picks_of = [&](std::span<const int32_t> tokens) {
    cpu.seat->Cut(0, 0);
    std::vector<exec::PassRow> rows;
    for (size_t i = 0; i < tokens.size(); ++i) {
      rows.push_back({.slot = 0, .index = static_cast<int32_t>(i), .token = tokens[i]});
    }
    cpu.seat->Run(rows);
    const exec::Observation seen = cpu.seat->Observe("layer.3.router.ids");
    return std::set<int32_t>(seen.Ints().begin(), seen.Ints().end());
  };
  // Rows that leave an expert alone, and a first token that picks it.
  std::vector<int32_t> ids;
  int32_t expert = -1;
  for (uint32_t seed = 1; expert < 0 && seed < 500; ++seed) {
    ids = SomeIds(kBefore + kRows, cpu.seat->limits().vocabulary, seed);
    const std::set<int32_t> picked = picks_of(ids);
    const auto experts = static_cast<int32_t>(cpu.seat->ReadResidency().banks[3].experts);
    for (int32_t i = 0; i < experts && expert < 0; ++i) expert = picked.contains(i) ? -1 : i;
  }
  ASSERT_GE(expert, 0);
  int32_t bad = -1;
  int32_t good = -1;
  for (int32_t token = 3; token < 1000 && (bad < 0 || good < 0); ++token) {
    (picks_of({&token, 1}).contains(expert) ? bad : good) = token;
  }
  ASSERT_GE(bad, 0);
  ASSERT_GE(good, 0);
  exec::SeatOptions options = OnStages({2, 2}, 2);
  options.rows_max = 4;
  options.batch_rows = 12;
  const LoadedSeat staged = LoadThroughPlugin(
      WithHugeExpert(folder, *cpu.model, 3, static_cast<size_t>(expert)), options);
  options = OnOneCard(2);
  options.rows_max = 4;
  const LoadedSeat one = LoadThroughPlugin(path, options);
  for (exec::Seat* seat : {staged.seat.get(), one.seat.get()}) {
    RunAll(*seat, std::span(ids).first(kBefore), kBefore);
  }
  std::vector<exec::PassRow> rows;
  for (int32_t i = kBefore; i < kBefore + kRows; ++i) {
    rows.push_back({.slot = 0, .index = i, .token = ids[static_cast<size_t>(i)], .logits = true});
  }
  rows.push_back({.slot = 1, .index = 0, .token = bad, .logits = true});
  const Refusal refusal = RefusalOf([&] { staged.seat->Run(rows); });
  EXPECT_NE(refusal.message.find("row 9 (slot 1, position 0)"), std::string::npos)
      << refusal.message;
  EXPECT_EQ(staged.seat->Length(0), kBefore);
  staged.seat->Cut(0, kBefore);
  staged.seat->Cut(1, 0);
  ASSERT_EQ(staged.seat->Keepable(0, kBefore), kBefore);
  rows.back().token = good;
  staged.seat->Run(rows);
  const Rows got = LogitsOf(*staged.seat, rows.size());
  Rows expected;
  for (size_t at = 0; at < rows.size(); at += 4) {
    const auto part = std::span(rows).subspan(at, std::min<size_t>(4, rows.size() - at));
    one.seat->Run(part);
    for (std::vector<float>& row : LogitsOf(*one.seat, part.size())) expected.push_back(row);
  }
  EXPECT_EQ(FirstDifference(got, expected), "");
}

// Rows of slots that decode, in front of a prompt's: logits of a part that is not the last.
TEST(CardStages, LogitsOfEveryPartStayUntilTheNextPass) {
  constexpr int32_t kSlots = 4;
  const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OneAfterAnother(kSlots));
  const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, InParts({3, 3}, kSlots, 4));
  const std::vector<int32_t> ids = IdsFor(one, 200);
  std::vector<exec::PassRow> rows;
  for (int32_t slot = 0; slot < 3; ++slot) {
    rows.push_back(
        {.slot = slot, .index = 0, .token = ids[static_cast<size_t>(slot)], .logits = true});
  }
  for (int32_t i = 0; i < 110; ++i) {
    rows.push_back({.slot = 3,
                    .index = i,
                    .token = ids[50 + static_cast<size_t>(i)],
                    .logits = i == 40 || i == 109});
  }
  staged.seat->Run(rows);
  Rows expected;
  std::vector<std::vector<exec::BestLogit>> best;
  for (size_t at = 0; at < rows.size(); at += kPartRows) {
    const auto part = std::span(rows).subspan(at, std::min<size_t>(kPartRows, rows.size() - at));
    one.seat->Run(part);
    const auto wanted = std::ranges::count_if(part, [](const auto& row) { return row.logits; });
    for (int32_t i = 0; i < wanted; ++i) {
      const std::span<const float> logits = one.seat->Logits(i);
      expected.emplace_back(logits.begin(), logits.end());
      const std::span<const exec::BestLogit> of_row = one.seat->BestLogits(i);
      best.emplace_back(of_row.begin(), of_row.end());
    }
  }
  ASSERT_EQ(expected.size(), 5U);
  EXPECT_EQ(FirstDifference(LogitsOf(*staged.seat, expected.size()), expected), "");
  for (size_t i = 0; i < best.size(); ++i) {
    const std::span<const exec::BestLogit> got = staged.seat->BestLogits(static_cast<int32_t>(i));
    ASSERT_EQ(got.size(), best[i].size()) << i;
    ASSERT_FALSE(got.empty());
    EXPECT_EQ(got.front().token, best[i].front().token) << i;
    EXPECT_EQ(got.front().logit, best[i].front().logit) << i;
  }
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    EXPECT_TRUE(HeldBy(*staged.seat, slot) == HeldBy(*one.seat, slot)) << slot;
  }
}

// Which expert picks are counted, and where: as of passes one after another.
TEST(CardStages, PicksOfPartsAreCountedAsThoseOfPasses) {
  const LoadedSeat one = LoadThroughPlugin(kSeedling.path, OneAfterAnother(1));
  const LoadedSeat staged = LoadThroughPlugin(kSeedling.path, InParts({2, 4}, 1, 4));
  const std::vector<int32_t> ids = IdsFor(one, 121);
  for (const size_t count : {size_t{121}, 3 * size_t{kPartRows} + 1}) {  // a last part of one row
    one.seat->Cut(0, 0);
    staged.seat->Cut(0, 0);
    RunAll(*one.seat, std::span(ids).first(count), kPartRows);
    RunAll(*staged.seat, std::span(ids).first(count), 4 * kPartRows);
  }
  const exec::Residency a = one.seat->ReadResidency();
  const exec::Residency b = staged.seat->ReadResidency();
  ASSERT_EQ(a.banks.size(), b.banks.size());
  for (size_t bank = 0; bank < a.banks.size(); ++bank) {
    EXPECT_EQ(a.banks[bank].picks, b.banks[bank].picks) << bank;
  }
  EXPECT_EQ(one.seat->counters().experts_picked, staged.seat->counters().experts_picked);
}

// Of the file that run.sh benches: passes of one row have one launch for the layers of a stage
// there. Prompts as well, which the CPU only bounds.
TEST(CardStages, AWholeModelHasTheBitsOfOneCard) {
  const char* path = std::getenv("BLOOMERY_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "BLOOMERY_TEST_MODEL names no file";
  std::vector<int32_t> ids;
  std::vector<Rows> expected;
  std::vector<std::byte> held;
  constexpr int32_t kBatches[] = {1, 8, 33, 400};
  constexpr size_t kDecoded = 140;
  const auto run = [&](exec::Seat& seat, int32_t batch) {
    return Again(seat, std::span(ids).first(batch > 8 ? ids.size() : kDecoded), batch);
  };
  {
    const LoadedSeat one = LoadThroughPlugin(path, OnOneCard());
    ids = IdsFor(one, 400);
    for (const int32_t batch : kBatches) expected.push_back(run(*one.seat, batch));
    held = HeldBy(*one.seat, 0);
  }
  for (const std::vector<double>& shares : {std::vector<double>{1, 1}, {1, 3}, {2, 1, 2}}) {
    SCOPED_TRACE(shares[0]);
    const LoadedSeat staged = LoadThroughPlugin(path, WithShares(OnOneCard(), shares));
    std::printf("%s\n", staged.seat->PlanLine().c_str());
    for (size_t i = 0; i < std::size(kBatches); ++i) {
      EXPECT_EQ(FirstDifference(run(*staged.seat, kBatches[i]), expected[i]), "") << kBatches[i];
    }
    EXPECT_TRUE(HeldBy(*staged.seat, 0) == held);
  }
  exec::SeatOptions in_parts = WithShares(OnOneCard(), {1, 1});
  in_parts.rows_max = 100;
  in_parts.batch_rows = 400;
  const LoadedSeat staged = LoadThroughPlugin(path, in_parts);
  const Rows got = Again(*staged.seat, ids, 400);
  in_parts.device = TestCards().front();
  in_parts.shares.clear();
  const LoadedSeat one = LoadThroughPlugin(path, in_parts);
  EXPECT_EQ(one.seat->limits().rows_max, 100);
  EXPECT_EQ(FirstDifference(got, Again(*one.seat, ids, 100)), "");
}

}  // namespace
}  // namespace bloomery::test
