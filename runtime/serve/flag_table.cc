// The table of flags, put together from its groups.
#include <charconv>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/serve/flag_rows.h"

namespace bloomery::serve {
namespace rows {

std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    if (!part.empty()) parts.emplace_back(part);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return parts;
}

uint64_t BytesOf(std::string_view text) {
  struct Unit {
    std::string_view name;
    int shift;
  };
  static constexpr Unit kUnits[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"", 0}};
  uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  for (const Unit& u : kUnits) {
    if (error == std::errc() && unit == u.name && count <= (UINT64_MAX >> u.shift)) {
      return count << u.shift;
    }
  }
  throw Error(ErrorKind::kUsage, "expected a number of bytes, or one with KiB, MiB or GiB");
}

void CheckObject(std::string_view text, std::string_view flag) {
  const auto value = ParseJson(text, flag, {.kind = ErrorKind::kUsage});
  if (!value.IsObject()) throw Error(ErrorKind::kUsage, "expected a JSON object");
}

}  // namespace rows

std::span<const Flag> Flags() {
  static const std::vector<Flag> table = [] {
    std::vector<Flag> all;
    for (const auto& group : {rows::General(), rows::Model(), rows::Network(), rows::Engine(),
                              rows::Chat(), rows::Requests()}) {
      all.insert(all.end(), group.begin(), group.end());
    }
    return all;
  }();
  return table;
}

}  // namespace bloomery::serve
