// What every chat route does between its body and the engine, whatever the dialect: reads the
// fields, renders and tokenises the prompt, starts the generation.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "runtime/base/json.h"
#include "runtime/serve/dialect.h"
#include "runtime/serve/generation_fields.h"
#include "runtime/serve/routes.h"
#include "runtime/text/chat/chat_output.h"

namespace bloomery::serve {

struct ChatRun {
  AnswerNames names;
  GenerationFields generation;                               // with the prompt
  chat::OutputFormat format;                                 // how the answers are to be read
  std::shared_ptr<const engine::GenerateRequest> running{};  // once it is started
};

// `body`: a chat body in the OpenAI form; the server's defaults are filled in. `id_prefix`: of the
// answer's id. Unknown fields are logged. Error(kBadRequest), Error(kUnsupported) naming the field.
ChatRun ReadChat(const RouteContext& context, rapidjson::Document& body,
                 std::string_view id_prefix);

// The same for a dialect whose answers are one turn: a body that asks for several is refused by
// name.
ChatRun ReadSingleChat(const RouteContext& context, rapidjson::Document& body,
                       std::string_view id_prefix);

// `logprobs` and `top_logprobs` of a chat body become n_probs.
ProbabilityOptions ReadLogprobs(const Fields& body, text::SamplingParams& sampling);
// For a dialect that has no place for probabilities: a body that asks for them is refused by name.
void RefuseLogprobs(const Fields& body);

// The number of tokens of a chat body's prompt.
size_t CountChat(const RouteContext& context, rapidjson::Document& body);

void StartChat(const RouteContext& context, ChatRun run,
               const std::function<std::unique_ptr<Dialect>(const ChatRun&)>& make_dialect);

}  // namespace bloomery::serve
