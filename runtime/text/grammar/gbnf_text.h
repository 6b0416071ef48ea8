// Pieces of GBNF text. Pure.
#pragma once

#include <string>

#include "runtime/text/grammar/code_ranges.h"

namespace bloomery::text {

// `[…]` of a normalised set that is not empty.
std::string GbnfClass(const CodeRanges& ranges);

}  // namespace bloomery::text
