// The one template that is built in and has a name: turns as the ChatML convention writes them. Of
// files without a template, and of --chat-template chatml.
#pragma once

#include <string_view>

namespace bloomery::chat {

inline constexpr std::string_view kChatMlName = "chatml";

// As Jinja.
inline constexpr std::string_view kChatMl =
    "{% for message in messages %}\n"
    "{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\n";

}  // namespace bloomery::chat
