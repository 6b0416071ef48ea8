#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/error.h"
#include "runtime/text/chat/chat_template.h"
#include "runtime/text/jinja/json.h"
#include "tests/support/case_name.h"

namespace bloomery::chat {
namespace {

ChatRequest Parse(const std::string& body) {
  return ParseChatRequest(ParseJson(body, "request body"));
}

std::string Refusal(const std::string& body) {
  try {
    Parse(body);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
    return error.what();
  }
  return "accepted";
}

struct Case {
  const char* body;
  const char* message;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.body; }

class BadChatBodies : public testing::TestWithParam<Case> {};

TEST_P(BadChatBodies, AreRefusedNamingTheField) {
  EXPECT_EQ(Refusal(GetParam().body), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadChatBodies,
    testing::Values(
        Case{R"([])", "the request body must be a JSON object"},
        Case{R"({})", "Field 'messages': must be an array"},
        Case{R"({"messages": null})", "Field 'messages': must be an array"},
        Case{R"({"messages": "hi"})", "Field 'messages': must be an array"},
        Case{R"({"messages": [123]})", "Field 'messages[0]': must be an object"},
        Case{R"({"messages": [{}]})", "Field 'messages[0].role': must be a string"},
        Case{R"({"messages": [{"role": 123, "content": "x"}]})",
             "Field 'messages[0].role': must be a string"},
        Case{R"({"messages": [{"role": "user", "content": 123}]})",
             "Field 'messages[0].content': must be a string or an array of parts"},
        Case{R"({"messages": [{"role": "user", "content": {"type": "text"}}]})",
             "Field 'messages[0].content': must be a string or an array of parts"},
        Case{R"({"messages": [{"role": "user"}]})",
             "Field 'messages[0].content': must be a string or an array of parts"},
        Case{R"({"messages": [{"role": "user", "content": [1]}]})",
             "Field 'messages[0].content[0]': must be an object"},
        Case{R"({"messages": [{"role": "user", "content": [{"text": "x"}]}]})",
             "Field 'messages[0].content[0].type': must be a string"},
        Case{R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})",
             "Field 'messages[0].content[0].text': must be a string"},
        Case{
            R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]})",
            "Field 'messages[0].content[0].type': 'image_url' is not supported: this model takes "
            "text only"},
        Case{
            R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]})",
            "Field 'messages': cannot end with two assistant messages"},
        Case{R"({"messages": [{"role": "assistant", "content": "a", "tool_calls": {}}]})",
             "Field 'messages[0].tool_calls': must be an array"},
        Case{R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})",
             "Field 'messages[0].tool_calls[0].function': must be an object"},
        Case{R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]})",
             "Field 'messages[0].tool_calls[0].function.name': must be a string"},
        Case{
            R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]}]})",
            "Field 'messages[0].tool_calls[0].function.arguments': must be a string or an object"},
        Case{R"({"messages": [], "tools": {}})", "Field 'tools': must be an array"},
        Case{R"({"messages": [], "tools": [{"type": "function"}]})",
             "Field 'tools[0].function.name': must be a string"},
        Case{R"({"messages": [], "chat_template_kwargs": []})",
             "Field 'chat_template_kwargs': must be an object"},
        Case{R"({"messages": [], "chat_template_kwargs": {"enable_thinking": "false"}})",
             "Field 'chat_template_kwargs.enable_thinking': must be a boolean"},
        Case{R"({"messages": [], "add_generation_prompt": 1})",
             "Field 'add_generation_prompt': must be a boolean"},
        Case{R"({"messages": [], "reasoning_effort": 1})",
             "Field 'reasoning_effort': must be a string"},
        Case{R"({"messages": [], "continue_final_message": "x"})",
             "Field 'continue_final_message': must be a boolean, \"content\" or "
             "\"reasoning_content\""},
        Case{
            R"({"messages": [{"role": "assistant", "content": "a"}], "continue_final_message": true, "add_generation_prompt": true})",
            "Field 'continue_final_message': cannot be combined with add_generation_prompt"},
        Case{R"({"messages": [{"role": "user", "content": "a"}], "continue_final_message": true})",
             "Field 'continue_final_message': needs a last message of role 'assistant'"},
        Case{
            R"({"messages": [{"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": "f"}}]}], "continue_final_message": true})",
            "Field 'continue_final_message': cannot continue a message with tool calls"}),
    [](const auto& row) { return test::CaseName(row.index, row.param.body); });

TEST(ChatBodies, DefaultsHoldWhenNothingIsGiven) {
  const ChatRequest request = Parse(
      R"({"messages": [{"role": "user", "content": "x"}], "tools": [], "reasoning_effort": null})");
  EXPECT_TRUE(request.add_generation_prompt);
  EXPECT_TRUE(request.tools.is_undefined());
  EXPECT_FALSE(request.enable_thinking.has_value());
  EXPECT_EQ(request.continue_final, Continue::kAuto);
  EXPECT_EQ(jinja::ToJson(request.messages), R"([{"role": "user", "content": "x"}])");
}

TEST(ChatBodies, EffortNoneWinsOverTheKwargs) {
  const ChatRequest request = Parse(
      R"({"messages": [], "reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": true}})");
  EXPECT_EQ(request.enable_thinking, std::optional<bool>(false));
}

TEST(ChatBodies, ContentMayBeMissingBesideToolCallsOrReasoning) {
  EXPECT_EQ(
      Refusal(
          R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]}]})"),
      "accepted");
  EXPECT_EQ(Refusal(R"({"messages": [{"role": "assistant", "reasoning_content": "r"}]})"),
            "accepted");
}

}  // namespace
}  // namespace bloomery::chat
