// Our policy: an expert comes in where moves like it have paid.
//
// Every pick adds to two counts of its expert; one decays within ten rows, the other within two
// hundred, and their weighted sum is the expert's score: what is hot now, and what always is. A
// candidate is a host expert whose score is higher than a seated one's. What such a lead is worth
// differs from model to model and from text to text (with uniform routing: nothing), so it is
// measured: each bank keeps trying pairs of a candidate and a victim, whether or not they are
// moved, and looks kSoon and kLate rows later how many more picks the candidate has had. The mean
// over trials of the same lead, times what a pick on the card saves, less what a move costs, is
// what such a move pays. Moves are made only at leads that pay: where nothing pays nothing moves,
// and the seat is a static one.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "runtime/memory/residency/choosers.h"

namespace bloomery::memory {
namespace {

// Decay of the counts a row, and the weight of the slow one: the best of twenty pairs tried on
// routing that stays for 10 to 200 rows or has a lasting skew only (docs/residency.md).
constexpr double kFast = 0.9;
constexpr double kSlow = 0.995;
constexpr double kSlowWeight = 0.1;
constexpr int32_t kTrialEvery = 8;               // rows between two trials of a bank
constexpr int32_t kSoon = 32;                    // rows after which a trial is looked at first,
constexpr int32_t kLate = 256;                   // and last
constexpr size_t kTrials = kLate / kTrialEvery;  // of a bank, under way
constexpr size_t kPairs = 4;                     // moves of a bank at one boundary
// A lead's mean is over about so many trials of the last, and means nothing before the first few.
constexpr double kTrialsRemembered = 256;
constexpr double kTrialsLeast = 32;
// So many standard errors below its mean a lead must still pay. Trials overlap, so that they are
// worth fewer than they are: 2 would be too few.
constexpr double kSure = 3;

// Leads that are told apart: from so much to the next.
constexpr std::array<double, 7> kLeads{0.5, 0.75, 1, 1.5, 2, 3, 4.5};

// The picks that leads have been worth, as trials said.
class LeadWorth {
 public:
  void Add(size_t lead, double picks) {
    double& n = n_[lead];
    n = std::min(n + 1, kTrialsRemembered);
    const double off = picks - mean_[lead];
    mean_[lead] += off / n;
    square_[lead] += (off * (picks - mean_[lead]) - square_[lead]) / n;
  }
  // What the lead is worth at least: the mean less kSure of its standard errors. Where it has had
  // too few trials, that of the next lower that has enough: a higher one is worth no less. Minus
  // infinity where none has.
  double Picks(size_t lead) const {
    for (size_t at = lead + 1; at-- > 0;) {
      if (n_[at] >= kTrialsLeast) return mean_[at] - kSure * std::sqrt(square_[at] / n_[at]);
    }
    return -std::numeric_limits<double>::infinity();
  }

 private:
  std::array<double, kLeads.size()> n_{};
  std::array<double, kLeads.size()> mean_{};
  std::array<double, kLeads.size()> square_{};  // mean square of what is off the mean
};

struct Pair {
  int32_t in = kNoExpert;
  int32_t out = kNoExpert;
  double lead = 0;
};

struct Trial {
  Pair pair;
  uint64_t row = 0;     // it began after
  int64_t advance = 0;  // picks of `in` less picks of `out` when it began
  bool running = false;
};

struct Bank {
  // By expert, each pick times the scale of its row.
  std::vector<double> fast;
  std::vector<double> slow;
  std::vector<uint64_t> picks;  // by expert, since the last reset
  std::array<Trial, kTrials> trials{};

  int64_t Advance(const Pair& pair) const {
    return static_cast<int64_t>(picks[static_cast<size_t>(pair.in)]) -
           static_cast<int64_t>(picks[static_cast<size_t>(pair.out)]);
  }
};

class Payback : public MoveChooser {
 public:
  Payback(const FrameMap& map, const ResidencyRates& rates) : rates_(rates), banks_(map.banks()) {
    for (size_t i = 0; i < banks_.size(); ++i) {
      const size_t experts = map.bank(i).experts;
      banks_[i].fast.assign(experts, 0);
      banks_[i].slow.assign(experts, 0);
      banks_[i].picks.assign(experts, 0);
      score_.resize(std::max(score_.size(), experts));
    }
    chosen_.reserve(banks_.size() * kPairs);
  }

  void Pick(size_t bank, std::span<const uint16_t> experts, const FrameMap& /*map*/) override {
    for (const uint16_t expert : experts) {
      banks_[bank].fast[expert] += fast_scale_;
      banks_[bank].slow[expert] += slow_scale_;
      ++banks_[bank].picks[expert];
    }
  }

  void RowDone(const FrameMap& map) override {
    ++row_;
    if (row_ % kTrialEvery == 0) {
      for (size_t bank = 0; bank < banks_.size(); ++bank) {
        EndTrials(&banks_[bank]);
        StartTrial(map, bank);
      }
    }
    fast_scale_ /= kFast;
    slow_scale_ /= kSlow;
    if (fast_scale_ > kScaleMax) Rescale();
  }

  void Choose(const FrameMap& map, size_t most, std::vector<ExpertMove>* moves) override {
    std::array<double, kLeads.size()> pays{};
    bool any = false;
    for (size_t lead = 0; lead < kLeads.size(); ++lead) {
      pays[lead] =
          std::max(soon_.Picks(lead), late_.Picks(lead)) * rates_.Saving() - rates_.MoveCost();
      any = any || pays[lead] > 0;
    }
    if (!any) return;
    chosen_.clear();
    for (size_t bank = 0; bank < banks_.size(); ++bank) {
      for (const Pair& pair : Pairs(map, bank)) {
        if (pair.in == kNoExpert || pays[LeadOf(pair.lead)] <= 0) break;
        chosen_.push_back(
            {pair.lead, {.bank = static_cast<uint32_t>(bank), .in = pair.in, .out = pair.out}});
      }
    }
    std::ranges::sort(chosen_, [](const Chosen& a, const Chosen& b) {
      return std::tie(b.lead, a.move.bank, a.move.in) < std::tie(a.lead, b.move.bank, b.move.in);
    });
    for (size_t i = 0; i < std::min(most, chosen_.size()); ++i) moves->push_back(chosen_[i].move);
  }

  void Forget() override {
    for (Bank& bank : banks_) {
      std::ranges::fill(bank.fast, 0);
      std::ranges::fill(bank.slow, 0);
      std::ranges::fill(bank.picks, 0);
      bank.trials.fill({});
    }
    soon_ = {};
    late_ = {};
    row_ = 0;
    fast_scale_ = 1;
    slow_scale_ = 1;
  }

 private:
  static constexpr double kScaleMax = 1e100;

  struct Chosen {
    double lead;
    ExpertMove move;
  };

  static size_t LeadOf(double lead) {
    size_t at = 0;
    while (at + 1 < kLeads.size() && lead >= kLeads[at + 1]) ++at;
    return at;
  }

  void Rescale() {
    for (Bank& bank : banks_) {
      for (double& count : bank.fast) count /= fast_scale_;
      for (double& count : bank.slow) count /= slow_scale_;
    }
    fast_scale_ = 1;
    slow_scale_ = 1;
  }

  // Into score_; what a pick of the last row adds is about 1.
  std::span<const double> Scores(const Bank& bank) {
    // Products: quotients of every expert would be half of what planning costs.
    const double fast = 1 / fast_scale_;
    const double slow = kSlowWeight / slow_scale_;
    for (size_t expert = 0; expert < bank.fast.size(); ++expert) {
      score_[expert] = bank.fast[expert] * fast + bank.slow[expert] * slow;
    }
    return {score_.data(), bank.fast.size()};
  }

  // The host's experts of the highest scores against the seated ones of the lowest, the highest
  // with the lowest and so on, while the lead is one. The lower expert on a tie.
  std::array<Pair, kPairs> Pairs(const FrameMap& map, size_t bank) {
    const std::span<const double> score = Scores(banks_[bank]);
    const std::span<const int32_t> frames = map.FramesOf(bank);
    std::array<int32_t, kPairs> in;
    std::array<int32_t, kPairs> out;
    in.fill(kNoExpert);
    out.fill(kNoExpert);
    // Keeps `best` sorted; equal ones stay in the order in which they came.
    const auto insert = [&](std::array<int32_t, kPairs>* best, int32_t expert, auto better) {
      const int32_t last = best->back();
      if (last != kNoExpert &&
          !better(score[static_cast<size_t>(expert)], score[static_cast<size_t>(last)])) {
        return;
      }
      for (size_t at = 0; at < kPairs; ++at) {
        int32_t& held = (*best)[at];
        if (held == kNoExpert ||
            better(score[static_cast<size_t>(expert)], score[static_cast<size_t>(held)])) {
          std::swap(held, expert);
          if (expert == kNoExpert) return;
        }
      }
    };
    for (size_t expert = 0; expert < score.size(); ++expert) {
      if (frames[expert] == kOnHost) {
        if (score[expert] > 0) insert(&in, static_cast<int32_t>(expert), std::greater<>());
      } else {
        insert(&out, static_cast<int32_t>(expert), std::less<>());
      }
    }
    std::array<Pair, kPairs> pairs;
    for (size_t at = 0; at < kPairs && in[at] != kNoExpert && out[at] != kNoExpert; ++at) {
      const double lead = score[static_cast<size_t>(in[at])] - score[static_cast<size_t>(out[at])];
      if (lead < kLeads[0]) break;
      pairs[at] = {in[at], out[at], lead};
    }
    return pairs;
  }

  void EndTrials(Bank* bank) {
    for (Trial& trial : bank->trials) {
      if (!trial.running) continue;
      const uint64_t age = row_ - trial.row;
      if (age != kSoon && age != kLate) continue;
      const auto picks = static_cast<double>(bank->Advance(trial.pair) - trial.advance);
      (age == kSoon ? soon_ : late_).Add(LeadOf(trial.pair.lead), picks);
      trial.running = age != kLate;
    }
  }

  // The pairs of a bank take turns, so that small leads are tried too.
  void StartTrial(const FrameMap& map, size_t bank) {
    const uint64_t turn = row_ / kTrialEvery;
    const Pair pair = Pairs(map, bank)[turn % kPairs];
    if (pair.in == kNoExpert) return;
    banks_[bank].trials[turn % kTrials] = {
        .pair = pair, .row = row_, .advance = banks_[bank].Advance(pair), .running = true};
  }

  const ResidencyRates rates_;
  std::vector<Bank> banks_;
  LeadWorth soon_;
  LeadWorth late_;
  uint64_t row_ = 0;
  double fast_scale_ = 1;  // what a pick of the present row adds
  double slow_scale_ = 1;
  std::vector<double> score_;
  std::vector<Chosen> chosen_;
};

}  // namespace

std::unique_ptr<MoveChooser> MakePayback(const FrameMap& map, const ResidencyRates& rates) {
  return std::make_unique<Payback>(map, rates);
}

}  // namespace bloomery::memory
