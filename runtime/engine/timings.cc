#include "runtime/engine/timings.h"

namespace bloomery::engine {
namespace {

double Ratio(double numerator, double denominator) {
  return denominator > 0 ? numerator / denominator : 0.0;
}

}  // namespace

Timings MakeTimings(const PromptStats& prompt, int32_t predicted_n, double predicted_ms) {
  const int32_t steps = predicted_n > 1 ? predicted_n - 1 : 0;
  return {
      .cache_n = prompt.cached,
      .prompt_n = prompt.evaluated,
      .prompt_ms = prompt.ms,
      .prompt_per_token_ms = Ratio(prompt.ms, prompt.evaluated),
      .prompt_per_second = Ratio(1e3 * prompt.evaluated, prompt.ms),
      .predicted_n = predicted_n,
      .predicted_ms = predicted_ms,
      .predicted_per_token_ms = Ratio(predicted_ms, steps),
      .predicted_per_second = Ratio(1e3 * steps, predicted_ms),
  };
}

}  // namespace bloomery::engine
