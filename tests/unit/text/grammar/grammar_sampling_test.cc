// The sampler with a grammar: which rows are drawn again, from what, and that the best of a row
// give the same token as the whole.
#include <cmath>
#include <map>
#include <random>

#include "runtime/text/sampling.h"
#include "tests/unit/text/grammar/grammar_test_support.h"

namespace bloomery::text {
namespace {

class GrammarSamplingTest : public GrammarFixture {
 protected:
  std::vector<float> Row(uint32_t seed) {
    UniformStream uniform(seed);
    std::vector<float> row(tokenizer_.size());
    for (float& logit : row) logit = static_cast<float>(8.0 * uniform.Next());
    return row;
  }
  Sampler Make(SamplingParams params) {
    params.Validate();
    return Sampler(params, {.vocabulary_size = tokenizer_.size(), .context = 100});
  }
};

TEST_F(GrammarSamplingTest, GreedyTakesTheBestAllowedToken) {
  SamplingParams params;
  params.temperature = 0;
  std::vector<float> row(tokenizer_.size(), 0.0f);
  row['z'] = 9.0f;
  row['b'] = 5.0f;
  row['c'] = 4.0f;
  GrammarState state = State("root ::= [abc]+");
  EXPECT_EQ(Make(params).Sample(row, &state).token, 'b');
  row['a'] = 5.0f;
  EXPECT_EQ(Make(params).Sample(row, &state).token, 'a') << "ties to the lower id";
  params.logit_bias = {{'a', -100.0f}, {'b', -100.0f}};
  EXPECT_EQ(Make(params).Sample(row, &state).token, 'c');
}

TEST_F(GrammarSamplingTest, AnAllowedDrawIsLeftAlone) {
  // The same seeds with and without a grammar that takes all.
  SamplingParams params;
  params.seed = 5;
  Sampler with = Make(params);
  Sampler without = Make(params);
  for (uint32_t n = 0; n < 50; ++n) {
    GrammarState state = State("root ::= !<think>*");
    std::vector<float> row = Row(n);
    row[kThink] = row[kEnd] = -1e9f;
    EXPECT_EQ(with.Sample(row, &state).token, without.Sample(row).token);
  }
}

TEST_F(GrammarSamplingTest, ARefusedDrawIsMadeAgainThroughTheWholeChain) {
  // Top-k 2 first takes y and z, which are refused; then b and c, never a.
  SamplingParams params;
  params.top_k = 2;
  params.top_p = 1;
  params.min_p = 0;
  params.seed = 11;
  std::vector<float> row(tokenizer_.size(), -20.0f);
  row['z'] = row['y'] = 9.0f;
  row['c'] = 2.0f;
  row['b'] = 2.0f + static_cast<float>(std::log(3.0) * params.temperature);
  row['a'] = 1.9f;
  Sampler sampler = Make(params);
  std::map<TokenId, int> counts;
  for (int n = 0; n < 4000; ++n) {
    GrammarState state = State("root ::= [abc]");
    ++counts[sampler.Sample(row, &state).token];
  }
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_NEAR(counts['b'], 3000, 140);  // five deviations
}

TEST_F(GrammarSamplingTest, TheBestOfARowGiveTheSameTokens) {
  const char* grammars[] = {"root ::= [a-z]+", "root ::= [a-m0-9 ]* \"!\"", "root ::= .*",
                            "root ::= [x]+"};
  for (const char* gbnf : grammars) {
    for (const int64_t top_k : {0, 4, 20}) {
      SamplingParams params;
      params.seed = 77;
      params.temperature = top_k == 0 ? 0.0 : 1.0;
      params.top_k = std::max<int64_t>(top_k, 1);
      Sampler whole = Make(params);
      Sampler few = Make(params);
      GrammarState one = State(gbnf);
      GrammarState two = State(gbnf);
      int again = 0;
      for (uint32_t n = 0; n < 200; ++n) {
        const std::vector<float> row = Row(n);
        const TokenId expected = whole.Sample(row, &one).token;
        std::vector<Candidate> best;
        SelectBest(row, 64, best);
        TokenId token = few.SampleBest(best, &two).token;
        if (token == kNoToken) {
          ++again;
          token = few.SampleAllowed(row, two).token;
        }
        ASSERT_EQ(token, expected) << gbnf << ' ' << top_k << ' ' << n;
      }
      if (std::string_view(gbnf) == "root ::= .*") {
        EXPECT_LT(again, 200);
      }
    }
  }
}

// Just as many allowed tokens as a cut keeps, once the bans are out: no cut is made in the whole
// row.
TEST_F(GrammarSamplingTest, TheBestOfARowGiveTheSameTokensWhereTheGrammarLeavesNothingToCut) {
  constexpr float kBan = -std::numeric_limits<float>::infinity();
  for (const char* gbnf : {"root ::= [abcdefg]", "root ::= [abcdefgh]", "root ::= [abcdefghi]"}) {
    for (const bool bans : {false, true}) {
      SamplingParams params;
      params.seed = 78;
      params.temperature = 1.0;
      params.top_k = 7;
      params.top_p = 1.0;
      params.min_p = 0.0;
      if (bans) params.logit_bias = {{'b', kBan}, {'x', kBan}};
      Sampler whole = Make(params);
      Sampler few = Make(params);
      GrammarState one = State(gbnf);
      GrammarState two = State(gbnf);
      ASSERT_EQ(few.best_needed(), bans ? 9U : 7U);
      for (uint32_t n = 0; n < 100; ++n) {
        std::vector<float> row = Row(n);
        for (size_t id = 'a'; id <= 'i'; ++id) row[id] += 7.0f;
        row['x'] = row['y'] = 15.0f;  // refused at first
        const TokenId expected = whole.Sample(row, &one).token;
        std::vector<Candidate> best;
        SelectBest(row, 64, best);
        TokenId token = few.SampleBest(best, &two).token;
        if (token == kNoToken) token = few.SampleAllowed(row, two).token;
        ASSERT_EQ(token, expected) << gbnf << ' ' << bans << ' ' << n;
      }
    }
  }
}

TEST_F(GrammarSamplingTest, NothingLeftIsAnError) {
  SamplingParams params;
  params.logit_bias = {{'a', -std::numeric_limits<float>::infinity()}};
  GrammarState state = State("root ::= \"a\"");
  const std::vector<float> row = Row(1);
  EXPECT_THROW(Make(params).Sample(row, &state), Error);
}

TEST(AdaptiveP, DrawsComeCloseToTheTarget) {
  // Tokens of probability 0.5, 0.3, 0.15, 0.05: each is the target once.
  const std::vector<double> probabilities = {0.5, 0.3, 0.15, 0.05};
  std::vector<float> row;
  for (const double p : probabilities) row.push_back(static_cast<float>(std::log(p)));
  const auto average = [&](double target) {
    SamplingParams params;
    params.samplers = {SamplerStage::kAdaptiveP};
    params.adaptive_target = target;
    params.seed = 9;
    params.Validate();
    Sampler sampler(params, {.vocabulary_size = row.size(), .context = 100});
    double sum = 0.0;
    for (int n = 0; n < 4000; ++n) {
      const TokenId token = sampler.Sample(row).token;
      sampler.Accept(token);
      sum += probabilities[static_cast<size_t>(token)];
    }
    return sum / 4000;
  };
  for (const double target : {0.15, 0.3, 0.4}) EXPECT_NEAR(average(target), target, 0.06) << target;
}

TEST(AdaptiveP, BelowZeroItDrawsAsWithoutIt) {
  SamplingParams params;
  params.seed = 4;
  params.Validate();
  SamplingParams listed = params;
  listed.samplers.push_back(SamplerStage::kAdaptiveP);
  Sampler one(params, {.vocabulary_size = 50, .context = 10});
  Sampler two(listed, {.vocabulary_size = 50, .context = 10});
  UniformStream uniform(8);
  for (int n = 0; n < 100; ++n) {
    std::vector<float> row(50);
    for (float& logit : row) logit = static_cast<float>(6.0 * uniform.Next());
    EXPECT_EQ(one.Sample(row).token, two.Sample(row).token);
  }
}

}  // namespace
}  // namespace bloomery::text
