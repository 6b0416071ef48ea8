// The chain, stage by stage, seen through post_sampling_probs: what survives, and how probable. The
// expected values are counted by hand or computed here from the stage's definition in doubles.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/text/sampling.h"

namespace bloomery::text {
namespace {

using enum SamplerStage;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using Distribution = std::map<TokenId, double>;

std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  logits.reserve(probabilities.size());
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::vector<float> RandomRow(std::mt19937& random, size_t size) {
  UniformStream uniform(static_cast<uint32_t>(random()));
  std::vector<float> row(size);
  for (float& logit : row) logit = static_cast<float>(12.0 * uniform.Next() - 6.0);
  return row;
}

// Parameters with the given stages only, showing all survivors.
SamplingParams Only(std::vector<SamplerStage> stages) {
  SamplingParams params;
  params.samplers = std::move(stages);
  params.temperature = 1.0;
  params.seed = 1;
  params.n_probs = 1000;
  params.post_sampling_probs = true;
  return params;
}

Distribution Survivors(SamplingParams params, const std::vector<float>& logits,
                       const std::vector<TokenId>& history = {},
                       std::shared_ptr<const DryBreakers> breakers = nullptr) {
  params.Validate();
  Sampler sampler(params, {.vocabulary_size = logits.size(), .context = 1000}, std::move(breakers));
  sampler.AcceptPrompt(history);
  Distribution distribution;
  double last = 2.0;
  for (const TokenProbability& entry : sampler.Sample(logits).top) {
    EXPECT_LE(entry.value, last);
    last = entry.value;
    distribution[entry.token] = entry.value;
  }
  return distribution;
}

Distribution Softmax(const std::map<TokenId, double>& logits) {
  double sum = 0.0;
  for (const auto& [token, logit] : logits) sum += std::exp(logit);
  Distribution distribution;
  for (const auto& [token, logit] : logits) distribution[token] = std::exp(logit) / sum;
  return distribution;
}

void ExpectNear(const Distribution& actual, const Distribution& expected, double tolerance = 1e-6) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [token, p] : expected) {
    ASSERT_TRUE(actual.contains(token)) << token;
    EXPECT_NEAR(actual.at(token), p, tolerance) << token;
  }
}

const std::vector<float> kFour = LogitsOf({0.3, 0.5, 0.05, 0.15});  // best first: 1, 0, 3, 2

TEST(SamplerTest, AnEmptyListLeavesTheWholeDistribution) {
  ExpectNear(Survivors(Only({}), kFour), {{0, 0.3}, {1, 0.5}, {2, 0.05}, {3, 0.15}});
}

TEST(SamplerTest, TopKKeepsTheBestWithTiesToTheLowerId) {
  SamplingParams params = Only({kTopK});
  params.top_k = 2;
  ExpectNear(Survivors(params, kFour), {{1, 0.625}, {0, 0.375}});
  ExpectNear(Survivors(params, {1, 2, 1, 1}), Softmax({{1, 2}, {0, 1}}));
  params.top_k = 0;
  EXPECT_EQ(Survivors(params, kFour).size(), 4u);
  params.top_k = 9;
  EXPECT_EQ(Survivors(params, kFour).size(), 4u);
}

TEST(SamplerTest, TopPKeepsTheShortestPrefixOfEnoughMass) {
  SamplingParams params = Only({kTopP});
  params.top_p = 0.7;
  ExpectNear(Survivors(params, kFour), {{1, 0.625}, {0, 0.375}});
  params.top_p = 0.45;
  ExpectNear(Survivors(params, kFour), {{1, 1.0}});
  params.top_p = 0.0;
  ExpectNear(Survivors(params, kFour), {{1, 1.0}});
  params.min_keep = 3;
  EXPECT_EQ(Survivors(params, kFour).size(), 3u);
  params.top_p = 1.0;
  EXPECT_EQ(Survivors(params, kFour).size(), 4u);
}

TEST(SamplerTest, TopPOfAFlatRowOfThousandsCountsPastTheFirstSort) {
  SamplingParams params = Only({kTopP});
  params.top_p = 0.4999;
  const std::vector<float> flat(2000, 1.0f);
  params.n_probs = 2000;
  const Distribution kept = Survivors(params, flat);
  EXPECT_EQ(kept.size(), 1000u);
  EXPECT_EQ(kept.rbegin()->first, 999);  // ties to the lower ids
}

TEST(SamplerTest, MinPKeepsWhatIsProbableBesideTheBest) {
  SamplingParams params = Only({kMinP});
  params.min_p = 0.29;  // 0.145 and more
  ExpectNear(Survivors(params, kFour), {{0, 0.3 / 0.95}, {1, 0.5 / 0.95}, {3, 0.15 / 0.95}});
  params.min_p = 1.0;
  ExpectNear(Survivors(params, kFour), {{1, 1.0}});
  params.min_keep = 2;
  ExpectNear(Survivors(params, kFour), {{1, 0.625}, {0, 0.375}});
  params.min_p = 0.0;
  EXPECT_EQ(Survivors(params, kFour).size(), 4u);
}

TEST(SamplerTest, TypicalPKeepsTheTokensOfUsualSurprise) {
  // Entropy 1.75 bits; surprises 1, 2, 3, 3; distances 0.75, 0.25, 1.25, 1.25.
  const std::vector<float> logits = LogitsOf({0.5, 0.25, 0.125, 0.125});
  SamplingParams params = Only({kTypicalP});
  params.typical_p = 0.2;
  ExpectNear(Survivors(params, logits), {{1, 1.0}});
  params.typical_p = 0.6;
  ExpectNear(Survivors(params, logits), {{0, 2.0 / 3}, {1, 1.0 / 3}});
  params.typical_p = 0.2;
  params.min_keep = 3;
  ExpectNear(Survivors(params, logits), {{0, 4.0 / 7}, {1, 2.0 / 7}, {2, 1.0 / 7}});
}

TEST(SamplerTest, TopNSigmaCutsFarBelowTheBest) {
  // Mean 2, deviations 2, 1, 0, -1, -2: sigma sqrt(2); NaN and -inf are not counted.
  const std::vector<float> logits = {4, 3, kNan, 2, 1, -kInf, 0};
  SamplingParams params = Only({kTopNSigma});
  params.top_n_sigma = 1.35;  // 4 - 1.91 and more (over n - 1 it would be 1.87 and more)
  ExpectNear(Survivors(params, logits), Softmax({{0, 4}, {1, 3}}));
  params.top_n_sigma = 1.5;  // 4 - 2.12
  ExpectNear(Survivors(params, logits), Softmax({{0, 4}, {1, 3}, {3, 2}}));
  params.top_n_sigma = -1.0;
  EXPECT_EQ(Survivors(params, logits).size(), 5u);
}

TEST(SamplerTest, XtcDropsAllProbableTokensButTheLast) {
  SamplingParams params = Only({kXtc});
  params.xtc_probability = 1.0;
  params.xtc_threshold = 0.2;  // 1 and 0 are probable: 1 goes
  ExpectNear(Survivors(params, kFour), {{0, 0.6}, {2, 0.1}, {3, 0.3}});
  params.xtc_threshold = 0.1;  // 1, 0 and 3: 1 and 0 go
  ExpectNear(Survivors(params, kFour), {{2, 0.25}, {3, 0.75}});
  params.min_keep = 3;  // only two would be left
  EXPECT_EQ(Survivors(params, kFour).size(), 4u);
  params.min_keep = 0;
  params.xtc_threshold = 0.4;  // 1 alone
  EXPECT_EQ(Survivors(params, kFour).size(), 4u);
  params.xtc_threshold = 0.51;  // two cannot be above it
  EXPECT_EQ(Survivors(params, kFour).size(), 4u);
}

TEST(SamplerTest, XtcActsAsOftenAsItsProbabilityAndLeavesTheMainStreamAlone) {
  SamplingParams params = Only({kXtc});
  params.xtc_probability = 0.25;
  params.xtc_threshold = 0.2;
  Sampler sampler(params, {.vocabulary_size = 4, .context = 10});
  int acted = 0;
  for (int i = 0; i < 4000; ++i) acted += sampler.Sample(kFour).top.size() == 3 ? 1 : 0;
  EXPECT_NEAR(acted, 1000, 110);  // four standard deviations

  params.xtc_threshold = 0.4;  // draws, never cuts
  params.samplers = {kTopK, kXtc};
  params.top_k = 3;
  Sampler with(params, {.vocabulary_size = 4, .context = 10});
  params.samplers = {kTopK};
  Sampler without(params, {.vocabulary_size = 4, .context = 10});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(with.Sample(kFour).token, without.Sample(kFour).token);
}

TEST(SamplerTest, TemperatureDividesLogits) {
  SamplingParams params = Only({kTemperature});
  params.temperature = 0.5;  // squares the probabilities
  const double sum = 0.09 + 0.25 + 0.0025 + 0.0225;
  ExpectNear(Survivors(params, kFour),
             {{0, 0.09 / sum}, {1, 0.25 / sum}, {2, 0.0025 / sum}, {3, 0.0225 / sum}});
}

TEST(SamplerTest, VanishingTemperatureIsTheBestTokenNotAnOverflow) {
  SamplingParams params = Only({kTemperature});
  params.temperature = 1e-300;
  ExpectNear(Survivors(params, {-5, -3, -4}), {{1, 1.0}});
}

TEST(SamplerTest, DynamicTemperatureFollowsTheEntropy) {
  SamplingParams params = Only({kTemperature});
  params.temperature = 1.0;
  params.dynatemp_range = 0.5;
  params.dynatemp_exponent = 2.0;
  double entropy = 0.0;
  for (const double p : {0.3, 0.5, 0.05, 0.15}) entropy -= p * std::log(p);
  const double t = 0.5 + 1.0 * std::pow(entropy / std::log(4.0), 2.0);
  std::map<TokenId, double> scaled;
  for (TokenId token = 0; token < 4; ++token) scaled[token] = kFour[static_cast<size_t>(token)] / t;
  ExpectNear(Survivors(params, kFour), Softmax(scaled));
}

TEST(SamplerTest, StagesRunInTheOrderOfTheList) {
  SamplingParams params = Only({kTemperature, kTopP});
  params.temperature = 0.5;
  params.top_p = 0.6;
  EXPECT_EQ(Survivors(params, kFour).size(), 1u);  // 0.25 of 0.365 after squaring
  params.samplers = {kTopP, kTemperature};
  EXPECT_EQ(Survivors(params, kFour).size(), 2u);
}

TEST(SamplerTest, PenaltiesCountTheWindow) {
  SamplingParams params = Only({kPenalties});
  params.repeat_penalty = 2.0;
  params.frequency_penalty = 0.25;
  params.presence_penalty = 0.5;
  params.repeat_last_n = 4;
  // The window is 0, 1, 0, 9: the 2 before it is out, and 9 is no token of this vocabulary.
  const std::vector<TokenId> history = {2, 0, 1, 0, 9};
  ExpectNear(
      Survivors(params, {3.0f, -1.0f, 1.0f, 0.0f}, history),
      Softmax({{0, 3.0 / 2 - 2 * 0.25 - 0.5}, {1, -1.0 * 2 - 0.25 - 0.5}, {2, 1.0}, {3, 0.0}}));
  params.repeat_last_n = 0;
  ExpectNear(Survivors(params, {3.0f, -1.0f, 1.0f, 0.0f}, history),
             Softmax({{0, 3.0}, {1, -1.0}, {2, 1.0}, {3, 0.0}}));
}

TEST(SamplerTest, PenaltiesAfterACutReachTheSurvivorsOnly) {
  SamplingParams params = Only({kTopK, kPenalties});
  params.top_k = 2;
  params.presence_penalty = 1.5;
  ExpectNear(Survivors(params, {3.0f, 2.0f, 1.0f}, {0, 2}), Softmax({{0, 1.5}, {1, 2.0}}));
}

TEST(SamplerTest, TheHistoryIsARingOfTheLongestWindow) {
  SamplingParams params = Only({kPenalties});
  params.presence_penalty = 1.0;
  params.repeat_last_n = 3;
  Sampler sampler(params, {.vocabulary_size = 8, .context = 100});
  for (const TokenId token : {0, 1, 2, 3, 4}) sampler.Accept(token);  // 2, 3, 4 are left
  Distribution seen;
  for (const auto& entry : sampler.Sample(std::vector<float>(8, 1.0f)).top) {
    seen[entry.token] = entry.value;
  }
  ExpectNear(seen, Softmax({{0, 1}, {1, 1}, {2, 0}, {3, 0}, {4, 0}, {5, 1}, {6, 1}, {7, 1}}));
}

// The definition of DRY's match: how many tokens before place `end` (exclusive) equal those at the
// history's end, looking back at most `reach`.
size_t MatchBefore(const std::vector<TokenId>& history, size_t end, size_t reach) {
  size_t length = 0;
  while (length < end && length < reach &&
         history[end - 1 - length] == history[history.size() - 1 - length]) {
    ++length;
  }
  return length;
}

TEST(SamplerTest, DryPunishesTheTokenThatWouldExtendARepetition) {
  // 1 2 3 was followed by 4; now 1 2 3 stands at the end again: a match of 3, allowed 2.
  SamplingParams params = Only({kDry});
  params.dry_multiplier = 0.5;
  params.dry_base = 2.0;
  params.dry_allowed_length = 2;
  const std::vector<float> logits(6, 1.0f);
  ExpectNear(Survivors(params, logits, {1, 2, 3, 4, 0, 1, 2, 3}),
             Softmax({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1 - 0.5 * 2.0}, {5, 1}}));
  // A match of exactly 2 costs the multiplier itself; of 1 nothing.
  ExpectNear(Survivors(params, logits, {2, 3, 4, 0, 2, 3}),
             Softmax({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1 - 0.5}, {5, 1}}));
  ExpectNear(Survivors(params, logits, {3, 4, 0, 3}),
             Softmax({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}}));
}

TEST(SamplerTest, DryEqualsItsDefinitionOnRandomHistories) {
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    SamplingParams params = Only({kDry});
    params.dry_multiplier = 0.3;
    params.dry_base = 1.5;
    params.dry_allowed_length = static_cast<int64_t>(random() % 4);
    params.dry_penalty_last_n = static_cast<int64_t>(1 + random() % 40);
    std::vector<TokenId> history(random() % 50);
    for (TokenId& token : history) token = static_cast<TokenId>(random() % 3);
    std::vector<TokenId> window = history;
    if (window.size() > static_cast<size_t>(params.dry_penalty_last_n)) {
      window.erase(window.begin(), window.end() - params.dry_penalty_last_n);
    }
    std::map<TokenId, double> expected = {{0, 1.0}, {1, 1.0}, {2, 1.0}, {3, 1.0}};
    const auto allowed = static_cast<size_t>(params.dry_allowed_length);
    std::map<TokenId, size_t> longest;
    for (size_t end = 1; window.size() > allowed && end < window.size(); ++end) {
      const size_t length = MatchBefore(window, end, window.size());
      if (length < allowed) continue;
      auto [entry, added] = longest.emplace(window[end], length);
      if (!added) entry->second = std::max(entry->second, length);
    }
    for (const auto& [token, length] : longest) {
      expected[token] -= 0.3 * std::pow(1.5, static_cast<double>(length - allowed));
    }
    ExpectNear(Survivors(params, std::vector<float>(4, 1.0f), history), Softmax(expected));
  }
}

TEST(SamplerTest, LogitBiasAddsBansAndIgnoresUnknownIds) {
  SamplingParams params = Only({});
  params.logit_bias = {{1, -kInf}, {0, 1.5f}, {99, 5.0f}, {-1, 5.0f}};
  ExpectNear(Survivors(params, {0, 9, 1}), Softmax({{0, 1.5}, {2, 1.0}}));
}

TEST(SamplerTest, DrawsFollowTheDistribution) {
  SamplingParams params = Only({});
  params.n_probs = 0;
  const std::vector<double> p = {0.25, 0.2, 0.15, 0.12, 0.1, 0.08, 0.06, 0.04};
  const std::vector<float> logits = LogitsOf(p);
  Sampler sampler(params, {.vocabulary_size = p.size(), .context = 1});
  constexpr int kDraws = 40'000;
  std::vector<int> seen(p.size());
  for (int i = 0; i < kDraws; ++i) ++seen[static_cast<size_t>(sampler.Sample(logits).token)];
  double chi_square = 0.0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * kDraws;
    chi_square += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  EXPECT_LT(chi_square, 24.3);  // 7 degrees of freedom, one in a thousand
}

TEST(SamplerTest, TheStreamIsTheKnownMersenneTwisterOf53Bits) {
  // The first doubles of MT19937 seeded with 0, as NumPy's RandomState(0) prints them.
  UniformStream stream(0);
  EXPECT_DOUBLE_EQ(stream.Next(), 0.5488135039273248);
  EXPECT_DOUBLE_EQ(stream.Next(), 0.7151893663724195);
  EXPECT_DOUBLE_EQ(stream.Next(), 0.6027633760716439);
}

TEST(SamplerTest, TheFirstTokenWhoseRunningSumReachesTheUniformIsDrawn) {
  // Seed 0 draws 0.549, 0.715, 0.603: in id order the sums are 0.3, 0.8, 0.85, 1.
  SamplingParams params = Only({});
  params.seed = 0;
  Sampler by_id(params, {.vocabulary_size = 4, .context = 1});
  EXPECT_EQ(by_id.Sample(kFour).token, 1);
  EXPECT_EQ(by_id.Sample(kFour).token, 1);
  // Sorted, best first, the sums are 0.5, 0.8, 0.95, 1: token 0 is second.
  params.samplers = {kTopK};
  params.top_k = 3;  // of 0.95: 0.526, 0.842, 1
  Sampler sorted(params, {.vocabulary_size = 4, .context = 1});
  EXPECT_EQ(sorted.Sample(kFour).token, 0);
  EXPECT_EQ(sorted.Sample(kFour).token, 0);
}

TEST(SamplerTest, OneSeedGivesOneSequenceAndOthersDiffer) {
  std::mt19937 random(4);
  std::vector<std::vector<float>> rows;
  rows.reserve(64);
  for (int i = 0; i < 64; ++i) rows.push_back(RandomRow(random, 500));
  const auto run = [&rows](uint32_t seed) {
    SamplingParams params;
    params.temperature = 1.5;
    params.seed = seed;
    Sampler sampler(params, {.vocabulary_size = 500, .context = 100});
    std::vector<TokenId> tokens;
    for (const auto& row : rows) {
      tokens.push_back(sampler.Sample(row).token);
      sampler.Accept(tokens.back());
    }
    return tokens;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
  EXPECT_NE(run(kRandomSeed), run(kRandomSeed));
}

TEST(SamplerTest, ACopyDrawsTheSameTokens) {
  SamplingParams params = Only({kTopK, kTemperature});
  Sampler sampler(params, {.vocabulary_size = 4, .context = 1});
  sampler.Sample(kFour);
  Sampler copy = sampler;
  for (int i = 0; i < 50; ++i) EXPECT_EQ(copy.Sample(kFour).token, sampler.Sample(kFour).token);
}

TEST(SamplerTest, TopKOneEqualsGreedyWithPenaltiesAndAllStages) {
  std::mt19937 random(12);
  SamplingParams params;
  params.repeat_penalty = 1.3;
  params.presence_penalty = 0.4;
  params.dry_multiplier = 0.8;
  params.top_k = 1;
  SamplingParams greedy_params = params;
  greedy_params.temperature = 0.0;
  greedy_params.top_k = 40;
  Sampler one(params, {.vocabulary_size = 50, .context = 100});
  Sampler greedy(greedy_params, {.vocabulary_size = 50, .context = 100});
  EXPECT_EQ(greedy.best_needed(), 0U);
  for (int i = 0; i < 300; ++i) {
    std::vector<float> row = RandomRow(random, 50);
    for (float& logit : row) logit = std::round(logit);  // ties
    const TokenId token = greedy.Sample(row).token;
    ASSERT_EQ(one.Sample(row).token, token);
    one.Accept(token);
    greedy.Accept(token);
  }
}

// A chain that begins with top-k, or greedy: the best of a row are all that a draw looks at.
TEST(SamplerTest, TheBestOfARowGiveTheTokensOfTheWholeRow) {
  std::mt19937 random(21);
  for (const double temperature : {0.0, 0.8, 1.3}) {
    for (const bool probabilities : {false, true}) {
      SamplingParams params;
      params.seed = 5;
      params.temperature = temperature;
      params.top_k = 12;
      params.typical_p = 0.9;
      params.n_probs = probabilities && temperature > 0 ? 3 : 0;
      params.post_sampling_probs = probabilities;
      Sampler whole(params, {.vocabulary_size = 200, .context = 1});
      Sampler few(params, {.vocabulary_size = 200, .context = 1});
      ASSERT_EQ(few.best_needed(), temperature > 0 ? 12U : 1U);
      for (int i = 0; i < 200; ++i) {
        std::vector<float> row = RandomRow(random, 200);
        for (float& logit : row) logit = std::round(2 * logit) / 2;  // ties
        row[7] = kNan;
        row[9] = -kInf;
        std::vector<Candidate> best;
        SelectBest(row, 16, best);
        const Sampled a = whole.Sample(row);
        const Sampled b = few.SampleBest(best);
        ASSERT_EQ(a.token, b.token);
        ASSERT_EQ(a.value, b.value);
        ASSERT_EQ(a.top.size(), b.top.size());
      }
    }
  }
}

// Bans and other biases that only lower: as many more of the best make up for them.
TEST(SamplerTest, TheBestOfARowGiveTheTokensOfTheWholeRowUnderBiasesThatLower) {
  std::mt19937 random(22);
  for (const double temperature : {0.0, 0.8, 1.3}) {
    SamplingParams params;
    params.seed = 5;
    params.temperature = temperature;
    params.top_k = 12;
    params.top_p = 1.0;
    params.min_p = 0.0;
    params.n_probs = temperature > 0 ? 12 : 0;
    params.post_sampling_probs = true;
    // Five tokens, one of them twice; what is no token of the vocabulary counts for nothing.
    params.logit_bias = {{3, -kInf}, {4, -1.0},   {5, -0.25F}, {4, -0.5},
                         {6, 0.0},   {8, -1e38F}, {200, 2.0},  {-1, 2.0}};
    const size_t needed = (temperature > 0 ? 12U : 1U) + 5U;
    Sampler whole(params, {.vocabulary_size = 200, .context = 1});
    Sampler few(params, {.vocabulary_size = 200, .context = 1});
    ASSERT_EQ(few.best_needed(), needed);
    for (int i = 0; i < 400; ++i) {
      std::vector<float> row = RandomRow(random, 200);
      for (float& logit : row) logit = std::round(2 * logit) / 2;  // ties
      // All biased tokens are at or near the top, so that each takes a place and loses it.
      for (size_t id = 3; id < 9; ++id) row[id] = i % 2 == 0 ? 6.5F : 6.0F;
      row[7] = kNan;
      row[9] = -kInf;
      std::vector<Candidate> best;
      SelectBest(row, needed + (i % 3 == 0 ? 4 : 0), best);
      const Sampled a = whole.Sample(row);
      const Sampled b = few.SampleBest(best);
      ASSERT_EQ(a.token, b.token);
      ASSERT_EQ(a.value, b.value);
      ASSERT_EQ(a.top.size(), b.top.size());
      for (size_t place = 0; place < a.top.size(); ++place) {
        ASSERT_EQ(a.top[place].token, b.top[place].token);
        ASSERT_EQ(a.top[place].value, b.top[place].value);
      }
    }
  }
}

TEST(SamplerTest, TheBestOfARowAllBannedAreRefusedAsTheWholeRowIs) {
  for (const double temperature : {0.0, 1.0}) {
    SamplingParams params;
    params.temperature = temperature;
    params.top_k = 2;
    params.logit_bias = {{0, -kInf}, {1, -kInf}, {2, -kInf}, {3, -kInf}};
    Sampler whole(params, {.vocabulary_size = 4, .context = 1});
    Sampler few(params, {.vocabulary_size = 4, .context = 1});
    std::vector<Candidate> best;
    SelectBest(kFour, 64, best);
    EXPECT_THROW(whole.Sample(kFour), Error);
    EXPECT_THROW(few.SampleBest(best), Error);
  }
}

TEST(SamplerTest, ChainsThatLookAtTheWholeRowSaySo) {
  const auto needed = [](auto change) {
    SamplingParams params;
    params.seed = 1;
    change(params);
    return Sampler(params, {.vocabulary_size = 50, .context = 8}).best_needed();
  };
  EXPECT_EQ(needed([](SamplingParams&) {}), 40U);  // the default chain begins with top-k
  EXPECT_EQ(needed([](SamplingParams& p) { p.top_k = 0; }), 0U);
  EXPECT_EQ(needed([](SamplingParams& p) { p.repeat_penalty = 1.1; }), 0U);
  EXPECT_EQ(needed([](SamplingParams& p) { p.dry_multiplier = 0.5; }), 0U);
  EXPECT_EQ(needed([](SamplingParams& p) { p.top_n_sigma = 1.0; }), 0U);
  EXPECT_EQ(needed([](SamplingParams& p) { p.mirostat = 2; }), 0U);
  EXPECT_EQ(needed([](SamplingParams& p) { p.n_probs = 2; }), 0U);
  EXPECT_EQ(needed([](SamplingParams& p) { p.logit_bias = {{3, 1.0}}; }), 0U);
  EXPECT_EQ(needed([](SamplingParams& p) { p.logit_bias = {{3, -kInf}, {4, 1e-9F}}; }), 0U);
  EXPECT_EQ(needed([](SamplingParams& p) { p.logit_bias = {{3, -kInf}, {4, -1}}; }), 42U);
  EXPECT_EQ(needed([](SamplingParams& p) { p.samplers = {kTopP, kTopK, kTemperature}; }), 0U);
}

TEST(SamplerTest, GreedyIsTheArgmaxWhateverCutsAndDrawsAreSet) {
  SamplingParams params;
  params.temperature = 0.0;
  params.xtc_probability = 1.0;
  params.typical_p = 0.1;
  params.dynatemp_range = 2.0;
  Sampler sampler(params, {.vocabulary_size = 4, .context = 1});
  EXPECT_EQ(sampler.best_needed(), 1U);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sampler.Sample(kFour).token, 1);
  EXPECT_EQ(sampler.Sample(std::vector<float>{2, kNan, 2, 1}).token, 0);
}

TEST(SamplerTest, GreedyObeysBiasAndPenalties) {
  SamplingParams params;
  params.temperature = 0.0;
  params.logit_bias = {{1, -kInf}};
  Sampler banned(params, {.vocabulary_size = 4, .context = 9});
  EXPECT_EQ(banned.Sample(kFour).token, 0);
  params.logit_bias.clear();
  params.presence_penalty = 1.0;
  Sampler penalised(params, {.vocabulary_size = 4, .context = 9});
  penalised.Accept(1);
  EXPECT_EQ(penalised.Sample(kFour).token, 0);
  params.samplers = {kTopK};  // penalties are not listed
  Sampler unlisted(params, {.vocabulary_size = 4, .context = 9});
  unlisted.Accept(1);
  EXPECT_EQ(unlisted.Sample(kFour).token, 1);
}

TEST(SamplerTest, LogProbabilitiesAreOfTheRawRow) {
  SamplingParams params = Only({kTopK, kTemperature});
  params.post_sampling_probs = false;
  params.n_probs = 3;
  params.top_k = 1;
  params.temperature = 3.0;
  params.logit_bias = {{1, -kInf}};
  Sampler sampler(params, {.vocabulary_size = 5, .context = 9});
  // A row of ties: 1 and 3, 0 and 4.
  const std::vector<float> row = {1, 2, 0, 2, 1};
  const Sampled sampled = sampler.Sample(row);
  const double sum = 2 * std::exp(2.0) + 2 * std::exp(1.0) + 1;
  EXPECT_EQ(sampled.token, 3);
  EXPECT_NEAR(sampled.value, 2 - std::log(sum), 1e-12);
  ASSERT_EQ(sampled.top.size(), 3u);
  EXPECT_EQ(sampled.top[0].token, 1);
  EXPECT_EQ(sampled.top[1].token, 3);
  EXPECT_EQ(sampled.top[2].token, 0);
  EXPECT_NEAR(sampled.top[2].value, 1 - std::log(sum), 1e-12);
}

TEST(SamplerTest, MoreAlternativesThanTokensGiveAllTokens) {
  SamplingParams params = Only({});
  params.post_sampling_probs = false;
  params.n_probs = INT64_MAX;
  Sampler sampler(params, {.vocabulary_size = 4, .context = 9});
  EXPECT_EQ(sampler.Sample(kFour).top.size(), 4u);
}

TEST(SamplerTest, GreedyPostSamplingIsOneCertainToken) {
  SamplingParams params = Only({kTemperature});
  params.temperature = 0.0;
  ExpectNear(Survivors(params, kFour), {{1, 1.0}});
}

TEST(SamplerTest, PostSamplingLeavesOutZeroProbabilities) {
  ExpectNear(Survivors(Only({}), {0, -2000, 0}), {{0, 0.5}, {2, 0.5}});
}

ErrorKind KindOf(const SamplingParams& params, const std::vector<float>& row) {
  Sampler sampler(params, {.vocabulary_size = 3, .context = 9});
  try {
    sampler.Sample(row);
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::kCancelled;  // none
}

TEST(SamplerTest, RowsWithoutADistributionAreNamedErrors) {
  for (const double temperature : {0.0, 1.0}) {
    SamplingParams params = Only({kTopK, kTemperature});
    params.temperature = temperature;
    params.n_probs = 0;
    EXPECT_EQ(KindOf(params, {-kInf, -kInf, -kInf}), ErrorKind::kInternal);
    EXPECT_EQ(KindOf(params, {kNan, kNan, kNan}), ErrorKind::kInternal);
    EXPECT_EQ(KindOf(params, {0, kInf, 0}), ErrorKind::kInternal);
    EXPECT_EQ(KindOf(params, {0, 1}), ErrorKind::kInternal);  // another vocabulary's row
    EXPECT_EQ(KindOf(params, {0, kNan, 0}), ErrorKind::kCancelled);
    params.logit_bias = {{0, -kInf}, {1, -kInf}, {2, -kInf}};
    EXPECT_EQ(KindOf(params, {0, 1, 2}), ErrorKind::kBadRequest);
    params.logit_bias.clear();
    params.n_probs = 1;
    params.post_sampling_probs = false;
    EXPECT_EQ(KindOf(params, {0, kNan, 0}), ErrorKind::kInternal);
  }
}

// Mirostat by the paper's steps on plain sorted vectors, with the same uniforms.
class PlainMirostat {
 public:
  PlainMirostat(int version, uint32_t seed) : version_(version), uniform_(seed) {}

  TokenId Next(const std::vector<float>& row) {
    std::vector<std::pair<double, TokenId>> sorted;
    double sum = 0.0;
    for (size_t i = 0; i < row.size(); ++i) {
      sorted.emplace_back(-std::exp(double{row[i]}), static_cast<TokenId>(i));
      sum += std::exp(double{row[i]});
    }
    std::sort(sorted.begin(), sorted.end());
    for (auto& [p, token] : sorted) p /= -sum;
    size_t keep = 0;
    if (version_ == 1) {
      double tb = 0.0;
      double tt = 0.0;
      for (size_t i = 0; i < 99 && i + 1 < sorted.size(); ++i) {
        const double t = std::log((static_cast<double>(i) + 2) / (static_cast<double>(i) + 1));
        tb += t * std::log(sorted[i].first / sorted[i + 1].first);
        tt += t * t;
      }
      const double s = tb / tt;
      const double e = s - 1;
      const double n = static_cast<double>(row.size());
      const double k = std::pow(e * std::pow(2, mu_) / (1 - std::pow(n, -e)), 1 / s);
      keep = static_cast<size_t>(std::max(1.0, std::min(n, k)));
    } else {
      while (keep < sorted.size() && -std::log2(sorted[keep].first) <= mu_) ++keep;
      keep = std::max<size_t>(keep, 1);
    }
    sorted.resize(keep);
    if (version_ == 2) {  // this one keeps the order of ids
      std::sort(sorted.begin(), sorted.end(),
                [](const auto& a, const auto& b) { return a.second < b.second; });
    }
    double kept = 0.0;
    for (const auto& [p, token] : sorted) kept += p;
    const double target = uniform_.Next() * kept;
    double running = 0.0;
    size_t chosen = 0;
    for (; chosen + 1 < sorted.size(); ++chosen) {
      running += sorted[chosen].first;
      if (running >= target) break;
    }
    mu_ -= 0.1 * (-std::log2(sorted[chosen].first / kept) - 5.0);
    return sorted[chosen].second;
  }

 private:
  int version_;
  double mu_ = 10.0;
  UniformStream uniform_;
};

TEST(SamplerTest, MirostatEqualsThePaperOnRandomRows) {
  for (const int version : {1, 2}) {
    std::mt19937 random(21);
    SamplingParams params = Only({kTopK});  // replaced
    params.top_k = 1;
    params.mirostat = version;
    params.seed = 3;
    params.n_probs = 0;
    Sampler sampler(params, {.vocabulary_size = 300, .context = 9});
    PlainMirostat plain(version, 3);
    for (int i = 0; i < 200; ++i) {
      const std::vector<float> row = RandomRow(random, 300);
      ASSERT_EQ(sampler.Sample(row).token, plain.Next(row)) << version << " at " << i;
    }
  }
}

TEST(SamplerTest, MirostatSurvivesRowsOfOneTokenAndFlatRows) {
  for (const int version : {1, 2}) {
    SamplingParams params = Only({});
    params.mirostat = version;
    Sampler sampler(params, {.vocabulary_size = 4, .context = 9});
    EXPECT_EQ(sampler.Sample(std::vector<float>{-kInf, 1, -kInf, kNan}).token, 1);
    for (int i = 0; i < 100; ++i) {
      const TokenId token = sampler.Sample(std::vector<float>(4, 0.0f)).token;
      EXPECT_TRUE(token >= 0 && token < 4);
    }
  }
}

}  // namespace
}  // namespace bloomery::text
