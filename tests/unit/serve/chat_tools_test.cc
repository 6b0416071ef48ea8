// Tool calls and reasoning of /v1/chat/completions, with answers that the fake model recites.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTools = R"("tools":[
  {"type":"function","function":{"name":"weather","description":"Says how it is.","parameters":{
    "type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},
    "required":["city"]}}},
  {"type":"function","function":{"name":"map","parameters":{"type":"object","properties":{}}}}])";

// The templates the Jinja goldens are made with.
std::string FamilyTemplate(const char* family) {
  std::ifstream file(std::string(BLOOMERY_SOURCE_DIR) + "/tests/unit/text/jinja/goldens.json");
  std::stringstream text;
  text << file.rdbuf();
  return ParseJson(text.str(), "goldens.json")["templates"][family].GetString();
}

class ChatToolsTest : public ServedTest {
 protected:
  ChatToolsTest() {
    template_ = FamilyTemplate("hermes");
    limits_.slot_context = 1024;
    by_prefix_ = true;
  }
  static std::string Body(const std::string& fields = "") {
    return std::string(R"({"messages":[{"role":"user","content":"Where?"}],"temperature":0,)") +
           kTools + (fields.empty() ? "" : "," + fields) + "}";
  }
  rapidjson::Document Chat(const std::string& fields = "") {
    return PostJson("/v1/chat/completions", Body(fields));
  }

  // A streamed answer put together again as the message it stands for; checks what every stream
  // must keep to.
  std::string Joined(const std::string& fields) {
    bool done = false;
    const auto events =
        Events(Post("/v1/chat/completions",
                    Body(fields + std::string(fields.empty() ? "" : ",") + R"("stream":true)"))
                   .body,
               done);
    EXPECT_TRUE(done);
    std::string reasoning;
    std::string content;
    std::string reason;
    std::vector<std::string> calls;
    for (const auto& event : events) {
      if (event["choices"].Empty()) continue;
      const auto& choice = event["choices"][0];
      reason = TextOf(choice, "finish_reason");
      const auto& delta = choice["delta"];
      reasoning += TextOf(delta, "reasoning_content");
      content += TextOf(delta, "content");
      if (!delta.HasMember("tool_calls")) continue;
      for (const auto& call : delta["tool_calls"].GetArray()) {
        const size_t index = call["index"].GetUint();
        const bool begins = call.HasMember("id");
        EXPECT_EQ(index, begins ? calls.size() : calls.size() - 1);
        EXPECT_EQ(call.HasMember("type"), begins);
        EXPECT_EQ(call["function"].HasMember("name"), begins);
        if (begins) calls.push_back(TextOf(call["function"], "name") + " ");
        if (!calls.empty()) calls.back() += TextOf(call["function"], "arguments");
      }
    }
    // What a limit has left of a call is none.
    if (reason == "length" && !calls.empty() && !IsObject(calls.back())) calls.pop_back();
    std::string all = reasoning + "|" + content + "|" + reason;
    for (const std::string& call : calls) all += "|" + call;
    return all;
  }
  // A call as Joined has them: its arguments are a whole object.
  static bool IsObject(const std::string& call) {
    rapidjson::Document arguments;
    arguments.Parse(call.substr(call.find(' ') + 1).c_str());
    return !arguments.HasParseError() && arguments.IsObject();
  }
  // The same of a collected answer.
  static std::string Collected(const rapidjson::Document& answer) {
    const auto& choice = answer["choices"][0];
    const auto& message = choice["message"];
    std::string all = TextOf(message, "reasoning_content") + "|" + TextOf(message, "content") +
                      "|" + TextOf(choice, "finish_reason");
    if (!message.HasMember("tool_calls")) return all;
    for (const auto& call : message["tool_calls"].GetArray()) {
      EXPECT_EQ(TextOf(call, "type"), "function");
      EXPECT_THAT(TextOf(call, "id"), ::testing::StartsWith("call_"));
      all += "|" + TextOf(call["function"], "name") + " " + TextOf(call["function"], "arguments");
    }
    return all;
  }
};

TEST_F(ChatToolsTest, CallsAreTheSameInAStreamAndInOnePiece) {
  Say("<think>\nhm\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": "
      "{\"city\": \"Ulm\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"map\", "
      "\"arguments\": {}}\n</tool_call>");
  Start();
  const std::string expected =
      "hm|Let me see.|tool_calls|weather {\"city\": \"Ulm\", \"days\": 2}|map {}";
  EXPECT_EQ(Collected(Chat()), expected);
  EXPECT_EQ(Joined(""), expected);
}

TEST_F(ChatToolsTest, ContentIsNullWhereThereAreOnlyCalls) {
  Say("<tool_call>\n{\"name\": \"map\", \"arguments\": {}}\n</tool_call>");
  Start();
  const auto answer = Chat();
  EXPECT_TRUE(answer["choices"][0]["message"]["content"].IsNull());
  EXPECT_EQ(TextOf(answer["choices"][0], "finish_reason"), "tool_calls");
}

// The client sends the turn back in a form of its own; the cache knows it all the same.
TEST_F(ChatToolsTest, AReplayedTurnIsFoundInTheCache) {
  Say("<think>\nhm\n</think>\n\nSee.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": "
      "{\"city\":\"Ulm\" ,\"days\":2}}\n</tool_call>");
  Start();
  const auto first = Chat();
  auto& message = first["choices"][0]["message"];
  ASSERT_TRUE(message.HasMember("tool_calls"));
  const std::string id = TextOf(message["tool_calls"][0], "id");
  const std::string body = std::string(R"({"messages":[{"role":"user","content":"Where?"},
        {"role":"assistant","reasoning_content":"hm","content":"See.","tool_calls":[{"id":")") +
                           id + R"(","type":"function","function":{"name":"weather","arguments":
        {"days":2,"city":"Ulm"}}}]},
        {"role":"tool","tool_call_id":")" +
                           id + R"(","content":"rain"}],"temperature":0,)" + kTools + "}";
  const auto second = PostJson("/v1/chat/completions", body);
  const int held = first["usage"]["total_tokens"].GetInt() - 1;  // the end of the turn aside
  EXPECT_GE(second["usage"]["prompt_tokens_details"]["cached_tokens"].GetInt(), held);
}

TEST_F(ChatToolsTest, ArgumentsStreamInSeveralPieces) {
  Say("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"a long name of a town "
      "somewhere\"}}\n</tool_call>");
  Start();
  bool done = false;
  int pieces = 0;
  for (const auto& event :
       Events(Post("/v1/chat/completions", Body(R"("stream":true)")).body, done)) {
    const auto& delta = event["choices"][0]["delta"];
    if (delta.HasMember("tool_calls")) ++pieces;
  }
  EXPECT_GT(pieces, 5);
}

// Whatever a limit leaves of the answer, stream and collected answer agree, and nothing that was
// cut passes for a finished call.
TEST_F(ChatToolsTest, AnAnswerCutAnywhereIsTheSameBothWays) {
  Say("<think>\nhm\n</think>\n\nSee.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": "
      "{\"city\": \"Ulm\"}}\n</tool_call>");
  Start();
  for (size_t tokens = 1; tokens <= script_.size(); ++tokens) {
    const std::string fields = "\"max_tokens\":" + std::to_string(tokens);
    const std::string collected = Collected(Chat(fields));
    EXPECT_EQ(Joined(fields), collected);
    EXPECT_THAT(collected, HasSubstr("|length")) << tokens;
  }
}

TEST_F(ChatToolsTest, ChoiceNoneGivesNoCallAndNoMarkup) {
  Say("<tool_call>\n{\"name\": \"map\", \"arguments\": {}}\n</tool_call>");
  Start();
  const auto answer = Chat(R"("tool_choice":"none","max_tokens":20)");
  EXPECT_FALSE(answer["choices"][0]["message"].HasMember("tool_calls"));
  EXPECT_EQ(tokenizer_->Tokenise("<tool_call>", {.parse_special = true}).size(), 1U);
  EXPECT_THAT(TextOf(answer["choices"][0]["message"], "content"), Not(HasSubstr("tool_call>")));
  // The tools are in the prompt all the same.
  EXPECT_THAT(TextOf(PostJson("/apply-template", Body(R"("tool_choice":"none")")), "prompt"),
              HasSubstr("Says how it is."));
}

TEST_F(ChatToolsTest, TheTemplateSaysWhichSyntaxIsRead) {
  template_ = FamilyTemplate("coder");
  seat_.chat.tool_syntax = "hermes";
  Say("<tool_call>\n<function=weather>\n<parameter=city>\nNew\nYork\n</parameter>\n"
      "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>");
  Start();
  const std::string expected = R"(||tool_calls|weather {"city": "New\nYork", "days": 3})";
  EXPECT_EQ(Collected(Chat()), expected);
  EXPECT_EQ(Joined(""), expected);
}

TEST_F(ChatToolsTest, ThePluginSaysWhichSyntaxIsReadWhereTheTemplateShowsNone) {
  template_ = "{% for m in messages %}{{ m.content }}{% endfor %}";
  seat_.chat.tool_syntax = "glm_xml";
  Say("<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n</tool_call>");
  Start();
  EXPECT_EQ(Collected(Chat()), R"(||tool_calls|weather {"city": "Ulm"})");
}

TEST_F(ChatToolsTest, WithoutAnySyntaxToolsAreRefusedByName) {
  template_ = "{% for m in messages %}{{ m.content }}{% endfor %}";
  Start();
  EXPECT_THAT(ErrorOf(Post("/v1/chat/completions", Body()), 501, "not_supported_error"),
              HasSubstr("tools"));
  EXPECT_EQ(Post("/v1/chat/completions", Body(R"("tool_choice":"none")")).status, 200);
}

TEST_F(ChatToolsTest, ToolChoiceOfAWrongFormIsRefused) {
  Start();
  const auto refusal = [&](const std::string& fields) {
    return ErrorOf(Post("/v1/chat/completions", Body(fields)), 400, "invalid_request_error");
  };
  for (const char* choice : {R"("bogus")", R"({"type":"tool"})", R"({"type":"function"})",
                             R"({"type":"function","function":{"name":"bake"}})"}) {
    EXPECT_THAT(refusal(std::string("\"tool_choice\":") + choice), HasSubstr("tool_choice"))
        << choice;
  }
}

// The model would talk; the grammar lets it only call.
TEST_F(ChatToolsTest, ANamedFunctionIsCalledWhateverTheModelWouldSay) {
  Start();
  const std::string fields =
      R"("tool_choice":{"type":"function","function":{"name":"map"}},"parallel_tool_calls":false,
         "chat_template_kwargs":{"enable_thinking":false},"max_tokens":200)";
  const std::string collected = Collected(Chat(fields));
  EXPECT_THAT(collected, ::testing::StartsWith("||tool_calls|map {"));
  EXPECT_THAT(collected, ::testing::EndsWith("}"));
  EXPECT_EQ(Joined(fields), collected);
}

TEST_F(ChatToolsTest, ARequiredCallThatTheModelMakesItselfIsLeftAsItIs) {
  Say("<think>\nhm\n</think>\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
      "\"Ulm\"}}\n</tool_call>");
  Start();
  const std::string expected = R"(hm||tool_calls|weather {"city": "Ulm"})";
  EXPECT_EQ(Collected(Chat(R"("tool_choice":"required")")), expected);
  EXPECT_EQ(Joined(R"("tool_choice":"required")"), expected);
}

TEST_F(ChatToolsTest, TextBeforeARequiredCallIsContent) {
  Say("Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
      "\"Ulm\"}}\n</tool_call>");
  Start();
  const std::string expected = R"(|Let me see.|tool_calls|weather {"city": "Ulm"})";
  EXPECT_EQ(Collected(Chat(R"("tool_choice":"required")")), expected);
  EXPECT_EQ(Joined(R"("tool_choice":"required")"), expected);
}

// One does not switch the other off: the answer is a call of the tools, or the document.
TEST_F(ChatToolsTest, ToolsBesideAResponseFormatAreCallsOrTheDocument) {
  const std::string fields =
      R"("response_format":{"type":"json_schema","json_schema":{"schema":{"const":[42]}}},
         "chat_template_kwargs":{"enable_thinking":false})";
  Say("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>");
  Start();
  const std::string call = R"(||tool_calls|weather {"city": "Ulm"})";
  EXPECT_EQ(Collected(Chat(fields)), call);
  EXPECT_EQ(Joined(fields), call);
  EXPECT_EQ(Collected(Chat(fields + R"(,"tool_choice":"none")")), "|[42]|stop");
  server_.reset();
  Say("[42]");
  Start();
  EXPECT_EQ(Collected(Chat(fields)), "|[42]|stop");
  EXPECT_EQ(Joined(fields), "|[42]|stop");
}

// Of its own choice the model may talk as before, but a call keeps to the tools.
TEST_F(ChatToolsTest, ACallOfTheModelsOwnChoiceKeepsToItsForm) {
  Say("See <tool_call>\n{\"name\": \"bake\", \"arguments\": {}}\n</tool_call>");
  Start();
  const auto answer = Chat(R"("max_tokens":60)");
  const std::string content = TextOf(answer["choices"][0]["message"], "content");
  EXPECT_THAT(content, HasSubstr("See"));
  EXPECT_THAT(content, ::testing::Not(HasSubstr("bake")));
}

TEST_F(ChatToolsTest, AToolsSchemaThatIsWrongIsRefusedNamingTheTool) {
  Start();
  const std::string body =
      R"({"messages":[{"role":"user","content":"W"}],"tools":[{"type":"function","function":
         {"name":"f","parameters":{"type":"object","properties":{"a":{"type":"hiccup"}}}}}]})";
  EXPECT_THAT(ErrorOf(Post("/v1/chat/completions", body), 400, "invalid_request_error"),
              HasSubstr("tools[0]"));
}

TEST_F(ChatToolsTest, ABudgetOfZeroClosesTheSpanAtOnce) {
  template_ = "{{ messages[0].content }}<think>\n";
  Start();
  const std::string body = R"({"messages":[{"role":"user","content":"W"}],"temperature":0,)";
  const auto none = PostJson("/v1/chat/completions", body + R"("reasoning_budget_tokens":0})");
  EXPECT_FALSE(none["choices"][0]["message"].HasMember("reasoning_content"));
  EXPECT_EQ(TextOf(none["choices"][0]["message"], "content"), kScript);
  // Two tokens of reasoning, and the forced end behind them.
  const auto two = PostJson("/v1/chat/completions", body + R"("thinking_budget_tokens":2})");
  EXPECT_EQ(TextOf(two["choices"][0]["message"], "reasoning_content"), "The capital");
  EXPECT_EQ(TextOf(two["choices"][0]["message"], "content"), kScript);
  const auto told =
      PostJson("/v1/chat/completions",
               body + R"("reasoning_budget_tokens":2,"reasoning_budget_message":" ... no time"})");
  EXPECT_EQ(TextOf(told["choices"][0]["message"], "reasoning_content"), "The capital ... no time");
  const auto free = PostJson("/v1/chat/completions", body + R"("reasoning_budget_tokens":-1})");
  EXPECT_EQ(TextOf(free["choices"][0]["message"], "reasoning_content"), kScript);
}

TEST_F(ChatToolsTest, TheServersBudgetHoldsWhereTheRequestGivesNone) {
  template_ = "{{ messages[0].content }}<think>\n";
  settings_.reasoning_budget = 1;
  settings_.reasoning_budget_message = "!";
  Start();
  const std::string body = R"({"messages":[{"role":"user","content":"W"}],"temperature":0)";
  EXPECT_EQ(TextOf(PostJson("/v1/chat/completions", body + "}")["choices"][0]["message"],
                   "reasoning_content"),
            "The!");
  const auto own = PostJson("/v1/chat/completions", body + R"(,"reasoning_budget_tokens":-1})");
  EXPECT_EQ(TextOf(own["choices"][0]["message"], "reasoning_content"), kScript);
}

TEST_F(ChatToolsTest, ABudgetSaysNothingWhereThePromptHasClosedTheSpan) {
  Start();
  const auto answer =
      Chat(R"("reasoning_budget_tokens":0,"chat_template_kwargs":{"enable_thinking":false})");
  EXPECT_EQ(Collected(answer), std::string("|") + kScript + "|stop");
}

TEST_F(ChatToolsTest, TheNativeRouteKnowsBudgetsAndTagsOfItsOwn) {
  Start();
  const auto content = [&](const std::string& fields) {
    return TextOf(PostJson("/completion", R"({"temperature":0,)" + fields + "}"), "content");
  };
  EXPECT_EQ(content(R"("prompt":"x<think>","reasoning_budget_tokens":1)"),
            std::string("The</think>") + kScript);
  EXPECT_EQ(content(R"("prompt":"x","reasoning_budget_tokens":1)"), kScript);
  EXPECT_EQ(content(R"("prompt":"x[R]","reasoning_budget":1,"reasoning_budget_start_tag":"[R]",
                       "reasoning_budget_end_tag":"[/R]")"),
            std::string("The[/R]") + kScript);
}

// A format's answer is the sum of the others': tags, reasoning and content.
TEST_F(ChatToolsTest, ReasoningFormatNoneIsTheTagsTheReasoningAndTheContent) {
  Say("<think>\nwhy\n</think>\n\nSo.");
  Start();
  EXPECT_EQ(Collected(Chat()), "why|So.|stop");
  EXPECT_EQ(Collected(Chat(R"("reasoning_format":"none")")), "|<think>\nwhy\n</think>\n\nSo.|stop");
  EXPECT_EQ(Collected(Chat(R"("reasoning_format":"deepseek-legacy")")),
            "why|<think>\nwhy\n</think>\n\nSo.|stop");
  for (const char* format : {"none", "deepseek", "deepseek-legacy", "auto"}) {
    const std::string field = std::string("\"reasoning_format\":\"") + format + "\"";
    EXPECT_EQ(Joined(field), Collected(Chat(field))) << format;
  }
}

}  // namespace
}  // namespace bloomery::serve
