// Text as people write it between commas, in flags and in the heads of requests: what the blanks
// around a part are, for everyone the same. Pure: views into what was given, nothing is copied; no
// bytes but spaces and tabs are looked at.
#pragma once

#include <cstddef>
#include <string_view>

namespace bloomery {

// Without the spaces and tabs around it.
inline std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace bloomery
