#include "runtime/apps/tools/bench.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace bloomery::apps {
namespace {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

// Feeds slots from their start on with ids of fixed sequences.
class Feeder {
 public:
  Feeder(exec::PassRunner& runner, int64_t rows, int64_t slots)
      : runner_(runner), rows_(static_cast<size_t>(rows)), slots_(slots) {
    constexpr uint32_t kSeed = 1;
    std::minstd_rand random(kSeed);
    const auto vocabulary = static_cast<uint32_t>(runner.limits().vocabulary);
    ids_.resize(rows_ * static_cast<size_t>(slots));
    for (int32_t& id : ids_) id = static_cast<int32_t>(random() % vocabulary);
    pass_.reserve(static_cast<size_t>(runner.limits().rows_max));
  }

  // Rows [begin, end) of one slot in passes of at most the ubatch; logits of row `end` - 1 where
  // they are wanted.
  void Fill(int64_t slot, int64_t begin, int64_t end, bool logits) {
    const int64_t batch = runner_.limits().rows_max;
    for (int64_t at = begin; at < end; at += batch) {
      const int64_t stop = std::min(at + batch, end);
      pass_.clear();
      for (int64_t i = at; i < stop; ++i) Add(slot, i, logits && i + 1 == end);
      runner_.Run(pass_);
    }
  }

  // Rows [begin, end) of all slots, one of each a pass, with logits.
  void Step(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      pass_.clear();
      for (int64_t slot = 0; slot < slots_; ++slot) Add(slot, i, true);
      runner_.Run(pass_);
    }
  }

  void Cut(int64_t length) {
    for (int64_t slot = 0; slot < slots_; ++slot) {
      runner_.Cut(static_cast<int32_t>(slot), static_cast<int32_t>(length));
    }
  }

 private:
  void Add(int64_t slot, int64_t index, bool logits) {
    pass_.push_back({.slot = static_cast<int32_t>(slot),
                     .index = static_cast<int32_t>(index),
                     .token = ids_[static_cast<size_t>(slot) * rows_ + static_cast<size_t>(index)],
                     .logits = logits});
  }

  exec::PassRunner& runner_;
  size_t rows_;
  int64_t slots_;
  std::vector<int32_t> ids_;  // [slots][rows]
  std::vector<exec::PassRow> pass_;
};

// What the passes between two counts read, in the mean.
void DescribePasses(const BenchCount& before, const BenchCount& after, uint64_t dense_bytes,
                    BenchResult& result) {
  const auto passes = static_cast<double>(std::max<uint64_t>(1, after.passes - before.passes));
  const auto mean = [&](uint64_t BenchCount::* field) {
    return static_cast<double>(after.*field - before.*field) / passes;
  };
  result.pass_experts = mean(&BenchCount::experts_picked);
  result.pass_weight_bytes = mean(&BenchCount::weight_bytes);
  result.pass_least_bytes = mean(&BenchCount::expert_bytes) + static_cast<double>(dense_bytes);
}

}  // namespace

std::string BenchCase::Name() const {
  std::string name = prompt > 0 ? "pp" + std::to_string(prompt) : "tg" + std::to_string(tokens);
  if (slots > 1) name += " x" + std::to_string(slots);
  return depth > 0 ? name + " @ d" + std::to_string(depth) : name;
}

BenchResult RunBench(exec::PassRunner& runner, const BenchCase& what, int32_t repetitions,
                     const BenchMeter& meter) {
  const int64_t end = what.depth + what.rows();
  Feeder feeder(runner, end, what.slots);
  feeder.Cut(0);
  for (int64_t slot = 0; slot < what.slots; ++slot) feeder.Fill(slot, 0, what.depth, false);
  BenchResult result{.what = what};
  const auto run = [&] {
    if (what.prompt > 0) {
      feeder.Fill(0, what.depth, end, true);
    } else {
      feeder.Step(what.depth, end);
    }
  };
  run();  // to warm up
  feeder.Cut(what.depth);
  const BenchCount first = meter.count();
  for (int32_t i = 0; i < repetitions; ++i) {
    if (meter.read_rate) result.read_rates.push_back(meter.read_rate());
    const BenchCount before = meter.count();
    if (meter.timing) meter.timing(true);
    const double start = meter.seconds();
    run();
    const double seconds = meter.seconds() - start;
    if (meter.timing) meter.timing(false);
    const BenchCount after = meter.count();
    const auto read = static_cast<double>(after.weight_bytes - before.weight_bytes);
    result.wait_share += (after.wait_seconds - before.wait_seconds) / seconds / repetitions;
    result.rates.push_back(static_cast<double>(what.rows() * what.slots) / seconds);
    result.byte_rates.push_back(read / seconds);
    feeder.Cut(what.depth);
  }
  DescribePasses(first, meter.count(), meter.dense_bytes, result);
  feeder.Cut(0);
  Summarise(result);
  return result;
}

void Summarise(BenchResult& result) {
  const auto n = static_cast<double>(result.rates.size());
  result.mean = std::accumulate(result.rates.begin(), result.rates.end(), 0.0) / n;
  result.median = Median(result.rates);
  result.byte_median = Median(result.byte_rates);
  result.read_median = Median(result.read_rates);
  double squares = 0;
  for (const double rate : result.rates) squares += (rate - result.mean) * (rate - result.mean);
  result.deviation = n > 1 ? std::sqrt(squares / (n - 1)) : 0;
  if (result.what.tokens > 0 && result.read_median > 0 && result.pass_least_bytes > 0) {
    result.bound =
        static_cast<double>(result.what.slots) * result.read_median / result.pass_least_bytes;
    result.bound_share = result.median / result.bound;
  }
}

}  // namespace bloomery::apps
