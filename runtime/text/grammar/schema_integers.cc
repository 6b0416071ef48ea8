#include "runtime/text/grammar/schema_integers.h"

#include <algorithm>
#include <vector>

namespace bloomery::text {
namespace {

constexpr size_t kDigitsMax = 16;  // as many as a double tells apart

std::string Digit(char first, char last) {
  if (first == last) return std::string("\"") + first + "\"";
  return std::string("[") + first + "-" + last + "]";
}

std::string AnyDigits(size_t count) {
  if (count == 0) return "";
  if (count == 1) return " [0-9]";
  return " [0-9]{" + std::to_string(count) + "}";
}

// Digit strings of equal length from `low` to `high`, each a prefix's worth of alternatives.
void EqualLength(const std::string& prefix, std::string_view low, std::string_view high,
                 std::vector<std::string>& out) {
  const auto all = [](std::string_view text, char c) {
    return text.find_first_not_of(c) == std::string_view::npos;
  };
  if (low.empty()) {
    out.push_back(prefix);
    return;
  }
  const std::string gap = prefix.empty() ? "" : prefix + " ";
  if (low[0] == high[0]) {
    return EqualLength(gap + Digit(low[0], low[0]), low.substr(1), high.substr(1), out);
  }
  const size_t rest = low.size() - 1;
  const std::string zeros(rest, '0');
  const std::string nines(rest, '9');
  char first = low[0];
  char last = high[0];
  if (!all(low.substr(1), '0')) {
    EqualLength(gap + Digit(first, first), low.substr(1), nines, out);
    ++first;
  }
  const bool high_whole = all(high.substr(1), '9');
  if (!high_whole) --last;
  if (first <= last) out.push_back(gap + Digit(first, last) + AnyDigits(rest));
  if (!high_whole) EqualLength(gap + Digit(high[0], high[0]), zeros, high.substr(1), out);
}

std::string Join(const std::vector<std::string>& alternatives) {
  std::string out;
  for (const std::string& each : alternatives) {
    if (!out.empty()) out += " | ";
    out += each;
  }
  return out;
}

constexpr int64_t kNoBound = -1;

// low <= n <= high, neither below 0.
std::string Naturals(int64_t low, int64_t high) {
  std::vector<std::string> out;
  std::string from = std::to_string(low);
  if (high == kNoBound) {
    EqualLength("", from, std::string(from.size(), '9'), out);
    const size_t most = std::max(kDigitsMax, from.size() + 1);
    out.push_back("[1-9] [0-9]{" + std::to_string(from.size()) + "," + std::to_string(most - 1) +
                  "}");
    return Join(out);
  }
  const std::string to = std::to_string(high);
  while (from.size() < to.size()) {
    EqualLength("", from, std::string(from.size(), '9'), out);
    from = "1" + std::string(from.size(), '0');
  }
  EqualLength("", from, to, out);
  return Join(out);
}

}  // namespace

std::string IntegersToGbnf(std::optional<int64_t> least, std::optional<int64_t> most) {
  std::vector<std::string> out;
  if (!least || *least < 0) {
    // -high … -low: the magnitudes the other way round.
    const int64_t low = most && *most < 0 ? -*most : 1;
    out.push_back("\"-\" (" + Naturals(low, least ? -*least : kNoBound) + ")");
  }
  if (!most || *most >= 0) {
    const int64_t low = least ? std::max<int64_t>(*least, 0) : 0;
    out.push_back(Naturals(low, most.value_or(kNoBound)));
  }
  return Join(out);
}

}  // namespace bloomery::text
