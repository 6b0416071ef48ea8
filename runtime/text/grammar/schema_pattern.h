// The regular expressions of JSON schemas (`pattern`) as GBNF. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bloomery::text {

// What a JSON string holds between its quotes, written as JSON, where the text matches `pattern`.
// Nothing for a pattern that is valid but beyond what is translated: not anchored at both ends,
// look-around, back references, word boundaries, Unicode properties. Throws Error(kBadRequest,
// "column C: why") for an invalid one, and beyond limits::kSchemaPattern*.
std::optional<std::string> PatternToGbnf(std::string_view pattern);

}  // namespace bloomery::text
