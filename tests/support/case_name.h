// Names for the cases of a parameterised test whose cases are texts: the index, which makes it
// unique, and the text's letters and digits, which say what it is.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bloomery::test {

inline std::string CaseName(size_t index, std::string_view text) {
  constexpr size_t kNameBytesMax = 60;
  std::string name = (index < 10 ? "0" : "") + std::to_string(index);
  bool gap = true;
  for (const char c : text) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (word && gap) name.push_back('_');
    if (word) name.push_back(c);
    gap = !word;
    if (name.size() >= kNameBytesMax) break;
  }
  return name;
}

}  // namespace bloomery::test
