// What a user may say for the kernels of a seat: "auto", or an instruction set that kernels-common
// has kernels for. Names only, so that flags can show them; SeatOptions::kernels takes one.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "kernels-common/cpu/isa.h"

namespace bloomery::exec {

namespace internal {
inline constexpr std::string_view kAutomatic = "auto";

constexpr size_t KernelChoicesBytes() {
  size_t bytes = kAutomatic.size();
  for (const std::string_view name : kernels::kIsaNames) bytes += 1 + name.size();
  return bytes;
}

inline constexpr auto kKernelChoicesText = [] {
  std::array<char, KernelChoicesBytes()> text{};
  char* end = std::copy(kAutomatic.begin(), kAutomatic.end(), text.data());
  for (const std::string_view name : kernels::kIsaNames) {
    *end++ = '|';
    end = std::copy(name.begin(), name.end(), end);
  }
  return text;
}();
}  // namespace internal

// "auto|scalar|…", as a flag's table wants its choices.
inline constexpr std::string_view kKernelChoices{internal::kKernelChoicesText.data(),
                                                 internal::kKernelChoicesText.size()};

}  // namespace bloomery::exec
