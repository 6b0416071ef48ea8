// Several choices of one request: one prompt, several slots.
#include <gtest/gtest.h>

#include "tests/unit/engine/engine_test_support.h"

namespace bloomery::engine {
namespace {

using std::chrono::milliseconds;

GenerateRequest Sampled(std::string_view prompt, int32_t n_predict, uint32_t seed,
                        int32_t choices = 1) {
  GenerateRequest request = Greedy(Ids(prompt), n_predict);
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  request.choices = choices;
  return request;
}

TEST(Choices, ShareOneEvaluationOfThePrompt) {
  Rig rig({.slots = 3});
  rig.runner.next = [](const Tokens&) { return 0; };
  GenerateRequest request = Greedy(Ids("abcdefgh"), 4);
  request.choices = 3;
  Collected collected = rig.Run(request);
  ASSERT_EQ(collected.choices.size(), 3u);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(collected.choices[i].tokens, Ids("aaaa"));
    EXPECT_EQ(collected.finish(i).tokens_evaluated, 8);
    EXPECT_EQ(collected.finish(i).timings.prompt_n, i == 0 ? 8 : 0);
    EXPECT_EQ(collected.finish(i).timings.cache_n, i == 0 ? 0 : 8);
  }
  EXPECT_EQ(rig.engine->ReadMetrics().requests_finished, 1u);
  rig.engine->Stop(milliseconds(0));
  EXPECT_EQ(rig.runner.rows_run, 8 + 3 * 3);
}

TEST(Choices, EqualTheSameRequestsRunAloneWithTheirSeeds) {
  Rig rig({.slots = 4});
  Collected together = rig.Run(Sampled("tell me", 15, 40, 4));
  ASSERT_EQ(together.choices.size(), 4u);
  for (int32_t i = 0; i < 4; ++i) {
    Rig alone;
    Collected one = alone.Run(Sampled("tell me", 15, 40 + static_cast<uint32_t>(i)));
    EXPECT_EQ(together.choices[i].tokens, one.only().tokens);
    EXPECT_EQ(together.choices[i].text, one.only().text);
  }
  EXPECT_NE(together.choices[0].text, together.choices[1].text);
}

// A runner that hands over the best of a row, as a card does, is asked for whole rows only by
// choices that look at them.
TEST(Choices, AreTheSameFromTheBestOfARowAndWholeRowsAreFetchedOnlyWhereTheyMatter) {
  const auto sampled = [](int32_t top_k, double repeat_penalty) {
    GenerateRequest request = Sampled("tell me", 15, 40, 2);
    request.sampling.top_k = top_k;
    request.sampling.repeat_penalty = repeat_penalty;
    return request;
  };
  struct Case {
    GenerateRequest request;
    bool whole_rows = false;
  };
  const std::vector<Case> cases = {{Greedy(Ids("tell me"), 15)},
                                   {sampled(8, 1.0)},
                                   {sampled(9, 1.0), true},   // more than are given
                                   {sampled(0, 1.0), true},   // no top-k
                                   {sampled(8, 1.2), true}};  // what was said counts
  for (size_t i = 0; i < cases.size(); ++i) {
    Rig whole({.slots = 2});
    Rig few({.slots = 2});
    few.runner.best = 8;
    Collected expected = whole.Run(cases[i].request);
    Collected got = few.Run(cases[i].request);
    ASSERT_EQ(got.choices.size(), expected.choices.size());
    for (auto& [choice, heard] : expected.choices) {
      EXPECT_EQ(got.choices[choice].tokens, heard.tokens) << i;
    }
    few.engine->Stop(milliseconds(0));
    EXPECT_EQ(few.runner.whole_rows_read > 0, cases[i].whole_rows) << i;
  }
}

TEST(Choices, WithAGrammarTheBestOfARowDoUntilTooFewOfThemAreAllowed) {
  const text::Tokenizer tokenizer = TestTokenizer();
  text::GrammarCompiler compiler(tokenizer);
  for (const char* gbnf :
       {"root ::= [a-z ]+", "root ::= [a-c]{15}", "root ::= \"ab\"+", "root ::= [x]+"}) {
    for (const bool greedy : {true, false}) {
      GenerateRequest request = greedy ? Greedy(Ids("tell me"), 15) : Sampled("tell me", 15, 40, 2);
      request.sampling.top_k = 3;
      request.grammar = compiler.FromGbnf(gbnf);
      Rig whole({.slots = 2});
      Rig few({.slots = 2});
      few.runner.best = 8;
      Collected expected = whole.Run(request);
      Collected got = few.Run(request);
      for (auto& [choice, heard] : expected.choices) {
        EXPECT_EQ(got.choices[choice].tokens, heard.tokens) << gbnf;
        text::GrammarState state(request.grammar);
        EXPECT_TRUE(state.AcceptText(heard.text)) << gbnf << ": " << heard.text;
      }
    }
  }
}

TEST(Choices, TheFirstSeedAboveTheRangeIsNotTheRandomOne) {
  Rig rig({.slots = 2});
  Collected first = rig.Run(Sampled("tell me", 15, 0xFFFFFFFEu, 2));
  Collected second = rig.Run(Sampled("tell me", 15, 0xFFFFFFFEu, 2));
  EXPECT_EQ(first.choices[1].text, second.choices[1].text);
}

TEST(Choices, WorkTwiceOnANamedSlot) {
  Rig rig({.slots = 2});
  GenerateRequest request = Greedy(Ids("abc"), 3);
  request.choices = 2;
  request.id_slot = 1;
  for (int run = 0; run < 2; ++run) {
    Collected collected = rig.Run(request);
    EXPECT_EQ(collected.begin->id_slot, 1);
    EXPECT_EQ(collected.finish(0).id_slot, 1);
    EXPECT_EQ(collected.finish(1).id_slot, 0);
    EXPECT_EQ(collected.choices[0].text, collected.choices[1].text);
    EXPECT_EQ(collected.finish(0).timings.prompt_n, run == 0 ? 3 : 1);
  }
}

TEST(Choices, WithoutTokensAllEndAtThePrompt) {
  Rig rig({.slots = 2});
  GenerateRequest request = Greedy(Ids("abc"), 0);
  request.choices = 2;
  Collected collected = rig.Run(request);
  EXPECT_EQ(collected.finish(0).tokens_predicted, 0);
  EXPECT_EQ(collected.finish(1).tokens_predicted, 0);
}

TEST(Choices, RequestForSeveralSlotsIsNotStarvedByLaterOnes) {
  Rig rig({.slots = 2});
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  rig.runner.next = [](const Tokens&) { return 0; };
  Engine& engine = rig.Start();
  auto first = engine.Submit(Greedy(Ids("a"), 5));
  gate.AwaitEntered(1);
  GenerateRequest both = Greedy(Ids("b"), 2);
  both.choices = 2;
  auto second = engine.Submit(both);
  auto third = engine.Submit(Greedy(Ids("c"), 2));
  gate.Open();
  Collected wide = Await(*second);
  Await(*first);
  Await(*third);
  EXPECT_EQ(wide.choices.size(), 2u);
  engine.Stop(milliseconds(0));
  int32_t first_b = -1, first_c = -1;
  for (size_t i = 0; i < rig.runner.passes.size(); ++i) {
    for (const exec::PassRow& row : rig.runner.passes[i]) {
      if (row.token == 1 && first_b < 0) first_b = static_cast<int32_t>(i);
      if (row.token == 2 && first_c < 0) first_c = static_cast<int32_t>(i);
    }
  }
  EXPECT_LT(first_b, first_c);
}

TEST(Choices, CancelFreesAllTheirSlots) {
  Rig rig({.slots = 3});
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  rig.runner.next = [](const Tokens&) { return 0; };
  Engine& engine = rig.Start();
  GenerateRequest request = Greedy(Ids("abc"), -1);
  request.choices = 3;
  auto generation = engine.Submit(request);
  gate.Permit(2);
  gate.AwaitEntered(3);
  for (const SlotInfo& slot : engine.SlotsSnapshot()) EXPECT_EQ(slot.n_decoded, 2);
  generation->Cancel();
  gate.Open();
  Collected collected = Await(*generation);
  EXPECT_TRUE(collected.failed.has_value());
  for (auto& [index, heard] : collected.choices) EXPECT_EQ(heard.tokens.size(), 3u);
  for (const SlotInfo& slot : engine.SlotsSnapshot()) EXPECT_FALSE(slot.is_processing);
}

TEST(Choices, CancelBeforeThePromptIsDoneFreesTheAwaitingSlots) {
  Rig rig({.slots = 2, .rows_max = 2});
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  Engine& engine = rig.Start();
  GenerateRequest request = Greedy(Ids("abcdef"), 2);
  request.choices = 2;
  auto generation = engine.Submit(request);
  gate.AwaitEntered(1);
  EXPECT_TRUE(engine.SlotsSnapshot()[1].is_processing);
  generation->Cancel();
  gate.Open();
  EXPECT_TRUE(Await(*generation).failed.has_value());
  for (const SlotInfo& slot : engine.SlotsSnapshot()) EXPECT_FALSE(slot.is_processing);
  EXPECT_EQ(rig.Run(request).choices.size(), 2u);
}

}  // namespace
}  // namespace bloomery::engine
