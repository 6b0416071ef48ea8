#include "runtime/apps/tools/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/apps/tools/bench_report.h"
#include "runtime/base/json.h"
#include "tests/unit/engine/fake_runner.h"

namespace bloomery::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr exec::SeatLimits kLimits{
    .slots = 3, .slot_context = 64, .rows_max = 16, .vocabulary = 50};

// A clock that a pass moves on by a quarter of a second.
struct Clocked {
  engine::FakeRunner runner{kLimits};
  double now = 0;
  double read_rate = 400;

  Clocked() {
    runner.before_run = [this](std::span<const exec::PassRow>) { now += 0.25; };
  }
  BenchResult Run(const BenchCase& what, int32_t repetitions) {
    return RunBench(runner, what, repetitions,
                    {.seconds = [this] { return now; },
                     .count =
                         [this] {
                           const uint64_t passes = runner.passes.size();
                           return BenchCount{.passes = passes,
                                             .weight_bytes = 100 * passes,
                                             .experts_picked = 6 * passes,
                                             .expert_bytes = 60 * passes,
                                             .wait_seconds = 0.05 * static_cast<double>(passes)};
                         },
                     .read_rate = [this] { return read_rate; },
                     .dense_bytes = 20});
  }
};

TEST(Bench, PromptRunsInPassesOfTheUbatchAndAsksForItsLastLogits) {
  Clocked clocked;
  const BenchResult result = clocked.Run({.prompt = 40, .depth = 20}, 2);
  // 20 rows of depth in two passes, then three times 40 in three: a warm-up and two repetitions.
  std::vector<size_t> sizes;
  size_t logits = 0;
  for (const auto& pass : clocked.runner.passes) {
    sizes.push_back(pass.size());
    for (const exec::PassRow& row : pass) logits += row.logits ? 1 : 0;
  }
  EXPECT_THAT(sizes, ElementsAre(16, 4, 16, 16, 8, 16, 16, 8, 16, 16, 8));
  EXPECT_EQ(logits, 3u);
  EXPECT_THAT(result.rates, ElementsAre(40 / 0.75, 40 / 0.75));
  EXPECT_EQ(clocked.runner.length(0), 0);
}

// Slots with a state that rows overwrite go back to their depth by a checkpoint, without running it
// again.
TEST(Bench, SlotsWithAStateGoBackToTheirDepthByACheckpoint) {
  Clocked clocked;
  clocked.runner.with_state = true;
  const BenchResult result = clocked.Run({.tokens = 4, .depth = 20, .slots = 2}, 2);
  EXPECT_EQ(clocked.runner.passes.size(), 2u * 2 + 3 * 4);
  EXPECT_EQ(clocked.runner.states_restored, 2 * 2);
  EXPECT_EQ(result.rates.size(), 2u);
}

TEST(Bench, TokensRunOneAPassWithLogits) {
  Clocked clocked;
  const BenchResult result = clocked.Run({.tokens = 5}, 1);
  ASSERT_EQ(clocked.runner.passes.size(), 10u);
  for (const auto& pass : clocked.runner.passes) {
    EXPECT_EQ(pass.size(), 1u);
    EXPECT_TRUE(pass[0].logits);
  }
  EXPECT_THAT(result.rates, ElementsAre(4.0));
  EXPECT_THAT(result.byte_rates, ElementsAre(400.0));
}

// Each repetition: a text is decoded, run again as a prompt, and goes on; others are decoded in
// others.
TEST(Bench, GreedyTokensAreTheModelsChoiceAfterAPromptOfItsOwnText) {
  for (const size_t best : {size_t{0}, size_t{4}}) {
    Clocked clocked;
    clocked.runner.best = best;
    // The best token after `history` is told by its last.
    clocked.runner.next = [](const engine::Tokens& history) -> std::optional<int32_t> {
      return (history.back() * 7 + 3) % 50;
    };
    const BenchResult result = clocked.Run({.tokens = 3, .depth = 20, .greedy = true}, 2);
    EXPECT_EQ(result.what.Name(), "tg3 @ d20, greedy");
    EXPECT_THAT(result.rates, ElementsAre(4.0, 4.0));
    // 20 rows one by one, 16 and 4 of a prompt, 3 tokens; a warm-up and two repetitions.
    ASSERT_EQ(clocked.runner.passes.size(), 3u * (20 + 2 + 3));
    std::vector<int32_t> starts;
    for (size_t run = 0; run < 3; ++run) {
      std::vector<int32_t> text;
      std::vector<int32_t> again;
      for (size_t i = 0; i < 25; ++i) {
        const auto& pass = clocked.runner.passes[25 * run + i];
        EXPECT_EQ(pass.size(), i == 20 ? 16u : i == 21 ? 4u : 1u);
        for (const exec::PassRow& row : pass) (i < 20 ? text : again).push_back(row.token);
      }
      starts.push_back(text[0]);
      for (size_t i = 1; i < again.size(); ++i) EXPECT_EQ(again[i], (again[i - 1] * 7 + 3) % 50);
      EXPECT_TRUE(std::equal(text.begin(), text.end(), again.begin()));
    }
    EXPECT_NE(starts[1], starts[2]);
  }
}

TEST(Bench, ResidencyIsResetAndCountedBetweenRepetitions) {
  engine::FakeRunner runner{kLimits};
  std::vector<size_t> resets;
  uint64_t moves = 0;
  const BenchResult result =
      RunBench(runner, {.tokens = 4, .depth = 2}, 2,
               {.seconds = [&] { return static_cast<double>(runner.passes.size()); },
                .count =
                    [&] {
                      const uint64_t passes = runner.passes.size();
                      return BenchCount{.passes = passes,
                                        .picks = 8 * passes,
                                        .card_picks = 6 * passes,
                                        .moves = moves += 5};
                    },
                .reset = [&] { resets.push_back(runner.passes.size()); }});
  // A prompt, then each time a row that is taken back and four that are timed.
  EXPECT_THAT(resets, ElementsAre(1u, 6u, 11u));
  EXPECT_DOUBLE_EQ(result.card_share, 0.75);
  EXPECT_DOUBLE_EQ(result.moves, 5);
  EXPECT_THAT(result.rates, ElementsAre(1.0, 1.0));
}

TEST(Bench, SlotsDecodeTogetherAgainstTheBytesOfTheirDistinctExperts) {
  Clocked clocked;
  const BenchResult result = clocked.Run({.tokens = 4, .depth = 20, .slots = 3}, 2);
  // Three slots of 20 rows in two passes each, then three times 4 passes of a row a slot.
  ASSERT_EQ(clocked.runner.passes.size(), 6u + 12u);
  for (size_t i = 6; i < clocked.runner.passes.size(); ++i) {
    const auto& pass = clocked.runner.passes[i];
    ASSERT_EQ(pass.size(), 3u);
    for (int32_t slot = 0; slot < 3; ++slot) {
      EXPECT_EQ(pass[static_cast<size_t>(slot)].slot, slot);
      EXPECT_TRUE(pass[static_cast<size_t>(slot)].logits);
    }
  }
  EXPECT_NE(clocked.runner.passes[0][0].token, clocked.runner.passes[2][0].token);
  EXPECT_THAT(result.rates, ElementsAre(12.0, 12.0));  // 12 rows in a second
  EXPECT_DOUBLE_EQ(result.pass_experts, 6);
  EXPECT_DOUBLE_EQ(result.pass_weight_bytes, 100);
  EXPECT_DOUBLE_EQ(result.pass_least_bytes, 80);
  EXPECT_DOUBLE_EQ(result.wait_share, 0.2);  // 0.05 of the quarter second of a pass
  EXPECT_DOUBLE_EQ(result.bound, 15);        // 400 / 80 passes of three rows
  EXPECT_DOUBLE_EQ(result.bound_share, 0.8);
  for (int32_t slot = 0; slot < 3; ++slot) EXPECT_EQ(clocked.runner.length(slot), 0);
  EXPECT_EQ(result.what.Name(), "tg4 x3 @ d20");
}

TEST(Bench, APromptAndAnUnmeasuredReadRateHaveNoBound) {
  Clocked clocked;
  EXPECT_EQ(clocked.Run({.prompt = 8}, 1).bound, 0);
  clocked.read_rate = 0;
  const BenchResult result = clocked.Run({.tokens = 2}, 1);
  EXPECT_EQ(result.bound, 0);
  EXPECT_EQ(result.bound_share, 0);
}

TEST(Bench, SummaryIsMeanSampleDeviationAndMedian) {
  BenchResult result;
  result.rates = {4, 1, 2, 9};
  result.byte_rates = {40, 10, 20, 90};
  Summarise(result);
  EXPECT_DOUBLE_EQ(result.mean, 4);
  EXPECT_DOUBLE_EQ(result.median, 3);
  EXPECT_DOUBLE_EQ(result.byte_median, 30);
  EXPECT_NEAR(result.deviation, 3.559026, 1e-6);  // sqrt((0 + 9 + 4 + 25) / 3)
  result.rates = {7};
  Summarise(result);
  EXPECT_DOUBLE_EQ(result.median, 7);
  EXPECT_DOUBLE_EQ(result.deviation, 0);
}

TEST(Bench, RowsNameMachineFileBuildAndCase) {
  BenchSetting setting{.machine = {.cpu = "a cpu", .cores = 2, .load = 0.5}, .build = Build()};
  setting.file = "f.gguf";
  setting.kernels = "avx2";
  BenchResult result{.what = {.tokens = 128, .depth = 64}};
  result.rates = {10};
  result.byte_rates = {2.5e9};
  result.read_rates = {5e9};
  result.pass_experts = 96;
  result.wait_share = 0.125;
  result.pass_weight_bytes = 300e6;
  result.pass_least_bytes = 312.5e6;
  Summarise(result);
  EXPECT_THAT(MarkdownHeader(setting), HasSubstr("a cpu, 2 cores"));
  EXPECT_THAT(
      MarkdownRow(setting, result),
      HasSubstr("| tg128 @ d64 | 10.00 ± 0.00 | 10.00 | 12.50 % | 2.50 | 5.00 | 96.00 | 300.00 | "
                "16.00 | 0.62 | – | – | – |"));
  const rapidjson::Document row = ParseJson(JsonRow(setting, result), "row");
  EXPECT_EQ(std::string(row["cpu"].GetString()), "a cpu");
  EXPECT_EQ(std::string(row["file"].GetString()), "f.gguf");
  EXPECT_EQ(row["n_depth"].GetInt64(), 64);
  EXPECT_EQ(row["median_ts"].GetDouble(), 10);
  EXPECT_EQ(row["bound_ts"].GetDouble(), 16);
  EXPECT_EQ(row["bound_share"].GetDouble(), 0.625);
  EXPECT_EQ(row["experts_per_pass"].GetDouble(), 96);
  EXPECT_NE(std::string(row["commit"].GetString()), "");
}

}  // namespace
}  // namespace bloomery::apps
