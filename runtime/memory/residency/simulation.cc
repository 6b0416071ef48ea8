#include "runtime/memory/residency/simulation.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/memory/residency/sharing.h"

namespace bloomery::memory {
namespace {

// Adds up a pass, bank by bank.
class Meter {
 public:
  Meter(const SimulationOptions& options, SimulationResult* result)
      : options_(options), result_(*result) {}

  void Begin(int32_t rows) {
    decode_ = rows < ResidencyOptions::kManyRows;
    SimulationCounts& counts = Counts();
    ++counts.passes;
    counts.rows += static_cast<uint64_t>(rows);
    us_ = options_.step.head_us;
  }
  void Bank(size_t reads, size_t hits) {
    SimulationCounts& counts = Counts();
    counts.reads += reads;
    counts.hits += hits;
    const double card = static_cast<double>(hits) * options_.rates.card_us;
    const double host = reads == hits ? 0
                                      : static_cast<double>(reads - hits) * options_.rates.host_us +
                                            options_.step.hand_off_us;
    us_ += options_.step.layer_us + std::max(card, host);
  }
  void End(size_t moves) {
    if (decode_) {
      result_.decode_us += us_ + static_cast<double>(moves) * options_.rates.MoveCost();
    }
  }

 private:
  SimulationCounts& Counts() { return decode_ ? result_.decode : result_.prompt; }

  const SimulationOptions& options_;
  SimulationResult& result_;
  bool decode_ = true;
  double us_ = 0;
};

// What prompts bring and keep.
class Stays {
 public:
  explicit Stays(std::span<const BankFrames> banks) : sharing_(BanksOf(banks)) {}

  // After a prompt's pass; returns how many stay.
  uint64_t After(const TracePass& pass, ResidencyPolicy* policy) {
    uint64_t stayed = 0;
    for (size_t bank = 0; bank < pass.experts.size(); ++bank) {
      counts_.assign(policy->map().bank(bank).experts, 0);
      for (const uint16_t expert : pass.experts[bank]) ++counts_[expert];
      sharing_.Count(bank, counts_, pass.rows);
      came_.clear();
      for (size_t expert = 0; expert < counts_.size(); ++expert) {
        const bool away = policy->map().FramesOf(bank)[expert] == kOnHost;
        if (away && counts_[expert] > 0) came_.push_back(static_cast<int32_t>(expert));
      }
      for (const ExpertMove& move : sharing_.Seats(bank, policy->map().FramesOf(bank), came_)) {
        policy->Moved(move);
        ++stayed;
      }
    }
    return stayed;
  }

 private:
  static std::vector<PromptSharing::Bank> BanksOf(std::span<const BankFrames> frames) {
    std::vector<PromptSharing::Bank> banks;
    for (const BankFrames& bank : frames) banks.push_back({bank.experts, bank.used});
    return banks;
  }

  PromptSharing sharing_;
  std::vector<int32_t> counts_;
  std::vector<int32_t> came_;
};

constexpr size_t kNever = std::numeric_limits<size_t>::max();

// Belady's choice for one bank.
class Foresight {
 public:
  Foresight(const RoutingTrace& trace, size_t bank, uint32_t frames)
      : frames_(frames), reads_(trace.passes().size()), next_(trace.passes().size()) {
    const uint32_t experts = trace.banks()[bank].experts;
    soonest_.assign(experts, kNever);
    for (size_t pass = reads_.size(); pass-- > 0;) {
      trace.Distinct(pass, bank, &reads_[pass]);
      for (const uint16_t expert : reads_[pass]) {
        next_[pass].push_back(soonest_[expert]);
        soonest_[expert] = pass;
      }
    }
    seated_.assign(experts, false);
    for (uint32_t expert = 0; expert < frames; ++expert) seated_[expert] = true;
  }

  const std::vector<uint16_t>& Reads(size_t pass) const { return reads_[pass]; }
  size_t Hits(size_t pass) const {
    return static_cast<size_t>(
        std::ranges::count_if(reads_[pass], [&](uint16_t expert) { return seated_[expert]; }));
  }

  // After a pass; how many experts came in.
  size_t Choose(size_t pass) {
    candidates_.clear();
    for (size_t i = 0; i < reads_[pass].size(); ++i) {
      const uint16_t expert = reads_[pass][i];
      soonest_[expert] = next_[pass][i];
      if (!seated_[expert]) candidates_.push_back(expert);
    }
    if (candidates_.empty()) return 0;
    const std::vector<uint16_t> read = candidates_;
    for (size_t expert = 0; expert < seated_.size(); ++expert) {
      if (seated_[expert]) candidates_.push_back(static_cast<uint16_t>(expert));
    }
    std::ranges::sort(candidates_, [&](uint16_t a, uint16_t b) {
      return std::pair(soonest_[a], a) < std::pair(soonest_[b], b);
    });
    for (size_t i = 0; i < candidates_.size(); ++i) seated_[candidates_[i]] = i < frames_;
    return static_cast<size_t>(
        std::ranges::count_if(read, [&](uint16_t expert) { return seated_[expert]; }));
  }

 private:
  uint32_t frames_;
  std::vector<std::vector<uint16_t>> reads_;  // by pass
  std::vector<std::vector<size_t>> next_;     // by pass and read: the pass of the next
  std::vector<size_t> soonest_;               // by expert: the next pass that reads it
  std::vector<bool> seated_;
  std::vector<uint16_t> candidates_;
};

}  // namespace

void SimulationResult::Add(const SimulationResult& more) {
  const auto add = [](SimulationCounts* to, const SimulationCounts& from) {
    to->passes += from.passes;
    to->rows += from.rows;
    to->reads += from.reads;
    to->hits += from.hits;
  };
  add(&decode, more.decode);
  add(&prompt, more.prompt);
  moves += more.moves;
  stayed += more.stayed;
  decode_us += more.decode_us;
}

RoutingTrace::RoutingTrace(TraceReader& reader) : banks_(reader.banks()) {
  TracePass pass;
  while (reader.Next(&pass)) passes_.push_back(pass);
  if (passes_.empty()) throw Error(ErrorKind::kBadModel, "the routing trace has no passes");
}

std::vector<RoutingTrace> RoutingTrace::Texts(uint64_t decode_max) const {
  std::vector<RoutingTrace> texts;
  bool in_prompt = false;
  uint64_t decoded = 0;
  for (const TracePass& pass : passes_) {
    const bool prompt = pass.rows >= ResidencyOptions::kManyRows;
    if (prompt && !in_prompt) {
      texts.push_back(RoutingTrace(banks_));
      decoded = 0;
    }
    in_prompt = prompt;
    if (texts.empty() || (!prompt && decoded++ >= decode_max)) continue;
    texts.back().passes_.push_back(pass);
  }
  return texts;
}

std::vector<BankFrames> RoutingTrace::Frames(uint32_t frames) const {
  std::vector<BankFrames> out;
  for (const TraceBank& bank : banks_) {
    out.push_back(
        {.experts = bank.experts, .used = bank.used, .frames = std::min(frames, bank.experts)});
  }
  return out;
}

void RoutingTrace::Distinct(size_t pass, size_t bank, std::vector<uint16_t>* out) const {
  *out = passes_[pass].experts[bank];
  std::ranges::sort(*out);
  out->erase(std::ranges::unique(*out).begin(), out->end());
}

TraceStatistics StatisticsOf(const RoutingTrace& trace) {
  TraceStatistics statistics{.passes = trace.passes().size()};
  std::vector<std::vector<uint64_t>> picks;
  for (const TraceBank& bank : trace.banks()) picks.emplace_back(bank.experts, 0);
  constexpr size_t kSlots = 256;
  std::vector<std::vector<std::vector<uint16_t>>> last(trace.banks().size(),
                                                       std::vector<std::vector<uint16_t>>(kSlots));
  uint64_t all = 0;
  uint64_t after = 0;  // picks of rows that have one before them
  uint64_t repeated = 0;
  for (const TracePass& pass : trace.passes()) {
    statistics.rows += static_cast<uint64_t>(pass.rows);
    const bool decode = pass.rows < ResidencyOptions::kManyRows;
    for (size_t bank = 0; bank < trace.banks().size(); ++bank) {
      const size_t used = trace.banks()[bank].used;
      for (size_t row = 0; row < static_cast<size_t>(pass.rows); ++row) {
        const auto experts = std::span(pass.experts[bank]).subspan(row * used, used);
        std::vector<uint16_t>& before = last[bank][pass.slots[row]];
        for (const uint16_t expert : experts) {
          if (!decode) break;
          ++picks[bank][expert];
          ++all;
          after += before.empty() ? 0 : 1;
          repeated += std::ranges::find(before, expert) == before.end() ? 0 : 1;
        }
        before.assign(experts.begin(), experts.end());
      }
    }
  }
  uint64_t busiest = 0;
  for (std::vector<uint64_t>& bank : picks) {
    std::ranges::sort(bank, std::greater<>());
    const size_t eighth = std::max<size_t>(1, bank.size() / 8);
    for (size_t i = 0; i < eighth; ++i) busiest += bank[i];
  }
  if (all > 0) statistics.busiest_eighth = static_cast<double>(busiest) / static_cast<double>(all);
  if (after > 0) statistics.repeated = static_cast<double>(repeated) / static_cast<double>(after);
  return statistics;
}

SimulationResult Simulate(RoutingTrace& trace, ResidencyKind kind,
                          const SimulationOptions& options) {
  SimulationResult result{.name = std::string(NameOf(kind))};
  const std::vector<BankFrames> banks = trace.Frames(options.frames);
  ResidencyPolicy policy(
      banks, {.kind = kind,
              .rates = options.rates,
              .moves_max = options.moves_max > 0
                               ? options.moves_max
                               : MovesBeside(ExpertsUs(banks, options.rates), options.rates)});
  Meter meter(options, &result);
  Stays stays(banks);
  std::vector<ExpertMove> begun;
  std::vector<uint16_t> reads;
  for (size_t pass = 0; pass < trace.passes().size(); ++pass) {
    TracePass played = trace.passes()[pass];
    for (const ExpertMove& move : begun) policy.Landed(move);
    const std::span<const ExpertMove> plan = policy.Plan(played.rows);
    begun.assign(plan.begin(), plan.end());
    meter.Begin(played.rows);
    for (size_t bank = 0; bank < banks.size(); ++bank) {
      trace.Distinct(pass, bank, &reads);
      meter.Bank(reads.size(), static_cast<size_t>(std::ranges::count_if(reads, [&](uint16_t e) {
                   return policy.map().Seated(bank, e);
                 })));
    }
    meter.End(begun.size());
    result.moves += begun.size();
    policy.Count(played.Picks());
    if (options.stay && kind == ResidencyKind::kPayback &&
        played.rows >= ResidencyOptions::kManyRows) {
      const uint64_t stayed = stays.After(played, &policy);
      result.stayed += stayed;
      result.moves += stayed;
    }
  }
  return result;
}

SimulationResult SimulateBelady(const RoutingTrace& trace, const SimulationOptions& options) {
  SimulationResult result{.name = "belady"};
  const std::vector<BankFrames> banks = trace.Frames(options.frames);
  std::vector<Foresight> foresight;
  for (size_t bank = 0; bank < banks.size(); ++bank) {
    foresight.emplace_back(trace, bank, banks[bank].frames);
  }
  Meter meter(options, &result);
  for (size_t pass = 0; pass < trace.passes().size(); ++pass) {
    meter.Begin(trace.passes()[pass].rows);
    for (Foresight& bank : foresight) {
      meter.Bank(bank.Reads(pass).size(), bank.Hits(pass));
      result.moves += bank.Choose(pass);
    }
    meter.End(0);
  }
  return result;
}

}  // namespace bloomery::memory
