// /v1/responses and its token count.
#include "runtime/serve/chat_run.h"
#include "runtime/serve/dialect_responses.h"
#include "runtime/serve/responses_request.h"
#include "runtime/serve/routes.h"

namespace bloomery::serve {

void HandleResponses(const RouteContext& context) {
  rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  TranslateResponses(body);
  ChatRun read = ReadSingleChat(context, body, "resp_");
  const ProbabilityOptions probabilities =
      ReadLogprobs(Fields(body, "request body"), read.generation.request.sampling);
  StartChat(context, std::move(read), [&](const ChatRun& run) {
    return std::make_unique<ResponsesDialect>(
        run.names, run.generation.answer,
        ResponsesDialect::Options{run.format, probabilities, context.seat.tokenizer});
  });
}

void HandleResponsesInputTokens(const RouteContext& context) {
  rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  TranslateResponses(body);
  ReplyJson(context, Json::Object({{"object", "response.input_tokens"},
                                   {"input_tokens", CountChat(context, body)}}));
}

}  // namespace bloomery::serve
