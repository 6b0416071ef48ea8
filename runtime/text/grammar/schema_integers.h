// The decimal integers of a range as GBNF. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bloomery::text {

// Integers n with least <= n <= most, as JSON writes them; an absent bound is none (then at most 16
// digits, or one more than the other bound has). Expects least <= most and magnitudes of at most
// kIntegerBoundMax.
inline constexpr int64_t kIntegerBoundMax = 1'000'000'000'000'000'000;
std::string IntegersToGbnf(std::optional<int64_t> least, std::optional<int64_t> most);

}  // namespace bloomery::text
