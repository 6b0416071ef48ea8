#include "runtime/serve/chat_run.h"

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/serve/chat_prompt.h"
#include "runtime/serve/generation_job.h"

namespace bloomery::serve {
namespace {

// llama-server's number of alternatives where only `logprobs` is given.
constexpr int64_t kTopLogprobsDefault = 20;

// Found before what one of the fields alone may be refused for.
void RefuseConflicts(const Fields& body) {
  const rapidjson::Value* tools = body.Array("tools");
  if (tools == nullptr || tools->Empty()) return;
  if (body.Find("grammar") != nullptr) {
    RefuseField("grammar", "cannot be given together with tools");
  }
  if (body.Bool("logprobs").value_or(false) && body.Bool("stream").value_or(false)) {
    RefuseField("logprobs", "cannot be streamed together with tools");
  }
}

}  // namespace

ChatRun ReadChat(const RouteContext& context, rapidjson::Document& body,
                 std::string_view id_prefix) {
  RefuseConflicts(Fields(body, "request body"));
  ChatRun run;
  run.generation =
      ReadGenerationFields(Fields(body, "request body"), context.settings, context.seat, "");
  run.generation.answer.bytes_max = context.exchange->answer_bytes_max();
  ChatPrompt prompt = MakeChatPrompt(body, context.settings, context.seat, run.generation.form);
  run.format = std::move(prompt.format);
  run.names = {RandomId(id_prefix), ModelId(context), static_cast<int64_t>(std::time(nullptr))};
  engine::GenerateRequest& request = run.generation.request;
  request.id = context.exchange->request().id;
  context.exchange->AddToLog({{"answer", run.names.id}});
  TakePrompt(prompt, request);
  if (!request.grammar) {  // that of calls has the form in it
    LeaveRoomForThinking(Fields(body, "request body"), prompt.rendered, *context.seat.chat_template,
                         *context.seat.tokenizer, run.generation.form);
    request.grammar = CompileOutputForm(run.generation.form, context.seat);
  }
  if (request.reasoning.stop != nullptr) {
    run.generation.answer.kept = context.controls.Add(run.names.id, request.reasoning.stop);
  }
  if (const std::string unknown = UnknownFields(body); !unknown.empty()) {
    LOG(INFO) << "[req " << request.id << "] fields ignored: " << unknown;
  }
  return run;
}

ChatRun ReadSingleChat(const RouteContext& context, rapidjson::Document& body,
                       std::string_view id_prefix) {
  ChatRun run = ReadChat(context, body, id_prefix);
  const Fields fields(body, "request body");
  for (std::string_view name : {"n", "n_cmpl"}) {
    if (fields.Integer(name).value_or(1) > 1) RefuseField(name, "one answer a request here");
  }
  return run;
}

ProbabilityOptions ReadLogprobs(const Fields& body, text::SamplingParams& sampling) {
  ProbabilityOptions options;
  options.wanted = body.Bool("logprobs").value_or(false) || sampling.n_probs > 0;
  options.post_sampling = sampling.post_sampling_probs;
  const auto top = body.Integer("top_logprobs", 0, limits::kAlternativesMax);
  if (top && !options.wanted) RefuseField("top_logprobs", "needs logprobs to be true");
  if (options.wanted && (sampling.n_probs == 0 || top)) {
    const int64_t wanted = top.value_or(kTopLogprobsDefault);
    options.alternatives = wanted > 0;
    sampling.n_probs = std::max<int64_t>(1, wanted);
  }
  return options;
}

void RefuseLogprobs(const Fields& body) {
  for (std::string_view name : {"logprobs", "top_logprobs", "n_probs", "post_sampling_probs"}) {
    const rapidjson::Value* value = body.Find(name);
    if (value == nullptr || value->IsFalse() || IntegerOf(*value) == 0) continue;
    RefuseField(name, "probabilities are given by /v1/chat/completions and /v1/responses");
  }
}

size_t CountChat(const RouteContext& context, rapidjson::Document& body) {
  ReadGenerationFields(Fields(body, "request body"), context.settings, context.seat, "");
  return MakeChatPrompt(body, context.settings, context.seat, {}, PromptUse::kCount).ids.size();
}

void StartChat(const RouteContext& context, ChatRun run,
               const std::function<std::unique_ptr<Dialect>(const ChatRun&)>& make_dialect) {
  std::vector<engine::GenerateRequest> requests;
  requests.push_back(std::move(run.generation.request));
  GenerationJob::Start(context.exchange, *context.seat.engine, std::move(requests),
                       run.generation.answer, [&](const auto& running) {
                         run.running = running.front();
                         return make_dialect(run);
                       });
}

}  // namespace bloomery::serve
