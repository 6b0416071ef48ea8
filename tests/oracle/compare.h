// Comparing a run with an oracle's golden outputs, by the tolerance columns of the oracle set. Each
// function gives the list of what does not hold, so that a test can also show that a wrong golden
// is noticed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/safetensors.h"

namespace bloomery::test {

using Logits = std::vector<std::vector<float>>;  // one row a position
using Findings = std::vector<std::string>;

// "float32 activations and KV". `worst` is the bound on a single logit: 1e-4 in the large set, 2e-4
// in the mini set; the mean over all compared logits is at most 1e-5.
struct ExactTolerance {
  double worst = 1e-4;
  double mean = 1e-5;
};

// top_logits, logsumexp, last_logits and the first id of every position of prompt `p`.
Findings CompareExact(const Safetensors& golden, const std::string& prompt, const Logits& logits,
                      const ExactTolerance& tolerance);

// "bf16/f16 activations, f16 KV" and the rows of quantised files. The median, the percentile and
// the flipped share are of prompts of 256 positions and more; the worst and the first ids of all.
struct BandTolerance {
  double median = 1.5e-2;  // of each position's worst top-8 difference
  double percentile_95 = 4e-2;
  // Positions above this had an expert flipped; none: their share is not looked at.
  std::optional<double> flipped = 5e-2;
  double flipped_share = 0.02;
  double worst = 2.0;
  double first_id_gap = 2e-2;  // first ids are equal where the golden's gap is wider
};

Findings CompareBand(const Safetensors& golden, const std::string& prompt, const Logits& logits,
                     const BandTolerance& tolerance);

// |got - expected| <= bound for all; names the tensor and the worst place.
Findings CompareValues(const std::string& name, std::span<const float> got,
                       std::span<const float> expected, double bound);

// Expert ids of each row as sets, and the weights by id.
Findings CompareRouting(const std::string& name, size_t used, std::span<const int32_t> ids,
                        std::span<const float> weights, std::span<const int32_t> golden_ids,
                        std::span<const float> golden_weights, double weight_bound);

double LogSumExp(std::span<const float> logits);

// Mean cross-entropy of ids[1 …] under the logits of the rows before them.
double MeanNll(const Logits& logits, std::span<const int32_t> ids);

}  // namespace bloomery::test
