// The names of --load-mode, for every program that loads a seat: the words a flag offers and what
// each asks for.
#pragma once

#include <string_view>

#include "runtime/memory/weight_source.h"

namespace bloomery::exec {

using LoadMode = memory::WeightSource;

// As llama-server has them.
inline constexpr std::string_view kLoadModeChoices = "auto|none|mmap|mlock|mmap+mlock|dio";
inline constexpr std::string_view kLoadModeHelp =
    "How weights get into memory: none and dio read them, past the page cache where the file "
    "system allows it; mmap maps the file; auto reads where the plan fits into memory and maps "
    "otherwise. Locking is left to the system.";

// Throws Error(kUsage) for a name that is no choice.
LoadMode LoadModeOf(std::string_view name);

}  // namespace bloomery::exec
