// One choice fed with logits by hand: what text goes out when, and which reason ends it.
#include "runtime/engine/choice.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/refusal.h"
#include "tests/unit/engine/engine_test_support.h"

namespace bloomery::engine {
namespace {

class ChoiceTest : public testing::Test {
 protected:
  // A choice over the prompt "x" in a slot of `context` tokens.
  Choice Make(GenerateRequest request, int32_t context = 100) {
    request.prompt = Ids("x");
    request.sampling.temperature = 0;
    Choice choice(tokenizer_,
                  {.request = std::make_shared<const GenerateRequest>(request),
                   .n_predict = request.n_predict,
                   .context = context},
                  nullptr);
    choice.Start(0, {.evaluated = 1, .ms = 10});
    return choice;
  }

  void Feed(Choice& choice, int32_t token) {
    std::vector<float> logits(kVocabulary, 0.0f);
    logits[static_cast<size_t>(token)] = 5.0f;
    choice.Step(logits, clock_.Now());
    if (auto text = choice.TakeText()) {
      EXPECT_FALSE(text->tokens.empty());
      heard_.text += text->text;
      heard_.tokens.insert(heard_.tokens.end(), text->tokens.begin(), text->tokens.end());
      heard_.pieces.push_back(std::move(*text));
    }
  }

  // Feeds tokens until the choice ends or they run out; returns how many it took.
  size_t FeedAll(Choice& choice, const Tokens& tokens) {
    size_t fed = 0;
    while (fed < tokens.size() && !choice.ended()) Feed(choice, tokens[fed++]);
    return fed;
  }

  text::Tokenizer tokenizer_ = TestTokenizer();
  FakeClock clock_;
  Heard heard_;
};

TEST_F(ChoiceTest, EachTokenLeavesAtOnceWhenNothingIsHeld) {
  Choice choice = Make({});
  Feed(choice, 0);
  EXPECT_EQ(heard_.text, "a");
  Feed(choice, kAb);
  EXPECT_EQ(heard_.text, "aab");
  EXPECT_EQ(heard_.pieces.size(), 2u);
  EXPECT_EQ(heard_.pieces[1].tokens_predicted, 2);
}

TEST_F(ChoiceTest, BudgetEndsWithLimitExactlyAtN) {
  Choice choice = Make({.n_predict = 3});
  EXPECT_EQ(FeedAll(choice, Ids("abcdef")), 3u);
  const Finish finish = choice.MakeFinish(3);
  EXPECT_EQ(finish.stop_type, StopType::kLimit);
  EXPECT_FALSE(finish.truncated);
  EXPECT_EQ(heard_.text, "abc");
  EXPECT_EQ(finish.tokens_predicted, 3);
  EXPECT_EQ(finish.tokens_evaluated, 1);
}

TEST_F(ChoiceTest, BudgetOfZeroEndsBeforeTheFirstToken) {
  Choice choice = Make({.n_predict = 0});
  EXPECT_TRUE(choice.ended());
  EXPECT_FALSE(choice.TakeText().has_value());
  EXPECT_EQ(choice.MakeFinish(1).stop_type, StopType::kLimit);
}

TEST_F(ChoiceTest, EndTokenEndsWithEosAndPrintsNothing) {
  Choice choice = Make({.n_predict = 50});
  EXPECT_EQ(FeedAll(choice, Ids("ab~cd")), 3u);
  EXPECT_EQ(choice.MakeFinish(3).stop_type, StopType::kEos);
  EXPECT_EQ(heard_.text, "ab");
  EXPECT_EQ(heard_.tokens, Ids("ab~"));
}

TEST_F(ChoiceTest, EosOnTheLastTokenOfTheBudgetIsEos) {
  Choice choice = Make({.n_predict = 3});
  EXPECT_EQ(FeedAll(choice, Ids("ab~")), 3u);
  EXPECT_EQ(choice.MakeFinish(3).stop_type, StopType::kEos);
}

TEST_F(ChoiceTest, ContextFullIsLimitAndTruncated) {
  Choice choice = Make({}, 5);  // one prompt token: four may follow
  EXPECT_EQ(FeedAll(choice, Ids("abcdefgh")), 4u);
  const Finish finish = choice.MakeFinish(4);
  EXPECT_EQ(finish.stop_type, StopType::kLimit);
  EXPECT_TRUE(finish.truncated);
}

TEST_F(ChoiceTest, StopStringOverTokenBoundariesIsCutAndNamed) {
  Choice choice = Make({.stop = {"cde"}});
  EXPECT_EQ(FeedAll(choice, Ids("abcdefg")), 5u);
  const Finish finish = choice.MakeFinish(5);
  EXPECT_EQ(finish.stop_type, StopType::kWord);
  EXPECT_EQ(finish.stopping_word, "cde");
  EXPECT_EQ(heard_.text, "ab");
  EXPECT_EQ(heard_.tokens, Ids("abcde"));
}

TEST_F(ChoiceTest, StopStringAndBudgetOnOneTokenIsWord) {
  Choice choice = Make({.n_predict = 3, .stop = {"c"}});
  EXPECT_EQ(FeedAll(choice, Ids("abc")), 3u);
  EXPECT_EQ(choice.MakeFinish(3).stop_type, StopType::kWord);
}

TEST_F(ChoiceTest, StopStringOnTheLastTokenOfTheContextIsLimit) {
  Choice choice = Make({.stop = {"d"}}, 5);
  EXPECT_EQ(FeedAll(choice, Ids("abcd")), 4u);
  const Finish finish = choice.MakeFinish(4);
  EXPECT_EQ(finish.stop_type, StopType::kLimit);
  EXPECT_EQ(finish.stopping_word, "d");
  EXPECT_EQ(heard_.text, "abc");
}

TEST_F(ChoiceTest, PossibleStopStringIsHeldThenReleasedWhenItDoesNotCome) {
  Choice choice = Make({.stop = {"bcz"}});
  FeedAll(choice, Ids("abc"));
  EXPECT_EQ(heard_.text, "a");
  Feed(choice, 3);
  EXPECT_EQ(heard_.text, "abcd");
  EXPECT_EQ(heard_.tokens, Ids("abcd"));
}

TEST_F(ChoiceTest, HeldTextIsReleasedAtTheEndWithAToken) {
  for (const char* last : {"d", "~"}) {
    heard_ = {};
    Choice choice = Make({.n_predict = 4, .stop = {"cdz"}});
    FeedAll(choice, Ids(std::string("abc") + last));
    ASSERT_TRUE(choice.ended());
    EXPECT_EQ(heard_.text, *last == 'd' ? "abcd" : "abc");
    EXPECT_EQ(heard_.tokens.size(), 4u);
  }
}

TEST_F(ChoiceTest, PartOfATokenMayLeaveWhileTheRestIsHeld) {
  Choice choice = Make({.n_predict = 3, .stop = {"bz"}});
  Feed(choice, kAb);
  EXPECT_EQ(heard_.text, "a");
  Feed(choice, kAb);
  EXPECT_EQ(heard_.text, "aba");
  Feed(choice, kEnd);
  EXPECT_EQ(heard_.text, "abab");
  EXPECT_EQ(heard_.tokens, (Tokens{kAb, kAb, kEnd}));
}

// A steady chain of partial matches must not silence a stream.
TEST_F(ChoiceTest, TextFlowsWhileEveryTokenMayBeginAStopString) {
  Choice choice = Make({.stop = {"aab"}});
  FeedAll(choice, Ids("aaaaaaaa"));
  EXPECT_EQ(heard_.text, "aaaaaa");  // all but the two that may begin the stop string
}

TEST_F(ChoiceTest, CharactersLeaveWhole) {
  Choice choice = Make({});
  Feed(choice, kC3);
  EXPECT_EQ(heard_.text, "");
  Feed(choice, kA9);
  EXPECT_EQ(heard_.text, "\u00e9");
  ASSERT_EQ(heard_.pieces.size(), 1u);
  EXPECT_EQ(heard_.pieces[0].tokens, (Tokens{kC3, kA9}));
}

TEST_F(ChoiceTest, UnfinishedCharacterAtTheEndBecomesAReplacement) {
  Choice choice = Make({.n_predict = 2});
  FeedAll(choice, {0, kC3});
  EXPECT_EQ(heard_.text, "a\uFFFD");
  EXPECT_EQ(heard_.tokens, (Tokens{0, kC3}));
}

TEST_F(ChoiceTest, ControlTokensPrintOnlyWhenShownOrPreserved) {
  Choice hidden = Make({});
  FeedAll(hidden, Ids("a#b"));
  EXPECT_EQ(heard_.text, "ab");
  EXPECT_EQ(heard_.tokens, Ids("a#b"));
  heard_ = {};
  Choice preserved = Make({.preserved_tokens = {kTool}});
  FeedAll(preserved, Ids("a#b~"));
  EXPECT_EQ(heard_.text, "a<tool>b");
  heard_ = {};
  Choice shown = Make({.show_special = true});
  FeedAll(shown, Ids("a#b~"));
  EXPECT_EQ(heard_.text, "a<tool>b<|im_end|>");
  EXPECT_EQ(shown.MakeFinish(4).stop_type, StopType::kEos);
}

TEST_F(ChoiceTest, LineIndentedTooLittleEndsBeforeItsFirstCharacter) {
  Choice choice = Make({.n_indent = 2});
  EXPECT_EQ(FeedAll(choice, Ids("a\n  b\n\n   c\n d")), 14u);
  EXPECT_EQ(choice.MakeFinish(14).stop_type, StopType::kLimit);
  EXPECT_EQ(heard_.text, "a\n  b\n\n   c\n ");
}

TEST_F(ChoiceTest, LineIndentedExactlyEnoughGoesOn) {
  Choice choice = Make({.n_indent = 2});
  FeedAll(choice, Ids("a\n  b\n  c"));
  EXPECT_FALSE(choice.ended());
}

TEST_F(ChoiceTest, TimeLimitEndsAtTheFirstNewlineAfterIt) {
  Choice choice = Make({.t_max_predict_ms = 100});
  Feed(choice, 0);
  Feed(choice, kNewline);
  clock_.Advance(std::chrono::milliseconds(100));
  Feed(choice, kNewline);  // at the limit
  EXPECT_FALSE(choice.ended());
  clock_.Advance(std::chrono::milliseconds(1));
  Feed(choice, 1);  // past it, but no newline
  EXPECT_FALSE(choice.ended());
  Feed(choice, kNewline);
  EXPECT_TRUE(choice.ended());
  EXPECT_EQ(choice.MakeFinish(5).stop_type, StopType::kLimit);
}

TEST_F(ChoiceTest, NewLineIsReportedOnlyWhenOneWasReleased) {
  Choice without = Make({.n_predict = 2, .stop = {"\n"}});
  FeedAll(without, Ids("a\n"));
  EXPECT_FALSE(without.MakeFinish(2).has_new_line);
  Choice with = Make({.n_predict = 2});
  FeedAll(with, Ids("a\n"));
  EXPECT_TRUE(with.MakeFinish(2).has_new_line);
}

TEST_F(ChoiceTest, EveryTokenHasProbabilitiesAndTheirTextsJoinToTheText) {
  GenerateRequest request{.n_predict = 7, .stop = {"cdz"}};
  request.sampling.n_probs = 3;
  Choice choice = Make(request);
  FeedAll(choice, {0, kC3, kA9, 2, 3, 4, kC3});
  ASSERT_TRUE(choice.ended());
  std::string joined;
  Tokens ids;
  for (const Text& piece : heard_.pieces) {
    ASSERT_EQ(piece.probabilities.size(), piece.tokens.size());
    std::string of_piece;
    for (const TokenProbabilities& entry : piece.probabilities) {
      of_piece += entry.text;
      ids.push_back(entry.token);
      ASSERT_EQ(entry.top.size(), 3u);
      EXPECT_EQ(entry.top[0].token, entry.token);  // greedy
      // One logit of 5 among 33 of 0.
      EXPECT_NEAR(entry.value, 5.0 - std::log(std::exp(5.0) + 33.0), 1e-5);
      EXPECT_EQ(entry.top[0].text, std::string(tokenizer_.Piece(entry.token)));
    }
    EXPECT_EQ(of_piece, piece.text);
    joined += of_piece;
  }
  EXPECT_EQ(joined, "a\u00e9cde\uFFFD");
  EXPECT_EQ(ids, heard_.tokens);
}

TEST_F(ChoiceTest, BannedEndTokensLetTheChoiceGoOn) {
  GenerateRequest request{.n_predict = 3};
  request.sampling.ignore_eos = true;
  request.sampling.BanEog(tokenizer_.eog());
  Choice choice = Make(request);
  EXPECT_EQ(FeedAll(choice, Ids("~~~")), 3u);
  EXPECT_EQ(choice.MakeFinish(3).stop_type, StopType::kLimit);
  EXPECT_EQ(heard_.text, "aaa");  // the best of the rest: all equal, the lowest id
}

TEST_F(ChoiceTest, TooManyStopStringsAreRefused) {
  const auto refusal = test::RefusalOf(
      [&] { Make({.stop = std::vector<std::string>(10'000, "x" + std::string(5000, 'y'))}); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadRequest);
}

TEST(Timings, RatesDivideByTheStepsAfterTheFirstToken) {
  const Timings timings = MakeTimings({.cached = 6, .evaluated = 4, .ms = 20}, 5, 8);
  EXPECT_EQ(timings.cache_n, 6);
  EXPECT_EQ(timings.prompt_n, 4);
  EXPECT_DOUBLE_EQ(timings.prompt_per_token_ms, 5);
  EXPECT_DOUBLE_EQ(timings.prompt_per_second, 200);
  EXPECT_DOUBLE_EQ(timings.predicted_per_token_ms, 2);
  EXPECT_DOUBLE_EQ(timings.predicted_per_second, 500);
}

TEST(Timings, EveryValueIsFiniteWithoutTimeOrTokens) {
  for (const int32_t predicted : {0, 1, 2}) {
    for (const double ms : {0.0, 3.0}) {
      const Timings timings = MakeTimings({.cached = 1, .evaluated = 0, .ms = ms}, predicted, ms);
      for (const double value :
           {timings.prompt_ms, timings.prompt_per_token_ms, timings.prompt_per_second,
            timings.predicted_ms, timings.predicted_per_token_ms, timings.predicted_per_second}) {
        EXPECT_TRUE(std::isfinite(value) && value >= 0);
      }
      if (predicted < 2) {
        EXPECT_EQ(timings.predicted_per_second, 0);
        EXPECT_EQ(timings.predicted_per_token_ms, 0);
      }
    }
  }
}

}  // namespace
}  // namespace bloomery::engine
