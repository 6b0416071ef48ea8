#include "runtime/exec/device_names.h"

#include <charconv>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/trimmed.h"
#include "runtime/base/utf8.h"

namespace bloomery::exec {
namespace {

constexpr std::string_view kCard = "CUDA";

bool IsNoCard(std::string_view name) { return name == "auto" || name == "none" || name == "cpu"; }

// "CUDA" and a number as it is written.
std::optional<uint32_t> CardOf(std::string_view name) {
  if (!name.starts_with(kCard)) return std::nullopt;
  const std::string_view digits = name.substr(kCard.size());
  if (digits.starts_with('0') && digits.size() > 1) return std::nullopt;
  uint32_t index = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || stop != digits.data() + digits.size()) return std::nullopt;
  return index;
}

}  // namespace

std::vector<uint32_t> CardsNamed(std::string_view device) {
  if (IsNoCard(device)) return {};
  const std::string shown = "the device is '" + Printable(device) + "'";
  std::vector<uint32_t> cards;
  for (std::string_view rest = device;;) {
    const size_t comma = rest.find(',');
    const std::string_view name = Trimmed(rest.substr(0, comma));
    if (const std::optional<uint32_t> card = CardOf(name)) {
      cards.push_back(*card);
    } else if (IsNoCard(name)) {
      throw Error(ErrorKind::kUsage,
                  shown + ": " + std::string(name) + " cannot be one of several devices");
    } else {
      throw Error(ErrorKind::kUsage,
                  shown + ", must be auto, none, or cards: CUDA0, or CUDA0,CUDA1");
    }
    if (comma == std::string_view::npos) return cards;
    rest.remove_prefix(comma + 1);
  }
}

std::string NameOfCards(std::span<const uint32_t> cards) {
  std::string text;
  for (const uint32_t card : cards) {
    text += (text.empty() ? "" : ",") + std::string(kCard) + std::to_string(card);
  }
  return text;
}

}  // namespace bloomery::exec
