// Grammars of tool calls against the parser that reads such calls: what a grammar takes, the parser
// must read as calls, and what is no call of the tools the grammar must refuse.
#include "runtime/text/chat/tool_grammar.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "runtime/base/error.h"
#include "runtime/text/tokenizer.h"
#include "tests/unit/text/chat/turns.h"
#include "tests/unit/text/small_vocabulary.h"

namespace bloomery::chat {
namespace {

constexpr auto kHermes = ToolSyntax::kHermes;
constexpr auto kQwen = ToolSyntax::kQwenXml;
constexpr auto kInline = ToolSyntax::kQwenXmlInline;
constexpr auto kGlm = ToolSyntax::kGlmXml;
constexpr auto kDsml = ToolSyntax::kDsml;

#define D(tag) "<｜DSML｜" tag
#define E(tag) "</｜DSML｜" tag ">"

constexpr const char* kTools = R"([
  {"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{
    "city":{"type":"string"},"days":{"type":"integer"},"unit":{"enum":["c","f"]}},
    "required":["city"]}}},
  {"type":"function","function":{"name":"ma\"p","parameters":{"type":"object","properties":{}}}},
  {"type":"function","function":{"name":"point","parameters":{"type":"object","properties":{
    "at":{"$ref":"#/$defs/P"}},"required":["at"],
    "$defs":{"P":{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2}}}}},
  {"type":"function","function":{"name":"free","parameters":{}}}])";

class ToolGrammarTest : public testing::Test {
 protected:
  ToolGrammarRequest Request(ToolSyntax syntax) const {
    ToolGrammarRequest request;
    request.syntax = syntax;
    request.tools = &tools_;
    request.required = true;
    request.marks = {"<think>", "</think>"};
    return request;
  }

  // Whether the grammar takes all of the text and may end there.
  bool Takes(const ToolGrammarRequest& request, const std::string& text) {
    const ToolGrammar grammar = MakeToolGrammar(request);
    text::GrammarState state(compiler_.FromGbnf(grammar.source, grammar.options));
    return state.AcceptText(text) && state.complete();
  }

  rapidjson::Document tools_ = ParseJson(kTools, "tools");
  text::Tokenizer tokenizer_{text::SmallVocabulary()};
  text::GrammarCompiler compiler_{tokenizer_};
};

struct Case {
  ToolSyntax syntax;
  const char* text;
  bool taken;
};

const Case kCases[] = {
    {kHermes,
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
     "\"Ulm\"}}\n</tool_call>",
     true},
    {kHermes,
     "<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Ulm\",\"days\":3}}</"
     "tool_call>",
     true},
    {kHermes,
     "<tool_call>\n{\"name\": \"ma\\\"p\", \"arguments\": "
     "{}}\n</tool_call>\n<tool_call>\n"
     "{\"name\": \"point\", \"arguments\": {\"at\": [1, 2]}}\n</tool_call>",
     true},
    {kHermes, "<tool_call>\n{\"name\": \"free\", \"arguments\": {\"x\": [null]}}\n</tool_call>",
     true},
    {kHermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>", false},
    {kHermes, "<tool_call>\n{\"name\": \"bake\", \"arguments\": {}}\n</tool_call>", false},
    {kHermes, "<tool_call>\n{\"name\": \"point\", \"arguments\": {\"at\": [1]}}\n</tool_call>",
     false},
    {kHermes, "Let me see.", false},
    {kHermes, "", false},
    {kQwen,
     "<tool_call>\n<function=weather>\n<parameter=city>\nNew\n</p>York\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     true},
    {kQwen,
     "<tool_call>\n<function=weather>\n<parameter=unit>\nc\n</"
     "parameter>\n<parameter=city>\nUlm\n"
     "</parameter>\n</function>\n</tool_call>",
     true},
    {kQwen, "<tool_call>\n<function=ma\"p>\n</function>\n</tool_call>", true},
    {kQwen,
     "<tool_call>\n<function=point>\n<parameter=at>\n[1, "
     "2]\n</parameter>\n</function>\n</tool_call>",
     true},
    {kQwen,
     "<tool_call>\n<function=free>\n<parameter=x>\nany\n</parameter>\n</function>\n</"
     "tool_call>",
     true},
    {kQwen,
     "<tool_call>\n<function=weather>\n<parameter=days>\n3\n</parameter>\n</"
     "function>\n</"
     "tool_call>",
     false},
    {kQwen,
     "<tool_call>\n<function=weather>\n<parameter=city>\na\n</"
     "parameter>\n<parameter=city>\nb\n"
     "</parameter>\n</function>\n</tool_call>",
     false},
    {kQwen,
     "<tool_call>\n<function=weather>\n<parameter=city>\na\n</"
     "parameter>\n<parameter=unit>\nk\n"
     "</parameter>\n</function>\n</tool_call>",
     false},
    {kInline,
     "<tool_call><function=weather><parameter=city>New\n</p>York\n</parameter><parameter=days>3"
     "</parameter></function></tool_call>",
     true},
    {kInline, "<tool_call><function=point><parameter=at>[1, 2]</parameter></function></tool_call>",
     true},
    {kInline,
     "<tool_call><function=weather><parameter=city>a</parameter><parameter=days>\n3\n</parameter>"
     "</function></tool_call>",
     false},
    {kGlm,
     "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n</"
     "tool_call>",
     true},
    {kGlm, "<tool_call>weather<arg_key>city</arg_key><arg_value>Ulm</arg_value></tool_call>", true},
    {kGlm, "<tool_call>weather<arg_key>days</arg_key><arg_value>x</arg_value></tool_call>", false},
    {kDsml,
     D("tool_calls>") "\n" D("invoke name=\"weather\">") "\n" D(
         "parameter name=\"city\" "
         "string=\"true\">") "5" E("paramete"
                                   "r") "\n" D("parameter name=\"days\" "
                                               "string=\"false\">") "5" E("parameter") "\n" E("invo"
                                                                                              "ke") "\n" D("invoke name=\"ma\"p\">") "\n" E("invoke") "\n" E("to"
                                                                                                                                                             "ol"
                                                                                                                                                             "_c"
                                                                                                                                                             "al"
                                                                                                                                                             "l"
                                                                                                                                                             "s"),
     true},
    {kDsml,
     D("tool_calls>") "\n" D("invoke name=\"weather\">") "\n" D(
         "parameter name=\"city\" "
         "string=\"false\">") "5" E("parameter") "\n" E("invoke") "\n" E("tool_calls"),
     false},
};

TEST_F(ToolGrammarTest, TakesCallsOfTheToolsAndNothingElse) {
  for (const Case& c : kCases) {
    EXPECT_EQ(Takes(Request(c.syntax), c.text), c.taken) << c.text;
    if (!c.taken) continue;
    OutputFormat format;
    format.syntax = c.syntax;
    format.tools = std::make_shared<const ToolSet>(tools_);
    const auto read = test::ReadInPieces(format, c.text, 3);
    EXPECT_EQ(read.turn.content, "") << c.text;
    ASSERT_FALSE(read.turn.calls.empty()) << c.text;
    EXPECT_EQ(read.error, "") << c.text;
  }
}

TEST_F(ToolGrammarTest, WithoutParallelCallsThereIsOne) {
  const std::string call = "<tool_call>\n{\"name\": \"free\", \"arguments\": {}}\n</tool_call>";
  ToolGrammarRequest request = Request(kHermes);
  EXPECT_TRUE(Takes(request, call + "\n" + call));
  request.parallel = false;
  EXPECT_TRUE(Takes(request, call));
  EXPECT_FALSE(Takes(request, call + "\n" + call));
}

TEST_F(ToolGrammarTest, ANamedFunctionIsTheOnlyOne) {
  ToolGrammarRequest request = Request(kHermes);
  request.function = "free";
  EXPECT_TRUE(Takes(request, "<tool_call>{\"name\":\"free\",\"arguments\":{}}</tool_call>"));
  EXPECT_FALSE(Takes(request, "<tool_call>{\"name\":\"ma\\\"p\",\"arguments\":{}}</tool_call>"));
}

// A model that only talks calls all the same, for there is an end to it.
TEST_F(ToolGrammarTest, ALittleTextMayComeBeforeARequiredCall) {
  const std::string call = "<tool_call>{\"name\":\"free\",\"arguments\":{}}</tool_call>";
  ToolGrammarRequest request = Request(kHermes);
  EXPECT_TRUE(Takes(request, "Let me see.\n" + call));
  EXPECT_TRUE(Takes(request, std::string(240, 'x') + call));
  EXPECT_FALSE(Takes(request, std::string(241, 'x') + call));
  EXPECT_FALSE(Takes(request, call + "That was it."));
  request.function = "free";
  EXPECT_TRUE(Takes(request, call));
  EXPECT_FALSE(Takes(request, "Let me see.\n" + call)) << "a named function is all there is";
}

TEST_F(ToolGrammarTest, AnAnswerIsACallOrADocumentWhereBothAreAskedFor) {
  const auto schema = ParseJson(R"({"type":"object","properties":{"a":{"type":"integer"}},
                                    "required":["a"]})",
                                "schema");
  for (const ToolSyntax syntax : {kHermes, kQwen, kInline, kGlm, kDsml}) {
    ToolGrammarRequest request = Request(syntax);
    request.required = false;
    request.response = &schema;
    EXPECT_TRUE(Takes(request, R"({"a": 1})"));
    EXPECT_FALSE(Takes(request, R"({"a": "x"})"));
    EXPECT_FALSE(Takes(request, R"(See: {"a": 1})"));
  }
  ToolGrammarRequest request = Request(kHermes);
  request.response = &schema;
  const std::string call = "<tool_call>{\"name\":\"free\",\"arguments\":{}}</tool_call>";
  EXPECT_FALSE(Takes(request, R"({"a": 1})")) << "a call is required";
  request.required = false;
  EXPECT_TRUE(Takes(request, call));
  EXPECT_FALSE(Takes(request, call + R"({"a": 1})"));
  request.may_think = true;
  EXPECT_TRUE(Takes(request, "<think>hm</think>\n\n" + std::string(R"({"a": 1})")));
  request.starts_in_reasoning = true;
  EXPECT_TRUE(Takes(request, "hm</think>\n\n" + std::string(R"({"a": 1})")));
  EXPECT_TRUE(Takes(request, "hm</think>" + call));
}

// Models of these syntaxes call out of their thinking, and the parser takes that for a call: so the
// grammar must hold there too.
TEST_F(ToolGrammarTest, ACallOutOfAnOpenSpanKeepsToItsForm) {
  const std::pair<ToolSyntax, std::string> openers[] = {{kQwen, "<tool_call>"},
                                                        {kDsml, D("tool_calls>")}};
  for (const auto& [syntax, opener] : openers) {
    for (const bool required : {false, true}) {
      for (const bool starts_inside : {false, true}) {
        ToolGrammarRequest request = Request(syntax);
        request.required = required;
        request.may_think = true;
        request.starts_in_reasoning = starts_inside;
        if (required && !starts_inside) continue;  // below
        const ToolGrammar grammar = MakeToolGrammar(request);
        text::GrammarState state(compiler_.FromGbnf(grammar.source, grammar.options));
        ASSERT_TRUE(state.AcceptText(starts_inside ? "I think" : "<think>I think"));
        EXPECT_FALSE(state.constrains());
        ASSERT_TRUE(state.AcceptText(" so\n" + opener)) << opener;
        EXPECT_TRUE(state.constrains()) << opener;
        EXPECT_FALSE(state.AcceptText("\nfree")) << opener;
      }
    }
    // A grammar of the whole output closes the span first.
    ToolGrammarRequest request = Request(syntax);
    request.may_think = true;
    const ToolGrammar grammar = MakeToolGrammar(request);
    text::GrammarState state(compiler_.FromGbnf(grammar.source, grammar.options));
    ASSERT_TRUE(state.AcceptText("<think>I think <"));
    EXPECT_FALSE(state.AcceptText(opener.substr(1)));
    EXPECT_TRUE(state.AcceptText("/think>"));
    EXPECT_TRUE(state.AcceptText(opener));
  }
  // Where the parser takes it for thinking, nothing is constrained.
  ToolGrammarRequest request = Request(kGlm);
  request.required = false;
  request.starts_in_reasoning = true;
  const ToolGrammar grammar = MakeToolGrammar(request);
  text::GrammarState state(compiler_.FromGbnf(grammar.source, grammar.options));
  EXPECT_TRUE(state.AcceptText("I could write <tool_call>anything</tool_call>"));
  EXPECT_FALSE(state.constrains());
}

// The lazy grammar of each syntax holds from its opener on, whatever came before.
TEST_F(ToolGrammarTest, ALazyOneOfEachSyntaxHoldsFromItsOpenerOn) {
  struct Form {
    ToolSyntax syntax;
    const char* opener;
    const char* right;
    const char* wrong;
  };
  const Form forms[] = {
      {kHermes, "<tool_call>", "{\"name\":\"free\",\"arguments\":{}}</tool_call>", "bake"},
      {kQwen, "<tool_call>", "\n<function=free>\n</function>\n</tool_call>", "\n<function=bake>"},
      {kQwen, "<function=free>", "\n</function>\n</tool_call>", "\n</tool_call>"},
      {kGlm, "<tool_call>", "free\n</tool_call>", "bake"},
      {kDsml, D("tool_calls>"),
       "\n" D("invoke name=\"free\">") "\n" E("invoke") "\n" E("tool_calls"),
       "\n" D("invoke name=\"bake\">")},
      {kDsml, D("function_calls>"), D("invoke name=\"free\">") E("invoke") E("function_calls"),
       E("function_calls")},
  };
  for (const Form& form : forms) {
    ToolGrammarRequest request = Request(form.syntax);
    request.required = false;
    const ToolGrammar grammar = MakeToolGrammar(request);
    text::GrammarState state(compiler_.FromGbnf(grammar.source, grammar.options));
    ASSERT_TRUE(state.AcceptText("<think>hm</think>So, a < b: "));
    EXPECT_FALSE(state.constrains());
    ASSERT_TRUE(state.AcceptText(form.opener));
    EXPECT_TRUE(state.constrains()) << form.opener;
    text::GrammarState other = state;
    EXPECT_FALSE(other.AcceptText(form.wrong)) << form.wrong;
    ASSERT_TRUE(state.AcceptText(form.right)) << form.right;
    EXPECT_TRUE(state.complete()) << form.right;
  }
}

TEST_F(ToolGrammarTest, ThinkingMayComeFirst) {
  const std::string call = "<tool_call>{\"name\":\"free\",\"arguments\":{}}</tool_call>";
  ToolGrammarRequest request = Request(kHermes);
  EXPECT_FALSE(Takes(request, "<think>\nhm\n</think>\n\n" + call));
  request.may_think = true;
  EXPECT_TRUE(Takes(request, "<think>\nhm <tool_call>\n</think>\n\n" + call));
  EXPECT_TRUE(Takes(request, call));
  EXPECT_FALSE(Takes(request, "<think>\nhm\n</think>\n\n"));
  request.starts_in_reasoning = true;
  EXPECT_TRUE(Takes(request, "hm\n</think>\n\n" + call));
}

TEST_F(ToolGrammarTest, ALazyOneIsFreeUntilACallBegins) {
  ToolGrammarRequest request = Request(kHermes);
  request.required = false;
  const ToolGrammar grammar = MakeToolGrammar(request);
  text::GrammarState state(compiler_.FromGbnf(grammar.source, grammar.options));
  EXPECT_TRUE(state.complete());
  EXPECT_TRUE(state.AcceptText("Any words, {\"x\"} too. "));
  EXPECT_FALSE(state.constrains());
  EXPECT_TRUE(state.AcceptText("<tool_call>"));
  EXPECT_TRUE(state.constrains());
  EXPECT_FALSE(state.AcceptText("weather"));
  EXPECT_TRUE(state.AcceptText("\n{\"name\": \"free\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_TRUE(state.complete());
}

TEST_F(ToolGrammarTest, ALazyOneOfQwenBeginsAtTheFunctionToo) {
  ToolGrammarRequest request = Request(kQwen);
  request.required = false;
  const ToolGrammar grammar = MakeToolGrammar(request);
  text::GrammarState state(compiler_.FromGbnf(grammar.source, grammar.options));
  EXPECT_TRUE(state.AcceptText("So <function=weather>"));
  EXPECT_TRUE(state.constrains());
  EXPECT_FALSE(state.AcceptText("\n</function>"));
}

// Types are looked for through references, which may multiply, and definitions are not copied for
// each parameter.
TEST_F(ToolGrammarTest, ReferencesOfManyParametersTakeNoLongTime) {
  std::string defs;
  for (int i = 0; i < 15; ++i) {
    const std::string part = R"({"$ref":"#/$defs/a)" + std::to_string(i + 1) + "\"}";
    defs += "\"a" + std::to_string(i) + R"(":{"anyOf":[)" + part;
    for (int k = 1; k < 8; ++k) defs += "," + part;
    defs += "]},";
  }
  defs += R"("a15":{"type":"integer"},"big":{"description":")" + std::string(1 << 20, 'x') + "\"}";
  std::string properties = R"("p":{"$ref":"#/$defs/a0"})";
  for (int i = 0; i < 3000; ++i) {
    properties += ",\"p" + std::to_string(i) + R"(":{"$ref":"#/$defs/a15"})";
  }
  const auto start = std::chrono::steady_clock::now();
  for (const ToolSyntax syntax : {kQwen, kDsml}) {
    tools_ = ParseJson(R"([{"function":{"name":"f","parameters":{"type":"object","properties":{)" +
                           properties + R"(},"$defs":{)" + defs + "}}}}]",
                       "tools");
    try {
      MakeToolGrammar(Request(syntax));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(ToolGrammarTest, AParameterOfAnySchemaTakesAnyValue) {
  tools_ = ParseJson(R"([{"function":{"name":"f","parameters":{"type":"object","properties":{
      "a":{}},"required":["a"]}}}])",
                     "tools");
  for (const char* value : {"1", "[true]", "{\"b\": null}"}) {
    EXPECT_TRUE(Takes(Request(kGlm), std::string("<tool_call>f<arg_key>a</arg_key><arg_value>") +
                                         value + "</arg_value></tool_call>"))
        << value;
  }
}

TEST_F(ToolGrammarTest, ManyParametersKeepTheRequiredOnes) {
  std::string properties;
  for (char c = 'a'; c <= 'l'; ++c) {
    properties +=
        std::string(properties.empty() ? "" : ",") + "\"p" + c + "\":{\"type\":\"integer\"}";
  }
  tools_ = ParseJson(R"([{"function":{"name":"f","parameters":{"type":"object","properties":{)" +
                         properties + R"(},"required":["pb","pk"]}}}])",
                     "tools");
  const auto call = [](const std::string& names) {
    std::string text = "<tool_call>f\n";
    for (const char c : names) {
      text += std::string("<arg_key>p") + c + "</arg_key>\n<arg_value>1</arg_value>\n";
    }
    return text + "</tool_call>";
  };
  EXPECT_TRUE(Takes(Request(kGlm), call("bk")));
  EXPECT_TRUE(Takes(Request(kGlm), call("bkla")));
  EXPECT_FALSE(Takes(Request(kGlm), call("b")));
  EXPECT_FALSE(Takes(Request(kGlm), call("abk")));
}

TEST_F(ToolGrammarTest, ParametersThatAreNoObjectAreRefusedNamingTheTool) {
  for (const char* schema :
       {"[]", "{\"type\":\"string\"}", "{\"properties\":{\"a\":{\"type\":1}}}", "{\"enum\":[1]}",
        R"({"anyOf":[{"type":"integer"}]})", R"({"const":""})", R"({"allOf":[{"type":"string"}]})",
        R"({"$ref":"#/$defs/a","$defs":{"a":{"type":["integer","null"]}}})", R"({"minLength":1})",
        R"({"type":"object","allOf":[{"enum":["x"]}]})"}) {
    tools_ = ParseJson(
        std::string("[{\"function\":{\"name\":\"f\",\"parameters\":") + schema + "}}]", "tools");
    for (const ToolSyntax syntax : {kHermes, kQwen, kInline, kGlm, kDsml}) {
      try {
        MakeToolGrammar(Request(syntax));
        ADD_FAILURE() << schema;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
        EXPECT_NE(std::string(error.what()).find("tools[0]"), std::string::npos) << error.what();
      }
    }
  }
}

// What else a schema of arguments describes, no call can be written with.
TEST_F(ToolGrammarTest, OfASchemasDocumentsArgumentsAreTheObjects) {
  const auto takes = [&](const char* schema, const char* arguments) {
    tools_ = ParseJson(
        std::string("[{\"function\":{\"name\":\"f\",\"parameters\":") + schema + "}}]", "tools");
    return Takes(Request(kHermes), std::string("<tool_call>{\"name\":\"f\",\"arguments\":") +
                                       arguments + "}</tool_call>");
  };
  const char* const schemas[] = {
      R"({"type":["object","null"]})",
      R"({"anyOf":[{"type":"null"},{"type":"object"},{"type":"string"}]})",
      R"({"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"object"}}})",
      R"({"enum":[1,{"a":1},null]})",
      R"({"description":"whatever"})",
      R"({"$ref":"#/$defs/a","$defs":{"a":{"type":["string","object"]}}})",
  };
  for (const char* schema : schemas) {
    EXPECT_TRUE(takes(schema, "{\"a\":1}")) << schema;
    for (const char* other : {"null", "1", "\"\""}) EXPECT_FALSE(takes(schema, other)) << schema;
  }
  // Inside of the object nothing is restricted.
  const char* const inner = R"({"properties":{"a":{"$ref":"#/$defs/n"},"b":{"anyOf":[
      {"type":"integer"},{"type":"object"}]}},"$defs":{"n":{"type":["integer","object"]}}})";
  EXPECT_TRUE(takes(inner, "{\"a\":1,\"b\":2}"));
}

// Whatever way the grammar is walked, the parser reads what it made as whole calls of the tools.
TEST_F(ToolGrammarTest, RandomOutputOfTheGrammarIsReadAsCalls) {
  std::mt19937 random(3);
  for (const ToolSyntax syntax : {kHermes, kQwen, kInline, kGlm, kDsml}) {
    const ToolGrammar grammar = MakeToolGrammar(Request(syntax));
    const auto compiled = compiler_.FromGbnf(grammar.source, grammar.options);
    OutputFormat format;
    format.syntax = syntax;
    format.tools = std::make_shared<const ToolSet>(tools_);
    int whole = 0;
    for (int round = 0; round < 30; ++round) {
      text::GrammarState state(compiled);
      std::string text;
      while (text.size() < 3000 && !state.complete()) {
        std::vector<text::TokenId> choices;
        for (text::TokenId id = 0; id < 256; ++id) {
          if (state.Allows(id)) choices.push_back(id);
        }
        ASSERT_FALSE(choices.empty()) << text;
        // Closing marks, which random text would hardly ever find.
        text::TokenId next = choices[random() % choices.size()];
        for (const text::TokenId close : {0x3C, 0x2F, 0x22, 0x7D, 0x6D, 0x5D}) {  // < / " } m ]
          if (random() % 3 == 0 && state.Allows(close)) next = close;
        }
        ASSERT_TRUE(state.Accept(next));
        text += static_cast<char>(next);
      }
      if (!state.complete()) continue;
      ++whole;
      const auto read = test::ReadInPieces(format, text, 7);
      EXPECT_TRUE(read.has_calls) << text;
      EXPECT_EQ(read.turn.content.find('<'), std::string::npos) << text;
      EXPECT_EQ(read.error, "") << text;
    }
    EXPECT_GT(whole, 0) << ToolSyntaxName(syntax);
  }
}

}  // namespace
}  // namespace bloomery::chat
