// What a plugin says about talking to its models ("bloomery.chat/1"), checked and copied. Plain
// values: the plugin's table is not looked at again. It decides nothing; the composition in apps/
// gives each part to whom it concerns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bloomery::plugin {

struct ChatSurface {
  std::string pre_tokenizer;                    // id of a known split, or "": the file's
  std::vector<std::string> pre_patterns;        // a split of its own: PCRE2 expressions
  std::string reasoning_open, reasoning_close;  // both empty: the models write no reasoning marks
  std::string tool_syntax;                      // "" where there is none
  std::vector<std::string> stop_texts;          // end every answer, as the request's own do
  std::vector<int32_t> stop_ids;

  // Recommended; unset: no advice.
  struct Sampling {
    std::optional<int32_t> top_k;
    std::optional<double> temperature, top_p, min_p, presence_penalty;
  };
  Sampling sampling;
};

// `table` is the plugin's bl_chat_1, or null: nothing said. `plugin` names it in errors. Throws
// Error(kBadModel) naming the field for what breaks the ABI's rules (one mark without the other, an
// empty stop text or expression, a negative id, too many of any), and Error(kUnsupported) naming a
// member that this host does not honour: render, tool_parser.
ChatSurface ReadChatSurface(const void* table, const std::string& plugin);

}  // namespace bloomery::plugin
