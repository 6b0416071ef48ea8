#include "runtime/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "tests/unit/text/small_vocabulary.h"

namespace bloomery::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<TokenId>;

Ids Bytes(std::string_view text) {
  Ids ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

class TokenizerTest : public ::testing::Test {
 protected:
  Tokenizer tokenizer_{SmallVocabulary()};
};

TEST_F(TokenizerTest, LowestRankMergesFirstAndResultsMergeOn) {
  EXPECT_THAT(tokenizer_.Tokenise("hello"), ElementsAre(SmallIds::kHell, 'o'));
  EXPECT_THAT(tokenizer_.Tokenise("lll"), ElementsAre(SmallIds::kLl, 'l'));  // the leftmost pair
  EXPECT_THAT(tokenizer_.Tokenise("abc"), ElementsAre(SmallIds::kAb, 'c'));  // rank 3 before 4
  EXPECT_THAT(tokenizer_.Tokenise("xbc"), ElementsAre('x', SmallIds::kBc));
}

TEST_F(TokenizerTest, WordsDoNotMergeAcrossTheirBorders) {
  EXPECT_THAT(tokenizer_.Tokenise("h e"), ElementsAre('h', ' ', 'e'));
  EXPECT_THAT(tokenizer_.Tokenise("h1e"), ElementsAre('h', '1', 'e'));
}

// Of words, of one long word, of control tokens and of bytes that are no text.
TEST_F(TokenizerTest, WorkEndsSoonAfterTheMostTokensThatAreWanted) {
  std::string controls;
  for (int i = 0; i < 500; ++i) controls += "<|im_end|>";
  std::string words;
  for (int i = 0; i < 500; ++i) words += "he ";
  for (const std::string& text : {words, controls, words + "\xff\xfe" + words}) {
    const Ids whole = tokenizer_.Tokenise(text, {.parse_special = true});
    ASSERT_GE(whole.size(), 500U);
    for (const size_t most : {size_t{0}, size_t{1}, size_t{300}, whole.size() - 1}) {
      const Ids front = tokenizer_.Tokenise(text, {.parse_special = true, .tokens_max = most});
      EXPECT_GT(front.size(), most);
      EXPECT_LE(front.size(), std::min(most + 4, whole.size()));
      EXPECT_TRUE(std::equal(front.begin(), front.end(), whole.begin()));
    }
    EXPECT_EQ(tokenizer_.Tokenise(text, {.parse_special = true, .tokens_max = whole.size()}),
              whole);
  }
  const std::string word(3 * limits::kWordBytesMax, 'x');
  EXPECT_EQ(tokenizer_.Tokenise(word, {.tokens_max = 10}).size(), limits::kWordBytesMax);
}

TEST_F(TokenizerTest, EmptyTextHasNoTokens) { EXPECT_TRUE(tokenizer_.Tokenise("").empty()); }

TEST_F(TokenizerTest, ControlTokensAreTextUnlessParsed) {
  EXPECT_EQ(tokenizer_.Tokenise("<|im_end|>"), Bytes("<|im_end|>"));
  EXPECT_THAT(tokenizer_.Tokenise("a<|im_end|>b", {.parse_special = true}),
              ElementsAre('a', SmallIds::kEnd, 'b'));
}

TEST_F(TokenizerTest, UserDefinedTokensAlwaysMatch) {
  EXPECT_THAT(tokenizer_.Tokenise("<think>"), ElementsAre(SmallIds::kThink));
}

TEST_F(TokenizerTest, TheLongestSpecialTokenWins) {
  EXPECT_THAT(tokenizer_.Tokenise("<|im_end|>!", {.parse_special = true}),
              ElementsAre(SmallIds::kEndLong));
  EXPECT_THAT(tokenizer_.Tokenise("<|im_end|>?", {.parse_special = true}),
              ElementsAre(SmallIds::kEnd, '?'));
}

TEST_F(TokenizerTest, MergesStopAtSpecialTokens) {
  EXPECT_THAT(tokenizer_.Tokenise("h<think>e"), ElementsAre('h', SmallIds::kThink, 'e'));
}

TEST_F(TokenizerTest, ControlTokensStayTextInPlainRanges) {
  const std::string text = "<|im_end|>he<|im_end|><|im_end|>";
  const TextRange user[] = {{10, 22}};
  Ids expected = {SmallIds::kEnd, SmallIds::kHe};
  for (const TokenId id : Bytes("<|im_end|>")) expected.push_back(id);
  expected.push_back(SmallIds::kEnd);
  EXPECT_EQ(tokenizer_.Tokenise(text, {.parse_special = true, .plain = user}), expected);
}

TEST_F(TokenizerTest, AControlTokenMayNotReachIntoAPlainRange) {
  const std::string text = "<|im_end|>";
  for (size_t begin = 0; begin < text.size(); ++begin) {
    const TextRange user[] = {{begin, begin + 1}};
    EXPECT_EQ(tokenizer_.Tokenise(text, {.parse_special = true, .plain = user}), Bytes(text))
        << begin;
  }
}

TEST_F(TokenizerTest, AShorterControlTokenIsTakenBeforeAPlainRange) {
  const TextRange user[] = {{10, 11}};
  EXPECT_THAT(tokenizer_.Tokenise("<|im_end|>!", {.parse_special = true, .plain = user}),
              ElementsAre(SmallIds::kEnd, '!'));
}

TEST_F(TokenizerTest, AnEmptyPlainRangeStopsNothingBehindIt) {
  const TextRange user[] = {{0, 0}, {3, 3}};
  EXPECT_THAT(tokenizer_.Tokenise("<|im_end|>", {.parse_special = true, .plain = user}).size(), 10);
  EXPECT_THAT(tokenizer_.Tokenise("abc<|im_end|>", {.parse_special = true, .plain = user}),
              ElementsAre(SmallIds::kAb, 'c', SmallIds::kEnd));
}

TEST_F(TokenizerTest, WordsCrossTheBordersOfPlainRanges) {
  const TextRange user[] = {{1, 3}};
  EXPECT_THAT(tokenizer_.Tokenise("hello", {.parse_special = true, .plain = user}),
              ElementsAre(SmallIds::kHell, 'o'));
}

TEST_F(TokenizerTest, PlainRangesOutOfOrderOrOutsideAreRefused) {
  const std::vector<TextRange> wrong[] = {
      {{2, 1}}, {{0, 6}}, {{0, 2}, {1, 3}}, {{3, 4}, {0, 1}}, {{6, 6}}};
  for (const auto& plain : wrong) {
    EXPECT_THROW(tokenizer_.Tokenise("hello", {.parse_special = true, .plain = plain}), Error);
  }
}

TEST_F(TokenizerTest, BosAndEosAreAddedOnRequestOnly) {
  VocabularyData data = SmallVocabulary();
  data.add_bos = true;
  data.add_eos = true;
  const Tokenizer tokenizer(data);
  EXPECT_THAT(tokenizer.Tokenise("a"), ElementsAre('a'));
  EXPECT_THAT(tokenizer.Tokenise("a", {.add_special = true}),
              ElementsAre(SmallIds::kBos, 'a', SmallIds::kEnd));
  // qwen2 adds neither by itself.
  EXPECT_THAT(tokenizer_.Tokenise("a", {.add_special = true}), ElementsAre('a'));
}

TEST_F(TokenizerTest, IgnoreMergesTakesAWholeWordThatIsAToken) {
  VocabularyData data = SmallVocabulary();
  const TokenId whole = AddToken(data, "hello", TokenType::kNormal);  // no merge makes it
  EXPECT_THAT(Tokenizer(data).Tokenise("hello"), ElementsAre(SmallIds::kHell, 'o'));
  data.ignore_merges = true;
  EXPECT_THAT(Tokenizer(data).Tokenise("hello"), ElementsAre(whole));
}

TEST_F(TokenizerTest, ByteTokensStandInForMissingSpellings) {
  VocabularyData data = SmallVocabulary();
  data.tokens[0xFF] = "<0xFF>";
  data.token_types[0xFF] = static_cast<int32_t>(TokenType::kByte);
  const Tokenizer tokenizer(data);
  EXPECT_THAT(tokenizer.Tokenise("\xFF"), ElementsAre(0xFF));
  EXPECT_EQ(tokenizer.Piece(0xFF), "\xFF");
}

TEST_F(TokenizerTest, AByteWithoutATokenIsRefusedNotDropped) {
  VocabularyData data = SmallVocabulary();
  data.tokens[0xFF] = "unrelated";
  const Tokenizer tokenizer(data);
  EXPECT_EQ(tokenizer.Tokenise("x").size(), 1u);
  try {
    tokenizer.Tokenise("\xFF");
    FAIL() << "a byte was lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
    EXPECT_THAT(error.what(), HasSubstr("255"));
  }
}

TEST_F(TokenizerTest, PiecesHideControlTokensUnlessShown) {
  EXPECT_EQ(tokenizer_.Piece(SmallIds::kEnd), "");
  EXPECT_EQ(tokenizer_.SpecialPiece(SmallIds::kEnd), "<|im_end|>");
  EXPECT_EQ(tokenizer_.SpecialPiece(kNoToken), "");
  EXPECT_EQ(tokenizer_.Piece(SmallIds::kEnd, SpecialText::kShown), "<|im_end|>");
  EXPECT_EQ(tokenizer_.Piece(SmallIds::kThink), "<think>");
  EXPECT_EQ(tokenizer_.Piece(' '), " ");
  EXPECT_EQ(tokenizer_.Piece(SmallIds::kHell), "hell");
}

TEST_F(TokenizerTest, IdsOutsideTheVocabularyAreRefusedWithItsSize) {
  for (const TokenId id : {-1, 266, INT32_MAX}) {
    EXPECT_THROW(tokenizer_.Piece(id), Error);
    EXPECT_THROW(tokenizer_.Detokenise(Ids{'a', id}), Error);
    EXPECT_FALSE(tokenizer_.IsEog(id));
  }
}

TEST_F(TokenizerTest, FindGivesTheTokenThatReadsSo) {
  EXPECT_EQ(tokenizer_.Find("hell"), SmallIds::kHell);
  EXPECT_EQ(tokenizer_.Find("<|im_end|>"), SmallIds::kEnd);
  EXPECT_EQ(tokenizer_.Find(" "), ' ');
  EXPECT_EQ(tokenizer_.Find("hello"), kNoToken);
}

TEST_F(TokenizerTest, EogHoldsNamedIdsAndEndMarkersButNoOrdinaryText) {
  VocabularyData data = SmallVocabulary();
  AddToken(data, "</s>", TokenType::kNormal);  // ordinary text that reads like a marker
  const TokenId pad = AddToken(data, "<|fim_pad|>", TokenType::kControl);
  const Tokenizer tokenizer(data);
  EXPECT_THAT(tokenizer.eog(), ElementsAre(SmallIds::kEnd, SmallIds::kEndoftext, pad));
  EXPECT_EQ(tokenizer.special_ids().fim_pad, pad);
  EXPECT_TRUE(tokenizer.IsEog(SmallIds::kEndoftext));
  EXPECT_FALSE(tokenizer.IsEog(SmallIds::kThink));
}

TEST_F(TokenizerTest, RandomBytesComeBackAsTheyWere) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::string text(random() % 200, '\0');
    // Half of the rounds draw from bytes that make and break characters and special tokens.
    constexpr std::string_view kNasty =
        "<|im_end|>hel ab\n\r\xC3\xA9\xE2\x82\xF0\x9F\x98\x80\xFF\x80";
    for (char& byte : text) {
      byte = round % 2 == 0 ? static_cast<char>(random()) : kNasty[random() % kNasty.size()];
    }
    for (const bool parse : {false, true}) {
      const Ids ids = tokenizer_.Tokenise(text, {.parse_special = parse});
      EXPECT_EQ(tokenizer_.Detokenise(ids, SpecialText::kShown), text);
    }
  }
}

TEST_F(TokenizerTest, NastyUnicodeComesBackAsItWas) {
  for (const std::string_view text :
       {"e\u0301 \u00e9", "\u200b\u200d\ufeff", "👩‍👩‍👧‍👦🏽", "שָׁלוֹם العربية",
        "नमस्ते ไทย", "a\r\n\r\n  \tb", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80", "\xE2\x82",
        "\u2028\u0085\u00a0\u3000x"}) {
    const Ids ids = tokenizer_.Tokenise(text);
    EXPECT_EQ(tokenizer_.Detokenise(ids), text);
  }
}

TEST_F(TokenizerTest, OneTokenizerServesManyThreads) {
  const std::string text = "hello abc <think> 123 \xFF don't";
  const Ids expected = tokenizer_.Tokenise(text);
  std::vector<Ids> results(4);
  {
    std::vector<std::jthread> threads;
    threads.reserve(results.size());
    for (Ids& result : results) {
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) result = tokenizer_.Tokenise(text);
      });
    }
  }
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

// Inputs that make careless splitters or mergers quadratic. The guard is the match limit, which is
// proportional to the text, the queue count of merges_test.cc, and the test's own time limit.
TEST_F(TokenizerTest, FourMegabytesOfAnythingAreTokenised) {
  constexpr size_t kBytes = 4u << 20;
  std::vector<std::string> texts;
  for (const char c : {' ', '\n', 'a', '!', '7', '\xFF', '<'}) texts.emplace_back(kBytes, c);
  for (const std::string_view pair : {"a ", "\n ", "h\xFF", "<|", "!\n", " \xC2\xA0"}) {
    std::string text;
    while (text.size() < kBytes) text += pair;
    texts.push_back(std::move(text));
  }
  texts.push_back(std::string(kBytes, ' ') + "x");
  for (const std::string& text : texts) {
    const Ids ids = tokenizer_.Tokenise(text, {.parse_special = true});
    EXPECT_TRUE(tokenizer_.Detokenise(ids) == text) << "beginning with " << +text[0];
  }
}

TEST_F(TokenizerTest, AWordAboveTheLimitIsMergedInParts) {
  // 2n letters in pairs, one more than the limit: the pair across the cut stays apart.
  std::string text(limits::kWordBytesMax + 1, 'l');
  EXPECT_EQ(tokenizer_.Tokenise(text).size(), limits::kWordBytesMax / 2 + 1);
  EXPECT_EQ(tokenizer_.Detokenise(tokenizer_.Tokenise(text)), text);
  text.back() = 'x';
  EXPECT_EQ(tokenizer_.Tokenise(text).size(), limits::kWordBytesMax / 2 + 1);
}

TEST_F(TokenizerTest, TextAboveTheLimitIsRefused) {
  const std::string text(limits::kTokeniseBytesMax + 1, ' ');
  EXPECT_THROW(tokenizer_.Tokenise(text), Error);
}

}  // namespace
}  // namespace bloomery::text
