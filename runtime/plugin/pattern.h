// Tensor name patterns of the ABI: text with {l} (a layer) and {e} (an expert). Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bloomery::plugin {

// Whether `pattern` holds `mark`, "{l}" or "{e}".
bool HasMark(std::string_view pattern, std::string_view mark);

// Why a pattern is malformed, or empty: it must be 1 … 256 bytes of printable UTF-8 without braces
// other than those of {l} and {e}.
std::string PatternProblem(std::string_view pattern);

// The pattern with each {l} replaced by `layer`.
std::string PutLayer(std::string_view pattern, int32_t layer);

// Whether `name` is the pattern with some decimal number for each mark.
bool MatchesPattern(std::string_view pattern, std::string_view name);

}  // namespace bloomery::plugin
