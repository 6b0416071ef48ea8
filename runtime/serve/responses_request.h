// OpenAI's responses request as a chat body: instructions, input items, function tools and settings
// become the OpenAI chat form. Pure but for the log.
#pragma once

#include "runtime/base/json.h"

namespace bloomery::serve {

// `body` becomes the chat body; members that the responses API does not have stay as they are.
// Consecutive items of the assistant (text, calls, reasoning) become one message. Tools other than
// functions are left out with a log line. Error(kBadRequest) naming the field for what has a wrong
// form, or asks for what is kept or done elsewhere (earlier responses, stored prompts, files).
void TranslateResponses(rapidjson::Document& body);

}  // namespace bloomery::serve
