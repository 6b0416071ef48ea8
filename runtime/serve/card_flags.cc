#include "runtime/serve/card_flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/trimmed.h"
#include "runtime/base/utf8.h"
#include "runtime/exec/device_names.h"

namespace bloomery::serve {
namespace {

using exec::Place;

// llama.cpp's, of cards that a list of several leaves out.
constexpr uint64_t kFitMarginMib = 1024;

[[noreturn]] void Refuse(const std::string& where, const std::string& why) {
  throw Error(ErrorKind::kUsage, where + ": " + why);
}

[[noreturn]] void Contradicts(const std::string& flag, const std::string& other) {
  Refuse(flag, "cannot be given together with " + other);
}

// The parts between commas or slashes, spaces around them left out.
std::vector<std::string_view> PartsOf(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find_first_of(",/");
    parts.push_back(Trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename Number>
bool Reads(std::string_view text, Number* number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && stop == text.data() + text.size();
}

// "--tensor-split 3,1".
std::string SharesText(const std::vector<double>& shares) {
  std::string text;
  for (const double share : shares) {
    std::array<char, 32> number{};
    const auto [end, error] = std::to_chars(number.data(), number.data() + number.size(), share);
    text += (text.empty() ? "--tensor-split " : ",") +
            std::string(number.data(), static_cast<size_t>(end - number.data()));
  }
  return text;
}

std::string CountText(size_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

// The flag that keeps the model from every card; "" where one may have it.
std::string NoCardFlag(const ServeSettings& settings) {
  if (settings.device == "none" || settings.device == "cpu") return "--device " + settings.device;
  if (settings.placing.place == Place::kHost) return "--place host";
  return settings.placing.card_layers == 0U ? "--gpu-layers 0" : "";
}

// What is given card by card, against how many cards there are.
void CheckCards(const ServeSettings& settings) {
  const std::vector<uint32_t> cards = exec::CardsNamed(settings.device);
  const std::string device = "--device " + settings.device;
  const std::string shares = SharesText(settings.card_shares);
  const std::string no_card = NoCardFlag(settings);
  if (!shares.empty() && !no_card.empty()) Contradicts(shares, no_card);
  const auto check_count = [&](const std::string& flag, size_t values, const char* what) {
    if (cards.empty() || values <= cards.size()) return;
    Refuse(flag, CountText(values, what) + " for the " + CountText(cards.size(), "card") + " of " +
                     device);
  };
  check_count(shares, settings.card_shares.size(), "share");
  check_count("--fit-target", settings.fit_margins_bytes.size(), "value");
  if (!settings.one_card) return;
  const uint32_t main = settings.main_card.value_or(0);
  const std::string main_text = "--main-gpu " + std::to_string(main);
  if (settings.main_card && no_card.starts_with("--device")) Contradicts(main_text, no_card);
  if (!cards.empty() && main >= cards.size()) {
    Refuse(main_text,
           device + " names " + CountText(cards.size(), "card") + ", and the first of them is 0");
  }
  for (size_t i = 0; i < settings.card_shares.size(); ++i) {
    if (settings.card_shares[i] == 0 || i == main) continue;
    Contradicts("--split-mode none", shares + ": the one card is that of " + main_text);
  }
}

// Of a rule that puts experts on cards.
void CheckCardRule(const ServeSettings& settings, const exec::TensorRule& rule) {
  const std::string text = "--override-tensor " + Printable(rule.Text());
  if (const std::string no_card = NoCardFlag(settings); !no_card.empty()) {
    Contradicts(no_card, text);
  }
  if (rule.place == "card") return;
  ServeSettings one = settings;
  TakeOneCard(one);
  const std::vector<uint32_t> cards = exec::CardsNamed(one.device);
  const auto is_ruled = [&](uint32_t card) { return rule.place == "CUDA" + std::to_string(card); };
  if (cards.empty() || std::ranges::any_of(cards, is_ruled)) return;
  Contradicts(one.device == settings.device ? "--device " + settings.device
                                            : "--split-mode none (" + one.device + ")",
              text);
}

}  // namespace

void SetDevice(ServeSettings& settings, const FlagInput& input) {
  const std::vector<uint32_t> cards = exec::CardsNamed(input.text);
  std::set<uint32_t> seen;
  for (const uint32_t card : cards) {
    if (seen.insert(card).second) continue;
    throw Error(ErrorKind::kUsage, "CUDA" + std::to_string(card) + " is named twice");
  }
  settings.device = cards.empty() ? input.text : exec::NameOfCards(cards);
}

void SetSplitMode(ServeSettings& settings, const FlagInput& input) {
  if (input.text == "row" || input.text == "tensor") {
    throw Error(ErrorKind::kUsage,
                "'" + input.text +
                    "': layers are not divided among cards; layer gives each card layers of its "
                    "own, none takes one card");
  }
  if (input.text != "layer" && input.text != "none") {
    throw Error(ErrorKind::kUsage, "'" + Printable(input.text) + "': expected layer or none");
  }
  settings.one_card = input.text == "none";
}

void SetCardShares(ServeSettings& settings, const FlagInput& input) {
  std::vector<double> shares;
  for (const std::string_view part : PartsOf(input.text)) {
    double share = 0;
    if (!Reads(part, &share) || !std::isfinite(share)) {
      throw Error(
          ErrorKind::kUsage,
          "'" + Printable(part) + "' is not a number; expected a share of each card, as 3,1");
    }
    if (share < 0) {
      throw Error(ErrorKind::kUsage, "'" + Printable(part) + "': a share is 0 or more");
    }
    shares.push_back(share);
  }
  // Cards that are not named have none.
  while (!shares.empty() && shares.back() == 0) shares.pop_back();
  if (shares.empty()) throw Error(ErrorKind::kUsage, "no share is above 0");
  settings.card_shares = std::move(shares);
}

void SetFitMargins(ServeSettings& settings, const FlagInput& input) {
  std::vector<uint64_t> margins;
  for (const std::string_view part : PartsOf(input.text)) {
    uint32_t mib = 0;
    if (!Reads(part, &mib)) {
      throw Error(ErrorKind::kUsage, "'" + Printable(part) +
                                         "': expected MiB, one for all cards or "
                                         "one each: 1024,512");
    }
    margins.push_back(uint64_t{mib} << 20);
  }
  const bool one = margins.size() == 1;
  settings.fit_margin_bytes = one ? margins.front() : kFitMarginMib << 20;
  settings.fit_margins_bytes = one ? std::vector<uint64_t>() : std::move(margins);
}

void CheckPlacing(const ServeSettings& settings) {
  const exec::PlacementRequest& placing = settings.placing;
  const std::string place = "--place " + std::string(exec::NameOf(placing.place));
  const std::string device = "--device " + settings.device;
  const bool no_device = settings.device == "none" || settings.device == "cpu";
  if (placing.place == Place::kCard || placing.place == Place::kSplit) {
    if (const std::string no_card = NoCardFlag(settings); !no_card.empty()) {
      Contradicts(place, no_card);
    }
  }
  const std::string kept = placing.KeptFromCard(0, 0);
  if (placing.place == Place::kCard && !kept.empty()) Contradicts(place, kept);
  if (placing.place == Place::kHost) {
    if (!no_device && settings.device != "auto") Contradicts(place, device);
    if (placing.card_layers.value_or(0) > 0) {
      Contradicts(place, "--gpu-layers " + std::to_string(*placing.card_layers));
    }
  }
  CheckCards(settings);
  for (const exec::TensorRule& rule : placing.rules) {
    if (!rule.OnHost()) {
      CheckCardRule(settings, rule);
    } else if (placing.place == Place::kCard) {
      Contradicts(place, "--override-tensor " + Printable(rule.Text()));
    }
  }
}

void TakeOneCard(ServeSettings& settings) {
  if (!settings.one_card || !NoCardFlag(settings).empty()) return;
  const uint32_t main = settings.main_card.value_or(0);
  const std::vector<uint32_t> cards = exec::CardsNamed(settings.device);
  settings.device = "CUDA" + std::to_string(cards.empty() ? main : cards.at(main));
  settings.card_shares.clear();
  if (main < settings.fit_margins_bytes.size()) {
    settings.fit_margin_bytes = settings.fit_margins_bytes[main];
  }
  settings.fit_margins_bytes.clear();
}

}  // namespace bloomery::serve
