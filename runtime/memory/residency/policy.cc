#include "runtime/memory/residency/policy.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/memory/residency/choosers.h"

namespace bloomery::memory {
namespace {

struct KindName {
  std::string_view name;
  ResidencyKind kind;
};
// The first name of a kind is what it is called.
constexpr std::array<KindName, 5> kKindNames{{{"off", ResidencyKind::kOff},
                                              {"payback", ResidencyKind::kPayback},
                                              {"on", ResidencyKind::kPayback},
                                              {"lru", ResidencyKind::kLru},
                                              {"lfu", ResidencyKind::kLfu}}};

std::unique_ptr<MoveChooser> MakeChooser(const FrameMap& map, const ResidencyOptions& options) {
  switch (options.kind) {
    case ResidencyKind::kOff:
      return nullptr;
    case ResidencyKind::kPayback:
      return MakePayback(map, options.rates);
    case ResidencyKind::kLru:
      return MakeLru(map);
    case ResidencyKind::kLfu:
      return MakeLfu(map);
  }
  return nullptr;
}

}  // namespace

std::optional<ResidencyKind> ResidencyKindOf(std::string_view name) {
  const auto* found = std::ranges::find(kKindNames, name, &KindName::name);
  if (found == kKindNames.end()) return std::nullopt;
  return found->kind;
}

std::string_view NameOf(ResidencyKind kind) {
  return std::ranges::find(kKindNames, kind, &KindName::kind)->name;
}

int32_t MovesBeside(double pass_us, const ResidencyRates& rates) {
  constexpr double kMost = ResidencyOptions::kMovesMax;
  // Not `pass_us / copy_us` first: a link that was not measured gives no quotient.
  if (rates.copy_us * kMost <= pass_us) return ResidencyOptions::kMovesMax;
  return std::max(1, static_cast<int32_t>(pass_us / rates.copy_us));
}

double ExpertsUs(std::span<const BankFrames> banks, const ResidencyRates& rates) {
  double us = 0;
  for (const BankFrames& bank : banks) {
    const double on_card = static_cast<double>(bank.frames) / bank.experts;
    us += bank.used * (on_card * rates.card_us + (1 - on_card) * rates.host_us);
  }
  return us;
}

ResidencyPolicy::ResidencyPolicy(std::span<const BankFrames> banks, const ResidencyOptions& options)
    : options_(options), map_(banks), chooser_(MakeChooser(map_, options)) {
  moves_.reserve(ResidencyOptions::kMovesMax);
  under_way_.reserve(ResidencyOptions::kMovesMax);
  counters_.banks.resize(banks.size());
}

ResidencyPolicy::~ResidencyPolicy() = default;
ResidencyPolicy::ResidencyPolicy(ResidencyPolicy&&) noexcept = default;
ResidencyPolicy& ResidencyPolicy::operator=(ResidencyPolicy&&) noexcept = default;

void ResidencyPolicy::Count(const PassPicks& picks) {
  const auto rows = static_cast<size_t>(picks.rows);
  bool fits =
      picks.experts.size() == map_.banks() && (picks.kept.empty() || picks.kept.size() == rows);
  for (size_t bank = 0; fits && bank < map_.banks(); ++bank) {
    fits = picks.experts[bank].size() == rows * map_.bank(bank).used;
  }
  if (!fits) {
    throw Error(ErrorKind::kInternal, "residency: picks of " + std::to_string(rows) +
                                          " rows do not have the shape of the banks");
  }
  for (int32_t row = 0; row < picks.rows; ++row) {
    if (picks.Kept(row)) CountRow(picks, row);
  }
}

void ResidencyPolicy::CountRow(const PassPicks& picks, int32_t row) {
  ++counters_.rows;
  for (size_t bank = 0; bank < map_.banks(); ++bank) {
    const size_t used = map_.bank(bank).used;
    const auto experts = picks.experts[bank].subspan(static_cast<size_t>(row) * used, used);
    const auto hits = static_cast<uint64_t>(
        std::ranges::count_if(experts, [&](uint16_t expert) { return map_.Seated(bank, expert); }));
    counters_.picks += used;
    counters_.hits += hits;
    counters_.banks[bank].picks += used;
    counters_.banks[bank].hits += hits;
    if (chooser_) chooser_->Pick(bank, experts, map_);
  }
  if (chooser_) chooser_->RowDone(map_);
}

std::span<const ExpertMove> ResidencyPolicy::Plan(int32_t rows) {
  moves_.clear();
  const int32_t most =
      rows >= ResidencyOptions::kManyRows ? options_.moves_max_many : options_.moves_max;
  if (!chooser_ || counters_.stopped || !under_way_.empty() || most < 1) return moves_;
  chooser_->Choose(map_, static_cast<size_t>(std::min(most, ResidencyOptions::kMovesMax)), &moves_);
  for (const ExpertMove& move : moves_) Begin(move);
  return moves_;
}

void ResidencyPolicy::Begin(const ExpertMove& move) {
  const int32_t frame =
      move.out == kNoExpert ? map_.FreeFrame(move.bank) : map_.Unseat(move.bank, move.out);
  map_.Reserve(move.bank, frame);
  under_way_.push_back({move, frame});
}

ResidencyPolicy::UnderWay ResidencyPolicy::Ended(const ExpertMove& move) {
  const auto found = std::ranges::find(under_way_, move, &UnderWay::move);
  if (found == under_way_.end()) {
    throw Error(ErrorKind::kInternal, "residency: expert " + std::to_string(move.in) + " of bank " +
                                          std::to_string(move.bank) + " is not under way");
  }
  const UnderWay ended = *found;
  under_way_.erase(found);
  map_.Release(move.bank, ended.frame);
  return ended;
}

void ResidencyPolicy::Moved(const ExpertMove& move) {
  map_.Seat(move.bank, move.in, map_.Unseat(move.bank, move.out));
  ++counters_.moves;
  ++counters_.banks[move.bank].moves;
}

void ResidencyPolicy::Landed(const ExpertMove& move) {
  map_.Seat(move.bank, move.in, Ended(move).frame);
  ++counters_.moves;
  ++counters_.banks[move.bank].moves;
}

void ResidencyPolicy::Failed(const ExpertMove& move, bool out_stays) {
  const UnderWay ended = Ended(move);
  if (out_stays) map_.Seat(move.bank, move.out, ended.frame);
  ++counters_.moves_failed;
  counters_.stopped = true;
}

std::span<const ExpertMove> ResidencyPolicy::Reset() {
  if (!under_way_.empty()) {
    throw Error(ErrorKind::kInternal, "residency: a reset while moves are under way");
  }
  moves_.clear();
  if (chooser_) chooser_->Forget();
  ++counters_.resets;
  counters_.stopped = false;
  for (size_t bank = 0; bank < map_.banks(); ++bank) {
    // A seed expert without a frame takes one from an expert that is not of the seed, while there
    // are any; the rest of the frames are free.
    const auto seed = static_cast<int32_t>(map_.bank(bank).frames);
    int32_t out = seed;
    for (int32_t in = 0; in < seed; ++in) {
      if (map_.Seated(bank, in)) continue;
      while (out < static_cast<int32_t>(map_.bank(bank).experts) && !map_.Seated(bank, out)) ++out;
      const bool none = out == static_cast<int32_t>(map_.bank(bank).experts);
      moves_.push_back(
          {.bank = static_cast<uint32_t>(bank), .in = in, .out = none ? kNoExpert : out});
      Begin(moves_.back());
    }
  }
  return moves_;
}

}  // namespace bloomery::memory
