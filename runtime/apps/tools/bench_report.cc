#include "runtime/apps/tools/bench_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/memory/plan.h"

namespace bloomery::apps {
namespace {

std::string Fixed(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

// A dash for what was not measured.
std::string OrDash(double value) { return value > 0 ? Fixed(value) : "–"; }

// What split banks found on the card, and experts that came there.
std::string OnCard(const BenchResult& result) {
  if (result.card_share < 0) return "– | –";
  return Fixed(100 * result.card_share) + " % | " + Fixed(result.moves);
}

// Shares of the tensor bytes by type, largest first, those below half a percent left out.
std::string TypeShares(const model::ModelFile& model) {
  std::map<model::TensorType, uint64_t> bytes;
  for (const model::TensorInfo& tensor : model.tensors()) bytes[tensor.type] += tensor.bytes;
  std::vector<std::pair<model::TensorType, uint64_t>> order(bytes.begin(), bytes.end());
  std::ranges::stable_sort(order, std::greater(), [](const auto& entry) { return entry.second; });
  std::string text;
  for (const auto& [type, count] : order) {
    const double share =
        100.0 * static_cast<double>(count) / static_cast<double>(model.tensor_bytes());
    const auto percent = std::lround(share);
    if (percent == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(model::Info(type).name) + " " +
            std::to_string(percent) + " %";
  }
  return text;
}

}  // namespace

void DescribeFile(const model::ModelFile& model, BenchSetting& setting) {
  const model::Metadata& metadata = model.metadata();
  setting.file = std::filesystem::path(model.path()).filename().string();
  setting.model = std::string(
      metadata.FindString("general.name").value_or(metadata.GetString("general.architecture")));
  setting.file_bytes = model.tensor_bytes();
  for (const model::TensorInfo& tensor : model.tensors()) {
    setting.parameters += tensor.ne[0] * tensor.rows();
  }
  setting.types = TypeShares(model);
}

std::string MarkdownHeader(const BenchSetting& setting) {
  const Machine& machine = setting.machine;
  return "machine: " + machine.cpu + ", " + std::to_string(machine.cores) + " cores, load " +
         Fixed(machine.load) + " at the start\n" + "file: " + setting.file + ", " +
         memory::FormatBytes(setting.file_bytes) + ": " + setting.types + "\n" +
         "build: " + std::string(setting.build.version) + " " + std::string(setting.build.commit) +
         ", " + std::string(setting.build.compiler) + ", " + std::string(setting.build.flags) +
         "\n\n" +
         "| model | parameters | kernels | threads | ubatch | kv | test | t/s (mean ± sd) | "
         "median | waiting | weights GB/s | read GB/s | experts a pass | MB a pass | bound t/s | "
         "of it | predicted t/s | on the card | moves |\n"
         "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
}

std::string MarkdownRow(const BenchSetting& setting, const BenchResult& result) {
  return "| " + setting.model + " | " + Fixed(static_cast<double>(setting.parameters) / 1e6) +
         " M | " + setting.kernels + " | " + std::to_string(setting.threads) + " | " +
         std::to_string(setting.ubatch) + " | " + setting.type_k + "/" + setting.type_v + " | " +
         result.what.Name() + " | " + Fixed(result.mean) + " ± " + Fixed(result.deviation) + " | " +
         Fixed(result.median) + " | " + Fixed(100 * result.wait_share) + " % | " +
         OrDash(result.byte_median / 1e9) + " | " + OrDash(result.read_median / 1e9) + " | " +
         OrDash(result.pass_experts) + " | " + OrDash(result.pass_weight_bytes / 1e6) + " | " +
         OrDash(result.bound) + " | " + OrDash(result.bound_share) + " | " +
         OrDash(result.predicted) + " | " + OnCard(result) + " |\n";
}

std::string JsonRow(const BenchSetting& setting, const BenchResult& result) {
  rapidjson::Document row(rapidjson::kObjectType);
  auto& allocator = row.GetAllocator();
  const auto add = [&](const char* name, auto value) {
    row.AddMember(rapidjson::StringRef(name), rapidjson::Value(value), allocator);
  };
  const auto text = [&](const char* name, std::string_view value) {
    row.AddMember(
        rapidjson::StringRef(name),
        rapidjson::Value(value.data(), static_cast<rapidjson::SizeType>(value.size()), allocator),
        allocator);
  };
  text("test", result.what.Name());
  add("n_prompt", result.what.prompt);
  add("n_gen", result.what.tokens);
  add("n_depth", result.what.depth);
  add("n_slots", result.what.slots);
  add("mean_ts", result.mean);
  add("stddev_ts", result.deviation);
  add("median_ts", result.median);
  add("weight_bytes_per_second", result.byte_median);
  add("read_bytes_per_second", result.read_median);
  add("experts_per_pass", result.pass_experts);
  add("weight_bytes_per_pass", result.pass_weight_bytes);
  add("least_bytes_per_pass", result.pass_least_bytes);
  add("wait_share", result.wait_share);
  add("bound_ts", result.bound);
  add("bound_share", result.bound_share);
  add("predicted_ts", result.predicted);
  if (result.card_share >= 0) add("card_share", result.card_share);
  add("moves", result.moves);
  add("greedy", result.what.greedy);
  const auto samples = [&](const char* name, const std::vector<double>& values) {
    rapidjson::Value array(rapidjson::kArrayType);
    for (const double value : values) array.PushBack(value, allocator);
    row.AddMember(rapidjson::StringRef(name), array, allocator);
  };
  samples("samples_ts", result.rates);
  samples("samples_read_bytes_per_second", result.read_rates);
  text("cpu", setting.machine.cpu);
  add("cores", setting.machine.cores);
  add("load", setting.machine.load);
  text("kernels", setting.kernels);
  add("threads", setting.threads);
  add("n_ubatch", setting.ubatch);
  text("type_k", setting.type_k);
  text("type_v", setting.type_v);
  text("file", setting.file);
  text("model", setting.model);
  add("file_bytes", setting.file_bytes);
  add("parameters", setting.parameters);
  text("types", setting.types);
  text("version", setting.build.version);
  text("commit", setting.build.commit);
  text("compiler", setting.build.compiler);
  text("flags", setting.build.flags);
  return WriteJson(row) + "\n";
}

}  // namespace bloomery::apps
