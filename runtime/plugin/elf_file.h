// What the dynamic section of an ELF shared object says, read from the file and not from memory, so
// that nothing of it runs. Every offset is checked. 64-bit little-endian files only.
#pragma once

#include <string>
#include <vector>

namespace bloomery::plugin {

struct ElfFile {
  std::vector<std::string> exported;  // defined, visible symbols
  std::vector<std::string> needed;    // libraries it asks for (DT_NEEDED)
  std::vector<std::string> run_path;  // DT_RPATH and DT_RUNPATH
};

// Throws Error(kBadModel) naming the path and what is wrong, Error(kNoInput) when it cannot be
// read.
ElfFile ReadElf(const std::string& path);

// Reads the headers only and checks that every segment lies inside the file: loading a file that
// was cut short ends the process with SIGBUS instead of an error. Throws as ReadElf does.
void CheckElfIsWhole(const std::string& path);

}  // namespace bloomery::plugin
