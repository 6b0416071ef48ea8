// What a template reacts to, found by rendering small conversations and looking at the text. Pure
// function of the templates; used once, at load.
#pragma once

#include <string_view>

#include "runtime/text/chat/chat_template.h"
#include "runtime/text/jinja/template.h"

namespace bloomery::chat {

// `tool_use` is the template requests with tools use (the main one when there is no other). Throws
// Error(kBadModel) when the main template fails on one plain user message, in every form of
// content, or writes the same whatever the message says.
TemplateCaps ProbeCaps(const jinja::Template& main, const jinja::Template& tool_use,
                       std::string_view bos_text, std::string_view eos_text);

}  // namespace bloomery::chat
