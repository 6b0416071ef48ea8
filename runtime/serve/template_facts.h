// What is told of a chat template, in /props and in a dry run alike.
#pragma once

#include "runtime/serve/json_value.h"
#include "runtime/text/chat/chat_template.h"

namespace bloomery::serve {

// Every capability by its name.
Json CapsJson(const chat::TemplateCaps& caps);

// Whose template is in force: "override" (the user's, where `overridden`), "file", or
// "fallback chatml" because the file has none.
const char* TemplateOrigin(const chat::ChatTemplate& chat_template, bool overridden);

}  // namespace bloomery::serve
