// Text from outside as a terminal may get it. Pure.
#pragma once

#include <string>
#include <string_view>

namespace bloomery {

// Text of a model, a file or a server: invalid UTF-8 replaced, and control characters (C0 and C1)
// as \xNN but for line feeds and tabs, so that no sequence of the terminal's own gets through. For
// one line of a message: Printable (utf8.h).
std::string ForTerminal(std::string_view bytes);

}  // namespace bloomery
