// Recorded answers of each tool syntax, written by hand from the formats: what they read as, and
// that no cut and no damage loses text or makes a stream differ from the whole.
#include "runtime/text/chat/chat_output.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/base/utf8.h"
#include "tests/unit/text/chat/turns.h"

namespace bloomery::chat {
namespace {

using test::Read;
using test::ReadInPieces;
using test::Shown;

struct Case {
  const char* name;
  ToolSyntax syntax;
  const char* text;
  const char* turn;  // as Shown
};

#define D(tag) "<｜DSML｜" tag
#define E(tag) "</｜DSML｜" tag ">"
#define BROKEN(name)                                  \
  "E[the model's call of '" name                      \
  "' cannot be read: its arguments are not what the " \
  "form of calls allows]"
#define ENDED(name) "E[the model has ended its answer inside a call of '" name "']"

constexpr auto kHermes = ToolSyntax::kHermes;
constexpr auto kQwen = ToolSyntax::kQwenXml;
constexpr auto kInline = ToolSyntax::kQwenXmlInline;
constexpr auto kGlm = ToolSyntax::kGlmXml;
constexpr auto kDsml = ToolSyntax::kDsml;

const Case kCases[] = {
    // ---- whole answers
    {"no call", kHermes, "Just words.\n", "R[] C[Just words.\n]"},
    {"a call", kHermes,
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln "
     "🙂\"}}\n</tool_call>",
     "R[] C[] weather{\"city\": \"Köln 🙂\"}"},
    {"words, then two calls", kHermes,
     "<think>\nhm <tool_call> hm\n</think>\n\nLet me look.\n\n"
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"a\", \"days\": "
     "2}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"weather_map\", \"arguments\": {}}\n</tool_call>",
     "R[hm <tool_call> hm] C[Let me look.] weather{\"city\": \"a\", \"days\": 2} "
     "weather_map{}"},
    {"words behind a call", kHermes,
     "<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>\n\nThat was it.",
     "R[] C[\n\nThat was it.] weather{}"},
    {"arguments before the name", kHermes,
     "<tool_call>{\"arguments\": {\"days\": 1}, \"name\": \"weather\"}</tool_call>",
     "R[] C[] weather{\"days\": 1}"},
    {"arguments as a string", kHermes,
     R"(<tool_call>{"name": "weather", "arguments": "{\"days\": 1}"}</tool_call>)",
     "R[] C[] weather{\"days\": 1}"},
    {"no arguments", kHermes, "<tool_call>{\"name\": \"weather\"}</tool_call>",
     "R[] C[] weather{}"},
    {"null arguments", kHermes,
     "<tool_call>{\"name\": \"weather\", \"arguments\": null}</tool_call>", "R[] C[] weather{}"},
    {"markup inside a string", kHermes,
     R"(<tool_call>{"name":"write_file","arguments":{"text":"</tool_call><tool_call>{\"x"}}</tool_call>)",
     R"(R[] C[] write_file{"text":"</tool_call><tool_call>{\"x"})"},
    {"more members", kHermes,
     "<tool_call>{\"id\": 7, \"name\": \"weather\", \"arguments\": {}, \"x\": "
     "[1]}</tool_call>",
     "R[] C[] weather{}"},
    {"qwen", kQwen,
     "I see.\n<tool_call>\n<function=weather>\n<parameter=city>\nNew\nYork\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n"
     "<parameter=tags>\n[\"a\", 1]\n</parameter>\n<parameter=note>\nnull\n</parameter>\n"
     "</function>\n</tool_call>",
     "R[] C[I see.] weather{\"city\": \"New\\nYork\", \"days\": 3, \"metric\": true, "
     "\"tags\": "
     "[\"a\", 1], \"note\": null}"},
    {"qwen: the span ends with the call", kQwen,
     "<think>\nI must call\n<tool_call>\n<function=weather_map>\n</function>\n</tool_call>",
     "R[I must call] C[] weather_map{}"},
    {"qwen without the block", kQwen,
     "<function=weather>\n<parameter=city>\nBonn\n</parameter>\n</function>\n</tool_call>",
     "R[] C[] weather{\"city\": \"Bonn\"}"},
    {"qwen: two calls, no newlines", kQwen,
     "<tool_call><function=weather><parameter=city>A</parameter></function></tool_call>"
     "<tool_call><function=weather_map></function></tool_call>",
     "R[] C[] weather{\"city\": \"A\"} weather_map{}"},
    {"inline: reasoning, then a call with nothing between the tags", kInline,
     "<think>I look it up.</think><tool_call><function=weather><parameter=city>New York</parameter>"
     "<parameter=days>3</parameter><parameter=tags>[\"a\", 1]</parameter></function></tool_call>",
     "R[I look it up.] C[] weather{\"city\": \"New York\", \"days\": 3, \"tags\": [\"a\", 1]}"},
    {"inline: a newline at a value's end is the value's", kInline,
     "<tool_call><function=write_file><parameter=text>\nint "
     "x;\n\n</parameter></function></tool_call>",
     "R[] C[] write_file{\"text\": \"\\nint x;\\n\\n\"}"},
    {"inline: an empty value, and a closing tag inside of one", kInline,
     "<tool_call><function=write_file><parameter=text></parameter></function></tool_call>"
     "<tool_call><function=write_file><parameter=text>a</parameter>b</parameter></function></"
     "tool_call>",
     "R[] C[] write_file{\"text\": \"\"} write_file{\"text\": \"a</parameter>b\"}"},
    {"inline: the span ends with the call", kInline,
     "<think>I must call<tool_call><function=weather_map></function></tool_call>",
     "R[I must call] C[] weather_map{}"},
    {"qwen: types from enum, anyOf and $ref", kQwen,
     "<tool_call>\n<function=write_file>\n<parameter=mode>\n1\n</"
     "parameter>\n<parameter=size>\n"
     "2.5\n</parameter>\n<parameter=kind>\n7\n</parameter>\n<parameter=else>\n{\"a\": "
     "[1]}\n"
     "</parameter>\n<parameter=more>\nno json\n</parameter>\n</function>\n</tool_call>",
     "R[] C[] write_file{\"mode\": \"1\", \"size\": 2.5, \"kind\": \"7\", \"else\": "
     "{\"a\": [1]}, "
     "\"more\": \"no json\"}"},
    {"qwen: a closing tag inside a text", kQwen,
     "<tool_call>\n<function=write_file>\n<parameter=text>\nuse </parameter> "
     "and\n\n</parameter>x\n"
     "\n</parameter>\n</function>\n</tool_call>",
     "R[] C[] write_file{\"text\": \"use </parameter> and\\n\\n</parameter>x\\n\"}"},
    {"qwen: not what the schema says", kQwen,
     "<tool_call>\n<function=weather>\n<parameter=days>\nmany\n</parameter>\n</function>\n"
     "</tool_call>",
     "R[] C[] weather{\"days\": \"many\"}"},
    {"glm", kGlm,
     "Well.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Ulm "
     "\"x\"\n</arg_value>\n"
     "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
     "R[] C[Well.] weather{\"city\": \"Ulm \\\"x\\\"\\n\", \"days\": 3}"},
    {"glm on one line, two calls", kGlm,
     "<tool_call>weather_map</tool_call><tool_call>weather<arg_key>city</"
     "arg_key><arg_value>"
     "A</arg_value></tool_call>",
     "R[] C[] weather_map{} weather{\"city\": \"A\"}"},
    {"glm: a call inside the span is reasoning", kGlm,
     "<think>a <tool_call>weather</tool_call> b</think><tool_call>weather</tool_call>",
     "R[a <tool_call>weather</tool_call> b] C[] weather{}"},
    {"dsml", kDsml,
     "Yes.\n\n" D("tool_calls>") "\n" D("invoke name=\"weather\">") "\n" D(
         "parameter "
         "name=\"city\" "
         "string=\"true\">") "5" E("parameter") "\n" D("parameter name=\"days\" "
                                                       "string=\"false\">") "5" E("paramete"
                                                                                  "r") "\n" E("invo"
                                                                                              "ke") "\n" D("invoke name=\"weather_map\">") "\n" E("invoke") "\n" E("tool_calls"),
     "R[] C[Yes.] weather{\"city\": \"5\", \"days\": 5} weather_map{}"},
    {"dsml: the older block, inside the span", kDsml,
     "<think>so\n\n" D("function_calls>") "\n" D("invoke name=\"weather_map\">") "\n" E(
         "invoke") "\n" E("function_calls"),
     "R[so\n\n" D("function_calls>") "\n" D("invoke name=\"weather_map\">") "\n" E("invoke") "\n" E(
         "function_calls") "] C[]"},

    // ---- damage
    {"doubled closing tag", kHermes,
     "<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call></tool_call>\n</"
     "tool_call>",
     "R[] C[] weather{}"},
    {"no closing tag", kHermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}",
     "R[] C[] weather{}"},
    {"one brace too few", kHermes,
     "<tool_call>{\"name\": \"weather\", \"arguments\": {\"days\": 1}\n</tool_call>",
     "R[] C[] weather{\"days\": 1}"},
    {"unknown function", kHermes,
     "a <tool_call>{\"name\": \"bake\", \"arguments\": {}}</tool_call> b",
     "E[the model has written a call that cannot be read: '<tool_call>{\"name\": \"bake\", "
     "\"arguments\": {}}</tool_call>']"},
    {"no JSON", kHermes, "<tool_call>weather</tool_call>",
     "E[the model has written a call that cannot be read: '<tool_call>weather</tool_call>']"},
    {"talk about the opener", kHermes, "Write <tool_call> first, <tool_call> again.",
     "R[] C[Write <tool_call> first, <tool_call> again.]"},
    {"talk about the closer", kHermes, "It ends with </tool_call>.",
     "R[] C[It ends with </tool_call>.]"},
    {"talk, then a call, then its closer again", kHermes,
     "<tool_call> opens. <tool_call>{\"name\": \"weather\"}</tool_call> </tool_call> closes.",
     "R[] C[<tool_call> opens.  closes.] weather{}"},
    {"JSON breaks in the arguments", kHermes,
     "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": Bonn}}</tool_call>",
     BROKEN("weather")},
    {"JSON breaks in the arguments, and nothing closes them", kHermes,
     "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": Bonn", ENDED("weather")},
    {"arguments are no object", kHermes,
     "<tool_call>{\"name\": \"weather\", \"arguments\": [1]}</tool_call>",
     "E[the model has written a call that cannot be read: '<tool_call>{\"name\": \"weather\", "
     "\"arguments\": [1]}</tool_call>']"},
    {"cut in the arguments", kHermes,
     "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Bo", ENDED("weather")},
    {"cut in the name", kHermes, "ok\n<tool_call>{\"name\": \"wea",
     "R[] C[ok\n<tool_call>{\"name\": \"wea]"},
    {"an opener alone", kHermes, "ok\n<tool_call>", "R[] C[ok\n<tool_call>]"},
    {"half an opener", kHermes, "ok\n<tool_c", "R[] C[ok\n<tool_c]"},
    {"opener in an opener", kHermes,
     "<tool_call><tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>",
     "R[] C[<tool_call>] weather{}"},
    {"qwen: unknown function", kQwen, "<tool_call>\n<function=bake>\n</function>\n</tool_call>",
     "E[the model has written a call that cannot be read: "
     "'<tool_call>\\x0A<function=bake>\\x0A</function>']"},
    {"qwen: talk about markup", kQwen, "Write <function=weather> and then more.",
     "R[] C[Write <function=weather> and then more.]"},
    {"qwen: a parameter twice", kQwen,
     "<tool_call>\n<function=weather>\n<parameter=days>\n1\n</"
     "parameter>\n<parameter=days>\n2\n"
     "</parameter>\n</function>\n</tool_call>",
     BROKEN("weather")},
    {"qwen: the end missing", kQwen,
     "<tool_call>\n<function=weather>\n<parameter=days>\n1\n</parameter>\n",
     "R[] C[] weather{\"days\": 1}"},
    {"qwen: cut in a text", kQwen,
     "<tool_call>\n<function=weather>\n<parameter=city>\nBonn am\n</para", ENDED("weather")},
    {"qwen: cut in a number", kQwen, "<tool_call>\n<function=weather>\n<parameter=days>\n12",
     ENDED("weather")},
    {"glm: unknown function", kGlm, "<tool_call>bake<arg_key>a</arg_key>",
     "R[] C[<tool_call>bake<arg_key>a</arg_key>]"},
    {"glm: no value", kGlm, "<tool_call>weather<arg_key>city</arg_key>Bonn</tool_call>",
     BROKEN("weather")},
    {"dsml: no mark", kDsml,
     D("tool_calls>") D("invoke name=\"weather\">") D("parameter name=\"city\">") "x" E("parameter")
         E("invoke") E("tool_calls"),
     BROKEN("weather")},
};

OutputFormat FormatOf(ToolSyntax syntax) {
  OutputFormat format;
  format.marks = {"<think>", "</think>"};
  format.syntax = syntax;
  format.tools = test::KitchenTools();
  return format;
}

TEST(ChatOutput, ReadsRecordedAnswersTheSameInPiecesOfEverySize) {
  for (const Case& c : kCases) {
    const std::string text = c.text;
    for (size_t size = 1; size <= text.size() + 1; ++size) {
      const Read read = ReadInPieces(FormatOf(c.syntax), text, size);
      ASSERT_EQ(Shown(read), c.turn) << c.name << " in pieces of " << size;
    }
  }
}

TEST(ChatOutput, CallsBeginOnceEndOnceAndComeInOrder) {
  for (const Case& c : kCases) {
    size_t next = 0;
    bool open = false;
    const Read read = ReadInPieces(FormatOf(c.syntax), c.text, 3);
    for (const OutputDelta& delta : read.deltas) {
      switch (delta.kind) {
        case OutputDelta::Kind::kCallBegin:
          EXPECT_FALSE(open) << c.name;
          EXPECT_EQ(delta.call, next) << c.name;
          EXPECT_EQ(delta.id, "id" + std::to_string(next)) << c.name;
          open = true;
          break;
        case OutputDelta::Kind::kCallArguments:
          EXPECT_TRUE(open) << c.name;
          EXPECT_EQ(delta.call, next) << c.name;
          EXPECT_FALSE(delta.text.empty()) << c.name;
          break;
        case OutputDelta::Kind::kCallEnd:
          EXPECT_TRUE(open) << c.name;
          EXPECT_EQ(delta.call, next++) << c.name;
          open = false;
          break;
        default:
          EXPECT_FALSE(open) << c.name;
          EXPECT_FALSE(delta.text.empty()) << c.name;
      }
    }
    EXPECT_TRUE(!open || !read.error.empty()) << c.name;
  }
}

// The arguments of a text parameter and of JSON come while they form.
TEST(ChatOutput, ArgumentsStreamAsTheyForm) {
  const std::pair<ToolSyntax, const char*> heads[] = {
      {kHermes, "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Bonn am"},
      {kQwen, "<tool_call>\n<function=weather>\n<parameter=city>\nBonn am"},
      {kGlm, "<tool_call>weather<arg_key>city</arg_key><arg_value>Bonn am"},
      {kDsml, D("tool_calls>") "\n" D("invoke name=\"weather\">") "\n" D(
                  "parameter name=\"city\" string=\"true\">") "Bonn am"},
  };
  for (const auto& [syntax, head] : heads) {
    ChatOutput output(FormatOf(syntax), [] { return "x"; });
    AssistantTurn turn;
    for (const auto& delta : output.Push(head)) turn.Add(delta);
    ASSERT_EQ(turn.calls.size(), 1U) << head;
    EXPECT_EQ(turn.calls[0].arguments, "{\"city\": \"Bonn am") << head;
    for (const auto& delta : output.Push(" Rhein")) turn.Add(delta);
    EXPECT_EQ(turn.calls[0].arguments, "{\"city\": \"Bonn am Rhein") << head;
    EXPECT_FALSE(output.has_calls());
  }
}

TEST(ChatOutput, ContentIsHeldOnlyWhereItMayBecomeMarkup) {
  ChatOutput output(FormatOf(kHermes), [] { return "x"; });
  EXPECT_EQ(output.Push("a < b")[0].text, "a < b");
  EXPECT_TRUE(output.Push(" \n").empty());
  EXPECT_EQ(output.Push("c <tool")[0].text, " \nc");
  EXPECT_EQ(output.Push("s>")[0].text, " <tools>");
}

// Words that stand for text everywhere; all but markup.
std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : std::string(text) + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
      continue;
    }
    constexpr const char* kMarkup[] = {
        "tool_call", "function", "parameter", "name",   "arguments",     "arg_key", "arg_value",
        "think",     "DSML",     "invoke",    "string", "tool_calls",    "true",    "false",
        "id",        "x",        "null",      "True",   "function_calls"};
    if (word.size() > 1 && std::ranges::find(kMarkup, word) == std::end(kMarkup)) {
      words.push_back(word);
    }
    word.clear();
  }
  return words;
}

// What must hold of any text at all, however it ends: pieces and whole agree, calls are JSON
// objects of known functions; and where nothing was dropped output is valid UTF-8, and every word
// is somewhere in it, in its order.
void CheckAnyText(ToolSyntax syntax, const std::string& text, bool words_too) {
  const OutputFormat format = FormatOf(syntax);
  for (const AnswerEnding ending : {AnswerEnding::kCut, AnswerEnding::kStopped}) {
    const Read whole = ReadInPieces(format, text, text.size() + 1, ending);
    for (const size_t size : {1, 2, 5}) {
      ASSERT_EQ(Shown(ReadInPieces(format, text, size, ending)), Shown(whole))
          << "pieces of " << size << ": " << text;
    }
    if (!whole.error.empty()) continue;
    for (const auto& call : whole.turn.calls) {
      EXPECT_NE(format.tools->Find(call.name), nullptr) << text;
      EXPECT_TRUE(ParseJson(call.arguments, "arguments").IsObject()) << text;
    }
  }
  const Read whole = ReadInPieces(format, text, text.size() + 1);
  for (const size_t size : {1, 2, 5}) {
    ASSERT_EQ(Shown(ReadInPieces(format, text, size)), Shown(whole))
        << "pieces of " << size << ": " << text;
  }
  if (!words_too || !whole.error.empty()) return;
  EXPECT_TRUE(IsValidUtf8(whole.all)) << text;
  size_t at = 0;
  for (const std::string& word : WordsOf(text)) {
    const size_t found = whole.all.find(word, at);
    ASSERT_NE(found, std::string::npos)
        << "lost '" << word << "' of: " << text << "\nin: " << whole.all;
    at = found + word.size();
  }
}

// Arguments come behind the name, wherever the answer had them; and members that no call has are
// not shown.
bool KeepsOrder(const Case& c) {
  const std::string_view name = c.name;
  return name != "arguments before the name" && name != "more members";
}

TEST(ChatOutput, NoTruncationLosesText) {
  for (const Case& c : kCases) {
    const std::string text = c.text;
    for (size_t size = 0; size < text.size(); ++size) {
      const bool whole_character = Utf8IncompleteTail(text.substr(0, size)) == 0;
      CheckAnyText(c.syntax, text.substr(0, size), KeepsOrder(c) && whole_character);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ChatOutput, NoMutationLosesTextOrMakesPiecesDiffer) {
  std::mt19937 random(7);
  const auto upto = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n)(random); };
  const std::string alphabet = "<>/{}\"\\:, \n=au1";
  for (int round = 0; round < 60; ++round) {
    for (const Case& c : kCases) {
      std::string text = c.text;
      for (size_t edits = 1 + upto(2); edits > 0 && !text.empty(); --edits) {
        const size_t at = upto(text.size() - 1);
        const size_t size = 1 + upto(11);
        switch (upto(3)) {
          case 0:
            text.erase(at, size);
            break;
          case 1:
            text.insert(at, 1, alphabet[upto(alphabet.size() - 1)]);
            break;
          case 2:
            text.insert(upto(text.size()), text.substr(at, size * 3));
            break;
          default:
            text[at] = alphabet[upto(alphabet.size() - 1)];
        }
      }
      CheckAnyText(c.syntax, text, false);
      if (HasFatalFailure()) return;
    }
  }
}

// The other syntaxes' markup is just text.
TEST(ChatOutput, ForeignMarkupLosesNoText) {
  for (const Case& c : kCases) {
    for (const ToolSyntax syntax : {kHermes, kQwen, kInline, kGlm, kDsml}) {
      if (syntax == c.syntax) continue;
      CheckAnyText(syntax, c.text, false);
    }
  }
}

TEST(ChatOutput, ReasoningFormatNoneIsTagsAndReasoningAndContent) {
  for (const Case& c : kCases) {
    OutputFormat format = FormatOf(c.syntax);
    const Read split = ReadInPieces(format, c.text, 4);
    if (!split.error.empty()) continue;
    format.reasoning = ReasoningFormat::kNone;
    const Read none = ReadInPieces(format, c.text, 4);
    format.reasoning = ReasoningFormat::kDeepseekLegacy;
    const Read legacy = ReadInPieces(format, c.text, 4);
    EXPECT_EQ(none.turn.reasoning, "") << c.name;
    EXPECT_EQ(legacy.turn.reasoning, split.turn.reasoning) << c.name;
    EXPECT_EQ(legacy.turn.content, none.turn.content) << c.name;
    EXPECT_TRUE(none.turn.content.ends_with(split.turn.content)) << c.name;
    EXPECT_NE(none.turn.content.find(split.turn.reasoning), std::string::npos) << c.name;
    EXPECT_EQ(none.turn.calls.size(), split.turn.calls.size()) << c.name;
  }
}

TEST(ChatOutput, WithoutToolsMarkupIsContent) {
  OutputFormat format = FormatOf(kHermes);
  format.tools = nullptr;
  const char* text = "<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>\n";
  EXPECT_EQ(ReadInPieces(format, text, 1).turn.content, text);
}

TEST(ChatOutput, ALimitDropsACallWithoutItsEnd) {
  const char* text = "<tool_call>\n<function=weather>\n<parameter=days>\n1\n</parameter>\n";
  const Read ended = ReadInPieces(FormatOf(kQwen), text, 3);
  EXPECT_TRUE(ended.has_calls);
  EXPECT_EQ(ended.turn.calls.at(0).arguments, "{\"days\": 1}");
  const Read cut = ReadInPieces(FormatOf(kQwen), text, 3, AnswerEnding::kCut);
  EXPECT_FALSE(cut.has_calls);
  EXPECT_EQ(Shown(cut), "R[] C[]");
}

// What a limit leaves of a call is none, wherever it cuts; what a stop string leaves neither.
TEST(ChatOutput, ACallCutOffIsDroppedWithItsMarkup) {
  const std::pair<ToolSyntax, const char*> calls[] = {
      {kHermes, "ok\n<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Bonn am"},
      {kQwen, "ok\n<tool_call>\n<function=weather>\n<parameter=city>\nBonn am\n</para"},
      {kGlm, "ok\n<tool_call>weather<arg_key>city</arg_key><arg_value>Bonn am"},
      {kDsml, "ok\n\n" D("tool_calls>") "\n" D("invoke name=\"weather\">") "\n" D(
                  "parameter name=\"city\" string=\"true\">") "Bonn am"},
  };
  for (const auto& [syntax, text] : calls) {
    const std::string opener(ToolCallOpener(syntax));
    const std::string whole = text;
    for (size_t size = whole.find(opener) + opener.size(); size <= whole.size(); ++size) {
      for (const AnswerEnding ending : {AnswerEnding::kCut, AnswerEnding::kStopped}) {
        const Read read = ReadInPieces(FormatOf(syntax), whole.substr(0, size), 4, ending);
        EXPECT_EQ(Shown(read), "R[] C[ok]") << whole.substr(0, size);
      }
    }
  }
}

TEST(ChatOutput, MarkupThatNeverBecomesACallIsNotHeldForEver) {
  ChatOutput output(FormatOf(kHermes), [] { return "x"; });
  std::string content;
  const auto push = [&](const std::string& text) {
    for (const auto& delta : output.Push(text)) content += delta.text;
  };
  push("<tool_call>{\"arguments\": {\"text\": \"");
  for (int i = 0; i < 80; ++i) push(std::string(1024, 'a'));
  EXPECT_GT(content.size(), 64U << 10);
}

TEST(ToolSyntaxes, AreNamedAndDetected) {
  for (const ToolSyntax syntax : {kHermes, kQwen, kInline, kGlm, kDsml}) {
    EXPECT_EQ(ToolSyntaxNamed(ToolSyntaxName(syntax)), syntax);
    EXPECT_FALSE(ToolCallOpener(syntax).empty());
  }
  EXPECT_EQ(ToolSyntaxNamed("morse"), ToolSyntax::kNone);
  const char* hermes = "<tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>";
  const char* coder = "<tool_call>\n<function=f>\n<parameter=p>\n</parameter>";
  const char* adjacent = "{{ '<tool_call><function=' + f + '>' }}{{ '<parameter=' + k + '>' }}";
  EXPECT_EQ(DetectToolSyntax(adjacent), kInline);
  EXPECT_EQ(ChooseToolSyntax("qwen_xml_inline", coder), kQwen);
  EXPECT_EQ(DetectToolSyntax(hermes), kHermes);
  EXPECT_EQ(DetectToolSyntax(coder), kQwen);
  EXPECT_EQ(DetectToolSyntax("<tool_call>f<arg_key>k</arg_key><arg_value>"), kGlm);
  EXPECT_EQ(DetectToolSyntax("{{ dsml_token }}tool_calls"), kDsml);
  EXPECT_EQ(DetectToolSyntax("{{ messages }}"), ToolSyntax::kNone);
  EXPECT_EQ(ChooseToolSyntax("hermes", "{{ messages }}"), kHermes);
  EXPECT_EQ(ChooseToolSyntax("hermes", coder), kQwen);
  EXPECT_EQ(ChooseToolSyntax("", "{{ messages }}"), ToolSyntax::kNone);
}

}  // namespace
}  // namespace bloomery::chat
