// From a chat body to a prompt: the checks of chat fields that shape it, the server's defaults, the
// template, the ids. What came from the client is tokenised as plain text, so it cannot forge
// control tokens.
#pragma once

#include <memory>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/serve/grammar_fields.h"
#include "runtime/serve/seat.h"
#include "runtime/serve/settings.h"
#include "runtime/text/chat/chat_output.h"
#include "runtime/text/chat/chat_template.h"

namespace bloomery::serve {

struct ChatPrompt {
  chat::RenderedPrompt rendered;
  std::vector<text::TokenId> ids;
  chat::OutputFormat format;                     // how the answers are to be read
  std::vector<text::TokenId> preserved_tokens;   // control tokens that calls are written with
  std::vector<text::TokenId> banned_tokens;      // the same, where the request wants no call
  std::shared_ptr<const text::Grammar> grammar;  // of tool calls; null: none
};

enum class PromptUse {
  kRun,    // in a slot: TokenisePrompt's ids
  kCount,  // all ids, however many
  kShow,   // no ids
};

// The server's own defaults for chats as a request would be read with them. Error(kUsage) naming
// the flag: found at the start, not by the first request.
void CheckChatDefaults(const ServeSettings& settings);

// `body` is changed: the server's defaults are filled in. Where there are tools and `form` is a
// response format, the grammar of the prompt is of both: a call or a document. Error(kBadRequest)
// and Error(kUnsupported) naming the field; of TokenisePrompt's for kRun.
ChatPrompt MakeChatPrompt(rapidjson::Document& body, const ServeSettings& settings,
                          const Seat& seat, const OutputForm& form = {},
                          PromptUse use = PromptUse::kRun);

// Moves into the request what its generation needs of the prompt; `prompt.format` stays.
void TakePrompt(ChatPrompt& prompt, engine::GenerateRequest& request);

}  // namespace bloomery::serve
