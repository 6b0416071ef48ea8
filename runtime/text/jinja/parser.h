// Internal: tokens into the parsed form. Bounded recursion (limits::kJinjaDepthMax).
#pragma once

#include <string_view>

#include "runtime/text/jinja/ast.h"

namespace bloomery::jinja {

// Throws Error(kBadModel) with the place.
Body ParseTemplate(std::string_view source, std::string_view name);

}  // namespace bloomery::jinja
