// /v1/messages and its token count: Anthropic's shapes, whole and streamed.
#include <gmock/gmock.h>

#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using test::Answer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kTool =
    R"("tools":[{"name":"read","description":"Reads","input_schema":{"type":"object",)"
    R"("properties":{"path":{"type":"string"}},"required":["path"]}}])";
constexpr const char* kCall =
    "<think>\nI look.\n</think>\n\nSo:\n<tool_call>\n"
    "{\"name\": \"read\", \"arguments\": {\"path\": \"a.txt\"}}\n</tool_call>";

class MessagesTest : public ServedTest {
 protected:
  static std::string Body(const std::string& fields = "", const std::string& content = "Where?") {
    return R"({"messages":[{"role":"user","content":")" + content +
           R"("}],"max_tokens":64,"temperature":0)" + (fields.empty() ? "" : "," + fields) + "}";
  }
  // The error's message, after checking its form.
  std::string Refused(const Answer& answer, int status, const std::string& type) {
    EXPECT_EQ(answer.status, status) << answer.body;
    const auto body = ParseJson(answer.body, "answer");
    EXPECT_EQ(TextOf(body, "type"), "error");
    EXPECT_EQ(TextOf(body["error"], "type"), type) << answer.body;
    return TextOf(body["error"], "message");
  }
};

TEST_F(MessagesTest, AnswerIsAMessageWhoseUsageSumsToThePrompt) {
  Start();
  const auto first = PostJson("/v1/messages", Body());
  EXPECT_THAT(TextOf(first, "id"), StartsWith("msg_"));
  EXPECT_EQ(TextOf(first, "type"), "message");
  EXPECT_EQ(TextOf(first, "role"), "assistant");
  EXPECT_EQ(TextOf(first, "model"), "mini.gguf");
  EXPECT_EQ(WriteJson(first["content"]),
            R"([{"type":"text","text":"The capital of Japan is Tokyo."}])");
  EXPECT_EQ(TextOf(first, "stop_reason"), "end_turn");
  EXPECT_TRUE(first["stop_sequence"].IsNull());
  EXPECT_FALSE(first.HasMember("timings"));
  const auto second = PostJson("/v1/messages", Body());
  const auto count = PostJson("/v1/messages/count_tokens", Body());
  for (const auto* answer : {&first, &second}) {
    const auto& usage = (*answer)["usage"];
    EXPECT_EQ(usage.MemberCount(), 3U);
    EXPECT_EQ(usage["input_tokens"].GetInt() + usage["cache_read_input_tokens"].GetInt(),
              count["input_tokens"].GetInt());
    EXPECT_EQ(usage["output_tokens"].GetInt(), static_cast<int>(script_.size()) + 1);
  }
  EXPECT_EQ(first["usage"]["cache_read_input_tokens"].GetInt(), 0);
  EXPECT_GT(second["usage"]["cache_read_input_tokens"].GetInt(), 0);
}

TEST_F(MessagesTest, CountNeedsNoLimitAndGivesTheNumberAlone) {
  Start();
  const auto count =
      PostJson("/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":"Where?"}]})");
  EXPECT_EQ(count.MemberCount(), 1U);
  EXPECT_GT(count["input_tokens"].GetInt(), 0);
}

TEST_F(MessagesTest, ThinkingInTheHistoryIsCountedWhereTheTemplateShowsIt) {
  template_ =
      "{% for m in messages %}{{ m.role }}{{ m.reasoning_content }}{{ m.content }}\n"
      "{% endfor %}{% if add_generation_prompt %}>{% endif %}";
  Start();
  const auto count = [&](const std::string& thinking) {
    return PostJson(
               "/v1/messages/count_tokens",
               R"({"messages":[{"role":"user","content":"A"},{"role":"assistant","content":[)" +
                   thinking + R"({"type":"text","text":"B"}]},{"role":"user","content":"C"}]})")
        ["input_tokens"]
            .GetInt();
  };
  EXPECT_GT(count(R"({"type":"thinking","thinking":"The capital of Japan","signature":""},)"),
            count(""));
}

TEST_F(MessagesTest, StreamIsStartBlockDeltaAndStopInOrder) {
  Start();
  const Answer answer = Post("/v1/messages", Body(R"("stream":true)"));
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
  const auto events = NamedEvents(answer.body);
  EXPECT_THAT(TypesOf(events),
              ElementsAre("message_start", "content_block_start", "content_block_delta",
                          "content_block_stop", "message_delta", "message_stop"));
  const auto& message = events.front()["message"];
  EXPECT_EQ(WriteJson(message["content"]), "[]");
  EXPECT_TRUE(message["stop_reason"].IsNull());
  EXPECT_EQ(message["usage"]["output_tokens"].GetInt(), 0);
  EXPECT_GT(message["usage"]["input_tokens"].GetInt(), 0);
  EXPECT_EQ(
      WriteJson(events[1]),
      R"({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}})");
  std::string text;
  for (const auto& event : events) {
    if (event.HasMember("delta")) text += TextOf(event["delta"], "text");
  }
  EXPECT_EQ(text, kScript);
  const auto& end = events[events.size() - 2];
  EXPECT_EQ(TextOf(end["delta"], "stop_reason"), "end_turn");
  EXPECT_EQ(end["usage"]["output_tokens"].GetInt(), static_cast<int>(script_.size()) + 1);
}

TEST_F(MessagesTest, StreamOfACallHasThinkingThenTextThenToolUseWithoutGaps) {
  seat_.chat.tool_syntax = "hermes";
  Say(kCall);
  Start();
  const auto whole = PostJson("/v1/messages", Body(kTool));
  ASSERT_EQ(whole["content"].Size(), 3U) << WriteJson(whole);
  EXPECT_EQ(TextOf(whole["content"][0], "type"), "thinking");
  EXPECT_EQ(TextOf(whole["content"][0], "signature"), "");
  EXPECT_EQ(TextOf(whole["content"][1], "type"), "text");
  EXPECT_EQ(TextOf(whole["content"][2], "type"), "tool_use");
  EXPECT_EQ(TextOf(whole["content"][2], "name"), "read");
  EXPECT_THAT(TextOf(whole["content"][2], "id"), StartsWith("toolu_"));
  EXPECT_EQ(WriteJson(whole["content"][2]["input"]), R"({"path":"a.txt"})");
  EXPECT_EQ(TextOf(whole, "stop_reason"), "tool_use");

  const auto events =
      NamedEvents(Post("/v1/messages", Body(std::string(kTool) + R"(,"stream":true)")).body);
  std::vector<std::string> order;
  std::vector<std::string> joined(3);
  for (const auto& event : events) {
    const std::string type = TextOf(event, "type");
    if (!type.starts_with("content_block")) continue;
    const auto index = static_cast<size_t>(event["index"].GetInt());
    ASSERT_LT(index, 3U);
    std::string step = std::to_string(index) + " " + type.substr(14);
    if (type == "content_block_delta") {
      const auto& delta = event["delta"];
      step = std::to_string(index) + " " + TextOf(delta, "type");
      joined[index] +=
          TextOf(delta, "thinking") + TextOf(delta, "text") + TextOf(delta, "partial_json");
    }
    if (order.empty() || order.back() != step) order.push_back(step);
  }
  EXPECT_THAT(order,
              ElementsAre("0 start", "0 thinking_delta", "0 signature_delta", "0 stop", "1 start",
                          "1 text_delta", "1 stop", "2 start", "2 input_json_delta", "2 stop"));
  EXPECT_EQ(joined[0], TextOf(whole["content"][0], "thinking"));
  EXPECT_EQ(joined[1], TextOf(whole["content"][1], "text"));
  EXPECT_EQ(WriteJson(ParseJson(joined[2], "arguments")), R"({"path":"a.txt"})");
  EXPECT_EQ(TextOf(events[events.size() - 2]["delta"], "stop_reason"), "tool_use");
}

TEST_F(MessagesTest, CallThatIsCutOffIsNoneAndTheReasonIsTheLimit) {
  seat_.chat.tool_syntax = "hermes";
  Say(kCall);
  Start();
  const auto tokens = static_cast<int>(script_.size()) - 4;
  const auto whole = PostJson(
      "/v1/messages", R"({"messages":[{"role":"user","content":"x"}],"temperature":0,)" +
                          std::string(kTool) + R"(,"max_tokens":)" + std::to_string(tokens) + "}");
  EXPECT_EQ(TextOf(whole, "stop_reason"), "max_tokens");
  EXPECT_THAT(WriteJson(whole["content"]), ::testing::Not(HasSubstr("tool_use")));
}

TEST_F(MessagesTest, ToolResultsAreTakenAsTextBlocksAndErrors) {
  seat_.chat.tool_syntax = "hermes";
  limits_.slot_context = 1024;
  Start();
  for (const char* result :
       {R"("content":"21")", R"("content":[{"type":"text","text":"21"}])",
        R"("content":"no such file","is_error":true)", R"("is_error":false)"}) {
    const auto answer = PostJson(
        "/v1/messages",
        R"({"max_tokens":8,"temperature":0,"messages":[{"role":"user","content":"Read a."},)"
        R"({"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"read",)"
        R"("input":{"path":"a"}}]},{"role":"user","content":[{"type":"tool_result",)"
        R"("tool_use_id":"t1",)" +
            std::string(result) + "}]}]," + kTool + "}");
    EXPECT_EQ(TextOf(answer, "type"), "message") << result;
  }
}

TEST_F(MessagesTest, StopSequenceAndLimitGiveTheirReasons) {
  seat_.chat.stop_texts = {" is"};
  Start();
  const auto stopped = PostJson("/v1/messages", Body(R"("stop_sequences":[" Japan"])"));
  EXPECT_EQ(TextOf(stopped, "stop_reason"), "stop_sequence");
  EXPECT_EQ(TextOf(stopped, "stop_sequence"), " Japan");
  EXPECT_EQ(TextOf(stopped["content"][0], "text"), "The capital of");
  // The model's own stop text is the end of its turn.
  const auto ended = PostJson("/v1/messages", Body());
  EXPECT_EQ(TextOf(ended, "stop_reason"), "end_turn");
  EXPECT_TRUE(ended["stop_sequence"].IsNull());
  const auto cut =
      PostJson("/v1/messages", R"({"messages":[{"role":"user","content":"x"}],"max_tokens":2})");
  EXPECT_EQ(TextOf(cut, "stop_reason"), "max_tokens");
}

TEST_F(MessagesTest, SystemTextAndCacheMarksAreTaken) {
  Start();
  const auto answer = PostJson(
      "/v1/messages",
      R"({"max_tokens":4,"system":[{"type":"text","text":"Be brief.","cache_control":)"
      R"({"type":"ephemeral"}}],"metadata":{"user_id":"u"},"messages":[{"role":"user","content":)"
      R"([{"type":"text","text":"Hi","cache_control":{"type":"ephemeral"}}]}]})");
  EXPECT_EQ(TextOf(answer, "type"), "message");
}

TEST_F(MessagesTest, ErrorsHaveAnthropicsForm) {
  settings_.api_keys = {"secret"};
  Listen();
  const std::map<std::string, std::string> key{{"X-Api-Key", "secret"}};
  EXPECT_EQ(Refused(Post("/v1/messages", Body(), key), 503, "overloaded_error"), "Loading model");
  FinishLoading();
  EXPECT_EQ(Refused(Post("/v1/messages", Body()), 401, "authentication_error"), "Invalid API Key");
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens"}) {
    EXPECT_THAT(Refused(Post(path, "{}", key), 400, "invalid_request_error"),
                HasSubstr("messages"));
    EXPECT_THAT(Refused(Post(path, "no json", key), 400, "invalid_request_error"),
                HasSubstr("request body"));
  }
  EXPECT_THAT(Refused(Post("/v1/messages", Body(R"("n":2)"), key), 400, "invalid_request_error"),
              HasSubstr("'n'"));
  EXPECT_THAT(
      Refused(Post("/v1/messages", Body(R"("n_probs":2)"), key), 400, "invalid_request_error"),
      HasSubstr("n_probs"));
}

TEST_F(MessagesTest, PromptThatIsTooLongIsRefusedInTheWordsThatClientsKnow) {
  Start();
  std::string text;
  for (int i = 0; i < 200; ++i) text += "word ";
  for (const char* stream : {R"("stream":false)", R"("stream":true)"}) {
    const Answer answer = Post("/v1/messages", Body(stream, text));
    EXPECT_THAT(Refused(answer, 400, "invalid_request_error"), StartsWith("prompt is too long: "));
    const auto body = ParseJson(answer.body, "answer");
    EXPECT_EQ(body["error"]["n_ctx"].GetInt(), 128);
    EXPECT_GT(body["error"]["n_prompt_tokens"].GetInt(), 128);
  }
}

TEST_F(MessagesTest, ErrorInAStreamIsANamedEventAndEndsIt) {
  endless_ = true;
  limits_.slot_context = 100000;
  Start();
  test::Client client(port());
  client.Send(
      test::RequestText("POST", "/v1/messages", Body(R"("stream":true,"max_tokens":100000)")));
  ASSERT_TRUE(client.ReadUntil("content_block_delta"));
  server_->Stop(std::chrono::milliseconds(0));
  client.ReadToEnd();
  const std::string& received = client.received();
  const size_t error = received.find("event: error\ndata: {\"type\":\"error\",\"error\":{");
  EXPECT_NE(error, std::string::npos) << received;
  EXPECT_EQ(received.find("message_stop"), std::string::npos);
}

}  // namespace
}  // namespace bloomery::serve
