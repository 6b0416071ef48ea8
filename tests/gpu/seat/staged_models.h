// The models that tests of stages go over, and the seats of them: all kinds of layers, weights and
// states. Those of integer weights that run.sh makes are there where their variables name them.
#pragma once

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "tests/gpu/seat/placed.h"
#include "tests/gpu/seat/split_options.h"
#include "tests/oracle/seat_fixture.h"

namespace bloomery::test {

struct StagedModel {
  std::string path;
  int32_t layers = 0;
};

inline const StagedModel kMini = {MiniPath(), 3};
inline const StagedModel kSeedling = {SeedlingPath(), 6};

inline std::vector<StagedModel> StagedModels() {
  const std::string mini = SourceDir() + "/tests/data/mini/";
  std::vector<StagedModel> models = {
      kMini, kSeedling, {mini + "qwen35moe/model.gguf", 4}, {mini + "mimo2/model.gguf", 6}};
  if (const char* path = std::getenv("BLOOMERY_TEST_RECURRENT")) models.push_back({path, 3});
  if (const char* path = std::getenv("BLOOMERY_TEST_SLIDING")) models.push_back({path, 4});
  return models;
}

using Cut = std::vector<int32_t>;  // layers of each stage

inline Cut Halves(const StagedModel& model) {
  return {model.layers / 2, model.layers - model.layers / 2};
}
inline Cut Thirds(const StagedModel& model) { return {1, model.layers - 2, 1}; }
// Halves, uneven ones, and three stages.
inline std::set<Cut> CutsOf(const StagedModel& model) {
  return {Halves(model), {1, model.layers - 1}, {model.layers - 1, 1}, Thirds(model)};
}

inline std::string NameOf(const Cut& cut) {
  std::string name;
  for (const int32_t layers : cut) name += (name.empty() ? "" : "+") + std::to_string(layers);
  return name + " layers";
}

// On the first card alone, and in stages.
inline exec::SeatOptions OnOneCard(int32_t slots = 1, int32_t frames = -1) {
  return SplitOptions(TestCards().front(), frames, slots);
}
inline exec::SeatOptions OnStages(const Cut& cut, int32_t slots = 1, int32_t frames = -1) {
  return InStages(OnOneCard(slots, frames), cut);
}

}  // namespace bloomery::test
