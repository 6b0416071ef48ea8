// Sampling allocates nothing.
#include <gtest/gtest.h>

#include "runtime/text/sampling.h"
#include "tests/support/allocation_count.h"

namespace bloomery::text {
namespace {

TEST(SamplerAllocationTest, TheCounterSeesAnAllocation) {
  const size_t before = test::AllocationsOfThisThread();
  const std::vector<int> some(100, 1);
  EXPECT_EQ(some.back(), 1);
  EXPECT_EQ(test::AllocationsOfThisThread() - before, 1u);
}

TEST(SamplerAllocationTest, SampleAndAcceptAllocateNothing) {
  using enum SamplerStage;
  constexpr size_t kVocabulary = 5000;
  SamplingParams plain;
  plain.temperature = 0.0;
  SamplingParams everything;
  everything.seed = 5;
  everything.repeat_penalty = 1.2;
  everything.dry_multiplier = 0.7;
  everything.top_n_sigma = 3.0;
  everything.typical_p = 0.98;
  everything.xtc_probability = 0.5;
  everything.dynatemp_range = 0.3;
  everything.n_probs = 20;
  everything.logit_bias = {{4, 1.0f}};
  SamplingParams cut_late = everything;
  cut_late.samplers = {kMinP, kTypicalP, kXtc, kTopP, kTopK, kPenalties, kDry, kTemperature};
  cut_late.post_sampling_probs = true;
  SamplingParams mirostat;
  mirostat.seed = 5;
  mirostat.mirostat = 2;
  for (SamplingParams params : {plain, SamplingParams(), everything, cut_late, mirostat}) {
    params.Validate();
    Sampler sampler(params, {.vocabulary_size = kVocabulary, .context = 512});
    UniformStream uniform(3);
    std::vector<float> row(kVocabulary);
    size_t counted = 0;
    for (int i = 0; i < 200; ++i) {
      for (float& logit : row) logit = static_cast<float>(20.0 * uniform.Next() * uniform.Next());
      const size_t before = test::AllocationsOfThisThread();
      sampler.Accept(sampler.Sample(row).token % 7);
      counted += test::AllocationsOfThisThread() - before;
    }
    EXPECT_EQ(counted, 0u);
  }
}

}  // namespace
}  // namespace bloomery::text
