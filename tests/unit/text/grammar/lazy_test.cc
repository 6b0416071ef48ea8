// Lazy grammars: when triggers fire, what is fed, spans in which they do not.
#include <string>

#include "tests/unit/text/grammar/grammar_test_support.h"

namespace bloomery::text {
namespace {

using testing::HasSubstr;
using Kind = GrammarTrigger::Kind;

class LazyGrammarTest : public GrammarFixture {
 protected:
  static bool Feed(GrammarState& state, std::string_view bytes) {
    for (const char c : bytes) {
      if (!state.Allows(static_cast<uint8_t>(c))) return false;
      EXPECT_TRUE(state.Accept(static_cast<uint8_t>(c)));
    }
    return true;
  }
};

constexpr const char* kCall = "root ::= \"<call>\" [0-9]+ \"</call>\"";

TEST_F(LazyGrammarTest, EverythingIsFreeUntilTheWord) {
  GrammarState state =
      State(kCall, {.lazy = true, .triggers = {{.kind = Kind::kWord, .value = "<call>"}}});
  EXPECT_FALSE(state.constrains());
  EXPECT_TRUE(state.complete());
  EXPECT_EQ(state.Mask().allowed, tokenizer_.size());
  ASSERT_TRUE(Feed(state, "Some text <cal <call"));
  EXPECT_FALSE(state.constrains());
  ASSERT_TRUE(Feed(state, ">"));
  EXPECT_TRUE(state.constrains());
  EXPECT_FALSE(state.complete());
  EXPECT_FALSE(state.Allows('x'));
  ASSERT_TRUE(Feed(state, "12</call>"));
  EXPECT_TRUE(state.exhausted());
}

TEST_F(LazyGrammarTest, ATokenThatFiresWithWhatDoesNotFitIsRefused) {
  // "x\"" completes the word and goes on with a quote.
  GrammarState state = State("root ::= \"ax\" [0-9]",
                             {.lazy = true, .triggers = {{.kind = Kind::kWord, .value = "ax"}}});
  ASSERT_TRUE(Feed(state, "zza"));
  const TokenId bad = kFirstLong + 22;
  ASSERT_EQ(tokenizer_.Piece(bad), "x\"");
  EXPECT_FALSE(state.Allows(bad));
  EXPECT_FALSE(state.Mask().Holds(bad)) << "what was refused here is not offered again";
  EXPECT_TRUE(state.Mask().Holds('x'));
  ASSERT_TRUE(state.Accept('x'));
  EXPECT_TRUE(state.constrains());
}

TEST_F(LazyGrammarTest, ATokenFires) {
  GrammarState state = State("root ::= <tool_call> \"a\" | \"<tool_call>b\"",
                             {.lazy = true,
                              .triggers = {{.kind = Kind::kToken, .token = kToolCall}},
                              .preserved_tokens = {kToolCall}});
  ASSERT_TRUE(Feed(state, "<tool_call>")) << "its text does not";
  EXPECT_FALSE(state.constrains());
  ASSERT_TRUE(state.Accept(kToolCall));
  EXPECT_TRUE(state.constrains());
  EXPECT_TRUE(state.Allows('a'));
  EXPECT_TRUE(state.Allows('b'));
  EXPECT_FALSE(state.Allows('c'));
}

TEST_F(LazyGrammarTest, APatternFiresFromItsFirstGroup) {
  GrammarState state =
      State("root ::= \"{\" [0-9]",
            {.lazy = true, .triggers = {{.kind = Kind::kPattern, .value = "json: *(\\{)"}}});
  ASSERT_TRUE(Feed(state, "{ here is json:  "));
  EXPECT_FALSE(state.constrains());
  ASSERT_TRUE(Feed(state, "{"));
  EXPECT_TRUE(state.constrains());
  EXPECT_TRUE(state.Allows('7'));
  EXPECT_FALSE(state.Allows('x'));
}

TEST_F(LazyGrammarTest, AFullPatternMatchesAllOfTheOutput) {
  const GrammarOptions options{.lazy = true,
                               .triggers = {{.kind = Kind::kPatternFull, .value = "\\s*(\\{)"}}};
  GrammarState state = State("root ::= \"{\" [0-9]", options);
  ASSERT_TRUE(Feed(state, "  {"));
  EXPECT_TRUE(state.constrains());
  GrammarState other = State("root ::= \"{\" [0-9]", options);
  ASSERT_TRUE(Feed(other, " x {"));
  EXPECT_FALSE(other.constrains());
}

TEST_F(LazyGrammarTest, NothingFiresInsideTheSpan) {
  const GrammarOptions options{.lazy = true,
                               .triggers = {{.kind = Kind::kWord, .value = "<call>"}},
                               .span_begin = "<think>",
                               .span_end = "</think>",
                               .starts_in_span = true};
  GrammarState state = State(kCall, options);
  ASSERT_TRUE(Feed(state, "I could say <call>x or <call>."));
  EXPECT_FALSE(state.constrains());
  ASSERT_TRUE(Feed(state, "</think>text"));
  EXPECT_FALSE(state.constrains());
  ASSERT_TRUE(Feed(state, "<call>"));
  EXPECT_TRUE(state.constrains());
  EXPECT_FALSE(state.Allows('a'));
}

// Whoever reads the output takes a later mark for text, and what looks like a call for one.
TEST_F(LazyGrammarTest, ASpanOpensAtTheBeginningOnly) {
  const GrammarOptions options{.lazy = true,
                               .triggers = {{.kind = Kind::kWord, .value = "<call>"}},
                               .span_begin = "<think>",
                               .span_end = "</think>"};
  GrammarState state = State(kCall, options);
  ASSERT_TRUE(Feed(state, " \n"));
  ASSERT_TRUE(state.Accept(kThink));
  ASSERT_TRUE(Feed(state, "<call>a</think>x"));
  EXPECT_FALSE(state.constrains());
  ASSERT_TRUE(state.Accept(kThink));
  ASSERT_TRUE(Feed(state, "y<call>"));
  EXPECT_TRUE(state.constrains());
  EXPECT_FALSE(state.Allows('a'));
}

TEST_F(LazyGrammarTest, WhatBreaksASpanIsTheGrammarsFirst) {
  GrammarOptions options{.lazy = true,
                         .triggers = {{.kind = Kind::kWord, .value = "<call>"}},
                         .span_begin = "<think>",
                         .span_end = "</think>",
                         .span_break = "<call>",
                         .starts_in_span = true};
  GrammarState lazy = State(kCall, options);
  ASSERT_TRUE(Feed(lazy, "I think so <call>"));
  EXPECT_TRUE(lazy.constrains());
  EXPECT_FALSE(lazy.Allows('a'));
  ASSERT_TRUE(Feed(lazy, "1</call>"));
  EXPECT_TRUE(lazy.exhausted());

  options.lazy = false;
  options.triggers.clear();
  GrammarState full = State(kCall, options);
  ASSERT_TRUE(Feed(full, "I think so <call>"));
  EXPECT_FALSE(full.Allows('a'));
  ASSERT_TRUE(Feed(full, "1</call>"));
  EXPECT_TRUE(full.exhausted());
  GrammarState closed = State(kCall, options);
  ASSERT_TRUE(Feed(closed, "I think </think>\n<call>1</call>"));
}

TEST_F(LazyGrammarTest, AGrammarBehindASpanConstrainsFromItsEndOn) {
  GrammarState state = State("root ::= \"{}\"", {.span_end = "</think>", .starts_in_span = true});
  EXPECT_FALSE(state.constrains());
  ASSERT_TRUE(Feed(state, "let me think {</think>"));
  EXPECT_TRUE(state.constrains());
  EXPECT_FALSE(state.Allows('x'));
  GrammarState blanks = state;
  ASSERT_TRUE(Feed(blanks, "\n \n\t"));
  EXPECT_FALSE(blanks.Allows(' ')) << "white space has an end";
  ASSERT_TRUE(Feed(state, "\n\n{}"));
  EXPECT_TRUE(state.exhausted());
}

TEST_F(LazyGrammarTest, EndOfGenerationIsFreeBeforeTheTrigger) {
  GrammarState state =
      State(kCall, {.lazy = true, .triggers = {{.kind = Kind::kWord, .value = "<call>"}}});
  EXPECT_TRUE(state.Allows(kEnd));
  EXPECT_TRUE(state.Accept(kEnd));
}

TEST_F(LazyGrammarTest, OptionsThatDoNotFitAreRefused) {
  EXPECT_THAT(Refusal(kCall, {.lazy = true}), HasSubstr("needs grammar_triggers"));
  EXPECT_THAT(
      Refusal(kCall, {.lazy = true, .triggers = {{.kind = Kind::kPattern, .value = "a(b"}}}),
      HasSubstr("not valid at column 4"));
  EXPECT_THAT(Refusal(kCall, {.lazy = true, .triggers = {{.kind = Kind::kToken, .token = 99999}}}),
              HasSubstr("outside the vocabulary"));
  EXPECT_THAT(Refusal(kCall, {.lazy = true, .triggers = {{.kind = Kind::kWord}}}),
              HasSubstr("must have 1 to"));
}

TEST_F(LazyGrammarTest, APatternThatTakesTooLongEndsWithAnError) {
  GrammarState state =
      State("root ::= \"x\"",
            {.lazy = true, .triggers = {{.kind = Kind::kPattern, .value = "(a+)+[bc]"}}});
  EXPECT_THROW(
      {
        for (int n = 0; n < 200; ++n) state.Accept('a');
      },
      Error);
}

}  // namespace
}  // namespace bloomery::text
