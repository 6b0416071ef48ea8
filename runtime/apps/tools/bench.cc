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
    ids_.resize(rows_ * static_cast<size_t>(slots));
    Draw();
    pass_.reserve(static_cast<size_t>(runner.limits().rows_max));
  }

  // Other ids than before.
  void Draw() {
    const auto vocabulary = static_cast<uint32_t>(runner_.limits().vocabulary);
    for (int32_t& id : ids_) id = static_cast<int32_t>(random_() % vocabulary);
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

  // Rows [begin, end) of all slots, one of each a pass, with logits. `greedy`: what they choose are
  // the ids of the rows after them.
  void Step(int64_t begin, int64_t end, bool greedy) {
    for (int64_t i = begin; i < end; ++i) {
      pass_.clear();
      for (int64_t slot = 0; slot < slots_; ++slot) Add(slot, i, true);
      runner_.Run(pass_);
      if (!greedy || i + 1 == static_cast<int64_t>(rows_)) continue;
      for (int64_t slot = 0; slot < slots_; ++slot) {
        ids_[static_cast<size_t>(slot) * rows_ + static_cast<size_t>(i) + 1] =
            Best(static_cast<int32_t>(slot));
      }
    }
  }

  void Cut(int64_t length) {
    for (int64_t slot = 0; slot < slots_; ++slot) {
      const auto of = static_cast<int32_t>(slot);
      const auto to = static_cast<int32_t>(length);
      if (runner_.Keepable(of, to) < to && length == marked_) {
        runner_.RestoreCheckpoint(of, to, states_[static_cast<size_t>(slot)]);
      } else {
        runner_.Cut(of, to);
      }
    }
  }

  // All slots hold `length` rows and will be cut back to them: keeps what cannot be cut by
  // position.
  void Mark(int64_t length) {
    marked_ = length;
    if (runner_.CheckpointBytes() == 0 || length == 0) return;
    states_.resize(static_cast<size_t>(slots_));
    for (int64_t slot = 0; slot < slots_; ++slot) {
      std::vector<std::byte>& state = states_[static_cast<size_t>(slot)];
      state.resize(runner_.CheckpointBytes());
      runner_.ReadCheckpoint(static_cast<int32_t>(slot), state);
    }
  }

 private:
  // The lower id on a tie.
  int32_t Best(int32_t row) const {
    const std::span<const exec::BestLogit> best = runner_.BestLogits(row);
    if (!best.empty()) return best.front().token;
    const std::span<const float> logits = runner_.Logits(row);
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  }

  void Add(int64_t slot, int64_t index, bool logits) {
    pass_.push_back({.slot = static_cast<int32_t>(slot),
                     .index = static_cast<int32_t>(index),
                     .token = ids_[static_cast<size_t>(slot) * rows_ + static_cast<size_t>(index)],
                     .logits = logits});
  }

  static constexpr uint32_t kSeed = 1;

  exec::PassRunner& runner_;
  std::minstd_rand random_{kSeed};
  size_t rows_;
  int64_t slots_;
  std::vector<int32_t> ids_;  // [slots][rows]
  std::vector<exec::PassRow> pass_;
  int64_t marked_ = 0;
  std::vector<std::vector<std::byte>> states_;  // behind `marked_` rows, where there are any
};

// What was counted between two looks.
BenchCount Less(BenchCount after, const BenchCount& before) {
  after.passes -= before.passes;
  after.weight_bytes -= before.weight_bytes;
  after.experts_picked -= before.experts_picked;
  after.expert_bytes -= before.expert_bytes;
  after.wait_seconds -= before.wait_seconds;
  after.picks -= before.picks;
  after.card_picks -= before.card_picks;
  after.moves -= before.moves;
  return after;
}

void Add(const BenchCount& more, BenchCount* sum) {
  sum->passes += more.passes;
  sum->weight_bytes += more.weight_bytes;
  sum->experts_picked += more.experts_picked;
  sum->expert_bytes += more.expert_bytes;
  sum->wait_seconds += more.wait_seconds;
  sum->picks += more.picks;
  sum->card_picks += more.card_picks;
  sum->moves += more.moves;
}

// What the passes of all repetitions read, in the mean.
void DescribePasses(const BenchCount& of_runs, int32_t repetitions, uint64_t dense_bytes,
                    BenchResult& result) {
  const auto passes = static_cast<double>(std::max<uint64_t>(1, of_runs.passes));
  const auto mean = [&](uint64_t count) { return static_cast<double>(count) / passes; };
  result.pass_experts = mean(of_runs.experts_picked);
  result.pass_weight_bytes = mean(of_runs.weight_bytes);
  result.pass_least_bytes = mean(of_runs.expert_bytes) + static_cast<double>(dense_bytes);
  if (of_runs.picks > 0) {
    result.card_share =
        static_cast<double>(of_runs.card_picks) / static_cast<double>(of_runs.picks);
  }
  result.moves = static_cast<double>(of_runs.moves) / repetitions;
}

}  // namespace

std::string BenchCase::Name() const {
  std::string name = prompt > 0 ? "pp" + std::to_string(prompt) : "tg" + std::to_string(tokens);
  if (slots > 1) name += " x" + std::to_string(slots);
  if (depth > 0) name += " @ d" + std::to_string(depth);
  return greedy ? name + ", greedy" : name;
}

BenchResult RunBench(exec::PassRunner& runner, const BenchCase& what, int32_t repetitions,
                     const BenchMeter& meter) {
  const int64_t end = what.depth + what.rows();
  Feeder feeder(runner, end, what.slots);
  const auto fill = [&] {
    for (int64_t slot = 0; slot < what.slots; ++slot) feeder.Fill(slot, 0, what.depth, false);
    feeder.Mark(what.depth);
  };
  const bool greedy = what.greedy && what.tokens > 0;
  // Slots at their depth, before each run.
  const auto prepare = [&] {
    if (greedy) {
      feeder.Cut(0);
      feeder.Draw();
      feeder.Step(0, what.depth, true);
      feeder.Cut(0);
    }
    if (meter.reset) meter.reset();
    if (greedy) fill();
    if (meter.reset) {
      // A row that is taken back: the reset is over, and what the prompt picked is counted, before
      // time is taken.
      feeder.Cut(what.depth);
      feeder.Fill(0, what.depth, what.depth + 1, false);
    }
    feeder.Cut(what.depth);
  };
  BenchResult result{.what = what};
  const auto run = [&] {
    if (what.prompt > 0) {
      feeder.Fill(0, what.depth, end, true);
    } else {
      feeder.Step(what.depth, end, greedy);
    }
  };
  feeder.Cut(0);
  if (!greedy) fill();
  prepare();
  run();  // to warm up
  BenchCount sum;
  for (int32_t i = 0; i < repetitions; ++i) {
    prepare();
    if (meter.read_rate) result.read_rates.push_back(meter.read_rate());
    const BenchCount before = meter.count();
    if (meter.timing) meter.timing(true);
    const double start = meter.seconds();
    run();
    const double seconds = meter.seconds() - start;
    if (meter.timing) meter.timing(false);
    const BenchCount of_run = Less(meter.count(), before);
    result.wait_share += of_run.wait_seconds / seconds / repetitions;
    result.rates.push_back(static_cast<double>(what.rows() * what.slots) / seconds);
    result.byte_rates.push_back(static_cast<double>(of_run.weight_bytes) / seconds);
    Add(of_run, &sum);
  }
  DescribePasses(sum, repetitions, meter.dense_bytes, result);
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
