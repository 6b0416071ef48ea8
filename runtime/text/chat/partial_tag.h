// Tags that may be cut by the end of what has streamed so far. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace bloomery::chat {

// Length of the longest end of `text` that begins `tag` without being all of it; 0 for "".
inline size_t PartialTagEnd(std::string_view text, std::string_view tag) {
  if (tag.empty()) return 0;
  for (size_t size = std::min(text.size(), tag.size() - 1); size > 0; --size) {
    if (tag.starts_with(text.substr(text.size() - size))) return size;
  }
  return 0;
}

}  // namespace bloomery::chat
