#include "tests/oracle/seat_fixture.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/apps/folder/folder_model.h"
#include "runtime/plugin/select.h"

namespace bloomery::test {

namespace {

std::string Setting(const char* name, const char* otherwise) {
  const char* given = std::getenv(name);
  return given != nullptr && *given != '\0' ? given : otherwise;
}

}  // namespace

std::string SourceDir() { return Setting("BLOOMERY_SOURCE_DIR", BLOOMERY_SOURCE_DIR); }
std::string BinaryDir() { return Setting("BLOOMERY_BINARY_DIR", BLOOMERY_BINARY_DIR); }

LoadedSeat LoadThroughPlugin(const std::string& model_path, exec::SeatOptions options) {
  if (options.device == exec::SeatOptions().device) {
    options.device = Setting("BLOOMERY_TEST_DEVICE", options.device.c_str());
  }
  if (options.host_budget == 0) {
    options.host_budget = std::stoull(Setting("BLOOMERY_TEST_HOST_GIB", "0")) << 30;
  }
  LoadedSeat loaded;
  const plugin::SearchFolder built = {.path = BinaryDir() + "/plugins", .origin = "the build"};
  const plugin::Discovery discovery = plugin::Discover({&built, 1});
  loaded.model = std::make_unique<model::ModelFile>(apps::OpenModelAt(model_path, discovery));
  const plugin::Selection selected = plugin::Select(*loaded.model, discovery);
  loaded.instance = std::make_unique<plugin::Instance>(selected.plugin, *loaded.model,
                                                       exec::InstanceOptionsOf(options));
  loaded.seat = exec::LoadSeat(*loaded.model, *loaded.instance, options);
  return loaded;
}

std::string MiniPath() { return SourceDir() + "/tests/data/mini/qwen3moe/model.gguf"; }
std::string SeedlingPath() { return SourceDir() + "/runtime/assets/seedling-Q4_K_M.gguf"; }

std::vector<std::vector<float>> RunAll(exec::PassRunner& runner, std::span<const int32_t> ids,
                                       int32_t batch, int32_t slot) {
  std::vector<std::vector<float>> logits;
  std::vector<exec::PassRow> rows;
  for (size_t begin = 0; begin < ids.size(); begin += static_cast<size_t>(batch)) {
    const size_t end = std::min(ids.size(), begin + static_cast<size_t>(batch));
    rows.clear();
    for (size_t i = begin; i < end; ++i) {
      rows.push_back(
          {.slot = slot, .index = static_cast<int32_t>(i), .token = ids[i], .logits = true});
    }
    runner.Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span<const float> row = runner.Logits(static_cast<int32_t>(i));
      logits.emplace_back(row.begin(), row.end());
    }
  }
  return logits;
}

std::vector<std::vector<float>> GoOn(exec::PassRunner& runner, std::span<const int32_t> ids,
                                     int32_t first, int32_t slot) {
  std::vector<std::vector<float>> logits;
  for (const int32_t id : ids) {
    const exec::PassRow row{.slot = slot, .index = first++, .token = id, .logits = true};
    runner.Run({&row, 1});
    const std::span<const float> values = runner.Logits(0);
    logits.emplace_back(values.begin(), values.end());
  }
  return logits;
}

int32_t Argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<int32_t> Greedy(exec::PassRunner& runner, std::vector<float> last_logits,
                            int32_t length, size_t most) {
  std::vector<int32_t> ids;
  while (true) {
    const int32_t id = Argmax(last_logits);
    ids.push_back(id);
    if (id == 0 || id == 2 || ids.size() == most) return ids;
    const exec::PassRow row = {.slot = 0, .index = length++, .token = id, .logits = true};
    runner.Run({&row, 1});
    const std::span<const float> logits = runner.Logits(0);
    last_logits.assign(logits.begin(), logits.end());
  }
}

}  // namespace bloomery::test
