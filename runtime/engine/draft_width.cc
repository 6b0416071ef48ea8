#include "runtime/engine/draft_width.h"

#include <algorithm>

namespace bloomery::engine {
namespace {

// Of the newest token in an acceptance: the last twenty or so count.
constexpr double kWeight = 0.05;
// Before any was seen: worth a try.
constexpr double kPrior = 0.6;
// By which drafts must be better than none: less is noise of the measurement.
constexpr double kGainMin = 1.03;
// Each so manieth choice is another than the best.
constexpr uint64_t kProbeEvery = 32;

}  // namespace

DraftWidth::DraftWidth() {
  for (auto& depths : acceptance_) depths.fill(kPrior);
}

void DraftWidth::Cost::Add(double seconds) {
  samples_[count_++ % kSamples] = seconds;
  std::array<double, kSamples> sorted = samples_;
  const size_t held = std::min(count_, kSamples);
  std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(held));
  median_ = sorted[held / 2];
}

void DraftWidth::LearnToken(int32_t trust, int32_t depth, bool right) {
  double& acceptance = At(trust, depth);
  acceptance += kWeight * ((right ? 1.0 : 0.0) - acceptance);
}

void DraftWidth::LearnPass(int32_t rows, double seconds) {
  if (rows <= kRowsMax && seconds > 0) passes_[static_cast<size_t>(rows)].Add(seconds);
}

void DraftWidth::LearnStep(double seconds) {
  if (seconds > 0) step_.Add(seconds);
}

// Of a row count that is not known yet, what fewer rows cost: so it is tried, and then known.
double DraftWidth::PassSeconds(int32_t rows) const {
  for (int32_t r = std::min(rows, kRowsMax); r >= 0; --r) {
    const Cost& cost = passes_[static_cast<size_t>(r)];
    if (cost.known()) return cost.median();
  }
  return 0;
}

int32_t DraftWidth::Best(int32_t rows, std::span<const DraftCandidate> candidates) const {
  double tokens = rows;
  int32_t steps = 0;
  double best_rate = tokens / PassSeconds(rows) * kGainMin;
  int32_t best = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    tokens += candidates[i].p;
    steps = std::max(steps, candidates[i].depth + 1);
    const double seconds = PassSeconds(rows + static_cast<int32_t>(i) + 1) + step_.median() * steps;
    if (tokens / seconds <= best_rate) continue;
    best_rate = tokens / seconds;
    best = static_cast<int32_t>(i) + 1;
  }
  return best;
}

int32_t DraftWidth::Choose(int32_t rows, std::span<const DraftCandidate> candidates) {
  const auto all = static_cast<int32_t>(candidates.size());
  // What no drafts cost is measured first.
  if (all == 0 || !passes_[static_cast<size_t>(std::min(rows, kRowsMax))].known()) return 0;
  const int32_t best = Best(rows, candidates);
  if (++turn_ % kProbeEvery != 0) return best;
  if (turn_ / kProbeEvery % 2 == 0) return best == all ? 0 : all;
  return best > 0 ? 0 : 1;
}

}  // namespace bloomery::engine
