// /v1/chat/completions.
#include <algorithm>
#include <ctime>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/serve/chat_prompt.h"
#include "runtime/serve/dialect_openai_chat.h"
#include "runtime/serve/generation_job.h"
#include "runtime/serve/routes.h"

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
  const Fields fields(body, "request body");
  GenerationFields generation = ReadGenerationFields(fields, context.settings, context.seat, "");
  generation.answer.bytes_max = context.exchange->answer_bytes_max();
  OpenAiChatDialect::Options options;
  ReadLogprobs(fields, options, generation.request.sampling);
  options.choices = static_cast<size_t>(generation.request.choices);
  options.post_sampling = generation.request.sampling.post_sampling_probs;

  ChatPrompt prompt = MakeChatPrompt(body, context.settings, context.seat);
  options.format = prompt.format;
  const AnswerNames names{RandomId("chatcmpl-"), ModelId(context),
                          static_cast<int64_t>(std::time(nullptr))};
  generation.request.id = names.id;
  generation.request.prompt = std::move(prompt.ids);
  generation.request.preserved_tokens = std::move(prompt.preserved_tokens);
  if (const std::string unknown = UnknownFields(body); !unknown.empty()) {
    LOG(INFO) << "[req " << names.id << "] unknown fields ignored: " << unknown;
  }
  std::vector<engine::GenerateRequest> requests;
  requests.push_back(std::move(generation.request));
  GenerationJob::Start(context.exchange, *context.seat.engine, std::move(requests),
                       generation.answer, [&](const auto&) {
                         return std::make_unique<OpenAiChatDialect>(names, generation.answer,
                                                                    options);
                       });
}

}  // namespace bloomery::serve
