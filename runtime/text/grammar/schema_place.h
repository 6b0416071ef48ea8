// Where a part of a JSON text stands, for messages about it. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/text/grammar/gbnf_parser.h"

namespace bloomery::text {

// The place of the value at `path` (names and indices from the root) in `text`, which is valid
// JSON: as far as the path leads. Of equal names in an object the first is taken.
SourcePlace PlaceInJson(std::string_view text, std::span<const std::string> path);

}  // namespace bloomery::text
