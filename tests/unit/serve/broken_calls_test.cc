// Calls that a limit cuts off and calls that cannot be read, in the three dialects that have calls:
// a cut one is none anywhere; one that is closed and cannot be read is an error with its name, in a
// stream as well.
#include <gmock/gmock.h>

#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A schema whose grammar is too large to compile, so that calls are not constrained.
constexpr const char* kUnconstrained =
    R"({"type":"object","properties":{"city":{"type":"string"},
        "a":{"type":"string","maxLength":99999},"b":{"type":"string","maxLength":99999},
        "c":{"type":"string","maxLength":99999}}})";

class BrokenCallsTest : public ServedTest {
 protected:
  BrokenCallsTest() {
    template_ =
        "{# <tool_call> {\"name\", \"arguments\"} #}{% for m in messages %}{{ m.content }}{% "
        "endfor %}";
    limits_.slot_context = 1024;
    by_prefix_ = true;
  }

  static std::string Tool(const std::string& wrapper, const std::string& schema_name) {
    const std::string function =
        R"("name":"weather",")" + schema_name + "\":" + std::string(kUnconstrained);
    return wrapper.empty() ? "{" + function + "}" : wrapper + function + "}";
  }
  static std::string ChatBody(const std::string& fields) {
    return R"({"messages":[{"role":"user","content":"Where?"}],"temperature":0,"tools":[)" +
           Tool(R"({"type":"function","function":{)", "parameters") + "}]" + fields + "}";
  }
  static std::string MessagesBody(const std::string& fields) {
    return R"({"messages":[{"role":"user","content":"Where?"}],"temperature":0,"tools":[)" +
           Tool("", "input_schema") + "]" + fields + "}";
  }
  static std::string ResponsesBody(const std::string& fields) {
    return R"({"input":"Where?","temperature":0,"tools":[)" +
           Tool(R"({"type":"function",)", "parameters") + "]" + fields + "}";
  }
};

TEST_F(BrokenCallsTest, ACallThatALimitCutsOffIsNoneInEveryDialect) {
  Say("See.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n"
      "</tool_call>");
  Start();
  size_t whole = 0;
  for (size_t tokens = 1; tokens < script_.size(); ++tokens) {
    const std::string n = std::to_string(tokens);
    const auto chat = PostJson("/v1/chat/completions", ChatBody(",\"max_tokens\":" + n));
    const auto& choice = chat["choices"][0];
    const auto messages = PostJson("/v1/messages", MessagesBody(",\"max_tokens\":" + n));
    const auto responses = PostJson("/v1/responses", ResponsesBody(",\"max_output_tokens\":" + n));
    EXPECT_EQ(TextOf(choice, "finish_reason"), "length");
    EXPECT_EQ(TextOf(messages, "stop_reason"), "max_tokens");
    EXPECT_EQ(TextOf(responses, "status"), "incomplete");

    std::string calls;
    if (choice["message"].HasMember("tool_calls")) {
      calls = TextOf(choice["message"]["tool_calls"][0]["function"], "arguments");
      ++whole;
    }
    std::string text;
    std::string input;
    for (const auto& block : messages["content"].GetArray()) {
      text += TextOf(block, "text");
      if (TextOf(block, "type") == "tool_use") input += WriteJson(block["input"]);
    }
    std::string output;
    std::string arguments;
    for (const auto& item : responses["output"].GetArray()) {
      if (TextOf(item, "type") == "message") output += TextOf(item["content"][0], "text");
      arguments += TextOf(item, "arguments");
    }
    EXPECT_EQ(text, TextOf(choice["message"], "content")) << n;
    EXPECT_EQ(output, text) << n;
    EXPECT_EQ(arguments, calls) << n;
    EXPECT_EQ(input.empty(), calls.empty()) << n;
    EXPECT_THAT(text, Not(HasSubstr("<tool_call>"))) << n;
    EXPECT_THAT(text, Not(HasSubstr("weather"))) << n;
  }
  EXPECT_LT(whole, script_.size() / 2) << "most cuts leave no whole call";
}

TEST_F(BrokenCallsTest, AClosedCallThatCannotBeReadIsAnErrorInEveryDialect) {
  for (const char* call : {"<tool_call>\n{\"name\": \"bake\", \"arguments\": {}}\n</tool_call>",
                           "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": Ulm}}\n"
                           "</tool_call>"}) {
    Say(std::string("See.\n") + call);
    Start();
    const auto check = [&](const std::string& path, const std::string& body,
                           const std::string& streamed) {
      const auto answer = Post(path, body);
      EXPECT_EQ(answer.status, 500) << path;
      EXPECT_THAT(answer.body, HasSubstr("cannot be read")) << path;
      const auto stream = Post(path, streamed);
      EXPECT_EQ(stream.status, 200) << path;
      EXPECT_TRUE(stream.complete) << path;
      EXPECT_THAT(stream.body, HasSubstr("cannot be read")) << path;
      EXPECT_THAT(stream.body, HasSubstr("\"S\"")) << path << ": what came before has gone out";
      EXPECT_THAT(stream.body, Not(HasSubstr("[DONE]"))) << path;
      EXPECT_THAT(stream.body, Not(HasSubstr("message_stop"))) << path;
      EXPECT_THAT(stream.body, Not(HasSubstr("response.completed"))) << path;
    };
    const std::string stream = R"(,"stream":true)";
    check("/v1/chat/completions", ChatBody(""), ChatBody(stream));
    check("/v1/messages", MessagesBody(""), MessagesBody(stream));
    check("/v1/responses", ResponsesBody(""), ResponsesBody(stream));
    EXPECT_THAT(Post("/v1/messages", MessagesBody("")).body,
                HasSubstr(R"({"type":"error","error":{)"));
    EXPECT_THAT(Post("/v1/messages", MessagesBody(stream)).body, HasSubstr("event: error"));
    // The server goes on.
    EXPECT_EQ(Post("/v1/chat/completions", ChatBody(R"(,"tool_choice":"none")")).status, 200);
    server_.reset();
  }
}

}  // namespace
}  // namespace bloomery::serve
