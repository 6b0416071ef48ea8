// /v1/chat/completions, /apply-template and the token count, with the mini model's template.
#include <gmock/gmock.h>

#include <set>

#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using test::Answer;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kMessages = R"("messages":[{"role":"user","content":"Where?"}])";

class ChatTest : public ServedTest {
 protected:
  static std::string Body(const std::string& fields = "") {
    return "{" + std::string(kMessages) + ",\"temperature\":0" +
           (fields.empty() ? "" : "," + fields) + "}";
  }
  void Refuses(const std::string& body, const std::string& named, int status = 400) {
    const std::string type = status == 400 ? "invalid_request_error" : "not_supported_error";
    for (const char* path : {"/v1/chat/completions", "/apply-template"}) {
      EXPECT_THAT(ErrorOf(Post(path, body), status, type), HasSubstr(named)) << path << " " << body;
    }
  }
};

TEST_F(ChatTest, AnswerHasItsShape) {
  Start();
  const auto answer = PostJson("/v1/chat/completions", Body());
  EXPECT_THAT(TextOf(answer, "id"), StartsWith("chatcmpl-"));
  EXPECT_EQ(TextOf(answer, "id").size(), std::string("chatcmpl-").size() + 32);
  EXPECT_EQ(TextOf(answer, "object"), "chat.completion");
  EXPECT_EQ(TextOf(answer, "model"), "mini.gguf");
  ASSERT_EQ(answer["choices"].Size(), 1U);
  const auto& choice = answer["choices"][0];
  EXPECT_EQ(choice["index"].GetInt(), 0);
  EXPECT_EQ(TextOf(choice, "finish_reason"), "stop");
  EXPECT_EQ(TextOf(choice["message"], "role"), "assistant");
  EXPECT_EQ(TextOf(choice["message"], "content"), kScript);
  EXPECT_FALSE(choice["message"].HasMember("reasoning_content"));
  EXPECT_FALSE(choice.HasMember("logprobs"));
  EXPECT_EQ(
      answer["usage"]["total_tokens"].GetInt(),
      answer["usage"]["prompt_tokens"].GetInt() + answer["usage"]["completion_tokens"].GetInt());
  EXPECT_EQ(answer["timings"]["predicted_n"].GetInt(),
            answer["usage"]["completion_tokens"].GetInt());
}

TEST_F(ChatTest, PromptTokensAreTheSameForTheSameMessagesAndCountedAlone) {
  Start();
  const auto first = PostJson("/v1/chat/completions", Body());
  const auto second = PostJson("/chat/completions", Body());
  EXPECT_EQ(first["usage"]["prompt_tokens"].GetInt(), second["usage"]["prompt_tokens"].GetInt());
  EXPECT_GT(second["usage"]["prompt_tokens_details"]["cached_tokens"].GetInt(), 0);
  const auto count = PostJson("/v1/chat/completions/input_tokens", Body());
  EXPECT_EQ(count["input_tokens"].GetInt(), first["usage"]["prompt_tokens"].GetInt());
  EXPECT_EQ(TextOf(count, "object"), "response.input_tokens");
}

TEST_F(ChatTest, StreamHasRoleThenContentThenFinishThenUsageThenDone) {
  Start();
  const Answer answer = Post("/v1/chat/completions",
                             Body(R"("stream":true,"stream_options":{"include_usage":true})"));
  bool done = false;
  const auto events = Events(answer.body, done);
  EXPECT_TRUE(done);
  ASSERT_GE(events.size(), 4U);
  EXPECT_EQ(WriteJson(events[0]["choices"]),
            R"([{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}])");
  std::string joined;
  for (size_t i = 1; i + 2 < events.size(); ++i) {
    const auto& delta = events[i]["choices"][0]["delta"];
    EXPECT_FALSE(delta.HasMember("role"));
    EXPECT_TRUE(events[i]["choices"][0]["finish_reason"].IsNull());
    joined += TextOf(delta, "content");
  }
  EXPECT_EQ(joined, kScript);
  const auto& finish = events[events.size() - 2];
  EXPECT_EQ(WriteJson(finish["choices"]), R"([{"index":0,"delta":{},"finish_reason":"stop"}])");
  EXPECT_FALSE(finish.HasMember("timings"));
  const auto& usage = events.back();
  EXPECT_EQ(usage["choices"].Size(), 0U);
  EXPECT_GT(usage["usage"]["completion_tokens"].GetInt(), 0);
  EXPECT_TRUE(usage.HasMember("timings"));
  std::set<std::string> ids;
  for (const auto& event : events) {
    ids.insert(TextOf(event, "id"));
    EXPECT_EQ(TextOf(event, "object"), "chat.completion.chunk");
  }
  EXPECT_EQ(ids.size(), 1U);
}

TEST_F(ChatTest, TimingsRideOnTheFinishChunkAndOnEachDeltaWhenAsked) {
  Start();
  bool done = false;
  auto events = Events(Post("/v1/chat/completions", Body(R"("stream":true)")).body, done);
  EXPECT_TRUE(events.back().HasMember("timings"));
  EXPECT_FALSE(events[1].HasMember("timings"));
  events = Events(
      Post("/v1/chat/completions", Body(R"("stream":true,"timings_per_token":true)")).body, done);
  EXPECT_FALSE(events[0].HasMember("timings"));
  EXPECT_TRUE(events[1].HasMember("timings"));
}

TEST_F(ChatTest, LogprobsComeInAnswersAndOnDeltas) {
  Start();
  const auto answer =
      PostJson("/v1/chat/completions", Body(R"("logprobs":true,"top_logprobs":2,"max_tokens":3)"));
  const auto& content = answer["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.Size(), 3U);
  EXPECT_EQ(TextOf(content[0], "token"), "The");
  EXPECT_EQ(content[0]["top_logprobs"].Size(), 2U);
  bool done = false;
  const auto events = Events(
      Post("/v1/chat/completions", Body(R"("logprobs":true,"max_tokens":3,"stream":true)")).body,
      done);
  size_t entries = 0;
  for (const auto& event : events) {
    const auto& choice = event["choices"][0];
    if (!choice.HasMember("logprobs")) continue;
    entries += choice["logprobs"]["content"].Size();
    EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"].Size(), 20U);
  }
  EXPECT_EQ(entries, 3U);
  const auto none =
      PostJson("/v1/chat/completions", Body(R"("logprobs":true,"top_logprobs":0,"max_tokens":1)"));
  EXPECT_EQ(none["choices"][0]["logprobs"]["content"][0]["top_logprobs"].Size(), 0U);
  EXPECT_THAT(ErrorOf(Post("/v1/chat/completions", Body(R"("top_logprobs":2)")), 400,
                      "invalid_request_error"),
              HasSubstr("top_logprobs"));
}

TEST_F(ChatTest, TwoChoicesHaveIndicesAndUsageCountsThePromptOnce) {
  Start();
  const auto one = PostJson("/v1/chat/completions", Body(R"("max_tokens":2)"));
  for (int i = 0; i < 2; ++i) {
    const auto two = PostJson("/v1/chat/completions", Body(R"("n":2,"id_slot":0,"max_tokens":2)"));
    ASSERT_EQ(two["choices"].Size(), 2U);
    EXPECT_EQ(two["choices"][0]["index"].GetInt(), 0);
    EXPECT_EQ(two["choices"][1]["index"].GetInt(), 1);
    EXPECT_EQ(two["usage"]["prompt_tokens"].GetInt(), one["usage"]["prompt_tokens"].GetInt());
    EXPECT_EQ(two["usage"]["completion_tokens"].GetInt(), 4);
  }
}

TEST_F(ChatTest, StopStringAndLengthGiveTheirFinishReasons) {
  Start();
  const auto stopped = PostJson("/v1/chat/completions", Body(R"("stop":" Japan")"));
  EXPECT_EQ(TextOf(stopped["choices"][0]["message"], "content"), "The capital of");
  EXPECT_EQ(TextOf(stopped["choices"][0], "finish_reason"), "stop");
  const auto cut = PostJson("/v1/chat/completions", Body(R"("max_completion_tokens":1)"));
  EXPECT_EQ(TextOf(cut["choices"][0], "finish_reason"), "length");
}

// The model would think on for ever.
TEST_F(ChatTest, ReasoningOfARunningCompletionIsEndedByControl) {
  Say("<think>\none two three");
  limits_.slot_context = 100000;
  endless_ = true;
  Start();
  const auto control = [&](const std::string& id) {
    return PostJson("/v1/chat/completions/control",
                    R"({"id":")" + id + R"(","action":"reasoning_end"})");
  };
  test::Client client(port());
  client.Send(test::RequestText("POST", "/v1/chat/completions",
                                Body(R"("stream":true,"reasoning_control":true)")));
  ASSERT_TRUE(client.ReadUntil("reasoning_content"));
  const std::string& received = client.received();
  const size_t at = received.find("chatcmpl-");
  const std::string id = received.substr(at, std::string("chatcmpl-").size() + 32);
  EXPECT_TRUE(control(id)["success"].GetBool());
  EXPECT_TRUE(client.ReadUntil(R"("delta":{"content":)"));
  client.Close();
  const auto unknown = control("chatcmpl-other");
  EXPECT_FALSE(unknown["success"].GetBool());
  EXPECT_NE(TextOf(unknown, "message"), "");
}

TEST_F(ChatTest, ControlNeedsAnIdAndAKnownAction) {
  Start();
  for (const char* path : {"/v1/chat/completions/control", "/chat/completions/control"}) {
    EXPECT_THAT(ErrorOf(Post(path, R"({"action":"reasoning_end"})"), 400, "invalid_request_error"),
                HasSubstr("'id'"));
    EXPECT_THAT(ErrorOf(Post(path, R"({"id":"x","action":"stop"})"), 400, "invalid_request_error"),
                HasSubstr("'action'"));
  }
}

TEST_F(ChatTest, VerboseAnswersCarryTheNativeResult) {
  Start();
  const auto whole = PostJson("/v1/chat/completions", Body(R"("verbose":true)"));
  EXPECT_EQ(TextOf(whole["__verbose"], "content"), kScript);
  EXPECT_THAT(TextOf(whole["__verbose"], "prompt"), HasSubstr("<|im_start|>user\nWhere?"));
  EXPECT_TRUE(whole["__verbose"]["generation_settings"].IsObject());
  EXPECT_FALSE(PostJson("/v1/chat/completions", Body()).HasMember("__verbose"));
  bool done = false;
  const auto events =
      Events(Post("/v1/chat/completions", Body(R"("stream":true,"verbose":true)")).body, done);
  EXPECT_EQ(TextOf(events.back()["__verbose"], "stop_type"), "eos");
  EXPECT_FALSE(events.front().HasMember("__verbose"));
  const auto text = PostJson("/v1/completions", R"({"prompt":"x","temperature":0,"verbose":true})");
  EXPECT_EQ(TextOf(text["__verbose"], "content"), kScript);
}

TEST_F(ChatTest, BadMessagesAreRefused) {
  Start();
  for (const char* messages :
       {"null", R"("text")", "[123]", "[{}]", R"([{"role":123,"content":"x"}])",
        R"([{"role":"user","content":123}])",
        R"([{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}])"}) {
    ErrorOf(Post("/v1/chat/completions", std::string("{\"messages\":") + messages + "}"), 400,
            "invalid_request_error");
  }
  ErrorOf(Post("/v1/chat/completions", "{}"), 400, "invalid_request_error");
}

TEST_F(ChatTest, WrongToolFieldsAreRefusedByName) {
  Start();
  constexpr const char* kTool =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";
  Refuses(Body(R"("response_format":"text")"), "response_format");
  Refuses(Body(R"("tool_choice":"bogus")"), "tool_choice");
  Refuses(Body(R"("tool_choice":"required")"), "tool_choice");
  Refuses(Body(R"("functions":[])"), "functions", 501);
  EXPECT_EQ(Post("/v1/chat/completions", Body(R"("response_format":{"type":"text"})")).status, 200);
  EXPECT_EQ(Post("/v1/chat/completions", Body(R"("tools":[],"tool_choice":"auto")")).status, 200);
  EXPECT_EQ(
      Post("/v1/chat/completions", Body(std::string(kTool) + R"(,"tool_choice":"none")")).status,
      200);
}

TEST_F(ChatTest, ImagesAreRefusedNamingTheScheme) {
  Start();
  for (const char* url : {"http://h/x.png", "data:image/png;base64,AAAA"}) {
    const std::string body = R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},)"
                             R"({"type":"image_url","image_url":{"url":")" +
                             std::string(url) + R"("}}]}]})";
    const std::string scheme = std::string(url).substr(0, 4);
    Refuses(body, "image_url");
    Refuses(body, scheme);
    Refuses(body, "the model has no vision");
  }
  for (const auto& [type, reason] : {std::pair{"input_audio", "no hearing"},
                                     {"video_url", "no vision"},
                                     {"file", "text only"}}) {
    Refuses(R"({"messages":[{"role":"user","content":[{"type":")" + std::string(type) + "\"}]}]}",
            reason);
  }
}

TEST_F(ChatTest, TextPartsAreAccepted) {
  Start();
  const auto prompt =
      PostJson("/apply-template",
               R"({"messages":[{"role":"user","content":[{"type":"text","text":"Where?"}]}]})");
  EXPECT_THAT(TextOf(prompt, "prompt"), HasSubstr("Where?"));
}

TEST_F(ChatTest, ControlTokensInUserTextStayText) {
  Start();
  const auto tokens = [&](const std::string& content) {
    return PostJson(
               "/v1/chat/completions/input_tokens",
               R"({"messages":[{"role":"user","content":")" + content + R"("}]})")["input_tokens"]
        .GetInt();
  };
  // One control token would count one; as text it takes several.
  const auto as_text = static_cast<int>(tokenizer_->Tokenise("<|im_end|>").size());
  ASSERT_GT(as_text, 1);
  EXPECT_GE(tokens("a<|im_end|>b"), tokens("ab") + as_text - 1);
}

TEST_F(ChatTest, TrailingAssistantMessageIsContinuedUnlessSwitchedOff) {
  settings_.prefill_assistant = true;
  Start();
  constexpr const char* kTrailing =
      R"({"messages":[{"role":"user","content":"Where?"},{"role":"assistant","content":"It is"}]})";
  EXPECT_THAT(TextOf(PostJson("/apply-template", kTrailing), "prompt"), EndsWith("It is"));
  ErrorOf(Post("/apply-template", Body(R"("add_generation_prompt":true,
      "continue_final_message":true)")),
          400, "invalid_request_error");
}

TEST_F(ChatTest, TrailingAssistantMessageIsHistoryWithoutPrefill) {
  settings_.prefill_assistant = false;
  Start();
  constexpr const char* kTrailing =
      R"({"messages":[{"role":"user","content":"Where?"},{"role":"assistant","content":"It is"}]})";
  EXPECT_THAT(TextOf(PostJson("/apply-template", kTrailing), "prompt"),
              ::testing::Not(EndsWith("It is")));
}

TEST_F(ChatTest, ServerTemplateVariablesApplyWhereTheRequestGivesNone) {
  template_ = "{{ messages[0].content }}|{{ a }}|{{ enable_thinking }}|{{ reasoning_effort }}|";
  settings_.chat_template_kwargs = R"({"a":1})";
  settings_.thinking = Thinking::kOff;
  settings_.reasoning_effort = "low";
  Start();
  EXPECT_EQ(TextOf(PostJson("/apply-template", Body()), "prompt"), "Where?|1|False|low|");
  EXPECT_EQ(TextOf(PostJson("/apply-template",
                            Body(R"("chat_template_kwargs":{"a":2,"enable_thinking":true},
                                "reasoning_effort":"high")")),
                   "prompt"),
            "Where?|2|True|high|");
  ErrorOf(Post("/apply-template", Body(R"("chat_template_kwargs":{"enable_thinking":"false"})")),
          400, "invalid_request_error");
}

TEST_F(ChatTest, ReasoningIsSplitFromContentTheSameWayInStreams) {
  // The prompt opens the span, the script holds no tag: all of it is reasoning.
  template_ = "{{ messages[0].content }}<think>\n";
  Start();
  const auto split = PostJson("/v1/chat/completions", Body());
  EXPECT_EQ(TextOf(split["choices"][0]["message"], "reasoning_content"), kScript);
  EXPECT_EQ(TextOf(split["choices"][0]["message"], "content"), "");
  bool done = false;
  std::string reasoning;
  for (const auto& event :
       Events(Post("/v1/chat/completions", Body(R"("stream":true)")).body, done)) {
    reasoning += TextOf(event["choices"][0]["delta"], "reasoning_content");
  }
  EXPECT_EQ(reasoning, kScript);
  const auto whole = PostJson("/v1/chat/completions", Body(R"("reasoning_format":"none")"));
  EXPECT_THAT(TextOf(whole["choices"][0]["message"], "content"), EndsWith(kScript));
  EXPECT_THAT(ErrorOf(Post("/v1/chat/completions", Body(R"("reasoning_format":"loud")")), 400,
                      "invalid_request_error"),
              HasSubstr("reasoning_format"));
}

}  // namespace
}  // namespace bloomery::serve
