// /v1/responses and its token count: OpenAI's shapes, whole and streamed.
#include <gmock/gmock.h>

#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using test::Answer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kTool =
    R"("tools":[{"type":"function","name":"read","parameters":{"type":"object",)"
    R"("properties":{"path":{"type":"string"}},"required":["path"]},"strict":true}])";
constexpr const char* kCall =
    "<think>\nI look.\n</think>\n\nSo:\n<tool_call>\n"
    "{\"name\": \"read\", \"arguments\": {\"path\": \"a.txt\"}}\n</tool_call>";

class ResponsesTest : public ServedTest {
 protected:
  static std::string Body(const std::string& fields = "") {
    return R"({"input":"Where?","temperature":0)" + (fields.empty() ? "" : "," + fields) + "}";
  }
  // Every event is numbered, from 0.
  std::vector<rapidjson::Document> Stream(const std::string& fields) {
    const Answer answer =
        Post("/v1/responses", Body(R"("stream":true)" + (fields.empty() ? "" : "," + fields)));
    auto events = NamedEvents(answer.body);
    for (size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i]["sequence_number"].GetInt(), static_cast<int>(i));
    }
    return events;
  }
};

TEST_F(ResponsesTest, AnswerIsACompletedResponseWithOneMessage) {
  Start();
  const auto answer = PostJson("/v1/responses", Body());
  EXPECT_THAT(TextOf(answer, "id"), StartsWith("resp_"));
  EXPECT_EQ(TextOf(answer, "object"), "response");
  EXPECT_EQ(TextOf(answer, "status"), "completed");
  EXPECT_EQ(TextOf(answer, "model"), "mini.gguf");
  EXPECT_GE(answer["completed_at"].GetInt64(), answer["created_at"].GetInt64());
  ASSERT_EQ(answer["output"].Size(), 1U);
  const auto& message = answer["output"][0];
  EXPECT_THAT(TextOf(message, "id"), StartsWith("msg_"));
  EXPECT_EQ(TextOf(message, "role"), "assistant");
  EXPECT_EQ(WriteJson(message["content"]),
            R"([{"type":"output_text","text":"The capital of Japan is Tokyo.",)"
            R"("annotations":[],"logprobs":[]}])");
  const auto& usage = answer["usage"];
  EXPECT_EQ(usage["total_tokens"].GetInt(),
            usage["input_tokens"].GetInt() + usage["output_tokens"].GetInt());
  EXPECT_EQ(usage["input_tokens_details"]["cached_tokens"].GetInt(), 0);
  for (const char* path : {"/v1/responses/input_tokens", "/responses/input_tokens"}) {
    const auto count = PostJson(path, Body());
    EXPECT_EQ(TextOf(count, "object"), "response.input_tokens");
    EXPECT_EQ(count["input_tokens"].GetInt(), usage["input_tokens"].GetInt());
  }
}

TEST_F(ResponsesTest, StreamIsCreatedThenInProgressThenDeltasThatSumToTheCompletedText) {
  Start();
  const auto events = Stream("");
  EXPECT_THAT(TypesOf(events),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.completed"));
  const std::string id = TextOf(events[0]["response"], "id");
  EXPECT_THAT(id, StartsWith("resp_"));
  EXPECT_EQ(TextOf(events[1]["response"], "id"), id);
  EXPECT_EQ(TextOf(events[1]["response"], "status"), "in_progress");
  std::string text;
  for (const auto& event : events) {
    if (TextOf(event, "type") == "response.output_text.delta") text += TextOf(event, "delta");
  }
  EXPECT_EQ(text, kScript);
  const auto& last = events.back();
  EXPECT_EQ(TextOf(last["response"], "id"), id);
  EXPECT_EQ(TextOf(last["response"]["output"][0]["content"][0], "text"), text);
  EXPECT_TRUE(last.HasMember("timings"));
  EXPECT_GT(last["response"]["usage"]["output_tokens"].GetInt(), 0);
}

TEST_F(ResponsesTest, StreamDoesNotEndWithDone) {
  Start();
  EXPECT_THAT(Post("/v1/responses", Body(R"("stream":true)")).body,
              ::testing::Not(HasSubstr("[DONE]")));
}

TEST_F(ResponsesTest, ProgressIsSaidInProgressEvents) {
  Start();
  const auto events = Stream(R"("return_progress":true)");
  size_t seen = 0;
  for (const auto& event : events) seen += event.HasMember("prompt_progress") ? 1 : 0;
  EXPECT_GE(seen, 2U);
  EXPECT_TRUE(events[2].HasMember("prompt_progress"));
  EXPECT_EQ(TextOf(events[2], "type"), "response.in_progress");
}

TEST_F(ResponsesTest, ReasoningMessageAndCallAreItemsEachDoneBeforeTheNext) {
  seat_.chat.tool_syntax = "hermes";
  Say(kCall);
  Start();
  const auto whole = PostJson("/v1/responses", Body(kTool));
  ASSERT_EQ(whole["output"].Size(), 3U) << WriteJson(whole);
  const auto& call = whole["output"][2];
  EXPECT_EQ(TextOf(whole["output"][0], "type"), "reasoning");
  EXPECT_THAT(TextOf(whole["output"][0], "id"), StartsWith("rs_"));
  EXPECT_EQ(TextOf(whole["output"][0]["content"][0], "type"), "reasoning_text");
  EXPECT_EQ(TextOf(whole["output"][1], "type"), "message");
  EXPECT_EQ(TextOf(call, "type"), "function_call");
  EXPECT_EQ(TextOf(call, "name"), "read");
  EXPECT_EQ(TextOf(call, "id").substr(3), TextOf(call, "call_id").substr(5));
  EXPECT_THAT(TextOf(call, "id"), StartsWith("fc_"));
  EXPECT_THAT(TextOf(call, "call_id"), StartsWith("call_"));
  EXPECT_EQ(WriteJson(ParseJson(TextOf(call, "arguments"), "arguments")), R"({"path":"a.txt"})");

  const auto events = Stream(kTool);
  int open = -1;
  std::vector<std::string> joined(3);
  for (const auto& event : events) {
    const std::string type = TextOf(event, "type");
    if (type == "response.output_item.added") {
      EXPECT_EQ(open, -1);
      open = event["output_index"].GetInt();
    } else if (type == "response.output_item.done") {
      EXPECT_EQ(event["output_index"].GetInt(), open);
      open = -1;
    } else if (type.ends_with(".delta")) {
      ASSERT_EQ(event["output_index"].GetInt(), open);
      joined[static_cast<size_t>(open)] += TextOf(event, "delta");
    }
  }
  EXPECT_EQ(open, -1);
  EXPECT_EQ(joined[0], TextOf(whole["output"][0]["content"][0], "text"));
  EXPECT_EQ(joined[1], TextOf(whole["output"][1]["content"][0], "text"));
  EXPECT_EQ(joined[2], TextOf(call, "arguments"));
  EXPECT_EQ(TextOf(events.back()["response"]["output"][2], "arguments"), joined[2]);
}

TEST_F(ResponsesTest, CallAndItsOutputGoBackIntoThePrompt) {
  seat_.chat.tool_syntax = "hermes";
  limits_.slot_context = 1024;
  Start();
  const auto answer = PostJson(
      "/v1/responses",
      R"({"temperature":0,"input":[{"role":"user","content":"Read a."},{"type":"function_call",)"
      R"("call_id":"call_1","name":"read","arguments":"{\"path\":\"a\"}"},)"
      R"({"type":"function_call_output","call_id":"call_1","output":"21"}],)" +
          std::string(kTool) + "}");
  EXPECT_EQ(TextOf(answer, "status"), "completed");
}

TEST_F(ResponsesTest, LengthIsAnIncompleteResponse) {
  Start();
  const auto whole = PostJson("/v1/responses", Body(R"("max_output_tokens":3)"));
  EXPECT_EQ(TextOf(whole, "status"), "incomplete");
  EXPECT_EQ(TextOf(whole["incomplete_details"], "reason"), "max_output_tokens");
  EXPECT_EQ(TextOf(whole["output"][0], "status"), "incomplete");
  EXPECT_EQ(whole["usage"]["output_tokens"].GetInt(), 3);
  const auto events = Stream(R"("max_output_tokens":3)");
  EXPECT_EQ(TextOf(events.back(), "type"), "response.incomplete");
  EXPECT_EQ(TextOf(events.back()["response"]["output"][0]["content"][0], "text"),
            TextOf(whole["output"][0]["content"][0], "text"));
}

// The probabilities are those of the message's own tokens, whatever came before them.
TEST_F(ResponsesTest, LogprobsAreThoseOfTheMessageAndTheSameInAStream) {
  Say("<think>\nwhy\n</think>\n\nThe capital of Japan");
  Start();
  const std::string fields = R"("include":["message.output_text.logprobs"])";
  const auto answer = PostJson("/v1/responses", Body(fields + R"(,"top_logprobs":2)"));
  ASSERT_EQ(answer["output"].Size(), 2U);
  const auto& part = answer["output"][1]["content"][0];
  ASSERT_EQ(TextOf(part, "text"), "The capital of Japan");
  std::string text;
  for (const auto& entry : part["logprobs"].GetArray()) {
    EXPECT_LE(entry["logprob"].GetDouble(), 0.0);
    EXPECT_EQ(entry["top_logprobs"].Size(), 2U);
    text += TextOf(entry, "token");
  }
  EXPECT_EQ(text, "The capital of Japan");
  EXPECT_EQ(answer["usage"]["output_tokens_details"]["reasoning_tokens"].GetInt(),
            static_cast<int>(tokenizer_->Tokenise("why").size()));

  std::string streamed;
  std::string done;
  for (const auto& event : Stream(fields + R"(,"top_logprobs":2)")) {
    const std::string type = TextOf(event, "type");
    if (type == "response.output_text.delta") {
      for (const auto& entry : event["logprobs"].GetArray()) streamed += WriteJson(entry) + ",";
    } else if (type == "response.output_text.done") {
      done = WriteJson(event["logprobs"]);
    }
  }
  if (!streamed.empty()) streamed.pop_back();
  EXPECT_EQ("[" + streamed + "]", WriteJson(part["logprobs"]));
  EXPECT_EQ(done, WriteJson(part["logprobs"]));

  const auto plain = PostJson("/v1/responses", Body(fields));
  const auto& first = plain["output"][1]["content"][0]["logprobs"][0];
  EXPECT_EQ(first["top_logprobs"].Size(), 0U) << "alternatives only where they are asked for";
  const auto none = PostJson("/v1/responses", Body());
  EXPECT_EQ(none["output"][1]["content"][0]["logprobs"].Size(), 0U);
}

TEST_F(ResponsesTest, PreviousResponsesAndMissingInputAreRefused) {
  Start();
  EXPECT_THAT(ErrorOf(Post("/v1/responses", Body(R"("previous_response_id":"resp_1")")), 400,
                      "invalid_request_error"),
              HasSubstr("previous_response_id"));
  EXPECT_THAT(ErrorOf(Post("/v1/responses", "{}"), 400, "invalid_request_error"),
              HasSubstr("'input'"));
  EXPECT_THAT(ErrorOf(Post("/v1/responses", Body(R"("n":2)")), 400, "invalid_request_error"),
              HasSubstr("'n'"));
  EXPECT_THAT(
      ErrorOf(Post("/responses", Body(R"("top_logprobs":2)")), 400, "invalid_request_error"),
      HasSubstr("top_logprobs"));
}

TEST_F(ResponsesTest, ErrorInAStreamIsANamedEventWithTheErrorAndEndsIt) {
  endless_ = true;
  limits_.slot_context = 100000;
  Start();
  test::Client client(port());
  client.Send(test::RequestText("POST", "/v1/responses", Body(R"("stream":true)")));
  ASSERT_TRUE(client.ReadUntil("output_text.delta"));
  server_->Stop(std::chrono::milliseconds(0));
  client.ReadToEnd();
  EXPECT_NE(client.received().find("event: error\ndata: {\"type\":\"error\""), std::string::npos);
  EXPECT_NE(client.received().find("\"error\":{\"code\":503"), std::string::npos);
  EXPECT_EQ(client.received().find("response.completed"), std::string::npos);
}

}  // namespace
}  // namespace bloomery::serve
