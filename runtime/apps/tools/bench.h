// Measures how fast a seat runs prompts and single tokens: the passes alone, without tokenising,
// sampling or serving. Uses slots 0 to `slots` - 1 and leaves them empty. The runner's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/exec/pass.h"

namespace bloomery::apps {

// One row of the table: `prompt` rows of slot 0 in passes as large as the seat runs, or `tokens`
// passes of one row of each of `slots` slots, after `depth` rows a slot that are not timed. One of
// prompt and tokens is 0.
struct BenchCase {
  int64_t prompt = 0;
  int64_t tokens = 0;
  int64_t depth = 0;
  int64_t slots = 1;
  bool greedy = false;  // of tokens

  int64_t rows() const { return prompt + tokens; }  // of each slot
  std::string Name() const;                         // "pp512", "tg128 x4 @ d4096, greedy"
};

// What the seat counted so far.
struct BenchCount {
  uint64_t passes = 0;
  uint64_t weight_bytes = 0;    // read, as the kernels count
  uint64_t experts_picked = 0;  // distinct ones, over all banks and passes
  uint64_t expert_bytes = 0;    // what reading each of those once takes
  double wait_seconds = 0;      // of one thread, for the others at the ends of steps
  uint64_t picks = 0;           // of banks that are split between card and host,
  uint64_t card_picks = 0;      // and of these, what was on the card
  uint64_t moves = 0;           // experts that came to the card
};

// Rows a second (of all slots) and weight bytes a second of each repetition, the rate at which the
// pool alone reads memory, measured before each, and what they come to.
struct BenchResult {
  BenchCase what;
  std::vector<double> rates = {};
  std::vector<double> byte_rates = {};
  std::vector<double> read_rates = {};  // bytes a second; empty where it was not measured
  double mean = 0;
  double deviation = 0;  // standard deviation of a sample; 0 for a single repetition
  double median = 0;
  double byte_median = 0;
  double read_median = 0;

  // Means of the timed passes.
  double pass_experts = 0;       // distinct experts picked
  double pass_weight_bytes = 0;  // read
  double pass_least_bytes = 0;   // each distinct expert once, and all dense weights
  double wait_share = 0;         // of the time: one thread waiting for others at the ends of steps
  double card_share = -1;        // of the picks of split banks, on the card; -1: nothing is split
  double moves = 0;              // experts that came to the card, a repetition

  double predicted = 0;  // rows a second by the planner's model (memory/predict.h); 0: none

  // Of single tokens: rows a second if the pool did nothing but read each pass's least bytes once,
  // and the median's share of it. 0 where the read rate was not measured.
  double bound = 0;
  double bound_share = 0;
};

// What is read around each repetition.
struct BenchMeter {
  std::function<double()> seconds;  // on a clock that only moves forward
  std::function<BenchCount()> count;
  std::function<double()> read_rate = {};    // bytes a second; may be empty
  std::function<void(bool on)> timing = {};  // called around what is timed; may be empty
  // Called before each repetition, so that none lives on what residency learned from another; may
  // be empty.
  std::function<void()> reset = {};
  uint64_t dense_bytes = 0;  // weights read by each pass whatever its rows
};

// Runs the case once to warm up, then `repetitions` times. Token ids are pseudo-random, the same in
// every run, others in each slot. A prompt computes the logits of its last row, a token those of
// its own. Greedy tokens are the model's choice, as in decoding a text; each repetition has another
// text, which begins with a drawn id, and of which the rows of the depth are run as a prompt.
BenchResult RunBench(exec::PassRunner& runner, const BenchCase& what, int32_t repetitions,
                     const BenchMeter& meter);

// Fills mean, deviation, medians and bound from the rates (at least one of each) and the passes'
// least bytes.
void Summarise(BenchResult& result);

}  // namespace bloomery::apps
