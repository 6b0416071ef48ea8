// Anthropic's messages request, translated: what each form of it becomes, and what is refused.
#include "runtime/serve/anthropic_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace bloomery::serve {
namespace {

using ::testing::HasSubstr;

std::string Translated(const std::string& text, MessagesPurpose purpose = MessagesPurpose::kCount) {
  rapidjson::Document body = ParseJson(text, "body");
  TranslateMessages(body, purpose);
  return WriteJson(body);
}

std::string Messages(const std::string& messages) {
  rapidjson::Document body = ParseJson(R"({"messages":)" + messages + "}", "body");
  TranslateMessages(body, MessagesPurpose::kCount);
  return WriteJson(body["messages"]);
}

void Refuses(const std::string& body, const std::string& named) {
  const test::Refusal refusal = test::RefusalOf([&] { Translated(body); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadRequest) << body;
  EXPECT_THAT(refusal.message, HasSubstr(named)) << body;
}

TEST(AnthropicRequest, SystemTextComesFirstAndItsBlocksAreJoinedAsTheyAre) {
  EXPECT_EQ(Translated(R"({"system":"Be brief.","messages":[{"role":"user","content":"Hi"}]})"),
            R"({"messages":[{"role":"system","content":"Be brief."},)"
            R"({"role":"user","content":"Hi"}]})");
  EXPECT_EQ(
      Translated(R"({"system":[{"type":"text","text":"A","cache_control":{"type":"ephemeral"}},)"
                 R"({"type":"text","text":"B"}],"messages":[]})"),
      R"({"messages":[{"role":"system","content":"AB"}]})");
}

TEST(AnthropicRequest, StampOfClaudeCodesBillingHeaderIsMadeConstant) {
  const auto system = [](const std::string& text) {
    return Translated(R"({"system":[{"type":"text","text":")" + text + R"("}],"messages":[]})");
  };
  EXPECT_EQ(system("x-anthropic-billing-header: cc_version=2.1; cch=a1b2c;"),
            R"({"messages":[{"role":"system","content":)"
            R"("x-anthropic-billing-header: cc_version=2.1; cch=00000;"}]})");
  EXPECT_THAT(system("x-anthropic-billing-header: cch=a1b2cd;"), HasSubstr("cch=a1b2cd;"));
  EXPECT_THAT(system("x-anthropic-billing-header: cch=a1b2c"), HasSubstr("cch=a1b2c"));
  EXPECT_THAT(system("read cch=a1b2c;"), HasSubstr("cch=a1b2c;"));
}

TEST(AnthropicRequest, BlocksOfAUserKeepTheirOrderAndResultsBecomeToolMessages) {
  EXPECT_EQ(
      Messages(
          R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"21"},)"
          R"({"type":"text","text":"Go on","cache_control":{"type":"ephemeral"}}]}])"),
      R"([{"role":"tool","content":"21","tool_call_id":"t1"},{"role":"user","content":"Go on"}])");
  EXPECT_EQ(
      Messages(R"([{"role":"user","content":[{"type":"text","text":"A"},)"
               R"({"type":"text","text":"B"}]}])"),
      R"([{"role":"user","content":[{"type":"text","text":"A"},{"type":"text","text":"B"}]}])");
}

TEST(AnthropicRequest, ToolResultsMayBeTextBlocksFailedOrEmpty) {
  const auto result = [](const std::string& fields) {
    return Messages(R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1")" +
                    fields + "}]}]");
  };
  const std::string tail = R"(,"tool_call_id":"t1"}])";
  EXPECT_EQ(result(R"(,"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}])"),
            R"([{"role":"tool","content":"ab")" + tail);
  EXPECT_EQ(result(R"(,"content":"no such file","is_error":true)"),
            R"([{"role":"tool","content":"no such file")" + tail);
  EXPECT_EQ(result(""), R"([{"role":"tool","content":"")" + tail);
  EXPECT_THAT(
      result(
          R"(,"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}])"),
      HasSubstr(R"({"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}})"));
}

TEST(AnthropicRequest, AssistantTurnBecomesOneMessageWithReasoningTextAndCalls) {
  EXPECT_EQ(
      Messages(
          R"([{"role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":"x"},)"
          R"({"type":"redacted_thinking","data":"x"},{"type":"text","text":"I look."},)"
          R"({"type":"tool_use","id":"t1","name":"read","input":{"path":"a","n":[1,2]}},)"
          R"({"type":"tool_use","id":"t2","name":"list"}]}])"),
      R"([{"role":"assistant","content":"I look.","reasoning_content":"Hm","tool_calls":[)"
      R"({"id":"t1","type":"function","function":{"name":"read",)"
      R"("arguments":"{\"path\":\"a\",\"n\":[1,2]}"}},)"
      R"({"id":"t2","type":"function","function":{"name":"list","arguments":"{}"}}]}])");
}

TEST(AnthropicRequest, ImagesBecomeUrls) {
  const auto image = [](const std::string& source) {
    return Messages(R"([{"role":"user","content":[{"type":"image","source":)" + source + "}]}]");
  };
  EXPECT_THAT(image(R"({"type":"base64","data":"AA=="})"),
              HasSubstr(R"({"url":"data:image/jpeg;base64,AA=="})"));
  EXPECT_THAT(image(R"({"type":"url","url":"http://a/b.png"})"),
              HasSubstr(R"({"url":"http://a/b.png"})"));
}

TEST(AnthropicRequest, ToolsAndChoicesGetTheirChatForm) {
  EXPECT_EQ(
      Translated(
          R"({"messages":[],"tools":[{"name":"read","description":"Reads","cache_control":{},)"
          R"("input_schema":{"type":"object","properties":{"path":{"type":"string"}}}},)"
          R"({"type":"custom","name":"now"}],)"
          R"("tool_choice":{"type":"any","disable_parallel_tool_use":true}})"),
      R"({"messages":[],"tools":[{"type":"function","function":{"name":"read",)"
      R"("description":"Reads","parameters":{"type":"object","properties":)"
      R"({"path":{"type":"string"}}}}},{"type":"function","function":{"name":"now",)"
      R"("parameters":{}}}],"tool_choice":"required","parallel_tool_calls":false})");
  EXPECT_THAT(Translated(R"({"messages":[],"tool_choice":{"type":"auto"}})"),
              HasSubstr(R"("tool_choice":"auto")"));
  EXPECT_THAT(Translated(R"({"messages":[],"tool_choice":{"type":"none"}})"),
              HasSubstr(R"("tool_choice":"none")"));
}

TEST(AnthropicRequest, SettingsGetTheirNamesAndOthersStay) {
  EXPECT_EQ(Translated(R"({"model":"m","messages":[],"max_tokens":7,"stop_sequences":["X"],)"
                       R"("temperature":0.5,"top_k":3,"stream":true,"seed":1,"metadata":{"a":1}})"),
            R"({"model":"m","max_tokens":7,"temperature":0.5,"top_k":3,"stream":true,"seed":1,)"
            R"("messages":[],"stop":["X"]})");
}

TEST(AnthropicRequest, AnswersHaveALimitAndCountsNeedNone) {
  EXPECT_EQ(Translated(R"({"messages":[]})", MessagesPurpose::kAnswer),
            R"({"messages":[],"max_tokens":4096})");
  EXPECT_EQ(Translated(R"({"messages":[]})"), R"({"messages":[]})");
  Refuses(R"({"messages":[],"max_tokens":0})", "'max_tokens'");
}

TEST(AnthropicRequest, ThinkingBecomesABudgetAndATemplatesSwitch) {
  EXPECT_EQ(Translated(R"({"messages":[],"thinking":{"type":"enabled","budget_tokens":2048}})"),
            R"({"messages":[],"thinking_budget_tokens":2048,)"
            R"("chat_template_kwargs":{"enable_thinking":true}})");
  EXPECT_THAT(Translated(R"({"messages":[],"thinking":{"type":"enabled"}})"),
              HasSubstr(R"("thinking_budget_tokens":10000)"));
  EXPECT_EQ(Translated(R"({"messages":[],"thinking":{"type":"disabled"}})"),
            R"({"messages":[],"chat_template_kwargs":{"enable_thinking":false}})");
  EXPECT_EQ(Translated(R"({"messages":[],"thinking":{"type":"adaptive"}})"), R"({"messages":[]})");
  EXPECT_EQ(Translated(R"({"messages":[],"chat_template_kwargs":{"enable_thinking":true},)"
                       R"("thinking":{"type":"disabled"}})"),
            R"({"chat_template_kwargs":{"enable_thinking":true},"messages":[]})");
}

TEST(AnthropicRequest, OutputFormatBecomesAResponseFormat) {
  const std::string expected =
      R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}})";
  const std::string format = R"({"type":"json_schema","schema":{"type":"object"}})";
  EXPECT_THAT(Translated(R"({"messages":[],"output_format":)" + format + "}"), HasSubstr(expected));
  EXPECT_THAT(
      Translated(R"({"messages":[],"output_config":{"effort":"low","format":)" + format + "}}"),
      ::testing::AllOf(HasSubstr(expected), HasSubstr(R"("reasoning_effort":"low")")));
}

TEST(AnthropicRequest, WhatHasAWrongFormIsRefusedByItsPlace) {
  Refuses("[]", "object");
  Refuses("{}", "'messages'");
  Refuses(R"({"messages":"x"})", "'messages'");
  Refuses(R"({"messages":[1]})", "messages[0]");
  Refuses(R"({"messages":[{}]})", "messages[0].role");
  Refuses(R"({"messages":[{"role":"tool","content":""}]})", "messages[0].role");
  Refuses(R"({"messages":[{"role":"user"}]})", "messages[0].content");
  Refuses(R"({"messages":[{"role":"user","content":[1]}]})", "messages[0].content[0]");
  Refuses(R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
          "messages[0].content[0].text");
  Refuses(R"({"messages":[{"role":"user","content":[{"type":"document"}]}]})", "'document'");
  Refuses(R"({"messages":[{"role":"user","content":[{"type":"tool_result"}]}]})", "tool_use_id");
  Refuses(R"({"messages":[{"role":"user","content":[{"type":"image","source":{"type":"file"}}]}]})",
          "source.type");
  Refuses(
      R"({"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":"c"}]}]})",
      "input");
  Refuses(R"({"messages":[],"system":7})", "'system'");
  Refuses(R"({"messages":[],"system":[{"type":"image"}]})", "system[0].type");
  Refuses(R"({"messages":[],"tools":[{"description":"x"}]})", "tools[0].name");
  Refuses(R"({"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]})",
          "web_search_20250305");
  Refuses(R"({"messages":[],"tools":[{"name":"a","input_schema":1}]})", "tools[0].input_schema");
  Refuses(R"({"messages":[],"tool_choice":"auto"})", "'tool_choice'");
  Refuses(R"({"messages":[],"tool_choice":{"type":"x"}})", "tool_choice.type");
  Refuses(R"({"messages":[],"stop_sequences":"X"})", "'stop_sequences'");
  Refuses(R"({"messages":[],"thinking":{"type":"x"}})", "thinking.type");
  Refuses(R"({"messages":[],"mcp_servers":[{}]})", "'mcp_servers'");
}

}  // namespace
}  // namespace bloomery::serve
