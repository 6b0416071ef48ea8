#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/text/sampling.h"

namespace bloomery::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum SamplerStage;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string Refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
    return error.what();
  }
  return "accepted";
}

std::string Validated(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  return Refusal([&params] { params.Validate(); });
}

TEST(SamplingParamsTest, DefaultsAreTheDocumentedOnesAndValid) {
  SamplingParams params;
  params.Validate();
  EXPECT_EQ(params.temperature, 0.8);
  EXPECT_EQ(params.top_k, 40);
  EXPECT_EQ(params.top_p, 0.95);
  EXPECT_EQ(params.min_p, 0.05);
  EXPECT_EQ(params.dry_base, 1.75);
  EXPECT_THAT(params.samplers, ElementsAre(kPenalties, kDry, kTopNSigma, kTopK, kTypicalP, kTopP,
                                           kMinP, kXtc, kTemperature));
  EXPECT_THAT(params.dry_sequence_breakers, ElementsAre("\n", ":", "\"", "*"));
}

TEST(SamplingParamsTest, ClampedFieldsArePulledIntoRange) {
  SamplingParams params;
  params.temperature = -1;
  params.top_k = -5;
  params.top_p = 5;
  params.min_p = -0.5;
  params.xtc_probability = 2;
  params.xtc_threshold = -1;
  params.mirostat = 7;
  params.dry_base = 0.5;
  params.Validate();
  EXPECT_EQ(params.temperature, 0);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.top_p, 1);
  EXPECT_EQ(params.min_p, 0);
  EXPECT_EQ(params.xtc_probability, 1);
  EXPECT_EQ(params.xtc_threshold, 0);
  EXPECT_EQ(params.mirostat, 2);
  EXPECT_EQ(params.dry_base, 1.75);
}

TEST(SamplingParamsTest, HardRangesAreRefusedByField) {
  using P = SamplingParams;
  EXPECT_THAT(Validated([](P& p) { p.repeat_penalty = 0; }), HasSubstr("Field 'repeat_penalty'"));
  EXPECT_THAT(Validated([](P& p) { p.repeat_penalty = kInf; }), HasSubstr("'repeat_penalty'"));
  EXPECT_THAT(Validated([](P& p) { p.repeat_penalty = 1e-310; }), HasSubstr("'repeat_penalty'"));
  EXPECT_THAT(Validated([](P& p) { p.repeat_last_n = -1; }), HasSubstr("'repeat_last_n'"));
  EXPECT_THAT(Validated([](P& p) { p.dry_penalty_last_n = -1; }),
              HasSubstr("'dry_penalty_last_n'"));
  EXPECT_THAT(Validated([](P& p) { p.dry_allowed_length = -1; }),
              HasSubstr("'dry_allowed_length'"));
  EXPECT_THAT(Validated([](P& p) { p.n_probs = -1; }), HasSubstr("'n_probs'"));
  EXPECT_THAT(Validated([](P& p) { p.min_keep = -1; }), HasSubstr("'min_keep'"));
  EXPECT_THAT(Validated([](P& p) { p.temperature = kNan; }), HasSubstr("'temperature'"));
  EXPECT_THAT(Validated([](P& p) { p.presence_penalty = kInf; }), HasSubstr("'presence_penalty'"));
  EXPECT_THAT(Validated([](P& p) { p.adaptive_decay = 1; }), HasSubstr("'adaptive_decay'"));
  EXPECT_EQ(Validated([](P& p) { p.adaptive_target = 0.5; }), "accepted");
  EXPECT_THAT(Validated([](P& p) { p.dry_sequence_breakers.clear(); }),
              HasSubstr("'dry_sequence_breakers'"));
  EXPECT_EQ(Validated([](P& p) { p.dry_sequence_breakers.resize(limits::kDryBreakersMax); }),
            "accepted");
  EXPECT_THAT(Validated([](P& p) { p.dry_sequence_breakers.resize(limits::kDryBreakersMax + 1); }),
              HasSubstr("'dry_sequence_breakers'"));
  EXPECT_THAT(Validated([](P& p) { p.logit_bias = {{3, static_cast<float>(kNan)}}; }),
              HasSubstr("'logit_bias'"));
  EXPECT_THAT(Validated([](P& p) { p.logit_bias = {{3, static_cast<float>(kInf)}}; }),
              HasSubstr("'logit_bias'"));
  EXPECT_EQ(Validated([](P& p) { p.logit_bias = {{-3, static_cast<float>(-kInf)}}; }), "accepted");
}

TEST(SamplingParamsTest, IgnoreEosBansEveryEndToken) {
  SamplingParams params;
  const TokenId eog[] = {3, 7};
  params.BanEog(eog);
  EXPECT_THAT(params.logit_bias, IsEmpty());
  params.ignore_eos = true;
  params.BanEog(eog);
  ASSERT_EQ(params.logit_bias.size(), 2u);
  EXPECT_EQ(params.logit_bias[1].token, 7);
  EXPECT_EQ(params.logit_bias[1].bias, -std::numeric_limits<float>::infinity());
}

TEST(SamplerNamesTest, EverySpellingOfANameIsTaken) {
  const std::vector<std::string> names = {"penalties", "dry",   "top_n_sigma", "top-k", "typ_p",
                                          "topp",      "min-p", "xtc",         "temp",  "nucleus",
                                          "typical_p", "typ",   "temperature"};
  const SamplerList list = ParseSamplerNames(names);
  EXPECT_THAT(list.unknown, IsEmpty());
  EXPECT_THAT(list.stages,
              ElementsAre(kPenalties, kDry, kTopNSigma, kTopK, kTypicalP, kTopP, kMinP, kXtc,
                          kTemperature, kTopP, kTypicalP, kTypicalP, kTemperature));
}

TEST(SamplerNamesTest, CanonicalNamesComeBack) {
  for (const SamplerStage stage : SamplingParams().samplers) {
    const std::vector<std::string> name = {std::string(SamplerStageName(stage))};
    EXPECT_THAT(ParseSamplerNames(name).stages, ElementsAre(stage));
  }
}

TEST(SamplerNamesTest, LettersNameTheSameStages) {
  EXPECT_THAT(ParseSamplerLetters("edskypmxta").stages,
              ElementsAre(kPenalties, kDry, kTopNSigma, kTopK, kTypicalP, kTopP, kMinP, kXtc,
                          kTemperature, kAdaptiveP));
  EXPECT_THAT(ParseSamplerLetters("k?t").unknown, ElementsAre("?"));
}

TEST(SamplerNamesTest, UnknownNamesAreSkippedAndReported) {
  const std::vector<std::string> names = {"top_k", "tfs_z", ""};
  const SamplerList list = ParseSamplerNames(names);
  EXPECT_THAT(list.stages, ElementsAre(kTopK));
  EXPECT_THAT(list.unknown, ElementsAre("tfs_z", ""));
}

TEST(SamplerNamesTest, KnownButNotOfferedIsRefusedByName) {
  const std::string name = "infill";
  EXPECT_THAT(Refusal([&] { ParseSamplerNames({&name, 1}); }), HasSubstr("Field 'samplers'"));
  EXPECT_THAT(Refusal([] { ParseSamplerLetters("i"); }), HasSubstr("infill"));
}

TEST(SamplerNamesTest, TheListHasALimit) {
  EXPECT_EQ(ParseSamplerLetters(std::string(limits::kSamplersMax, 'k')).stages.size(), 64u);
  EXPECT_THAT(Refusal([] { ParseSamplerLetters(std::string(limits::kSamplersMax + 1, 'k')); }),
              HasSubstr("65"));
}

}  // namespace
}  // namespace bloomery::text
