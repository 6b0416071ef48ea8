#include "runtime/text/stop_matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"

namespace bloomery::text {
namespace {

using Words = std::vector<std::string>;

struct Outcome {
  std::string text;
  std::optional<std::string> found;
  bool operator==(const Outcome&) const = default;
};

// Feeds `pieces` and ends as a sequence does.
Outcome Feed(const Words& words, const std::vector<std::string>& pieces) {
  StopMatcher matcher(words);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    outcome.text += matcher.Next(piece);
    if (matcher.found()) break;
  }
  if (matcher.found()) {
    outcome.found = std::string(*matcher.found());
  } else {
    outcome.text += matcher.Finish();
  }
  return outcome;
}

// The definition, over the whole text at once: the shortest prefix of the text that ends with a
// word decides.
Outcome Define(const Words& words, std::string_view text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& word : words) {
      if (!word.empty() && text.substr(0, end).ends_with(word) && word.size() > best.size()) {
        best = word;
      }
    }
    if (!best.empty()) return {std::string(text.substr(0, end - best.size())), best};
  }
  return {std::string(text), std::nullopt};
}

TEST(StopMatcherTest, WithoutWordsEverythingGoesAtOnce) {
  StopMatcher matcher;
  EXPECT_EQ(matcher.Next("abc"), "abc");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, CutsBeforeTheWordInsideAPiece) {
  EXPECT_EQ(Feed({"X"}, {"abXcd"}), (Outcome{"ab", "X"}));
}

TEST(StopMatcherTest, FindsAWordAcrossPiecesAndNeverLetsItsBeginningOut) {
  StopMatcher matcher(Words{"STOP"});
  EXPECT_EQ(matcher.Next("aS"), "a");
  EXPECT_EQ(matcher.Next("TO"), "");
  EXPECT_EQ(matcher.held_bytes(), 3u);
  EXPECT_EQ(matcher.Next("Pb"), "");
  EXPECT_EQ(matcher.found(), "STOP");
  EXPECT_EQ(matcher.Next("more"), "");
}

TEST(StopMatcherTest, ReleasesWhatStopsMatching) {
  StopMatcher matcher(Words{"STOP"});
  EXPECT_EQ(matcher.Next("ST"), "");
  EXPECT_EQ(matcher.Next("A"), "STA");
  EXPECT_EQ(matcher.Next("ST"), "");
  EXPECT_EQ(matcher.Finish(), "ST");
  EXPECT_FALSE(matcher.found());
}

TEST(StopMatcherTest, HoldsOnlyTheTailThatCanStillBecomeAWord) {
  StopMatcher matcher(Words{"aab"});
  EXPECT_EQ(matcher.Next("aaa"), "a");
  EXPECT_EQ(matcher.Next("b"), "");
  EXPECT_EQ(matcher.found(), "aab");
}

TEST(StopMatcherTest, TheWordCompleteFirstWinsThenTheLonger) {
  EXPECT_EQ(Feed({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", "bc"}));
  EXPECT_EQ(Feed({"bc", "abc"}, {"xabc"}), (Outcome{"x", "abc"}));
}

TEST(StopMatcherTest, EmptyWordsAreDropped) { EXPECT_EQ(Feed({""}, {"ab"}), (Outcome{"ab", {}})); }

TEST(StopMatcherTest, DependsOnTheTextAloneHoweverItIsCut) {
  std::mt19937 random(5);
  for (int round = 0; round < 5000; ++round) {
    const auto draw = [&random](size_t length_max) {
      std::string text(random() % (length_max + 1), 'a');
      for (char& c : text) c = static_cast<char>('a' + random() % 2);
      return text;
    };
    Words words;
    for (size_t i = random() % 4; i > 0; --i) words.push_back(draw(6));
    const std::string text = draw(24);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, 1 + random() % 5));
      at += pieces.back().size();
    }
    EXPECT_EQ(Feed(words, pieces), Define(words, text)) << text;
  }
}

TEST(StopMatcherTest, LimitsAreTakenAndOnePastThemIsRefused) {
  Words words;
  for (size_t i = 0; i < limits::kStopStringsMax; ++i) words.push_back("w" + std::to_string(i));
  EXPECT_NO_THROW(StopMatcher{words});
  words.push_back("one more");
  EXPECT_THROW(StopMatcher{words}, Error);
  EXPECT_NO_THROW(StopMatcher(Words{std::string(limits::kStopStringBytesMax, 'x')}));
  try {
    const StopMatcher matcher(Words{std::string(limits::kStopStringBytesMax + 1, 'x')});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("Field 'stop'"));
  }
}

}  // namespace
}  // namespace bloomery::text
