// Sampling allocates nothing: this program's operator new counts.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "runtime/text/sampling.h"

namespace {
thread_local size_t allocations = 0;
}  // namespace

// Not inlined: the compiler would take malloc and free for a mismatched pair.
// NOLINTBEGIN(cppcoreguidelines-no-malloc): this is operator new.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
// NOLINTEND(cppcoreguidelines-no-malloc)

namespace bloomery::text {
namespace {

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
      const size_t before = allocations;
      sampler.Accept(sampler.Sample(row).token % 7);
      counted += allocations - before;
    }
    EXPECT_EQ(counted, 0u);
  }
}

}  // namespace
}  // namespace bloomery::text
