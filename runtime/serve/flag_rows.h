// What the files of rows share (flags_<group>.cc), and nobody else includes: the names a row is
// written with, readers of values that more than one group has, and one function a group, in the
// order of --help. A row without `apply` sets nothing; texts that need a reason give it. Any
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serve/flags.h"

namespace bloomery::serve::rows {

std::span<const Flag> General();
std::span<const Flag> Model();
std::span<const Flag> Network();
std::span<const Flag> Engine();
std::span<const Flag> Chat();
std::span<const Flag> Requests();

using S = ServeSettings;
using I = FlagInput;
using enum FlagValue;
using enum FlagSupport;

// "a,b": its parts; empty ones are dropped.
std::vector<std::string> SplitList(std::string_view text);

// "8GiB", "512MiB", "1000000": bytes. Error(kUsage) for anything else.
uint64_t BytesOf(std::string_view text);

// Error(kUsage) for what is no JSON object.
void CheckObject(std::string_view text, std::string_view flag);

inline constexpr std::string_view kHintOnly = "has no meaning for this engine";
inline constexpr int64_t kIntMax = INT32_MAX;

}  // namespace bloomery::serve::rows

// A row's `apply`, from a statement about `s` and `i`.
#define BLOOMERY_SET(statement)  \
  [](S& s, const I& i) -> bool { \
    (void)s;                     \
    (void)i;                     \
    statement;                   \
    return true;                 \
  }
// An `apply` that sets nothing and takes the values that ask for nothing special.
#define BLOOMERY_ACCEPT_IF(condition) [](S&, const I& i) -> bool { return (condition); }
