#include "runtime/plugin/pattern.h"

#include <algorithm>

#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace bloomery::plugin {
namespace {

constexpr std::string_view kLayer = "{l}";
constexpr std::string_view kExpert = "{e}";

bool StartsWithMark(std::string_view text) {
  return text.starts_with(kLayer) || text.starts_with(kExpert);
}

// Digits at the front that form one decimal number without leading zeros.
size_t NumberLength(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto end = std::ranges::find_if_not(text, is_digit);
  const auto digits = static_cast<size_t>(end - text.begin());
  return digits > 1 && text.front() == '0' ? 0 : digits;
}

}  // namespace

bool HasMark(std::string_view pattern, std::string_view mark) {
  return pattern.find(mark) != std::string_view::npos;
}

std::string PatternProblem(std::string_view pattern) {
  if (pattern.empty()) return "is empty";
  if (pattern.size() > limits::kPluginTextBytesMax) {
    return "is longer than " + std::to_string(limits::kPluginTextBytesMax) + " bytes";
  }
  if (!IsValidUtf8(pattern)) return "is not UTF-8";
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (static_cast<unsigned char>(pattern[i]) < 0x20) return "holds a control character";
    if (StartsWithMark(pattern.substr(i))) {
      i += kLayer.size() - 1;
    } else if (pattern[i] == '{' || pattern[i] == '}') {
      return "holds a brace that is not part of {l} or {e}";
    }
  }
  return {};
}

std::string PutLayer(std::string_view pattern, int32_t layer) {
  std::string name;
  while (!pattern.empty()) {
    const size_t at = std::min(pattern.find(kLayer), pattern.size());
    name += pattern.substr(0, at);
    if (at < pattern.size()) name += std::to_string(layer);
    pattern.remove_prefix(std::min(at + kLayer.size(), pattern.size()));
  }
  return name;
}

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  while (!pattern.empty()) {
    if (StartsWithMark(pattern)) {
      const size_t digits = NumberLength(name);
      if (digits == 0) return false;
      pattern.remove_prefix(kLayer.size());
      name.remove_prefix(digits);
    } else {
      if (name.empty() || name.front() != pattern.front()) return false;
      pattern.remove_prefix(1);
      name.remove_prefix(1);
    }
  }
  return name.empty();
}

}  // namespace bloomery::plugin
