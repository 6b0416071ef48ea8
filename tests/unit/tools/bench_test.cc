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
    .slots = 1, .slot_context = 64, .rows_max = 16, .vocabulary = 50};

// A clock that a pass moves on by a quarter of a second.
struct Clocked {
  engine::FakeRunner runner{kLimits};
  double now = 0;

  Clocked() {
    runner.before_run = [this](std::span<const exec::PassRow>) { now += 0.25; };
  }
  BenchResult Run(const BenchCase& what, int32_t repetitions) {
    return RunBench(runner, what, repetitions,
                    {[this] { return now; }, [this] { return 100 * runner.passes.size(); }});
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
  EXPECT_EQ(logits, 1u + 3u);
  EXPECT_THAT(result.rates, ElementsAre(40 / 0.75, 40 / 0.75));
  EXPECT_EQ(clocked.runner.length(0), 0);
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
  Summarise(result);
  EXPECT_THAT(MarkdownHeader(setting), HasSubstr("a cpu, 2 cores"));
  EXPECT_THAT(MarkdownRow(setting, result),
              HasSubstr("| tg128 @ d64 | 10.00 ± 0.00 | 10.00 | 2.50 |"));
  const rapidjson::Document row = ParseJson(JsonRow(setting, result), "row");
  EXPECT_EQ(std::string(row["cpu"].GetString()), "a cpu");
  EXPECT_EQ(std::string(row["file"].GetString()), "f.gguf");
  EXPECT_EQ(row["n_depth"].GetInt64(), 64);
  EXPECT_EQ(row["median_ts"].GetDouble(), 10);
  EXPECT_NE(std::string(row["commit"].GetString()), "");
}

}  // namespace
}  // namespace bloomery::apps
