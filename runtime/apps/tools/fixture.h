// Writes a model file of a real model's shapes, tensor names and types with pseudo-random weights:
// for tests of speed, memory and routing, never for text. The same arguments give the same bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/apps/tools/fixture_recipe.h"
#include "runtime/model/metadata.h"
#include "runtime/model/quant_mix.h"

namespace bloomery::apps {

struct FixtureOptions {
  std::string architecture;
  uint64_t seed = 1;
  double locality = 0;     // share of picks that follow the token's topic; docs/tools.md
  double persistence = 0;  // share of greedy steps that stay with the topic; needs a locality
  bool even = false;       // routers use all experts alike; without a locality
  int32_t threads = 1;
};

// `tokenizer` gives the keys "tokenizer.…"; its vocabulary is padded to the recipe's with unused
// tokens. Throws Error(kUsage) when it is larger, Error(kUnsupported) for a type this build does
// not write, errors of the recipe and of writing. `progress` gets bytes written and in all.
void WriteFixture(const std::string& path, const FixtureRecipe& recipe, const model::QuantMix& mix,
                  const model::Metadata& tokenizer, const FixtureOptions& options,
                  const std::function<void(uint64_t, uint64_t)>& progress);

}  // namespace bloomery::apps
