// A byte range of a text, half open. Rendered prompts carry a list of them: the parts that came
// from the user and in which control tokens must stay plain text (tokenizer.h).
#pragma once

#include <cstddef>

namespace bloomery::text {

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

}  // namespace bloomery::text
