// Syntax, places of errors, characters across tokens, tokens by name, limits.
#include <string>

#include "runtime/base/limits.h"
#include "tests/unit/text/grammar/grammar_test_support.h"

namespace bloomery::text {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class GrammarTest : public GrammarFixture {};

TEST_F(GrammarTest, CommentsBlanksAndLinesAreWhereTheyMayBe) {
  const std::string source =
      "# first\n\n  root ::= # the root\n  \"a\" ( # a group\n \"b\"\n | \"c\" )  |\n \"d\"\n"
      "  | \"e\" # a line that goes on\nother-rule ::= \"x\"\r\nroot2::=other-rule";
  for (const char* text : {"ab", "ac", "d", "e"}) EXPECT_TRUE(Matches(source, text)) << text;
  for (const char* text : {"a", "abc", "x", ""}) EXPECT_FALSE(Matches(source, text)) << text;
}

TEST_F(GrammarTest, EscapesNameTheirCharacters) {
  EXPECT_TRUE(
      Matches(R"(root ::= "\n\r\t\\\"\[\]\x41\u00e9\U0001F600")", "\n\r\t\\\"[]A\u00e9\U0001F600"));
  EXPECT_TRUE(Matches(R"(root ::= [\x41-\x43\]\\-]+)", "ABC]\\-"));
  EXPECT_FALSE(Matches(R"(root ::= [\x41-\x43\]\\-]+)", "D"));
  EXPECT_TRUE(Matches("root ::= [a-]", "-"));
  EXPECT_TRUE(Matches("root ::= [^a-]", "b"));
  EXPECT_FALSE(Matches("root ::= [^a-]", "-"));
}

TEST_F(GrammarTest, ClassesAreOfCharactersNotBytes) {
  // é is C3 A9, è is C3 A8, ê C3 AA.
  const char* gbnf = "root ::= [\u00e8-\u00e9] \".\"";
  EXPECT_TRUE(Matches(gbnf, "\u00e8."));
  EXPECT_TRUE(Matches(gbnf, "\u00e9."));
  EXPECT_FALSE(Matches(gbnf, "\u00ea."));
  EXPECT_FALSE(Matches(gbnf, "\xC3."));
  EXPECT_TRUE(Matches("root ::= . . .", "\u00e9\U0001F600\n"));
  EXPECT_FALSE(Matches("root ::= .", "\xC3\xA9\xA9"));
}

TEST_F(GrammarTest, EveryBorderOfUtf8IsRespected) {
  // Every code point at a border of lengths, planes and surrogates: in the class exactly itself.
  const char32_t borders[] = {0x1,     0x7F,    0x80,     0x7FF,   0x800,   0xFFF,
                              0x1000,  0xD7FF,  0xE000,   0xFFFF,  0x10000, 0x3FFFF,
                              0x40000, 0xFFFFF, 0x100000, 0x10FFFF};
  for (const char32_t c : borders) {
    char escape[16];
    snprintf(escape, sizeof escape, "\\U%08X", static_cast<unsigned>(c));
    const std::string only = std::string("root ::= [") + escape + "]";
    const std::string others = std::string("root ::= [^") + escape + "]";
    for (const char32_t other : borders) {
      std::string text;
      AppendUtf8(other, text);
      EXPECT_EQ(Matches(only, text), other == c) << escape << ' ' << static_cast<uint32_t>(other);
      EXPECT_EQ(Matches(others, text), other != c);
    }
  }
  // No surrogates, no overlong forms, nothing beyond Unicode.
  for (const char* bytes :
       {"\xED\xA0\x80", "\xC0\x80", "\xE0\x80\x80", "\xF4\x90\x80\x80", "\xFF"}) {
    EXPECT_FALSE(Matches("root ::= .", bytes));
  }
}

TEST_F(GrammarTest, TokensMayEndInsideACharacter) {
  GrammarState state = State("root ::= \"\U0001F600\" | \"\u00e9!\"");
  const TokenMask first = state.Mask();
  EXPECT_TRUE(first.Holds(0xF0));
  EXPECT_TRUE(first.Holds(0xC3));
  EXPECT_TRUE(first.Holds(kFirstLong + 18)) << "F0 9F";
  EXPECT_FALSE(first.Holds(kFirstLong + 17)) << "C3 A9 x";
  EXPECT_FALSE(first.Holds(0xA9));
  ASSERT_TRUE(state.Accept(kFirstLong + 18));
  EXPECT_FALSE(state.complete());
  EXPECT_FALSE(state.Allows(0xA9));
  ASSERT_TRUE(state.Accept(kFirstLong + 19)) << "98 80";
  EXPECT_TRUE(state.complete());
  EXPECT_TRUE(state.exhausted());
  EXPECT_TRUE(state.Allows(kEnd));
}

TEST_F(GrammarTest, EndOfGenerationIsAllowedOnlyWhereTheTextIsComplete) {
  GrammarState state = State("root ::= \"a\"{2,5}");
  for (int n = 0; n < 5; ++n) {
    EXPECT_EQ(state.Allows(kEnd), n >= 2) << n;
    EXPECT_EQ(state.Mask().Holds(kEnd), n >= 2);
    EXPECT_FALSE(state.exhausted());
    ASSERT_TRUE(state.Accept('a'));
  }
  EXPECT_TRUE(state.exhausted());
  EXPECT_EQ(state.Mask().allowed, 1u);
  EXPECT_FALSE(state.Accept('a'));
  EXPECT_TRUE(state.Accept(kEnd));
}

TEST_F(GrammarTest, ControlTokensMatchByTextOnlyWhenPreserved) {
  const char* gbnf = "root ::= \"<tool_call>\" \"a\"";
  EXPECT_FALSE(State(gbnf).Allows(kToolCall));
  EXPECT_TRUE(State(gbnf).Allows('<'));
  GrammarState state = State(gbnf, {.preserved_tokens = {kToolCall}});
  EXPECT_TRUE(state.Mask().Holds(kToolCall));
  ASSERT_TRUE(state.Accept(kToolCall));
  EXPECT_TRUE(state.Accept('a'));
  // User-defined tokens are text like any other.
  EXPECT_TRUE(State("root ::= \"<think>\"").Allows(kThink));
}

TEST_F(GrammarTest, TokensAreNamedByNumberAndByText) {
  for (const std::string& name :
       {std::string("<tool_call>"), "<[" + std::to_string(kToolCall) + "]>"}) {
    GrammarState state = State("root ::= \"x\" " + name + " \"y\"");
    ASSERT_TRUE(state.Accept('x'));
    EXPECT_EQ(state.Mask().allowed, 1u);
    EXPECT_TRUE(state.Mask().Holds(kToolCall));
    EXPECT_FALSE(state.Allows('<')) << "its text is not the token";
    ASSERT_TRUE(state.Accept(kToolCall));
    EXPECT_TRUE(state.Allows('y'));
  }
}

TEST_F(GrammarTest, ANegatedTokenIsAnyOtherThatDoesNotEndTheOutput) {
  GrammarState state = State("root ::= !<think>* <think>");
  const TokenMask mask = state.Mask();
  EXPECT_EQ(mask.allowed, tokenizer_.size() - 1) << "all but the end";
  EXPECT_FALSE(mask.Holds(kEnd));
  ASSERT_TRUE(state.Accept(kToolCall));
  ASSERT_TRUE(state.Accept('a'));
  ASSERT_TRUE(state.Accept(kThink));
  EXPECT_TRUE(state.exhausted());
}

TEST_F(GrammarTest, TwoNegatedTokensTogetherAreAnyToken) {
  GrammarState one = State("root ::= !<think> | !<think> \"x\"");
  EXPECT_FALSE(one.Mask().Holds(kThink));
  GrammarState two = State("root ::= !<think> | !<tool_call>");
  EXPECT_EQ(two.Mask().allowed, tokenizer_.size() - 1) << "all but the end";
  EXPECT_TRUE(two.Allows(kThink));
  EXPECT_TRUE(two.Allows(kToolCall));
}

TEST_F(GrammarTest, TextAndTokensMayBothGoOnFromOneDraw) {
  GrammarState state = State("root ::= \"<think>\" \"a\" | <think> \"b\"");
  ASSERT_TRUE(state.Accept(kThink));
  EXPECT_TRUE(state.Allows('a'));
  EXPECT_TRUE(state.Allows('b'));
}

TEST_F(GrammarTest, ErrorsNameLineAndColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "line 1, column 1: the grammar has no rule 'root'"},
      {"a ::= \"x\"", "line 1, column 10: the grammar has no rule 'root'"},
      {"root = \"x\"", "line 1, column 6: expected ::= after the name of a rule, found '='"},
      {"root ::= \"x", "line 1, column 12: the literal has no end"},
      {"root ::= [a", "line 1, column 12: the class has no end"},
      {"root ::= []", "line 1, column 10: the class is empty"},
      {"root ::= [b-a]", "line 1, column 11: the range's end is before its begin"},
      {"root ::= (\"a\"", "line 1, column 14: expected ')', found the end"},
      {"root ::= \"a\")", "line 1, column 13: expected a part of a rule, found ')'"},
      {"root ::= *", "line 1, column 10: nothing before '*' to repeat"},
      {"root ::= \"a\"{2,1}", "line 1, column 13: the repetition ends below its begin"},
      {"root ::= \"a\"{x}", "line 1, column 14: expected a number, found 'x'"},
      {"root ::= \"a\"{1000000}", "line 1, column 13: more than 100000 repetitions"},
      {"root ::= \"\\q\"", "line 1, column 11: unknown escape"},
      {"root ::= \"\\x4\"", "expected 2 hexadecimal digits"},
      {"root ::= \"\\uD800\"", "line 1, column 11: the escape names no character of Unicode"},
      {"root ::= a\n\nb ::= \"x\"", "line 1, column 10: the rule 'a' is not defined"},
      {"root ::= \"\u00e9\" ?? $", "line 1, column 17: expected a part of a rule, found '$'"},
      {"root ::= \"a\"\n  root", "line 2, column 7: expected ::= after the name"},
      {"root ::= <nope>", "line 1, column 10: the vocabulary has no token that reads '<nope>'"},
      {"root ::= <[99999]>", "line 1, column 10: token 99999 is outside the vocabulary"},
      {"root ::= !\"a\"", "line 1, column 11: expected '<' after '!'"},
  };
  for (const auto& [source, expected] : cases) {
    const std::string refusal = Refusal(source);
    EXPECT_THAT(refusal, StartsWith("grammar: line ")) << source;
    EXPECT_THAT(refusal, HasSubstr(expected)) << source;
  }
}

TEST_F(GrammarTest, LeftRecursionIsRefusedByName) {
  EXPECT_THAT(Refusal("root ::= root \"a\" | \"a\""),
              HasSubstr("line 1, column 1: the rule 'root' is left-recursive: root -> root"));
  EXPECT_THAT(Refusal("root ::= a\na ::= b \"x\"\nb ::= c? a | \"y\"\nc ::= \"z\""),
              HasSubstr("left-recursive: a -> b -> a"));
  EXPECT_THAT(Refusal("root ::= \"a\" | root"), HasSubstr("left-recursive"));
  // Through a rule that may be empty.
  EXPECT_THAT(Refusal("root ::= e root \"a\" | \"b\"\ne ::= \"\""), HasSubstr("left-recursive"));
  EXPECT_EQ(Refusal("root ::= e root \"a\" | \"b\"\ne ::= \"c\""), "");
}

TEST_F(GrammarTest, LimitsAreRefusedByName) {
  const auto groups = [](int depth) {
    return "root ::= " + std::string(static_cast<size_t>(depth), '(') + "\"a\"" +
           std::string(static_cast<size_t>(depth), ')');
  };
  EXPECT_EQ(Refusal(groups(limits::kGrammarDepthMax)), "");
  EXPECT_THAT(Refusal(groups(limits::kGrammarDepthMax + 1)), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(Refusal(groups(100'000)), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(Refusal("root ::= \"a\"" + std::string(100'000, '*')),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(Refusal(std::string(limits::kGrammarSourceBytesMax + 1, ' ')),
              HasSubstr("bytes; at most"));
  EXPECT_THAT(Refusal("root ::= ((\"a\"{1000}){1000}){1000}"),
              HasSubstr("too large with its repetitions"));
  EXPECT_THAT(Refusal("root ::= (((\"\"){1000}){1000}){1000}"),
              HasSubstr("too large with its repetitions"));
  EXPECT_EQ(Refusal("root ::= \"a\"{100000}"), "");
  EXPECT_THAT(Refusal("root ::= \"a\"? (\"a\"?){5000}"), HasSubstr("too many ways to go on"));
}

TEST_F(GrammarTest, AnAmbiguousGrammarCostsNoMoreThanItsSize) {
  // 2^n ways to close what n letters opened, three ways to go on.
  GrammarState state = State("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"");
  for (int n = 0; n < 20'000; ++n) ASSERT_TRUE(state.Accept('a'));
  EXPECT_FALSE(state.complete());
  for (int n = 0; n < 20'000; ++n) ASSERT_TRUE(state.Accept(n % 3 == 0 ? 'b' : 'c'));
  EXPECT_TRUE(state.exhausted());
}

TEST_F(GrammarTest, RecursionAtTheEndPilesUpNothing) {
  // Lists as people write them: a million items leave as few places as ten.
  GrammarState state = State("root ::= item (\",\" root)?\nitem ::= [a-c] item | [a-c]");
  for (int n = 0; n < 200'000; ++n) {
    ASSERT_TRUE(state.Accept('a'));
    ASSERT_TRUE(state.Accept(n % 2 == 0 ? ',' : 'b'));
    if (n % 2 == 0) continue;
    ASSERT_TRUE(state.Accept(','));
  }
  ASSERT_TRUE(state.Accept('c'));
  EXPECT_TRUE(state.complete());
}

TEST_F(GrammarTest, TooManyWaysToGoOnEndWithAnError) {
  // Any of the letters may be closed or not.
  GrammarState state = State("root ::= \"a\" root \"b\" | \"a\" root | \"\"");
  EXPECT_THROW(
      {
        for (int n = 0; n < 20'000; ++n) state.Accept('a');
      },
      Error);
}

TEST_F(GrammarTest, TablesBeginAnewAndPlacesAreCarriedOver) {
  // Each letter is a place of its own, and each place's mask is kept: far beyond the tables' limit.
  const std::string gbnf = "root ::= [a-c]{90000} \"d\"";
  GrammarState state = State(gbnf);
  GrammarState behind = state;
  for (int n = 0; n < 90'000; ++n) {
    ASSERT_EQ(state.Mask().allowed, n + 3 <= 90'000 ? 9u : n + 2 <= 90'000 ? 7u : 3u) << n;
    ASSERT_TRUE(state.Accept('a' + n % 3));
  }
  EXPECT_TRUE(state.Allows('d'));
  EXPECT_FALSE(state.Allows('a'));
  EXPECT_TRUE(behind.Accept('a'));
  EXPECT_FALSE(behind.Allows('d'));
}

TEST_F(GrammarTest, StatesOfOneGrammarAreIndependent) {
  const auto grammar = compiler_.FromGbnf("root ::= \"a\" \"b\" \"c\"");
  GrammarState one(grammar);
  GrammarState two(grammar);
  ASSERT_TRUE(one.Accept('a'));
  const GrammarState copy = one;
  ASSERT_TRUE(one.Accept('b'));
  EXPECT_FALSE(two.Allows('b'));
  GrammarState again = copy;
  EXPECT_TRUE(again.Allows('b'));
  EXPECT_FALSE(again.Allows('c'));
}

TEST_F(GrammarTest, ALaterDefinitionOfARuleCounts) {
  EXPECT_TRUE(Matches("root ::= a\na ::= \"x\"\na ::= \"y\"", "y"));
  EXPECT_FALSE(Matches("root ::= a\na ::= \"x\"\na ::= \"y\"", "x"));
}

}  // namespace
}  // namespace bloomery::text
