#include "runtime/apps/tools/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/engine/fake_runner.h"

namespace bloomery::apps {
namespace {

using test::RefusalOf;
using testing::HasSubstr;

constexpr exec::SeatLimits kLimits{.slots = 1, .slot_context = 8, .rows_max = 3, .vocabulary = 4};
constexpr size_t kVocabulary = 4;

// Logits 0 but `lead` for the id after the last one: known probabilities.
void Lead(engine::FakeRunner& runner, float lead) {
  runner.change_logits = [lead](const engine::Tokens& history, std::vector<float>& logits) {
    logits.assign(kVocabulary, 0.0F);
    logits[(static_cast<size_t>(history.back()) + 1) % kVocabulary] = lead;
  };
}

const IdRows kRows{.width = 5, .ids = {0, 1, 2, 3, 0, /**/ 1, 1, 1, 1, 2}};

TEST(Perplexity, MeanNllIsThatOfTheKnownProbabilities) {
  engine::FakeRunner runner(kLimits);
  Lead(runner, 2.0F);
  size_t shown = 0;
  const PerplexityResult result =
      RunPerplexity(runner, kRows, {}, [&](size_t done, size_t all) { shown = done * 10 + all; });
  const double led = std::log(std::exp(2.0) + 3) - 2;  // of an id that has the lead
  const double other = std::log(std::exp(2.0) + 3);
  ASSERT_EQ(result.row_nll.size(), 2u);
  EXPECT_NEAR(result.row_nll[0], led, 1e-6);
  EXPECT_NEAR(result.row_nll[1], (3 * other + led) / 4, 1e-6);
  EXPECT_NEAR(result.mean_nll, (result.row_nll[0] + result.row_nll[1]) / 2, 1e-12);
  EXPECT_NEAR(result.perplexity, std::exp(result.mean_nll), 1e-12);
  EXPECT_EQ(shown, 22u);
  EXPECT_EQ(runner.length(0), 0);
}

TEST(Perplexity, DivergenceFromASavedBaseIsThatOfTheDefinition) {
  const test::TempDir folder;
  const std::string path = folder.File("base.safetensors");
  engine::FakeRunner runner(kLimits);
  Lead(runner, 2.0F);
  BaseWriter writer(path, kRows, kVocabulary);
  PredictionSink* sink = &writer;
  RunPerplexity(runner, kRows, {&sink, 1}, {});
  writer.Finish();

  BaseComparison same(path, kRows, kVocabulary);
  sink = &same;
  RunPerplexity(runner, kRows, {&sink, 1}, {});
  EXPECT_NEAR(same.mean(), 0, 1e-7);
  EXPECT_EQ(same.same_first(), 1);

  Lead(runner, -1.0F);
  BaseComparison other(path, kRows, kVocabulary);
  sink = &other;
  RunPerplexity(runner, kRows, {&sink, 1}, {});
  const double base_sum = std::exp(2.0) + 3, other_sum = std::exp(-1.0) + 3;
  const double expected = std::exp(2.0) / base_sum * (2 + 1) + std::log(other_sum / base_sum);
  EXPECT_NEAR(other.mean(), expected, 1e-6);
  EXPECT_NEAR(other.largest(), expected, 1e-6);
  EXPECT_EQ(other.same_first(), 0);
}

TEST(Perplexity, BaseOfOtherIdsIsRefused) {
  const test::TempDir folder;
  const std::string path = folder.File("base.safetensors");
  engine::FakeRunner runner(kLimits);
  BaseWriter writer(path, kRows, kVocabulary);
  PredictionSink* sink = &writer;
  RunPerplexity(runner, kRows, {&sink, 1}, {});
  writer.Finish();
  IdRows changed = kRows;
  changed.ids[3] = 1;
  EXPECT_THAT(RefusalOf([&] { BaseComparison(path, changed, kVocabulary); }).message,
              HasSubstr("other ids"));
  EXPECT_THAT(RefusalOf([&] { BaseComparison(path, kRows, kVocabulary + 1); }).message,
              HasSubstr("other ids"));
}

TEST(Perplexity, IdsOutsideTheVocabularyAndTextsTooShortAreRefused) {
  engine::FakeRunner runner(kLimits);
  const IdRows rows{.width = 2, .ids = {1, 4}};
  EXPECT_EQ(RefusalOf([&] { RunPerplexity(runner, rows, {}, {}); }).kind, ErrorKind::kUsage);
  const std::vector<int32_t> one{1};
  EXPECT_EQ(RefusalOf([&] { CutIdRows(one, 4); }).kind, ErrorKind::kUsage);
}

TEST(Perplexity, TextIsCutIntoWholeRows) {
  const std::vector<int32_t> ids{1, 2, 3, 0, 1};
  EXPECT_EQ(CutIdRows(ids, 2).rows(), 2u);
  EXPECT_EQ(CutIdRows(ids, 2).ids, (std::vector<int32_t>{1, 2, 3, 0}));
  EXPECT_EQ(CutIdRows(ids, 100).width, 5u);
}

}  // namespace
}  // namespace bloomery::apps
