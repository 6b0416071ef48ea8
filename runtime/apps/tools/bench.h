// Measures how fast a seat runs prompts and single tokens: the passes alone, without tokenising,
// sampling or serving. Uses slot 0 and leaves it empty. The runner's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/exec/pass.h"

namespace bloomery::apps {

// One row of the table: `prompt` rows in passes as large as the seat runs, or `tokens` rows one a
// pass, after `depth` rows that are not timed. One of the two is 0.
struct BenchCase {
  int64_t prompt = 0;
  int64_t tokens = 0;
  int64_t depth = 0;

  int64_t rows() const { return prompt + tokens; }
  std::string Name() const;  // "pp512", "tg128 @ d4096"
};

// Rows a second and weight bytes a second of each repetition, and what they come to.
struct BenchResult {
  BenchCase what;
  std::vector<double> rates = {};
  std::vector<double> byte_rates = {};
  double mean = 0;
  double deviation = 0;  // standard deviation of a sample; 0 for a single repetition
  double median = 0;
  double byte_median = 0;
};

// What is read around each repetition.
struct BenchMeter {
  std::function<double()> seconds;         // on a clock that only moves forward
  std::function<uint64_t()> weight_bytes;  // read by the kernels so far
};

// Runs the case once to warm up, then `repetitions` times. Token ids are pseudo-random, the same in
// every run. A prompt computes the logits of its last row, a token those of its own.
BenchResult RunBench(exec::PassRunner& runner, const BenchCase& what, int32_t repetitions,
                     const BenchMeter& meter);

// Fills mean, deviation and medians from the rates (at least one of each).
void Summarise(BenchResult& result);

}  // namespace bloomery::apps
