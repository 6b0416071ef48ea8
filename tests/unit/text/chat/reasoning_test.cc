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

// What the whole text decides, pushed in pieces of `size` bytes.
ReasoningDelta Split(const Case& c, size_t size) {
  ReasoningSplitter splitter(kThink, c.starts_inside, c.call_ends ? "<tool_call>" : "");
  ReasoningDelta all;
  const auto add = [&](const ReasoningDelta& delta) {
    all.reasoning += delta.reasoning;
    all.span += delta.span;
    all.content += delta.content;
  };
  const std::string text = c.text;
  for (size_t pos = 0; pos < text.size(); pos += size) {
    add(splitter.Push(text.substr(pos, size)));
  }
  add(splitter.Finish());
  return all;
}

TEST(ReasoningSplitter, SplitsTheSameInPiecesOfEverySize) {
  for (const Case& c : kCases) {
    for (size_t size = 1; size <= 40; ++size) {
      const ReasoningDelta all = Split(c, size);
      EXPECT_EQ(all.reasoning, c.reasoning) << c.name << " in pieces of " << size;
      EXPECT_EQ(all.content, c.content) << c.name << " in pieces of " << size;
      EXPECT_EQ(all.span + all.content, c.text) << c.name << " in pieces of " << size;
    }
  }
}

TEST(ReasoningSplitter, HoldsOnlyWhatMayBecomeATag) {
  ReasoningSplitter splitter(kThink, true, "");
  EXPECT_EQ(splitter.Push("abc").reasoning, "abc");
  EXPECT_EQ(splitter.Push("d</th").reasoning, "d");
  EXPECT_EQ(splitter.Push("e").reasoning, "</the");
  EXPECT_EQ(splitter.Push("</think>x").content, "x");
  EXPECT_EQ(splitter.Push("</think>").content, "</think>");
}

TEST(ReasoningSplitter, TheMarksAreTheModelsOwn) {
  ReasoningSplitter splitter({"[R]", "[/R]"}, false, "");
  EXPECT_EQ(splitter.Push("[R]why[/").reasoning, "why");
  EXPECT_EQ(splitter.Push("R]<think>so").content, "<think>so");
}

TEST(ReasoningSplitter, WithoutMarksEverythingIsContent) {
  ReasoningSplitter splitter({}, false, "");
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
