#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "runtime/base/error.h"
#include "runtime/text/chat/reasoning.h"

namespace bloomery::chat {
namespace {

const ReasoningMarks kThink{"<think>", "</think>"};

struct Case {
  const char* name;
  bool starts_inside;
  bool call_ends;
  const char* text;
  const char* reasoning;
  const char* content;
};

const Case kCases[] = {
    {"plain", false, false, "Hello.", "", "Hello."},
    {"empty", false, false, "", "", ""},
    {"span", false, false, "<think>\nhmm\n</think>\n\nHi", "hmm", "Hi"},
    {"inside", true, false, "hmm\nwell\n</think>\n\nHi", "hmm\nwell", "Hi"},
    {"space before the tag", false, false, " \n<think>a</think>b", "a", "b"},
    {"never closed", true, false, "all of it", "all of it", ""},
    {"never closed after open", false, false, "<think>all ", "all ", ""},
    {"later open tag is content", false, false, "<think>a</think>b <think>c</think>", "a",
     "b <think>c</think>"},
    {"open tag in the middle is content", false, false, "x <think>a</think>", "",
     "x <think>a</think>"},
    {"close tag without open is content", false, false, "a</think>b", "", "a</think>b"},
    {"almost a tag", false, false, "<thin ice", "", "<thin ice"},
    {"almost a close tag", true, false, "a</thin b</think>c", "a</thin b", "c"},
    {"ends in a partial close tag", true, false, "a </thi", "a </thi", ""},
    {"ends in a partial open tag", false, false, "<thi", "", "<thi"},
    {"only space", false, false, "  ", "", "  "},
    {"empty span", false, false, "<think>\n\n</think>\n\nx", "", "x"},
    {"tool call ends the span", true, true, "need it\n<tool_call>\n{}", "need it",
     "<tool_call>\n{}"},
    {"tool call inside other templates", true, false, "a<tool_call>b</think>c", "a<tool_call>b",
     "c"},
    {"close tag before the call", true, true, "a</think>\n<tool_call>", "a", "<tool_call>"},
    {"double close", true, false, "a</think></think>b", "a", "</think>b"},
    {"space inside kept", true, false, "a  b\n\nc </think> d", "a  b\n\nc", "d"},
    {"unicode", false, false, "<think>é🙂</think>你", "é🙂", "你"},
};

// Both texts after pushing pieces of `size` bytes.
std::pair<std::string, std::string> Split(ReasoningFormat format, const Case& c, size_t size) {
  ReasoningSplitter splitter(format, kThink, c.starts_inside, c.call_ends);
  std::string reasoning;
  std::string content;
  const auto add = [&](const ReasoningDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
  };
  const std::string text = c.text;
  for (size_t pos = 0; pos < text.size(); pos += size) {
    add(splitter.Push(text.substr(pos, size)));
  }
  add(splitter.Finish());
  return {reasoning, content};
}

TEST(ReasoningSplitter, SplitsTheSameInPiecesOfEverySize) {
  for (const Case& c : kCases) {
    for (size_t size = 1; size <= 40; ++size) {
      EXPECT_EQ(Split(ReasoningFormat::kDeepseek, c, size),
                std::make_pair(std::string(c.reasoning), std::string(c.content)))
          << c.name << " in pieces of " << size;
    }
  }
}

TEST(ReasoningSplitter, NoneLeavesEverythingInTheContent) {
  for (const Case& c : kCases) {
    EXPECT_EQ(Split(ReasoningFormat::kNone, c, 3),
              std::make_pair(std::string(), std::string(c.text)))
        << c.name;
  }
}

TEST(ReasoningSplitter, LegacyGivesBoth) {
  for (const Case& c : kCases) {
    EXPECT_EQ(Split(ReasoningFormat::kDeepseekLegacy, c, 3),
              std::make_pair(std::string(c.reasoning), std::string(c.text)))
        << c.name;
  }
}

TEST(ReasoningSplitter, HoldsOnlyWhatMayBecomeATag) {
  ReasoningSplitter splitter(ReasoningFormat::kDeepseek, kThink, true, false);
  EXPECT_EQ(splitter.Push("abc").reasoning, "abc");
  EXPECT_EQ(splitter.Push("d</th").reasoning, "d");
  EXPECT_EQ(splitter.Push("e").reasoning, "</the");
  EXPECT_EQ(splitter.Push("</think>x").content, "x");
  EXPECT_EQ(splitter.Push("</think>").content, "</think>");
}

TEST(ReasoningSplitter, TheMarksAreTheModelsOwn) {
  ReasoningSplitter splitter(ReasoningFormat::kDeepseek, {"[R]", "[/R]"}, false, false);
  EXPECT_EQ(splitter.Push("[R]why[/").reasoning, "why");
  EXPECT_EQ(splitter.Push("R]<think>so").content, "<think>so");
}

TEST(ReasoningSplitter, WithoutMarksEverythingIsContent) {
  ReasoningSplitter splitter(ReasoningFormat::kDeepseek, {}, false, false);
  EXPECT_EQ(splitter.Push("<think>a</think>b").content, "<think>a</think>b");
}

TEST(ReasoningFormats, AreReadByNameAndUnknownOnesRefused) {
  EXPECT_EQ(ParseReasoningFormat("none"), ReasoningFormat::kNone);
  EXPECT_EQ(ParseReasoningFormat("auto"), ReasoningFormat::kDeepseek);
  EXPECT_EQ(ParseReasoningFormat("deepseek"), ReasoningFormat::kDeepseek);
  EXPECT_EQ(ParseReasoningFormat("deepseek-legacy"), ReasoningFormat::kDeepseekLegacy);
  EXPECT_THROW(ParseReasoningFormat("qwen"), Error);
}

}  // namespace
}  // namespace bloomery::chat
