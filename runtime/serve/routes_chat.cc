// /v1/chat/completions.
#include "runtime/serve/chat_run.h"
#include "runtime/serve/dialect_openai_chat.h"
#include "runtime/serve/fields.h"

namespace bloomery::serve {

void HandleOpenAiChat(const RouteContext& context) {
  rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  ChatRun run = ReadChat(context, body, "chatcmpl-");
  engine::GenerateRequest& request = run.generation.request;
  OpenAiChatDialect::Options options;
  options.probabilities = ReadLogprobs(Fields(body, "request body"), request.sampling);
  options.choices = static_cast<size_t>(request.choices);
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
