#include "runtime/text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/error.h"

namespace bloomery::text {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Split(const PreTokenizer& pre, std::string_view text) {
  std::vector<std::string> pieces;
  const bool whole = pre.Split(text, [&pieces](std::string_view piece) {
    pieces.emplace_back(piece);
    return true;
  });
  EXPECT_TRUE(whole);
  return pieces;
}

class Qwen2Test : public ::testing::Test {
 protected:
  std::vector<std::string> Pieces(std::string_view text) { return Split(pre_, text); }
  PreTokenizer pre_{*FindPreTokenizer("qwen2")};
};

// Expected pieces are read off the expression by hand.
TEST_F(Qwen2Test, WordsTakeOneLeadingSignOrBlank) {
  EXPECT_THAT(Pieces("Hello world"), ElementsAre("Hello", " world"));
  EXPECT_THAT(Pieces("a_b(c"), ElementsAre("a", "_b", "(c"));
  EXPECT_THAT(Pieces("x  y"), ElementsAre("x", " ", " y"));
}

TEST_F(Qwen2Test, DigitsStandAlone) { EXPECT_THAT(Pieces("a12"), ElementsAre("a", "1", "2")); }

TEST_F(Qwen2Test, ContractionsInAnyCase) {
  EXPECT_THAT(Pieces("don't WE'LL I'm"), ElementsAre("don", "'t", " WE", "'LL", " I", "'m"));
}

TEST_F(Qwen2Test, SignsTakeABlankBeforeAndLineBreaksBehind) {
  EXPECT_THAT(Pieces("a !!\n\nb"), ElementsAre("a", " !!\n\n", "b"));
}

TEST_F(Qwen2Test, LineBreaksTakeBlanksBeforeThem) {
  EXPECT_THAT(Pieces("a  \r\n  b"), ElementsAre("a", "  \r\n", " ", " b"));
  EXPECT_THAT(Pieces("a   "), ElementsAre("a", "   "));
}

TEST_F(Qwen2Test, MarksAreSignsHereAndMaySeparateLetters) {
  EXPECT_THAT(Pieces("e\u0301a"), ElementsAre("e", "\u0301a"));
}

TEST(Qwen35Test, MarksJoinLettersAndAreNoSigns) {
  const PreTokenizer pre(*FindPreTokenizer("qwen35"));
  EXPECT_THAT(Split(pre, "e\u0301a"), ElementsAre("e\u0301a"));
  EXPECT_THAT(Split(pre, "!\u0301a"), ElementsAre("!\u0301a"));
  EXPECT_THAT(Split(pre, "a \u0301!! b12"), ElementsAre("a", " \u0301", "!!", " b", "1", "2"));
  EXPECT_THAT(Split(pre, "don't  x\n\n y"), ElementsAre("don", "'t", " ", " x", "\n\n", " y"));
}

TEST_F(Qwen2Test, UnicodeBlanksAreBlanksAndTheMongolianSeparatorIsNot) {
  EXPECT_THAT(Pieces("\u3000\u00a0\u0085x"), ElementsAre("\u3000\u00a0", "\u0085x"));
  EXPECT_THAT(Pieces(" \u180e1"), ElementsAre(" \u180e", "1"));
}

TEST_F(Qwen2Test, BrokenBytesArePiecesOfTheirOwn) {
  EXPECT_THAT(Pieces("ab\xFF\xFE"
                     "cd\xE2\x82"),
              ElementsAre("ab", "\xFF\xFE", "cd", "\xE2\x82"));
}

TEST(Glm4Test, DigitsGoInThreesFromTheLeftAndAllElseIsAsInQwen2) {
  const PreTokenizer pre(*FindPreTokenizer("glm4"));
  EXPECT_THAT(Split(pre, "a12 3456 1234567"),
              ElementsAre("a", "12", " ", "345", "6", " ", "123", "456", "7"));
  EXPECT_THAT(Split(pre, "x\u0661\u0662\u0663\u06640"),
              ElementsAre("x", "\u0661\u0662\u0663", "\u06640"));
  EXPECT_THAT(Split(pre, "WE'LL (go)!!\n\n  now"),
              ElementsAre("WE", "'LL", " (", "go", ")!!\n\n", " ", " now"));
}

// The names that byte-level vocabularies without a split of their own go by.
TEST(Gpt2Test, RunsTakeOneBlankAndContractionsAreSmall) {
  for (const char* name : {"gpt-2", "olmo"}) {
    const PreTokenizer pre(*FindPreTokenizer(name));
    EXPECT_THAT(Split(pre, "Hello we'll be 2024,ok"),
                ElementsAre("Hello", " we", "'ll", " be", " 2024", ",", "ok"));
    EXPECT_THAT(Split(pre, "WE'LL"), ElementsAre("WE", "'", "LL"));
    EXPECT_THAT(Split(pre, "a  b \n\n c"), ElementsAre("a", " ", " b", " \n\n", " c"));
    EXPECT_THAT(Split(pre, "x!!\ny  "), ElementsAre("x", "!!", "\n", "y", "  "));
  }
}

TEST(PreTokenizerTest, ExpressionsRunOneAfterAnotherAndLeaveTheirGaps) {
  constexpr std::string_view kDigitsThenVowels[] = {R"(\p{N}{1,3})", "[aeiou]+"};
  const PreTokenizer pre({.name = "test",
                          .expressions = kDigitsThenVowels,
                          .add_bos = false,
                          .add_eos = false,
                          .ignore_merges = false});
  EXPECT_THAT(Split(pre, "xaay12345zoo"), ElementsAre("x", "aa", "y", "123", "45", "z", "oo"));
}

TEST(PreTokenizerTest, AnExpressionThatMayMatchNothingSplitsByWhatItMatches) {
  constexpr std::string_view kPerhaps[] = {"x*"};
  const PreTokenizer pre({.name = "test",
                          .expressions = kPerhaps,
                          .add_bos = false,
                          .add_eos = false,
                          .ignore_merges = false});
  EXPECT_THAT(Split(pre, "axxbx"), ElementsAre("a", "xx", "b", "x"));
  EXPECT_THAT(Split(pre, "ab"), ElementsAre("ab"));
}

TEST(PreTokenizerTest, UnknownNamesAreNull) {
  EXPECT_EQ(FindPreTokenizer("qwen"), nullptr);
  EXPECT_EQ(FindPreTokenizer(""), nullptr);
}

TEST(PreTokenizerTest, RowsAreAscendingByName) {
  const auto rows = PreTokenizerRows();
  for (size_t i = 1; i < rows.size(); ++i) EXPECT_LT(rows[i - 1].name, rows[i].name);
}

TEST(PreTokenizerTest, AnExpressionThatBacktracksWithoutEndIsStoppedByTheMatchLimit) {
  constexpr std::string_view kExponential[] = {"(a+)+(?:b|d)"};
  const PreTokenizer pre({.name = "test",
                          .expressions = kExponential,
                          .add_bos = false,
                          .add_eos = false,
                          .ignore_merges = false});
  EXPECT_THROW(Split(pre, std::string(64, 'a') + "c"), Error);
}

}  // namespace
}  // namespace bloomery::text
