// One model with its goldens, and what is asked of a seat that runs it: logits, routing, hidden
// states, greedy text and held-out rows, by the columns of the oracles' tolerances. Expectations
// are gtest's: they fail the test that calls them.
#pragma once

#include <string>
#include <vector>

#include "tests/oracle/compare.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/safetensors.h"

namespace bloomery::test {

// One model with its goldens.
struct Subject {
  std::string model;
  std::string golden_folder;
  ExactTolerance exact = {};
  BandTolerance band = {};
  size_t loose_picks = 0;       // weights past router_weights
  double router_logits = 1e-5;  // of the prompt `long`
  double router_logits_mid = 1e-5;
  double router_weights = 2e-6;
  bool sigmoid_router = false;  // weights are shares of the gates' sum, not of a softmax
  double eval_row_exact = 2e-6;
  double eval_mean_band = 2e-4;
  double eval_row_band = 1e-3;

  Safetensors Golden() const { return Safetensors(golden_folder + "/golden.safetensors"); }
};

// A context of 512 in one pass.
exec::SeatOptions OracleOptions(bl_dtype kv_type);

// Every prompt in batches of so many rows by the float32 column, and its greedy text.
void ExpectPromptsExact(const Subject& subject, const exec::SeatOptions& options,
                        const std::vector<int32_t>& batches);
void ExpectPromptsInBand(const Subject& subject, const exec::SeatOptions& options);

// Mean cross-entropy of each held-out row, golden and got.
struct EvalRows {
  std::vector<double> got, golden;
  double mean_golden = 0;
  double mean() const;
};
EvalRows Evaluate(const Subject& subject, const exec::SeatOptions& options);
void ExpectEval(const EvalRows& rows, double row_bound, double mean_bound);

// Hidden states and routing by the float32 column.
void ExpectInnerValues(const Subject& subject);
// The half-precision column: rows of hidden states within 2 % of their norm, router logits and
// weights within 2e-2, the picks equal where the last of them leads the next expert by more than
// that.
void ExpectInnerValuesInBand(const Subject& subject, const std::string& prompt);

}  // namespace bloomery::test
