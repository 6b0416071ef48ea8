// Anthropic's messages request as a chat body: system text, content blocks, tools and their results
// become messages in the OpenAI chat form; settings get their names there. Pure.
#pragma once

#include "runtime/base/json.h"

namespace bloomery::serve {

enum class MessagesPurpose { kAnswer, kCount };

// `body` becomes the chat body; members that are not Anthropic's stay as they are. Blocks keep
// their order: a tool result stands where its block stood, as a message of its own.
// Error(kBadRequest) naming the field for what has a wrong form, or has no meaning here (files,
// tools that Anthropic's servers run, conversations kept elsewhere).
void TranslateMessages(rapidjson::Document& body, MessagesPurpose purpose);

}  // namespace bloomery::serve
