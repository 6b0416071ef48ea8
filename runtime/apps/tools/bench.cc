#include "runtime/apps/tools/bench.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace bloomery::apps {
namespace {

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

// Feeds slot 0 from `begin` on with ids of a fixed sequence.
class Feeder {
 public:
  Feeder(exec::PassRunner& runner, int64_t rows) : runner_(runner) {
    constexpr uint32_t kSeed = 1;
    std::minstd_rand random(kSeed);
    const auto vocabulary = static_cast<uint32_t>(runner.limits().vocabulary);
    ids_.resize(static_cast<size_t>(rows));
    for (int32_t& id : ids_) id = static_cast<int32_t>(random() % vocabulary);
    pass_.reserve(static_cast<size_t>(runner.limits().rows_max));
  }

  // Rows [begin, end) in passes of at most `batch`; logits of each pass's last row where
  // `each_pass`, else of row end - 1 alone.
  void Run(int64_t begin, int64_t end, int64_t batch, bool each_pass) {
    for (int64_t at = begin; at < end; at += batch) {
      const int64_t stop = std::min(at + batch, end);
      pass_.clear();
      for (int64_t i = at; i < stop; ++i) {
        pass_.push_back({.slot = 0,
                         .index = static_cast<int32_t>(i),
                         .token = ids_[static_cast<size_t>(i)],
                         .logits = i + 1 == (each_pass ? stop : end)});
      }
      runner_.Run(pass_);
    }
  }

 private:
  exec::PassRunner& runner_;
  std::vector<int32_t> ids_;
  std::vector<exec::PassRow> pass_;
};

}  // namespace

std::string BenchCase::Name() const {
  const std::string name =
      prompt > 0 ? "pp" + std::to_string(prompt) : "tg" + std::to_string(tokens);
  return depth > 0 ? name + " @ d" + std::to_string(depth) : name;
}

BenchResult RunBench(exec::PassRunner& runner, const BenchCase& what, int32_t repetitions,
                     const BenchMeter& meter) {
  const int64_t end = what.depth + what.rows();
  const int64_t ubatch = runner.limits().rows_max;
  Feeder feeder(runner, end);
  runner.Cut(0, 0);
  feeder.Run(0, what.depth, ubatch, false);
  BenchResult result{.what = what};
  for (int32_t i = -1; i < repetitions; ++i) {  // -1: the warm-up
    const uint64_t bytes = meter.weight_bytes();
    const double start = meter.seconds();
    feeder.Run(what.depth, end, what.prompt > 0 ? ubatch : 1, what.prompt == 0);
    const double seconds = meter.seconds() - start;
    if (i >= 0) {
      result.rates.push_back(static_cast<double>(what.rows()) / seconds);
      result.byte_rates.push_back(static_cast<double>(meter.weight_bytes() - bytes) / seconds);
    }
    runner.Cut(0, static_cast<int32_t>(what.depth));
  }
  runner.Cut(0, 0);
  Summarise(result);
  return result;
}

void Summarise(BenchResult& result) {
  const auto n = static_cast<double>(result.rates.size());
  result.mean = std::accumulate(result.rates.begin(), result.rates.end(), 0.0) / n;
  result.median = Median(result.rates);
  result.byte_median = Median(result.byte_rates);
  double squares = 0;
  for (const double rate : result.rates) squares += (rate - result.mean) * (rate - result.mean);
  result.deviation = n > 1 ? std::sqrt(squares / (n - 1)) : 0;
}

}  // namespace bloomery::apps
