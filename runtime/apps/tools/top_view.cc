#include "runtime/apps/tools/top_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/memory/plan.h"
#include "runtime/serve/fields.h"
#include "runtime/serve/json_value.h"

namespace bloomery::apps {
namespace {

constexpr std::string_view kWhat = "the server's /residency";
constexpr int kBar = 24;

uint64_t CountOf(const serve::Fields& fields, const char* name) {
  return static_cast<uint64_t>(fields.Integer(name, 0).value_or(0));
}

TopTier ReadTier(const rapidjson::Value& value) {
  const serve::Fields fields(value, "a tier");
  return {.name = fields.String("name").value_or(""),
          .device = fields.String("device").value_or(""),
          .used_bytes = CountOf(fields, "used_bytes"),
          .limit_bytes = CountOf(fields, "limit_bytes")};
}

TopBank ReadBank(const rapidjson::Value& value) {
  const serve::Fields fields(value, "a bank");
  TopBank bank{.layer = fields.Integer("layer").value_or(-1),
               .tier = fields.String("tier").value_or(""),
               .experts = fields.Integer("experts", 0).value_or(0),
               .used = fields.Integer("used", 0).value_or(0),
               .frames = fields.Integer("frames").value_or(-1),
               .picks = CountOf(fields, "picks"),
               .hits = CountOf(fields, "hits")};
  if (const rapidjson::Value* rows = fields.Array("rows")) {
    for (const auto& count : rows->GetArray()) {
      bank.rows.push_back(static_cast<uint64_t>(serve::IntegerOf(count).value_or(0)));
    }
  }
  return bank;
}

std::string Format(const char* format, auto... values) {
  std::array<char, 200> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
double Number(uint64_t value) { return static_cast<double>(value); }

// Counters of a server that was started anew between two looks are smaller: then nothing is known.
double Grown(uint64_t now, uint64_t before) { return now < before ? 0 : Number(now - before); }

std::string Bar(double part, int width) {
  const auto full = static_cast<int>(std::lround(std::clamp(part, 0.0, 1.0) * width));
  return "[" + std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(width - full), '.') + "]";
}

// Lines that fit.
class Page {
 public:
  explicit Page(const TopScreen& screen) : screen_(screen) {}

  bool full() const { return static_cast<int>(lines_.size()) >= screen_.lines; }
  // `shown`: how many of the text's bytes take room, where some are colours.
  void Add(std::string text, size_t shown = std::string::npos) {
    if (full()) return;
    const auto most = static_cast<size_t>(std::max(screen_.columns, 1));
    if (shown == std::string::npos && text.size() > most) text.resize(most);
    lines_.push_back(std::move(text));
  }
  std::vector<std::string> Take() { return std::move(lines_); }

 private:
  const TopScreen& screen_;
  std::vector<std::string> lines_;
};

void AddTiers(const TopLook& now, Page* page) {
  for (const TopTier& tier : now.tiers) {
    std::string line = Format("  %-6s ", Printable(tier.name, 12).c_str());
    if (tier.limit_bytes > 0) {
      line += Bar(Ratio(Number(tier.used_bytes), Number(tier.limit_bytes)), kBar) + " " +
              memory::FormatBytes(tier.used_bytes) + " of " + memory::FormatBytes(tier.limit_bytes);
    } else {
      line += memory::FormatBytes(tier.used_bytes);
    }
    page->Add(line + "  " + Printable(tier.device));
  }
}

// The mean time of a pass and its parts, of a bar in letters.
void AddTimes(const TopLook& now, const TopLook* before, Page* page) {
  TopTimes times = now.times;
  double passes = Number(now.passes);
  if (before != nullptr && Grown(now.passes, before->passes) > 0) {
    passes = Grown(now.passes, before->passes);
    times = {times.card - before->times.card, times.host - before->times.host,
             times.link - before->times.link, times.sync - before->times.sync};
  }
  if (passes <= 0) return page->Add("no pass yet");
  const double ms = 1e3 / passes;
  std::string bar;
  const std::array<std::pair<char, double>, 4> parts{
      {{'c', times.card}, {'h', times.host}, {'l', times.link}, {'s', times.sync}}};
  for (const auto& [letter, part] : parts) {
    const auto width = std::lround(std::clamp(Ratio(part, times.Sum()), 0.0, 1.0) * kBar);
    bar.append(static_cast<size_t>(width), letter);
  }
  page->Add(Format("a pass %.2f ms: card %.2f  host %.2f  link %.2f  sync %.2f  ", times.Sum() * ms,
                   times.card * ms, times.host * ms, times.link * ms, times.sync * ms) +
            "[" + bar + "]");
}

// What a bank's cell says, of 1: how much of the rows' picks the card had; of a bank that is not
// split, how much its busiest eighth of experts had (an eighth where all are used alike).
std::optional<double> Heat(const TopBank& bank, const TopBank* before) {
  if (bank.frames >= 0) {
    const bool since = before != nullptr && Grown(bank.picks, before->picks) > 0;
    const double picks = since ? Grown(bank.picks, before->picks) : Number(bank.picks);
    const double hits = since ? Grown(bank.hits, before->hits) : Number(bank.hits);
    if (picks <= 0) return std::nullopt;
    return hits / picks;
  }
  std::vector<uint64_t> rows = bank.rows;
  std::ranges::sort(rows, std::greater<>());
  const double all = Number(std::accumulate(rows.begin(), rows.end(), uint64_t{0}));
  if (all <= 0) return std::nullopt;
  const size_t eighth = std::max<size_t>(1, rows.size() / 8);
  const auto end = rows.begin() + static_cast<ptrdiff_t>(std::min(eighth, rows.size()));
  return Number(std::accumulate(rows.begin(), end, uint64_t{0})) / all;
}

// From blue over white to red, in the terminal's palette of 256.
int ColourOf(double heat) {
  constexpr std::array<int, 10> kColours{17, 18, 24, 30, 36, 71, 142, 172, 166, 160};
  return kColours[static_cast<size_t>(std::clamp(heat * 10, 0.0, 9.0))];
}

void AddHeat(const TopLook& now, const TopLook* before, const TopScreen& screen, Page* page) {
  constexpr int kCell = 3;
  constexpr int kHead = 6;
  const int cells = std::max(1, (screen.columns - kHead) / kCell);
  for (size_t first = 0; first < now.banks.size() && !page->full();
       first += static_cast<size_t>(cells)) {
    std::string line = Format("%5lld ", static_cast<long long>(now.banks[first].layer));
    const size_t end = std::min(now.banks.size(), first + static_cast<size_t>(cells));
    for (size_t i = first; i < end; ++i) {
      const TopBank* old =
          before != nullptr && i < before->banks.size() ? &before->banks[i] : nullptr;
      const std::optional<double> heat = Heat(now.banks[i], old);
      const std::string text =
          heat ? Format("%2d ", std::min(99, static_cast<int>(std::lround(*heat * 100)))) : " - ";
      if (heat && screen.colour) {
        line += Format("\x1b[97;48;5;%dm", ColourOf(*heat)) + text + "\x1b[0m";
      } else {
        line += text;
      }
    }
    page->Add(std::move(line), (end - first) * kCell + kHead);
  }
}

// Frames of a bank: "24", or "0 to 24" where banks have different numbers; of several cards each
// with its name, "CUDA0 24, CUDA1 31".
std::string FramesText(const TopLook& now, const std::vector<std::string>& tiers) {
  std::string text;
  for (const std::string& tier : tiers) {
    int64_t least = INT64_MAX;
    int64_t most = 0;
    for (const TopBank& bank : now.banks) {
      if (bank.tier != tier) continue;
      least = std::min(least, bank.frames);
      most = std::max(most, bank.frames);
    }
    text += text.empty() ? "" : ", ";
    if (tiers.size() > 1) text += Printable(tier, 12) + " ";
    if (least < most) text += std::to_string(least) + " to ";
    text += std::to_string(most);
  }
  return text;
}

void AddExperts(const TopLook& now, const TopLook* before, double seconds, Page* page) {
  if (now.banks.empty()) return page->Add("no routed experts");
  const TopBank& bank = now.banks.front();
  std::vector<std::string> tiers;
  for (const TopBank& each : now.banks) {
    if (std::ranges::find(tiers, each.tier) == tiers.end()) tiers.push_back(each.tier);
  }
  std::string line =
      Format("experts  %zu banks, %lld of %lld a row", now.banks.size(),
             static_cast<long long>(bank.used), static_cast<long long>(bank.experts));
  if (bank.frames >= 0) {
    line += ", frames " + FramesText(now, tiers);
  }
  page->Add(line);
  if (!now.policy) {
    return page->Add(tiers.size() > 1 ? "every expert has its card: nothing moves"
                                      : "all experts lie in one memory: nothing moves");
  }
  const bool since = before != nullptr && Grown(now.picks, before->picks) > 0;
  const double recent = since
                            ? Ratio(Grown(now.hits, before->hits), Grown(now.picks, before->picks))
                            : Ratio(Number(now.hits), Number(now.picks));
  line = Format("hits %5.1f %% (%.1f %% since loading)", 100 * recent,
                100 * Ratio(Number(now.hits), Number(now.picks)));
  if (before != nullptr) {
    line += Format("  swaps %.1f/s", Ratio(Grown(now.moves, before->moves), seconds));
  }
  page->Add(line + Format(" (%llu in all, %lld a pass at most)",
                          static_cast<unsigned long long>(now.moves),
                          static_cast<long long>(now.moves_max)));
  if (!now.stopped.empty()) page->Add("stopped: " + Printable(now.stopped));
}

}  // namespace

TopLook ReadTopLook(std::string_view json) {
  try {
    const rapidjson::Document document =
        ParseJson(json, std::string(kWhat), {.kind = ErrorKind::kNoInput});
    const serve::Fields fields(document, kWhat);
    const rapidjson::Value* tiers = fields.Array("tiers");
    const rapidjson::Value* banks = fields.Array("banks");
    if (tiers == nullptr || banks == nullptr) {
      throw Error(ErrorKind::kNoInput, std::string(kWhat) + " has no tiers or no banks");
    }
    TopLook look;
    for (const auto& tier : tiers->GetArray()) look.tiers.push_back(ReadTier(tier));
    for (const auto& bank : banks->GetArray()) look.banks.push_back(ReadBank(bank));
    if (const rapidjson::Value* value = fields.Object("times")) {
      const serve::Fields times(*value, "times");
      look.passes = CountOf(times, "passes");
      look.rows = CountOf(times, "rows");
      look.times = {times.Real("card_seconds").value_or(0), times.Real("host_seconds").value_or(0),
                    times.Real("link_seconds").value_or(0), times.Real("sync_seconds").value_or(0)};
    }
    if (const rapidjson::Value* value = fields.Object("residency")) {
      const serve::Fields moves(*value, "residency");
      look.policy = moves.String("policy").value_or("");
      look.moves_max = moves.Integer("moves_max").value_or(0);
      look.picks = CountOf(moves, "picks");
      look.hits = CountOf(moves, "hits");
      look.moves = CountOf(moves, "moves");
      look.stopped = moves.String("stopped").value_or("");
    }
    return look;
  } catch (const Error& error) {
    throw Error(ErrorKind::kNoInput, error.what());
  }
}

std::vector<std::string> TopLines(const std::string& where, const TopLook& now,
                                  const TopLook* before, double seconds, const TopScreen& screen) {
  Page page(screen);
  std::string head = "bloomery top  " + Printable(where) + "  policy " +
                     (now.policy ? Printable(*now.policy) : std::string("none"));
  if (before != nullptr) {
    head +=
        Format("  %.1f passes/s  %.1f rows/s", Ratio(Grown(now.passes, before->passes), seconds),
               Ratio(Grown(now.rows, before->rows), seconds));
  }
  page.Add(head);
  AddTiers(now, &page);
  AddTimes(now, before, &page);
  AddExperts(now, before, seconds, &page);
  if (!now.banks.empty()) {
    page.Add(now.banks.front().frames >= 0
                 ? "hit rate of each bank, %, by layer"
                 : "share of the busiest eighth of each bank's experts, %, by layer");
    AddHeat(now, before, screen, &page);
  }
  return page.Take();
}

std::string TopJson(const std::string& answer, const TopLook& now, const TopLook* before,
                    double seconds) {
  using serve::Json;
  const auto rate = [&](uint64_t TopLook::* count) {
    if (before == nullptr) return Json();
    return Json(Ratio(Grown(now.*count, before->*count), seconds));
  };
  const double picks = before == nullptr ? Number(now.picks) : Grown(now.picks, before->picks);
  const double hits = before == nullptr ? Number(now.hits) : Grown(now.hits, before->hits);
  return Json::Object({{"seconds", before == nullptr ? Json() : Json(seconds)},
                       {"passes_per_second", rate(&TopLook::passes)},
                       {"rows_per_second", rate(&TopLook::rows)},
                       {"moves_per_second", rate(&TopLook::moves)},
                       {"hit_rate", picks > 0 ? Json(hits / picks) : Json()},
                       {"residency", Json::Written(answer)}})
      .Text();
}

}  // namespace bloomery::apps
