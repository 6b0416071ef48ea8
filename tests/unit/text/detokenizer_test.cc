#include "runtime/text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "runtime/base/utf8.h"
#include "tests/unit/text/small_vocabulary.h"

namespace bloomery::text {
namespace {

class DetokenizerTest : public ::testing::Test {
 protected:
  Tokenizer tokenizer_{SmallVocabulary()};
};

TEST_F(DetokenizerTest, HoldsACharacterUntilItIsWhole) {
  Detokenizer stream(tokenizer_);
  EXPECT_EQ(stream.Next(0xF0), "");
  EXPECT_EQ(stream.Next(0x9F), "");
  EXPECT_EQ(stream.Next(0x98), "");
  EXPECT_EQ(stream.held_bytes(), 3u);
  EXPECT_EQ(stream.Next(0x80), "😀");
  EXPECT_EQ(stream.held_bytes(), 0u);
  EXPECT_EQ(stream.Finish(), "");
}

TEST_F(DetokenizerTest, AnUnfinishedCharacterEndsAsOneReplacement) {
  Detokenizer stream(tokenizer_);
  EXPECT_EQ(stream.Next('a'), "a");
  stream.Next(0xE2);
  stream.Next(0x82);
  EXPECT_EQ(stream.Finish(), "\uFFFD");
  EXPECT_EQ(stream.Next('b'), "b");
}

TEST_F(DetokenizerTest, ABrokenCharacterIsReplacedAndWhatFollowsIsKept) {
  Detokenizer stream(tokenizer_);
  stream.Next(0xE2);
  EXPECT_EQ(stream.Next('a'),
            "\uFFFD"
            "a");
  EXPECT_EQ(stream.Next(0xFF), "\uFFFD");
}

TEST_F(DetokenizerTest, ControlTokensAreSilentUnlessShown) {
  Detokenizer hidden(tokenizer_);
  Detokenizer shown(tokenizer_, SpecialText::kShown);
  EXPECT_EQ(hidden.Next(SmallIds::kEnd), "");
  EXPECT_EQ(shown.Next(SmallIds::kEnd), "<|im_end|>");
  EXPECT_EQ(hidden.Next(SmallIds::kThink), "<think>");
}

TEST_F(DetokenizerTest, JoinedTextsEqualTheWholeAndAreAlwaysWhole) {
  std::mt19937 random(11);
  constexpr TokenId kBytes[] = {'a',           0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0,
                                0x9F,          0x98, 0x80, 0xED, 0xA0, 0xFF, SmallIds::kHell,
                                SmallIds::kEnd};
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids(random() % 20);
    for (TokenId& id : ids) id = kBytes[random() % std::size(kBytes)];
    Detokenizer stream(tokenizer_);
    std::string joined;
    for (const TokenId id : ids) {
      const std::string_view text = stream.Next(id);
      EXPECT_TRUE(IsValidUtf8(text));
      EXPECT_LE(stream.held_bytes(), 3u);
      joined += text;
    }
    joined += stream.Finish();
    EXPECT_EQ(joined, ReplaceInvalidUtf8(tokenizer_.Detokenise(ids)));
  }
}

}  // namespace
}  // namespace bloomery::text
