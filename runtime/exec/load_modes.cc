#include "runtime/exec/load_modes.h"

#include <array>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::exec {
namespace {

struct Mode {
  std::string_view name;
  LoadMode mode;
};

constexpr std::array kModes{Mode{"auto", LoadMode::kAuto},      Mode{"none", LoadMode::kRead},
                            Mode{"mmap", LoadMode::kMap},       Mode{"mlock", LoadMode::kMap},
                            Mode{"mmap+mlock", LoadMode::kMap}, Mode{"dio", LoadMode::kRead}};

}  // namespace

LoadMode LoadModeOf(std::string_view name) {
  for (const Mode& mode : kModes) {
    if (mode.name == name) return mode.mode;
  }
  throw Error(ErrorKind::kUsage, "--load-mode " + Printable(std::string(name)) +
                                     ": must be one of " + std::string(kLoadModeChoices));
}

}  // namespace bloomery::exec
