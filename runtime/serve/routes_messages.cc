// /v1/messages and its token count: Anthropic's form.
#include "runtime/serve/anthropic_request.h"
#include "runtime/serve/chat_run.h"
#include "runtime/serve/dialect_anthropic.h"
#include "runtime/serve/fields.h"
#include "runtime/serve/routes.h"

namespace bloomery::serve {

void HandleMessages(const RouteContext& context) {
  rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  TranslateMessages(body, MessagesPurpose::kAnswer);
  const Fields fields(body, "request body");
  RefuseLogprobs(fields);
  const rapidjson::Value* stop = fields.Find("stop");
  std::vector<std::string> stop_sequences;
  if (stop != nullptr && stop->IsArray()) stop_sequences = *fields.Strings("stop");
  StartChat(context, ReadSingleChat(context, body, "msg_"), [&](const ChatRun& run) {
    return std::make_unique<AnthropicDialect>(run.names, run.generation.answer, run.format,
                                              std::move(stop_sequences));
  });
}

void HandleCountTokens(const RouteContext& context) {
  rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  TranslateMessages(body, MessagesPurpose::kCount);
  ReplyJson(context, Json::Object({{"input_tokens", CountChat(context, body)}}));
}

}  // namespace bloomery::serve
