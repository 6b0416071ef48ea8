// Whether a file could be written, before anybody writes one. Any thread.
#pragma once

#include <string>

namespace bloomery {

// What OutputFile's constructor (output_file.h) would throw for `path`, without making anything.
void CheckOutputFile(const std::string& path);

}  // namespace bloomery
