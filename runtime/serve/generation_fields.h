// The fields every generating route shares: a request body becomes one engine request, with the
// server's defaults where it says nothing. What llama-server knows and this server does not honour
// is refused by name; what nobody knows is ignored and listed for the log. Pure but for tokenising.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/engine/request.h"
#include "runtime/serve/fields.h"
#include "runtime/serve/grammar_fields.h"
#include "runtime/serve/json_value.h"
#include "runtime/serve/seat.h"
#include "runtime/serve/settings.h"

namespace bloomery::serve {

// How the answer is to be written, whatever the dialect.
struct AnswerOptions {
  bool stream = false;
  bool include_usage = false;
  bool return_tokens = false;
  bool return_progress = false;
  bool timings_per_token = false;
  bool verbose = false;  // OpenAI's dialects: llama-server's own result beside the answer
  int ping_s = 30;
  std::vector<std::string> response_fields;
  size_t bytes_max = limits::kAnswerBytesMax;  // of an answer that is collected
  std::shared_ptr<const void> kept{};          // until the answer is complete
};

struct GenerationFields {
  engine::GenerateRequest request;  // without prompt; with the grammar, but in chats
  OutputForm form;                  // of which chats make the grammar when they know their prompt
  AnswerOptions answer;
};

// `probabilities_alias`: the field that may ask for alternatives beside "n_probs"; "" where there
// is none (chat reads its own pair).
GenerationFields ReadGenerationFields(const Fields& body, const ServeSettings& settings,
                                      const Seat& seat, std::string_view probabilities_alias);

// `prompt` of the native and OpenAI completion routes: one list of ids for each prompt in it.
// Error(kBadRequest) when absent, empty, or of a wrong form; engine::ContextError as
// TokenisePrompt.
std::vector<std::vector<text::TokenId>> ReadPrompts(const Fields& body, const Seat& seat);

// Where the end of a prompt's text stands: inside a span of reasoning, or behind one that the
// prompt has closed, and then there is no limit.
void PlaceInReasoning(std::string_view prompt, text::ReasoningLimit& limit);

// A string, or an array mixing strings and ids. `add_special` counts for a leading string only.
std::vector<text::TokenId> TokeniseMixed(const rapidjson::Value& value, std::string_view field,
                                         const text::Tokenizer& tokenizer,
                                         const text::TokeniseOptions& options);

// The tokens of a text that is to run in a slot. Of a large one only as many are found as tell that
// it does not fit: engine::ContextError, then, with those.
std::vector<text::TokenId> TokenisePrompt(std::string_view text, text::TokeniseOptions options,
                                          const Seat& seat);

// Names in `body` that no list knows, comma separated and made printable; "" when there are none.
std::string UnknownFields(const rapidjson::Value& body);

// The `generation_settings` object: a request as the engine runs it.
Json GenerationSettings(const engine::GenerateRequest& request, const AnswerOptions& answer);

}  // namespace bloomery::serve
