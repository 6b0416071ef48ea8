// The fields that say what form the output must have: grammar, grammar_lazy, grammar_triggers,
// preserved_tokens, json_schema, response_format, and the server's defaults for them. Reads and
// compiles; the engine constrains.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/serve/fields.h"
#include "runtime/serve/seat.h"
#include "runtime/serve/settings.h"
#include "runtime/text/chat/chat_template.h"
#include "runtime/text/grammar/grammar.h"

namespace bloomery::serve {

struct OutputForm {
  enum class Source { kNone, kGrammar, kSchema, kResponseFormat };
  Source source = Source::kNone;
  std::string gbnf{};
  std::string schema{};  // of kResponseFormat: JSON
  text::GrammarOptions options{};
};

// `chat`: a grammar beside a schema is refused; elsewhere the grammar wins, as in llama-server.
// Error(kBadRequest) naming the field, with line and column of a schema.
OutputForm ReadOutputForm(const Fields& body, const ServeSettings& settings,
                          const text::Tokenizer& tokenizer, bool chat);

// Null where anything may come. Error(kBadRequest) with line and column of a grammar.
std::shared_ptr<const text::Grammar> CompileOutputForm(const OutputForm& form, const Seat& seat);

// A response_format of a chat constrains the answer behind the thinking, not the thinking: from the
// end of the span on that the prompt has opened. Where it has opened none the answer is the form at
// once, unless `body` (a chat's, with the defaults filled in) asks for thinking: then the model may
// open a span first.
void LeaveRoomForThinking(const Fields& body, const chat::RenderedPrompt& prompt,
                          const chat::ChatTemplate& chat, const text::Tokenizer& tokenizer,
                          OutputForm& form);

// --json-schema becomes a grammar; at most one of the flags may be given. Error(kUsage).
void FixGrammarDefault(ServeSettings& settings);
// The default grammar compiles for this model. Error(kUsage).
void CheckGrammarDefault(const ServeSettings& settings, const Seat& seat);

}  // namespace bloomery::serve
