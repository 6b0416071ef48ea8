// qwen35moe (delta-net layers between layers of gated attention, a shared expert) through the
// plugin against outputs of another implementation in float32. The mini model is in the tree; the
// large one runs where it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "runtime/base/error.h"
#include "tests/oracle/golden.h"
#include "tests/support/oracle_path.h"

namespace bloomery::test {
namespace {

Subject Mini() {
  const std::string folder = SourceDir() + "/tests/data/mini/qwen35moe";
  return {.model = folder + "/model.gguf", .golden_folder = folder, .exact = {.worst = 2e-4}};
}

// One golden router logit is off by itself: layer 3, row 312, expert 3 of `long` is -0.581588181 in
// a float64 pass over this file, -0.581588 here and -0.581577063 in the goldens, made in float32.
Subject Large() {
  const std::string folder = OraclePath() + "/models/qwen35moe";
  return {.model = folder + "/model.gguf", .golden_folder = folder, .router_logits = 1.2e-5};
}

TEST(MiniQwen35moe, EveryPromptMeetsTheFloat32ColumnInEveryBatchSize) {
  ExpectPromptsExact(Mini(), OracleOptions(BL_F32), {1, 3, 64, 512});
}

TEST(MiniQwen35moe, ReferenceKernelsAloneMeetTheFloat32Column) {
  exec::SeatOptions options = OracleOptions(BL_F32);
  options.kernels = "reference";
  ExpectPromptsExact(Mini(), options, {64});
}

TEST(MiniQwen35moe, HiddenStatesAndRoutingMeetTheFloat32Column) { ExpectInnerValues(Mini()); }

TEST(MiniQwen35moe, EvalRowsMeetTheFloat32Column) {
  ExpectEval(Evaluate(Mini(), OracleOptions(BL_F32)), Mini().eval_row_exact, Mini().eval_row_exact);
}

TEST(MiniQwen35moe, HalfPrecisionPlanesMeetTheBand) {
  ExpectPromptsInBand(Mini(), OracleOptions(BL_F16));
  ExpectEval(Evaluate(Mini(), OracleOptions(BL_F16)), Mini().eval_row_band, Mini().eval_mean_band);
}

TEST(MiniQwen35moe, HiddenStatesAndRoutingMeetTheBandWithHalfPrecisionPlanes) {
  ExpectInnerValuesInBand(Mini(), "mid");
  ExpectInnerValuesInBand(Mini(), "long");
}

// The delta rule in chunks meets what row by row meets, in batches that end inside chunks too.
void ExpectChunksExact(const Subject& subject) {
  exec::SeatOptions options = OracleOptions(BL_F32);
  options.delta_chunks = true;
  ExpectPromptsExact(subject, options, {1, 3, 37, 64, 512});
  ExpectEval(Evaluate(subject, options), subject.eval_row_exact, subject.eval_row_exact);
}

TEST(MiniQwen35moe, PromptsInChunksMeetTheFloat32Column) { ExpectChunksExact(Mini()); }

TEST(MiniQwen35moe, ChunksAreABandAndRowsAreNot) {
  exec::SeatOptions options = OracleOptions(BL_F32);
  EXPECT_THAT(LoadThroughPlugin(Mini().model, options).seat->inexact_operators(),
              testing::IsEmpty());
  options.delta_chunks = true;
  EXPECT_THAT(LoadThroughPlugin(Mini().model, options).seat->inexact_operators(),
              testing::ElementsAre("delta_rule/1 (band)"));
  options.kernels = "reference";  // which have rows alone
  EXPECT_THAT(LoadThroughPlugin(Mini().model, options).seat->inexact_operators(),
              testing::IsEmpty());
}

exec::SeatOptions ThreeSlots() {
  return {.slots = 3, .slot_context = 512, .rows_max = 64, .pin = false};
}

std::vector<int32_t> LongIds() { return Mini().Golden().Get("long.ids").ints; }

TEST(MiniQwen35moe, RowsHaveTheSameBitsInAnyBatchAndBesideOtherSlots) {
  const LoadedSeat loaded = LoadThroughPlugin(Mini().model, ThreeSlots());
  exec::Seat& seat = *loaded.seat;
  std::vector<int32_t> ids = LongIds();
  ids.resize(130);
  const Logits one_by_one = RunAll(seat, ids, 1, 0);
  EXPECT_EQ(RunAll(seat, ids, 7, 1), one_by_one);
  EXPECT_EQ(RunAll(seat, ids, 64, 2), one_by_one);
  // Two slots by turns, the second from elsewhere in the text, in passes that hold both.
  for (const int32_t slot : {0, 1}) seat.Cut(slot, 0);
  Logits beside;
  for (int32_t i = 0; i < 60; ++i) {
    const std::array<exec::PassRow, 2> rows = {
        {{.slot = 1, .index = i, .token = ids[static_cast<size_t>(i) + 60], .logits = true},
         {.slot = 0, .index = i, .token = ids[static_cast<size_t>(i)], .logits = true}}};
    seat.Run(rows);
    const std::span<const float> values = seat.Logits(1);
    beside.emplace_back(values.begin(), values.end());
  }
  EXPECT_EQ(beside, Logits(one_by_one.begin(), one_by_one.begin() + 60));
}

TEST(MiniQwen35moe, ACheckpointBehindItsRowsGoesOnBitForBitInAnotherSlot) {
  const LoadedSeat loaded = LoadThroughPlugin(Mini().model, ThreeSlots());
  exec::Seat& seat = *loaded.seat;
  const std::vector<int32_t> ids = LongIds();
  constexpr int32_t kKept = 200;
  RunAll(seat, std::span(ids).first(kKept), 64, 0);
  std::vector<std::byte> state(seat.CheckpointBytes());
  ASSERT_GT(state.size(), 0U);
  seat.ReadCheckpoint(0, state);
  const std::span<const int32_t> rest = std::span(ids).subspan(kKept, 20);
  const Logits cold = GoOn(seat, rest, kKept, 0);

  RunAll(seat, std::span(ids).last(250), 64, 2);  // another state lies there
  seat.Cut(2, 0);
  constexpr int32_t kChunk = exec::RowChunk::kRowsMax;
  for (int32_t first = 0; first < kKept; first += kChunk) {
    const int32_t rows = std::min(kChunk, kKept - first);
    std::vector<std::byte> bytes(static_cast<size_t>(rows) * seat.StateRowBytes());
    seat.ReadRows(0, first, rows, bytes);
    seat.AppendRows(2, {.rows = rows, .bytes = bytes}, 0, rows);
  }
  const exec::PassRow next{.slot = 2, .index = kKept, .token = rest[0]};
  EXPECT_THROW(seat.Run({&next, 1}), Error);  // rows without the state behind them
  seat.RestoreCheckpoint(2, kKept, state);
  EXPECT_EQ(GoOn(seat, rest, kKept, 2), cold);

  // Back in the slot's own path.
  EXPECT_LT(seat.Keepable(0, kKept), kKept);
  seat.RestoreCheckpoint(0, kKept, state);
  EXPECT_EQ(GoOn(seat, rest, kKept, 0), cold);
}

TEST(MiniQwen35moe, APassCanBeTakenBackAndASlotCopied) {
  const LoadedSeat loaded = LoadThroughPlugin(Mini().model, ThreeSlots());
  exec::Seat& seat = *loaded.seat;
  const std::vector<int32_t> ids = LongIds();
  RunAll(seat, std::span(ids).first(100), 64, 0);
  seat.CopySlot(0, 1, 100);
  const std::span<const int32_t> rest = std::span(ids).subspan(100, 8);
  const Logits cold = GoOn(seat, rest.first(1), 100, 0);
  EXPECT_EQ(seat.Keepable(0, 100), 100);
  seat.Cut(0, 100);
  EXPECT_EQ(GoOn(seat, rest.first(1), 100, 0), cold);
  EXPECT_EQ(GoOn(seat, rest.first(1), 100, 1), cold);
}

class LargeQwen35moe : public testing::Test {
 protected:
  void SetUp() override {
    if (OraclePath().empty()) GTEST_SKIP() << "the large oracle set is not here";
  }
};

TEST_F(LargeQwen35moe, EveryPromptMeetsTheFloat32ColumnInEveryBatchSize) {
  ExpectPromptsExact(Large(), OracleOptions(BL_F32), {1, 3, 64, 512});
}

TEST_F(LargeQwen35moe, PromptsInChunksMeetTheFloat32Column) { ExpectChunksExact(Large()); }

TEST_F(LargeQwen35moe, HiddenStatesAndRoutingMeetTheFloat32Column) { ExpectInnerValues(Large()); }

TEST_F(LargeQwen35moe, EvalRowsMeetTheFloat32Column) {
  ExpectEval(Evaluate(Large(), OracleOptions(BL_F32)), Large().eval_row_exact,
             Large().eval_row_exact);
}

TEST_F(LargeQwen35moe, HalfPrecisionPlanesMeetTheBand) {
  ExpectPromptsInBand(Large(), OracleOptions(BL_F16));
  ExpectEval(Evaluate(Large(), OracleOptions(BL_F16)), Large().eval_row_band,
             Large().eval_mean_band);
}

}  // namespace
}  // namespace bloomery::test
