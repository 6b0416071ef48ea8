// /v1/chat/completions.
#include <algorithm>

#include "runtime/base/limits.h"
#include "runtime/serve/chat_run.h"
#include "runtime/serve/dialect_openai_chat.h"
#include "runtime/serve/fields.h"

namespace bloomery::serve {
namespace {

// llama-server's number of alternatives where only `logprobs` is given.
constexpr int64_t kTopLogprobsDefault = 20;

// `logprobs` and `top_logprobs` become n_probs.
void ReadLogprobs(const Fields& body, OpenAiChatDialect::Options& options,
                  text::SamplingParams& sampling) {
  options.logprobs = body.Bool("logprobs").value_or(false) || sampling.n_probs > 0;
  const auto top = body.Integer("top_logprobs", 0, limits::kAlternativesMax);
  if (top && !options.logprobs) RefuseField("top_logprobs", "needs logprobs to be true");
  if (!options.logprobs) return;
  if (sampling.n_probs == 0 || top) {
    const int64_t wanted = top.value_or(kTopLogprobsDefault);
    options.alternatives = wanted > 0;
    sampling.n_probs = std::max<int64_t>(1, wanted);
  }
}

}  // namespace

void HandleOpenAiChat(const RouteContext& context) {
  rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  ChatRun run = ReadChat(context, body, "chatcmpl-");
  engine::GenerateRequest& request = run.generation.request;
  OpenAiChatDialect::Options options;
  ReadLogprobs(Fields(body, "request body"), options, request.sampling);
  options.choices = static_cast<size_t>(request.choices);
  options.post_sampling = request.sampling.post_sampling_probs;
  options.format = run.format;
  StartChat(context, std::move(run), [&](const ChatRun& started) {
    auto dialect =
        std::make_unique<OpenAiChatDialect>(started.names, started.generation.answer, options);
    if (started.generation.answer.verbose) {
      dialect->ShowNativeResult(
          {started.running,
           context.seat.tokenizer->Detokenise(started.running->prompt, text::SpecialText::kShown)});
    }
    return dialect;
  });
}

// {"id", "action": "reasoning_end"}: the completion goes on behind the end of its reasoning.
void HandleChatControl(const RouteContext& context) {
  const rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  const Fields fields(body, "request body");
  const auto id = fields.String("id");
  if (!id || id->empty()) RefuseField("id", "is required");
  if (fields.String("action").value_or("") != "reasoning_end") {
    RefuseField("action", "must be reasoning_end");
  }
  Json answer = Json::Object();
  const bool found = context.controls.End(*id);
  answer.Set("success", found);
  if (!found) answer.Set("message", "no such completion runs with reasoning_control");
  ReplyJson(context, answer);
}

}  // namespace bloomery::serve
