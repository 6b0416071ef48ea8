#include "tests/oracle/compare.h"

#include <algorithm>
#include <cmath>

namespace bloomery::test {
namespace {

constexpr int64_t kTop = 8;
// Fewer positions are too few for a percentile of 95.
constexpr size_t kSharePositions = 256;

std::string At(const std::string& what, size_t position, double got, double expected) {
  return what + " at " + std::to_string(position) + ": " + std::to_string(got) + ", golden " +
         std::to_string(expected) + ", off by " + std::to_string(std::abs(got - expected));
}

// Collects differences of one kind and judges worst and mean.
class Differences {
 public:
  Differences(std::string what, const ExactTolerance& tolerance)
      : what_(std::move(what)), tolerance_(tolerance) {}

  void Add(size_t position, double got, double expected) {
    const double difference = std::abs(got - expected);
    sum_ += difference;
    ++count_;
    // Not "greater": a NaN must be found.
    if (!(difference <= tolerance_.worst)) findings_.push_back(At(what_, position, got, expected));
  }
  void Finish(Findings* out) {
    const double mean = sum_ / static_cast<double>(count_);
    if (!(mean <= tolerance_.mean)) {
      findings_.push_back(what_ + ": mean difference " + std::to_string(mean * 1e6) + "e-6");
    }
    out->insert(out->end(), findings_.begin(), findings_.end());
  }

 private:
  std::string what_;
  ExactTolerance tolerance_;
  double sum_ = 0;
  size_t count_ = 0;
  Findings findings_;
};

int32_t First(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

double LogSumExp(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

double MeanNll(const Logits& logits, std::span<const int32_t> ids) {
  double sum = 0;
  for (size_t i = 1; i < ids.size(); ++i) {
    sum += LogSumExp(logits[i - 1]) - logits[i - 1][static_cast<size_t>(ids[i])];
  }
  return sum / static_cast<double>(ids.size() - 1);
}

Findings CompareExact(const Safetensors& golden, const std::string& prompt, const Logits& logits,
                      const ExactTolerance& tolerance) {
  Findings findings;
  const GoldenTensor& top_ids = golden.Get(prompt + ".top_ids");
  const GoldenTensor& top = golden.Get(prompt + ".top_logits");
  const GoldenTensor& sums = golden.Get(prompt + ".logsumexp");
  const GoldenTensor& last = golden.Get(prompt + ".last_logits");
  if (logits.size() != static_cast<size_t>(top.rows())) return {"the number of positions differs"};
  Differences top_differences(prompt + ".top_logits", tolerance);
  Differences sum_differences(prompt + ".logsumexp", tolerance);
  Differences last_differences(prompt + ".last_logits", tolerance);
  for (size_t t = 0; t < logits.size(); ++t) {
    for (size_t k = 0; k < kTop; ++k) {
      const auto id = static_cast<size_t>(top_ids.ints[t * kTop + k]);
      top_differences.Add(t, logits[t][id], top.floats[t * kTop + k]);
    }
    sum_differences.Add(t, LogSumExp(logits[t]), sums.floats[t]);
    if (First(logits[t]) != top_ids.ints[t * kTop]) {
      findings.push_back(prompt + ": first id at " + std::to_string(t) + " is " +
                         std::to_string(First(logits[t])) + ", golden " +
                         std::to_string(top_ids.ints[t * kTop]));
    }
  }
  const auto width = static_cast<size_t>(last.width());
  const size_t first_row = logits.size() - static_cast<size_t>(last.rows());
  for (size_t i = 0; i < last.floats.size(); ++i) {
    last_differences.Add(i, logits[first_row + i / width][i % width], last.floats[i]);
  }
  top_differences.Finish(&findings);
  sum_differences.Finish(&findings);
  last_differences.Finish(&findings);
  return findings;
}

Findings CompareBand(const Safetensors& golden, const std::string& prompt, const Logits& logits,
                     const BandTolerance& tolerance) {
  Findings findings;
  const GoldenTensor& top_ids = golden.Get(prompt + ".top_ids");
  const GoldenTensor& top = golden.Get(prompt + ".top_logits");
  if (logits.size() != static_cast<size_t>(top.rows())) return {"the number of positions differs"};
  std::vector<double> worst;
  size_t flipped = 0;
  for (size_t t = 0; t < logits.size(); ++t) {
    double of_position = 0;
    for (size_t k = 0; k < kTop; ++k) {
      const auto id = static_cast<size_t>(top_ids.ints[t * kTop + k]);
      const double difference = std::abs(double{logits[t][id]} - top.floats[t * kTop + k]);
      // A NaN stays the worst there is, and sorts.
      of_position = std::isfinite(difference) ? std::max(of_position, difference) : INFINITY;
    }
    worst.push_back(of_position);
    if (tolerance.flipped && !(of_position <= *tolerance.flipped)) ++flipped;
    const double gap = double{top.floats[t * kTop]} - top.floats[t * kTop + 1];
    if (gap > tolerance.first_id_gap && First(logits[t]) != top_ids.ints[t * kTop]) {
      findings.push_back(prompt + ": first id at " + std::to_string(t) + " differs, golden gap " +
                         std::to_string(gap));
    }
  }
  std::sort(worst.begin(), worst.end());
  const auto check = [&](const char* what, double got, double bound) {
    if (!(got <= bound)) {
      findings.push_back(prompt + ": " + what + " of the worst top-8 differences is " +
                         std::to_string(got) + ", bound " + std::to_string(bound));
    }
  };
  check("the largest", worst.back(), tolerance.worst);
  if (worst.size() < kSharePositions) return findings;
  check("the median", worst[worst.size() / 2], tolerance.median);
  check("the 95th percentile", worst[worst.size() * 95 / 100], tolerance.percentile_95);
  check("the flipped share", static_cast<double>(flipped) / static_cast<double>(worst.size()),
        tolerance.flipped_share);
  return findings;
}

Findings CompareValues(const std::string& name, std::span<const float> got,
                       std::span<const float> expected, double bound) {
  if (got.size() != expected.size()) {
    return {name + " has " + std::to_string(got.size()) + " values, golden " +
            std::to_string(expected.size())};
  }
  Findings findings;
  double worst = bound;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(double{got[i]} - expected[i]);
    if (difference <= worst) continue;
    worst = difference;
    findings = {At(name, i, got[i], expected[i])};
  }
  return findings;
}

Findings CompareRouting(const std::string& name, size_t used, std::span<const int32_t> ids,
                        std::span<const float> weights, std::span<const int32_t> golden_ids,
                        std::span<const float> golden_weights, double weight_bound) {
  Findings findings;
  if (ids.size() != golden_ids.size()) return {name + ": the number of picks differs"};
  using Pick = std::pair<int32_t, float>;
  for (size_t row = 0; row < ids.size() / used; ++row) {
    std::vector<Pick> got, expected;
    for (size_t i = row * used; i < (row + 1) * used; ++i) {
      got.emplace_back(ids[i], weights[i]);
      expected.emplace_back(golden_ids[i], golden_weights[i]);
    }
    std::sort(got.begin(), got.end());
    std::sort(expected.begin(), expected.end());
    for (size_t i = 0; i < used; ++i) {
      if (got[i].first != expected[i].first) {
        findings.push_back(name + ": row " + std::to_string(row) + " picks other experts");
        break;
      }
      if (!(std::abs(got[i].second - expected[i].second) <= weight_bound)) {
        findings.push_back(At(name + " weight", row, got[i].second, expected[i].second));
      }
    }
  }
  return findings;
}

}  // namespace bloomery::test
