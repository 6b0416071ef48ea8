#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/limits.h"
#include "runtime/text/sampling.h"
#include "runtime/text/tokenizer.h"
#include "tests/unit/text/small_vocabulary.h"

namespace bloomery::text {
namespace {

class DryBreakersTest : public ::testing::Test {
 protected:
  DryBreakers Make(const std::vector<std::string>& strings) { return {tokenizer_, strings}; }
  Tokenizer tokenizer_{SmallVocabulary()};
};

TEST_F(DryBreakersTest, TokensThatContainTheStringAreBreakers) {
  const DryBreakers breakers = Make({"e", ""});
  EXPECT_TRUE(breakers.IsBreaker('e'));
  EXPECT_TRUE(breakers.IsBreaker(SmallIds::kHe));
  EXPECT_TRUE(breakers.IsBreaker(SmallIds::kHell));
  EXPECT_FALSE(breakers.IsBreaker('h'));
  const TokenId newest_first[] = {'h', SmallIds::kHe, 'x'};
  EXPECT_EQ(breakers.TailLength(newest_first, 0), -1);
  EXPECT_EQ(breakers.TailLength(newest_first, 1), 0);
}

TEST_F(DryBreakersTest, ABreakerOfSeveralTokensNeedsItsTail) {
  const DryBreakers breakers = Make({"abcx"});  // ab, c, x: or a, bc, x
  EXPECT_FALSE(breakers.IsBreaker(SmallIds::kAb));
  // Newest first: the text ends "…ab c x".
  const TokenId whole[] = {'x', 'c', SmallIds::kAb, 'y'};
  EXPECT_EQ(breakers.TailLength(whole, 2), 2);
  EXPECT_EQ(breakers.TailLength(whole, 0), -1);
  const TokenId other_cut[] = {'x', SmallIds::kBc, 'a'};
  EXPECT_EQ(breakers.TailLength(other_cut, 2), 2);
  const TokenId unfinished[] = {'c', SmallIds::kAb, 'y'};
  EXPECT_EQ(breakers.TailLength(unfinished, 1), -1);
  // What lies before the window does not count.
  EXPECT_EQ(breakers.TailLength(std::span(whole).subspan(2), 0), -1);
}

TEST_F(DryBreakersTest, LongStringsAreCutAtTheLimit) {
  std::string text(limits::kDryBreakerBytesMax, '1');
  const DryBreakers breakers = Make({text + "zzz"});
  std::vector<TokenId> newest_first(limits::kDryBreakerBytesMax, '1');
  // One head and a tail of at most the limit's tokens, none of them a z.
  EXPECT_EQ(breakers.TailLength(newest_first, newest_first.size() - 1),
            static_cast<int64_t>(limits::kDryBreakerTailMax));
}

TEST_F(DryBreakersTest, ARepetitionDoesNotReachAcrossABreaker) {
  SamplingParams params;
  params.samplers = {SamplerStage::kDry};
  params.dry_multiplier = 1.0;
  params.dry_allowed_length = 2;
  params.n_probs = 300;
  params.post_sampling_probs = true;
  const auto breakers = std::make_shared<const DryBreakers>(Make({":"}));
  const std::vector<float> row(tokenizer_.size(), 1.0f);
  const auto probability = [&](const std::vector<TokenId>& history, TokenId token) {
    Sampler sampler(params, {.vocabulary_size = row.size(), .context = 100}, breakers);
    sampler.AcceptPrompt(history);
    for (const auto& entry : sampler.Sample(row).top) {
      if (entry.token == token) return entry.value;
    }
    return 0.0;
  };
  // "p q r s … p q r": s is punished; with a colon before the last r the match is 1 long.
  EXPECT_LT(probability({'p', 'q', 'r', 's', 'z', 'p', 'q', 'r'}, 's'), 0.9 / 266);
  EXPECT_NEAR(probability({'p', 'q', ':', 'r', 's', 'z', 'p', 'q', ':', 'r'}, 's'), 1.0 / 266,
              1e-9);
  // Allowed 1, that match of 1 costs the multiplier, not the power of the four equal tokens.
  params.dry_allowed_length = 1;
  EXPECT_NEAR(probability({'p', 'q', ':', 'r', 's', 'z', 'p', 'q', ':', 'r'}, 's'),
              1.0 / (1.0 + 265.0 * std::exp(1.0)), 1e-9);
  params.dry_allowed_length = 2;
  // The colon itself is never punished.
  EXPECT_NEAR(probability({'p', 'q', 'r', ':', 'p', 'q', 'r'}, ':'), 1.0 / 266, 1e-9);
}

}  // namespace
}  // namespace bloomery::text
