// Which names clients may give to saved slots: a plain name in the server's folder, never a path.
// Pure, any thread.
#pragma once

#include <string_view>

namespace bloomery {

// A base name of 1 to 255 bytes of valid UTF-8 without control characters, separators and their
// look-alikes, the characters other systems forbid, "..", blanks at an end, a dot at the end, and
// not one of the names under which unfinished files lie.
bool IsPlainFileName(std::string_view name);

}  // namespace bloomery
