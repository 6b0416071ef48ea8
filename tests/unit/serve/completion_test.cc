// /completion and /v1/completions against a predictable runner.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using test::Answer;
using test::Client;
using test::RequestText;
using ::testing::HasSubstr;

class CompletionTest : public ServedTest {
 protected:
  void Refuses(const std::string& fields, const std::string& named, int status = 400) {
    const std::string type = status == 400 ? "invalid_request_error" : "not_supported_error";
    EXPECT_THAT(ErrorOf(Post("/completion", "{\"prompt\":\"x\"," + fields + "}"), status, type),
                HasSubstr(named))
        << fields;
  }
  void Accepts(const std::string& fields) {
    EXPECT_EQ(Post("/completion", "{\"prompt\":\"x\",\"n_predict\":1," + fields + "}").status, 200)
        << fields;
  }
};

TEST_F(CompletionTest, ResultHasEveryFieldOfTheNativeShape) {
  Start();
  const auto result = PostJson("/completion", R"({"prompt":"Say it:","temperature":0})");
  EXPECT_EQ(TextOf(result, "content"), kScript);
  EXPECT_EQ(result["index"].GetInt(), 0);
  EXPECT_EQ(result["tokens"].Size(), 0U);
  EXPECT_TRUE(result["stop"].GetBool());
  EXPECT_EQ(TextOf(result, "model"), "mini.gguf");
  EXPECT_EQ(result["tokens_predicted"].GetUint64(), script_.size() + 1);
  EXPECT_EQ(result["tokens_evaluated"].GetUint64(), tokenizer_->Tokenise("Say it:").size());
  EXPECT_EQ(TextOf(result, "prompt"), "Say it:");
  EXPECT_FALSE(result["has_new_line"].GetBool());
  EXPECT_FALSE(result["truncated"].GetBool());
  EXPECT_EQ(TextOf(result, "stop_type"), "eos");
  EXPECT_EQ(TextOf(result, "stopping_word"), "");
  EXPECT_TRUE(result["tokens_cached"].IsInt());
  EXPECT_TRUE(result["id_slot"].IsInt());
  EXPECT_EQ(result["generation_settings"]["temperature"].GetDouble(), 0.0);
  EXPECT_EQ(result["timings"]["predicted_n"].GetUint64(), script_.size() + 1);
  EXPECT_FALSE(result.HasMember("completion_probabilities"));
}

TEST_F(CompletionTest, LimitStopsWithTypeLimitAndTokensComeOnRequest) {
  Start();
  const auto result = PostJson(
      "/completion", R"({"prompt":"x","temperature":0,"n_predict":3,"return_tokens":true})");
  EXPECT_EQ(TextOf(result, "stop_type"), "limit");
  EXPECT_EQ(result["timings"]["predicted_n"].GetInt(), 3);
  ASSERT_EQ(result["tokens"].Size(), 3U);
  for (rapidjson::SizeType i = 0; i < 3; ++i) EXPECT_EQ(result["tokens"][i].GetInt(), script_[i]);
}

TEST_F(CompletionTest, StreamJoinsToTheWholeAnswerAndHasNoDone) {
  Start();
  const Answer answer =
      Post("/completion", R"({"prompt":"x","temperature":0,"stream":true,"stop":["Tokyo"]})");
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(answer.headers.at("x-accel-buffering"), "no");
  EXPECT_TRUE(answer.complete);
  bool done = true;
  const auto events = Events(answer.body, done);
  EXPECT_FALSE(done);
  std::string joined;
  for (size_t i = 0; i < events.size(); ++i) {
    const bool last = i + 1 == events.size();
    EXPECT_EQ(events[i]["stop"].GetBool(), last);
    if (!last) {
      EXPECT_GT(events[i]["tokens"].Size(), 0U);
      joined += TextOf(events[i], "content");
    }
  }
  EXPECT_EQ(TextOf(events.back(), "content"), "");
  EXPECT_EQ(TextOf(events.back(), "stopping_word"), "Tokyo");
  const auto whole = PostJson("/completion", R"({"prompt":"x","temperature":0,"stop":["Tokyo"]})");
  EXPECT_EQ(joined, TextOf(whole, "content"));
  EXPECT_EQ(joined, "The capital of Japan is ");
}

TEST_F(CompletionTest, StreamedEventsHaveExactlyTheseBytes) {
  limits_.slots = 1;
  Start();
  const Answer answer = Post("/completion", R"({"prompt":[5],"temperature":0,"n_predict":1,
      "stream":true,"seed":5,"response_fields":["content","generation_settings/seed","nothing"]})");
  EXPECT_EQ(answer.body,
            "data: {\"index\":0,\"content\":\"The\",\"tokens\":[" + std::to_string(script_[0]) +
                "],\"stop\":false,\"id_slot\":0,\"tokens_predicted\":1,\"tokens_evaluated\":1}\n\n"
                "data: {\"content\":\"\",\"generation_settings/seed\":5}\n\n");
}

TEST_F(CompletionTest, PromptMayBeIdsMixedOrAnObject) {
  Start();
  const auto ids = tokenizer_->Tokenise("Say it:");
  std::string list = "[";
  for (size_t i = 0; i < ids.size(); ++i) list += (i ? "," : "") + std::to_string(ids[i]);
  list += "]";
  for (const std::string& prompt :
       {std::string("\"Say it:\""), list, std::string(R"({"prompt_string":"Say it:"})")}) {
    const auto result = PostJson("/completion", "{\"prompt\":" + prompt + ",\"temperature\":0}");
    EXPECT_EQ(TextOf(result, "content"), kScript);
    EXPECT_EQ(result["tokens_evaluated"].GetUint64(), ids.size());
  }
  EXPECT_EQ(PostJson("/completion", R"({"prompt":[3,"ab",4],"temperature":0})")["tokens_evaluated"]
                .GetUint64(),
            2 + tokenizer_->Tokenise("ab").size());
}

TEST_F(CompletionTest, SeveralPromptsGiveAnArrayOfResults) {
  Start();
  const auto results = PostJson("/completion", R"({"prompt":[[5],[6,7]],"temperature":0})");
  ASSERT_EQ(results.Size(), 2U);
  for (rapidjson::SizeType i = 0; i < 2; ++i) {
    EXPECT_EQ(results[i]["index"].GetUint(), i);
    EXPECT_EQ(TextOf(results[i], "content"), kScript);
    EXPECT_EQ(results[i]["tokens_evaluated"].GetUint(), i + 1);
  }
}

TEST_F(CompletionTest, PromptsOverTheLimitAreRefused) {
  Start();
  std::string list;
  for (size_t i = 0; i < limits::kPromptsMax + 1; ++i) list += i == 0 ? "[5]" : ",[5]";
  EXPECT_THAT(
      ErrorOf(Post("/completion", "{\"prompt\":[" + list + "]}"), 400, "invalid_request_error"),
      HasSubstr("prompts"));
}

TEST_F(CompletionTest, BadPromptsAreRefused) {
  Start();
  for (const char* body :
       {"{}", R"({"prompt":null})", R"({"prompt":""})", R"({"prompt":[]})", R"({"prompt":[[]]})",
        R"({"prompt":7})", R"({"prompt":true})", R"({"prompt":[5,-1]})", R"({"prompt":[2012]})",
        R"({"prompt":[5.5]})", R"({"prompt":{}})", R"({"prompt":[[5,{}]]})"}) {
    EXPECT_THAT(ErrorOf(Post("/completion", body), 400, "invalid_request_error"),
                HasSubstr("prompt"))
        << body;
  }
  EXPECT_THAT(
      ErrorOf(Post("/completion", R"({"prompt":{"prompt_string":"x","multimodal_data":["AAAA"]}})"),
              400, "invalid_request_error"),
      HasSubstr("multimodal_data"));
}

TEST_F(CompletionTest, PromptBeyondTheSlotIsRefusedWithTheNumbersAlsoInAStream) {
  Start();
  std::string ids = "5";
  for (int i = 1; i < 128; ++i) ids += ",5";
  for (const char* stream : {"false", "true"}) {
    const Answer answer =
        Post("/completion", "{\"prompt\":[" + ids + "],\"stream\":" + stream + "}");
    ErrorOf(answer, 400, "exceed_context_size_error");
    const auto body = ParseJson(answer.body, "answer");
    EXPECT_EQ(body["error"]["n_prompt_tokens"].GetInt(), 128);
    EXPECT_EQ(body["error"]["n_ctx"].GetInt(), 128);
  }
}

// The error has fewer tokens than the text: the rest of it was not tokenised.
TEST_F(CompletionTest, TextFarTooLongIsRefusedWithAboutTheTokensThatFit) {
  Start();
  std::string text;
  while (text.size() <= limits::kSmallBodyBytesMax) text += "Tokyo is the capital. ";
  for (const std::string& prompt : {"\"" + text + "\"", "{\"prompt_string\":\"" + text + "\"}",
                                    "[5,\"" + text + "\"]", "[5,\"Tokyo\",\"" + text + "\"]"}) {
    const Answer answer = Post("/completion", "{\"prompt\":" + prompt + "}");
    const std::string message = ErrorOf(answer, 400, "exceed_context_size_error");
    const auto body = ParseJson(answer.body, "answer");
    const int tokens = body["error"]["n_prompt_tokens"].GetInt();
    EXPECT_GT(tokens, 128);
    EXPECT_LT(tokens, 140);
    EXPECT_EQ(body["error"]["n_ctx"].GetInt(), 128);
    EXPECT_THAT(message, HasSubstr("at least " + std::to_string(tokens) + " tokens"));
  }
  // What is small enough is counted whole.
  const auto whole = tokenizer_->Tokenise(text.substr(0, 1 << 16)).size();
  const Answer answer = Post("/completion", "{\"prompt\":\"" + text.substr(0, 1 << 16) + "\"}");
  EXPECT_THAT(ErrorOf(answer, 400, "exceed_context_size_error"),
              HasSubstr("has " + std::to_string(whole) + " tokens"));
}

TEST_F(CompletionTest, FullContextTruncates) {
  endless_ = true;
  Start();
  const auto result = PostJson("/completion", R"({"prompt":[5,6],"temperature":0})");
  EXPECT_TRUE(result["truncated"].GetBool());
  EXPECT_EQ(result["tokens_predicted"].GetInt(), 128 - 2);
  EXPECT_EQ(TextOf(result, "stop_type"), "limit");
}

TEST_F(CompletionTest, ProbabilitiesHaveOneEntryATokenWithTheGreedyOneFirst) {
  Start();
  const auto result =
      PostJson("/completion", R"({"prompt":"x","temperature":0,"n_predict":5,"n_probs":10})");
  const auto& entries = result["completion_probabilities"];
  ASSERT_EQ(entries.Size(), 5U);
  for (rapidjson::SizeType i = 0; i < 5; ++i) {
    EXPECT_EQ(entries[i]["id"].GetInt(), script_[i]);
    EXPECT_LE(entries[i]["logprob"].GetDouble(), 0.0);
    ASSERT_EQ(entries[i]["top_logprobs"].Size(), 10U);
    EXPECT_EQ(entries[i]["top_logprobs"][0]["id"].GetInt(), script_[i]);
    EXPECT_TRUE(entries[i]["bytes"].IsArray());
  }
  const auto post = PostJson("/completion", R"({"prompt":"x","temperature":1,"n_predict":2,
      "n_probs":10,"post_sampling_probs":true})");
  for (const auto& entry : post["completion_probabilities"].GetArray()) {
    EXPECT_GT(entry["prob"].GetDouble(), 0.0);
    EXPECT_LE(entry["prob"].GetDouble(), 1.0);
    EXPECT_TRUE(entry["top_probs"].IsArray());
  }
}

TEST_F(CompletionTest, LogitBiasTakesIdsTextsAndObjects) {
  Start();
  const std::string first = std::to_string(script_[0]);
  for (const std::string& bias : {"[[" + first + ",false]]", std::string(R"([["The",-200]])"),
                                  "{\"" + first + "\":-200}", std::string(R"({"The":-200})")}) {
    const auto result =
        PostJson("/completion",
                 "{\"prompt\":\"x\",\"temperature\":0,\"n_predict\":1,\"return_tokens\":true,"
                 "\"logit_bias\":" +
                     bias + "}");
    EXPECT_NE(result["tokens"][0].GetInt(), script_[0]) << bias;
  }
  Refuses(R"("logit_bias":[[1,"much"]])", "logit_bias");
  Refuses(R"("logit_bias":[[1]])", "logit_bias");
  Refuses(R"("logit_bias":7)", "logit_bias");
  std::string pairs = "[1,1]";
  for (int i = 1; i < 4096; ++i) pairs += ",[1,1]";
  Accepts("\"logit_bias\":[" + pairs + "]");
  pairs += ",[1,1]";
  Refuses("\"logit_bias\":[" + pairs + "]", "at most");
}

TEST_F(CompletionTest, LongTextsOfFieldsAreRefusedByNameBeforeTheyAreTokenised) {
  Start();
  const std::string longest(4096, 'x');
  Accepts("\"logit_bias\":{\"" + longest + "\":1}");
  Refuses("\"logit_bias\":{\"" + longest + "x\":1}", "logit_bias");
  Refuses("\"logit_bias\":[[\"" + longest + "x\",1]]", "logit_bias");
  Accepts("\"reasoning_budget_message\":\"" + longest + "\"");
  Refuses("\"reasoning_budget_message\":\"" + longest + "x\"", "reasoning_budget_message");
}

TEST_F(CompletionTest, WrongTypesAndRangesAreRefusedByFieldName) {
  Start();
  Refuses(R"("n_predict":-2)", "n_predict");
  Refuses(R"("n_predict":"8")", "n_predict");
  Refuses(R"("n_predict":8.5)", "n_predict");
  Refuses(R"("temperature":"hot")", "temperature");
  Refuses(R"("stream":1)", "stream");
  Refuses(R"("stop":7)", "stop");
  Refuses(R"("stop":[7])", "stop");
  Refuses(R"("repeat_penalty":0)", "repeat_penalty");
  Refuses(R"("repeat_last_n":-1)", "repeat_last_n");
  Refuses(R"("dry_sequence_breakers":[])", "dry_sequence_breakers");
  Refuses(R"("n":0)", "Field 'n'");
  Refuses(R"("n":3)", "Field 'n'");
  Refuses(R"("n_indent":-1)", "n_indent");
  Refuses(R"("n_probs":1001)", "n_probs");
  Refuses(R"("n_probs":-1)", "n_probs");
  Refuses(R"("stream_options":7)", "stream_options");
  Refuses(R"("response_fields":"content")", "response_fields");
  Refuses(R"("samplers":[7])", "samplers");
}

TEST_F(CompletionTest, FeaturesOfOthersAreRefusedByName) {
  Start();
  Refuses(R"("lora":[{"id":0,"scale":1}])", "lora", 501);
  Refuses(R"("banned_strings":["a"])", "banned_strings");
  Refuses(R"("tfs_z":0.5)", "tfs_z");
}

TEST_F(CompletionTest, ImagesAndSoundsAreRefusedAndNotIgnored) {
  Start();
  Refuses(R"("image_data":[{"data":"AAAA","id":10}])", "image_data': the model has no vision");
  Refuses(R"("multimodal_data":["AAAA"])", "multimodal_data': the model has no vision");
  Refuses(R"("prompt":{"prompt_string":"x","multimodal_data":["AAAA"]})", "has no vision");
  Refuses(R"("modalities":["text","audio"])", "modalities': 'audio'");
  Refuses(R"("modalities":"audio")", "modalities");
  Refuses(R"("audio":{"voice":"alloy"})", "Field 'audio'");
  Accepts(R"("image_data":[],"multimodal_data":[],"modalities":["text"],"audio":null)");
}

// A collected answer is held until it is whole: it may not grow without bounds.
TEST_F(CompletionTest, CollectedAnswerOverItsLimitIsRefusedAndAStreamIsNot) {
  endless_ = true;
  answer_bytes_max_ = 20000;
  Start();
  constexpr const char* kPaths[] = {"/completion", "/v1/completions"};
  const std::string wide = R"({"prompt":"x","n_predict":30,"n_probs":100)";
  for (const char* path : kPaths) {
    EXPECT_THAT(ErrorOf(Post(path, wide + "}"), 400, "invalid_request_error"),
                HasSubstr("larger than 20000 bytes"));
    const test::Answer stream = Post(path, wide + R"(,"stream":true})");
    EXPECT_EQ(stream.status, 200);
    EXPECT_GT(stream.body.size(), 20000U);
  }
  const std::string chat = R"({"messages":[{"role":"user","content":"x"}],"max_tokens":30,)"
                           R"("logprobs":true,"top_logprobs":100})";
  EXPECT_THAT(ErrorOf(Post("/v1/chat/completions", chat), 400, "invalid_request_error"),
              HasSubstr("larger than 20000 bytes"));
  // Each result repeats the settings: many small ones are one large answer.
  std::string prompts = "\"x\"";
  for (int i = 0; i < 19; ++i) prompts += ",\"x\"";
  const std::string many = "{\"prompt\":[" + prompts + R"(],"n_predict":1})";
  EXPECT_THAT(ErrorOf(Post("/completion", many), 400, "invalid_request_error"),
              HasSubstr("larger than 20000 bytes"));
}

// It is given up when it has grown too large, not when it would have been sent.
TEST_F(CompletionTest, CollectedAnswerOverItsLimitIsNotGeneratedToItsEnd) {
  endless_ = true;
  limits_.slots = 1;
  limits_.slot_context = 30000;
  answer_bytes_max_ = 20000;
  Start();
  for (const char* path : {"/completion", "/v1/completions", "/v1/chat/completions"}) {
    const std::string body = std::string(path) == "/v1/chat/completions"
                                 ? R"({"messages":[{"role":"user","content":"x"}],"logprobs":true})"
                                 : R"({"prompt":"x","n_probs":20})";
    EXPECT_THAT(ErrorOf(Post(path, body), 400, "invalid_request_error"),
                HasSubstr("larger than 20000 bytes"));
    EXPECT_LT(engine_->SlotsSnapshot()[0].n_tokens, 20000) << path;
  }
}

TEST_F(CompletionTest, NullIsAbsentAndHarmlessValuesAreAccepted) {
  Start();
  Accepts(R"("temperature":null,"stop":null,"grammar":null,"json_schema":null,"n":null)");
  Accepts(R"("top_p":5)");
  Accepts(R"("n_probs":1000)");
  Accepts(R"("samplers":[])");
  Accepts(R"("samplers":["top_k","no_such_sampler"])");
  Accepts(R"("grammar":"","lora":[],"reasoning_budget_tokens":-1)");
  Accepts(R"("some_new_field":{"a":1})");
  Accepts(R"("n_predict":2.0)");
  Accepts(R"("stop":["",""])");
  Accepts(R"("seed":-1)");
  Accepts(R"("seed":9007199254740993)");
}

TEST_F(CompletionTest, MaxTokensIsAnAliasAndNPredictWins) {
  Start();
  EXPECT_EQ(
      PostJson("/completion", R"({"prompt":"x","max_tokens":2})")["tokens_predicted"].GetInt(), 2);
  EXPECT_EQ(
      PostJson("/completion", R"({"prompt":"x","max_tokens":2,"n_predict":1})")["tokens_predicted"]
          .GetInt(),
      1);
  EXPECT_EQ(PostJson("/completion", R"({"prompt":"x","n_predict":0})")["tokens_predicted"].GetInt(),
            0);
}

TEST_F(CompletionTest, SamePromptAgainIsTakenFromTheSlot) {
  limits_.slots = 1;
  Start();
  const std::string body = R"({"prompt":[5,6,7,8],"temperature":0,"n_predict":2)";
  EXPECT_EQ(PostJson("/completion", body + "}")["timings"]["prompt_n"].GetInt(), 4);
  const auto second = PostJson("/completion", body + "}");
  EXPECT_EQ(second["timings"]["prompt_n"].GetInt(), 1);
  EXPECT_EQ(second["timings"]["cache_n"].GetInt(), 3);
  const auto third = PostJson("/completion", body + ",\"cache_prompt\":false}");
  EXPECT_EQ(third["timings"]["prompt_n"].GetInt(), 4);
}

TEST_F(CompletionTest, ProgressEventsComeBeforeTextInStreams) {
  Start();
  bool done = false;
  const auto events = Events(
      Post("/completion", R"({"prompt":[5,6,7],"n_predict":1,"stream":true,"return_progress":true,
          "timings_per_token":true})")
          .body,
      done);
  ASSERT_GE(events.size(), 3U);
  EXPECT_EQ(events[0]["prompt_progress"]["processed"].GetInt(), 0);
  EXPECT_EQ(events[0]["prompt_progress"]["total"].GetInt(), 3);
  bool timed = false;
  for (const auto& event : events) timed = timed || event.HasMember("timings");
  EXPECT_TRUE(timed);
}

TEST_F(CompletionTest, ClientThatLeavesFreesItsSlot) {
  limits_.slots = 1;
  limits_.slot_context = 1 << 20;
  endless_ = true;
  Start();
  for (const char* stream : {"true", "false"}) {
    std::atomic<int> passes{0};
    before_pass_ = [&] { ++passes; };
    {
      Client client(port());
      client.Send(RequestText("POST", "/completion",
                              std::string(R"({"prompt":[5,6,7],"stream":)") + stream + "}"));
      while (passes < 3) std::this_thread::yield();
    }
    // The next request needs the only slot.
    const auto next = PostJson("/completion", R"({"prompt":[5,6,7],"n_predict":1})");
    EXPECT_GT(next["timings"]["cache_n"].GetInt(), 0);
    before_pass_ = nullptr;
  }
}

TEST_F(CompletionTest, OpenAiAnswerHasItsShape) {
  Start();
  const auto answer =
      PostJson("/v1/completions", R"({"prompt":"x","temperature":0,"max_tokens":2,"model":"any"})");
  EXPECT_THAT(TextOf(answer, "id"), HasSubstr("cmpl-"));
  EXPECT_EQ(TextOf(answer, "object"), "text_completion");
  EXPECT_GT(answer["created"].GetInt64(), 0);
  EXPECT_EQ(TextOf(answer, "model"), "mini.gguf");
  EXPECT_EQ(TextOf(answer, "system_fingerprint").front(), 'b');
  ASSERT_EQ(answer["choices"].Size(), 1U);
  EXPECT_EQ(TextOf(answer["choices"][0], "text"), "The capital");
  EXPECT_EQ(TextOf(answer["choices"][0], "finish_reason"), "length");
  EXPECT_TRUE(answer["choices"][0]["logprobs"].IsNull());
  EXPECT_EQ(answer["usage"]["prompt_tokens"].GetInt(), 1);
  EXPECT_EQ(answer["usage"]["completion_tokens"].GetInt(), 2);
  EXPECT_EQ(answer["usage"]["total_tokens"].GetInt(), 3);
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"].GetInt(), 0);
  EXPECT_TRUE(answer["timings"].IsObject());
}

TEST_F(CompletionTest, OpenAiStreamEndsWithAFinishChunkAndDone) {
  Start();
  bool done = false;
  const auto events =
      Events(Post("/v1/completions", R"({"prompt":"x","temperature":0,"stream":true})").body, done);
  EXPECT_TRUE(done);
  std::string joined;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& choice = events[i]["choices"][0];
    EXPECT_EQ(TextOf(events[i], "id"), TextOf(events[0], "id"));
    EXPECT_EQ(choice["finish_reason"].IsNull(), i + 1 < events.size());
    joined += TextOf(choice, "text");
  }
  EXPECT_EQ(joined, kScript);
  EXPECT_EQ(TextOf(events.back()["choices"][0], "finish_reason"), "stop");
  EXPECT_TRUE(events.back().HasMember("usage"));
  EXPECT_TRUE(events.back().HasMember("timings"));
}

TEST_F(CompletionTest, OpenAiLogprobsAndSeveralPrompts) {
  Start();
  const auto answer = PostJson(
      "/v1/completions", R"({"prompt":["x","y"],"temperature":0,"max_tokens":2,"logprobs":3})");
  ASSERT_EQ(answer["choices"].Size(), 2U);
  for (rapidjson::SizeType i = 0; i < 2; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"].GetUint(), i);
    const auto& content = answer["choices"][i]["logprobs"]["content"];
    ASSERT_EQ(content.Size(), 2U);
    EXPECT_EQ(content[0]["top_logprobs"].Size(), 3U);
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"].GetInt(), 2);
}

TEST_F(CompletionTest, OpenAiRefusesEchoSuffixAndBestOf) {
  Start();
  for (const char* field : {"\"echo\":true", "\"suffix\":\"s\"", "\"best_of\":1"}) {
    ErrorOf(Post("/v1/completions", std::string("{\"prompt\":\"x\",") + field + "}"), 400,
            "invalid_request_error");
  }
  EXPECT_EQ(
      Post("/v1/completions", R"({"prompt":"x","echo":false,"suffix":null,"n_predict":1})").status,
      200);
  EXPECT_THAT(ErrorOf(Post("/v1/completions", "{}"), 400, "invalid_request_error"),
              HasSubstr("prompt"));
}

TEST_F(CompletionTest, FullQueueIsA503WithRetryAfter) {
  limits_.slots = 1;
  limits_.slot_context = 1 << 20;
  endless_ = true;
  Start();
  std::vector<std::unique_ptr<Client>> clients;
  for (int32_t i = 0; i < limits::kQueuedRequestsMax + 1; ++i) {
    clients.push_back(std::make_unique<Client>(port()));
    clients.back()->Send(RequestText("POST", "/completion", R"({"prompt":[5]})"));
    // The first takes the slot, each further one waits; all are in before the last is tried.
    while (engine_->ReadMetrics().slots_busy + engine_->ReadMetrics().requests_waiting < i + 1) {
      std::this_thread::yield();
    }
  }
  const Answer answer = Post("/completion", R"({"prompt":[5]})");
  ErrorOf(answer, 503, "unavailable_error");
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
}

}  // namespace
}  // namespace bloomery::serve
