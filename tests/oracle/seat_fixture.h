// A model file, or a folder, served through the plugin that takes it, as it was built: the plugin's
// binary is loaded from the build tree, so these tests cross the ABI.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/exec/seat.h"
#include "runtime/model/inventory.h"
#include "runtime/plugin/instance.h"
#include "runtime/plugin/library.h"

namespace bloomery::test {

struct LoadedSeat {
  std::unique_ptr<model::ModelFile> model;
  std::unique_ptr<plugin::Instance> instance;
  std::unique_ptr<exec::Seat> seat;
};

// On the device that options.device names; where that is the default, on the one that
// $BLOOMERY_TEST_DEVICE names, so that the same tests hold a card to the same goldens. Without a
// budget of the host's memory $BLOOMERY_TEST_HOST_GIB is it, where a machine shows less than it
// has.
LoadedSeat LoadThroughPlugin(const std::string& model_path, exec::SeatOptions options);

// The tree's and the build's top folders: $BLOOMERY_SOURCE_DIR and $BLOOMERY_BINARY_DIR where they
// are set (tests that run on another machine than they were built on), else where it was built.
std::string SourceDir();
std::string BinaryDir();

std::string MiniPath();      // tests/data/mini/qwen3moe/model.gguf
std::string SeedlingPath();  // the committed Q4_K_M file

// Logits of every row of `ids`, run in slot `slot` as its rows 0, 1, … in batches of `batch`.
std::vector<std::vector<float>> RunAll(exec::PassRunner& runner, std::span<const int32_t> ids,
                                       int32_t batch, int32_t slot = 0);

// Logits of every row of `ids`, run one row a pass in slot `slot` as its rows `first`, first + 1,
// ….
std::vector<std::vector<float>> GoOn(exec::PassRunner& runner, std::span<const int32_t> ids,
                                     int32_t first, int32_t slot);

// Argmax continuation after `ids` (already run, last logits given) until id 0 or 2 or `most` ids.
std::vector<int32_t> Greedy(exec::PassRunner& runner, std::vector<float> last_logits,
                            int32_t length, size_t most);

int32_t Argmax(std::span<const float> logits);  // the lower id on a tie

}  // namespace bloomery::test
