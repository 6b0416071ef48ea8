// /completion, /v1/completions and /infill: prompts of text or ids.
#include <algorithm>
#include <ctime>
#include <span>

#include "runtime/base/log.h"
#include "runtime/serve/dialect_native.h"
#include "runtime/serve/dialect_openai.h"
#include "runtime/serve/generation_job.h"
#include "runtime/serve/infill_prompt.h"
#include "runtime/serve/routes.h"

namespace bloomery::serve {
namespace {

// A body as both routes read it.
struct Completion {
  GenerationFields generation;
  std::vector<engine::GenerateRequest> requests;  // one a prompt
  AnswerNames names;
};

// The fields, without prompts.
Completion ReadCompletion(const RouteContext& context, const rapidjson::Document& body) {
  const Fields fields(body, "request body");
  Completion completion;
  completion.generation = ReadGenerationFields(fields, context.settings, context.seat, "logprobs");
  completion.generation.answer.bytes_max = context.exchange->answer_bytes_max();
  completion.names = {RandomId("cmpl-"), ModelId(context),
                      static_cast<int64_t>(std::time(nullptr))};
  completion.generation.request.id = context.exchange->request().id;
  context.exchange->AddToLog({{"answer", completion.names.id}});
  if (const std::string unknown = UnknownFields(body); !unknown.empty()) {
    LOG(INFO) << "[req " << completion.generation.request.id << "] fields ignored: " << unknown;
  }
  return completion;
}

// The text at a prompt's end, more than any tag of reasoning takes.
std::string EndOf(std::span<const text::TokenId> prompt, const text::Tokenizer& tokenizer) {
  constexpr size_t kTokens = 64;
  return tokenizer.Detokenise(prompt.last(std::min(prompt.size(), kTokens)),
                              text::SpecialText::kShown);
}

void AddPrompt(const RouteContext& context, Completion& completion,
               std::vector<text::TokenId> ids) {
  engine::GenerateRequest& request =
      completion.requests.emplace_back(completion.generation.request);
  request.prompt = std::move(ids);
  if (request.reasoning.tokens >= 0) {
    PlaceInReasoning(EndOf(request.prompt, *context.seat.tokenizer), request.reasoning);
  }
}

void AddPrompts(const RouteContext& context, const rapidjson::Document& body,
                Completion& completion) {
  for (auto& ids : ReadPrompts(Fields(body, "request body"), context.seat)) {
    AddPrompt(context, completion, std::move(ids));
  }
}

void StartNative(const RouteContext& context, Completion completion) {
  const bool several = completion.requests.size() > 1 || completion.requests.front().choices > 1;
  const AnswerOptions& answer = completion.generation.answer;
  const text::Tokenizer& tokenizer = *context.seat.tokenizer;
  GenerationJob::Start(
      context.exchange, *context.seat.engine, std::move(completion.requests), answer,
      [&](const std::vector<GenerationJob::Running>& running) {
        std::vector<NativeDialect::Prompt> prompts;
        for (const auto& request : running) {
          prompts.push_back(
              {request, tokenizer.Detokenise(request->prompt, text::SpecialText::kShown)});
        }
        return std::make_unique<NativeDialect>(completion.names, answer, std::move(prompts),
                                               several);
      });
}

}  // namespace

void HandleCompletion(const RouteContext& context) {
  const rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  Completion completion = ReadCompletion(context, body);
  AddPrompts(context, body, completion);
  StartNative(context, std::move(completion));
}

void HandleInfill(const RouteContext& context) {
  const rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  Completion completion = ReadCompletion(context, body);
  const InfillLimits limits{.batch = context.settings.batch,
                            .context = context.seat.engine->limits().slot_context,
                            .n_predict = completion.generation.request.n_predict,
                            .suffix_first = context.settings.spm_infill};
  AddPrompt(context, completion,
            InfillPrompt(Fields(body, "request body"), *context.seat.tokenizer, limits));
  StartNative(context, std::move(completion));
}

void HandleOpenAiCompletion(const RouteContext& context) {
  const rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  const Fields fields(body, "request body");
  if (fields.Bool("echo").value_or(false)) RefuseField("echo", "only false is accepted");
  for (std::string_view name : {"suffix", "best_of"}) {
    if (fields.Find(name) != nullptr) RefuseField(name, "not supported");
  }
  Completion completion = ReadCompletion(context, body);
  AddPrompts(context, body, completion);
  const AnswerOptions& answer = completion.generation.answer;
  const size_t prompts = completion.requests.size();
  const auto choices = static_cast<size_t>(completion.generation.request.choices);
  const bool post = completion.generation.request.sampling.post_sampling_probs;
  const text::Tokenizer& tokenizer = *context.seat.tokenizer;
  GenerationJob::Start(
      context.exchange, *context.seat.engine, std::move(completion.requests), answer,
      [&](const std::vector<GenerationJob::Running>& running) {
        auto dialect = std::make_unique<OpenAiCompletionDialect>(completion.names, answer, choices,
                                                                 prompts, post);
        if (answer.verbose) {
          const auto& first = running.front();
          dialect->ShowNativeResult(
              {first, tokenizer.Detokenise(first->prompt, text::SpecialText::kShown)});
        }
        return dialect;
      });
}

}  // namespace bloomery::serve
