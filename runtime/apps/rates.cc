#include "runtime/apps/rates.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/base/output_file.h"
#include "runtime/exec/card_loading.h"
#include "runtime/exec/cpu/compute_rate.h"
#include "runtime/exec/cpu/read_rate.h"
#include "runtime/exec/split/expert_rate.h"
#include "runtime/memory/parallel_read.h"
#include "runtime/model/gguf.h"

namespace bloomery::apps {
namespace {

using serve::Json;

constexpr size_t kKeysMax = 16;
constexpr int kTimes = 5;  // the best counts: others disturb, nothing makes it faster
constexpr uint64_t kFileBytesMax = uint64_t{4} << 30;

using Kept = std::vector<std::pair<std::string, memory::MachineRates>>;

double Number(const rapidjson::Value& object, const char* name) {
  const rapidjson::Value* value = FindNonNull(object, name);
  return value != nullptr && value->IsNumber() ? std::max(0.0, value->GetDouble()) : 0;
}

std::string Text(const rapidjson::Value& object, const char* name) {
  const rapidjson::Value* value = FindNonNull(object, name);
  return value != nullptr && value->IsString()
             ? std::string(value->GetString(), value->GetStringLength())
             : std::string();
}

memory::HostExpertRates ExpertsOf(const rapidjson::Value& object) {
  const rapidjson::Value* value = FindNonNull(object, "experts");
  if (value == nullptr || !value->IsObject()) return {};
  constexpr double kBytesMax = 1e12;
  return {.bytes = static_cast<uint64_t>(std::min(Number(*value, "bytes"), kBytesMax)),
          .dispatch_us = Number(*value, "dispatch_us"),
          .expert_us = Number(*value, "expert_us"),
          .read_us = Number(*value, "read_us"),
          .fixed_us = Number(*value, "fixed_us"),
          .row_us = Number(*value, "row_us"),
          .beside_link = std::max(1.0, Number(*value, "beside_link"))};
}

memory::MachineRates RatesOf(const rapidjson::Value& object) {
  memory::MachineRates rates{.host_read = Number(object, "host_read"),
                             .host_macs = Number(object, "host_macs"),
                             .file_read = Number(object, "file_read"),
                             .experts = ExpertsOf(object)};
  const rapidjson::Value* cards = FindNonNull(object, "cards");
  if (cards == nullptr || !cards->IsArray()) return rates;
  for (const rapidjson::Value& card : cards->GetArray()) {
    if (!card.IsObject()) continue;
    rates.cards.push_back({.id = Text(card, "id"),
                           .name = Text(card, "name"),
                           .read = Number(card, "read"),
                           .to_card = Number(card, "to_card"),
                           .to_card_beside = Number(card, "to_card_beside"),
                           .from_card = Number(card, "from_card"),
                           .hand_off = Number(card, "hand_off"),
                           .multiprocessors = static_cast<int32_t>(std::min(
                               Number(card, "multiprocessors"), static_cast<double>(INT32_MAX)))});
  }
  return rates;
}

// Nothing where the file is not there or says something else.
Kept ReadAll(const std::string& path) {
  Kept kept;
  try {
    const std::string text = ReadWholeFile(RealFileSystem(), path, limits::kManifestBytesMax);
    const rapidjson::Document document = ParseJson(text, path);
    const rapidjson::Value* list = document.IsObject() ? FindNonNull(document, "rates") : nullptr;
    if (list == nullptr || !list->IsArray()) return kept;
    for (const rapidjson::Value& entry : list->GetArray()) {
      if (entry.IsObject()) kept.emplace_back(Text(entry, "key"), RatesOf(entry));
    }
  } catch (const Error&) {
    kept.clear();
  }
  return kept;
}

double BestOf(const std::function<double()>& measure) {
  double best = 0;
  for (int i = 0; i < kTimes; ++i) best = std::max(best, measure());
  return best;
}

double FileRate(const std::string& path) {
  const model::ModelFile model = model::OpenGguf(RealFileSystem(), path);
  constexpr uint64_t kRoom = uint64_t{64} << 20;  // more than all reads in flight
  const memory::HostBuffer room(kRoom, "room to read into");
  std::vector<memory::ReadStretch> stretches;
  uint64_t bytes = 0;
  for (const auto& file : model.files()) {
    for (uint64_t at = 0; at < file->size() && bytes < kFileBytesMax; at += kRoom) {
      const uint64_t piece = std::min(kRoom, file->size() - at);
      stretches.push_back({.file = file.get(), .offset = at, .to = room.bytes().first(piece)});
      bytes += piece;
    }
  }
  const memory::ReadReport report = memory::ReadAll(stretches);
  return static_cast<double>(report.bytes) / std::max(report.seconds, 1e-9);
}

}  // namespace

std::string RatesPath(const std::map<std::string, std::string>& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  const std::string xdg = value("XDG_CACHE_HOME");
  const std::string home = value("HOME");
  if (!xdg.empty()) return xdg + "/bloomery/rates.json";
  return home.empty() ? "" : home + "/.cache/bloomery/rates.json";
}

std::string RatesKey(const MachineView& machine) {
  std::string key = machine.cpu + ", " + std::to_string(machine.cores) + " cores";
  for (const exec::VideoCard& card : machine.cards) {
    key += "; " + card.name + ", " + std::to_string(card.total_bytes >> 20) + " MiB, CUDA " +
           card.driver_cuda;
  }
  return key;
}

std::optional<memory::MachineRates> ReadRates(const std::string& path, const std::string& key) {
  for (auto& [known, rates] : ReadAll(path)) {
    if (known == key) return std::move(rates);
  }
  return std::nullopt;
}

void WriteRates(const std::string& path, const std::string& key,
                const memory::MachineRates& rates) {
  Kept kept = ReadAll(path);
  std::erase_if(kept, [&](const auto& entry) { return entry.first == key; });
  if (kept.size() >= kKeysMax) kept.erase(kept.begin(), kept.end() - (kKeysMax - 1));
  kept.emplace_back(key, rates);
  Json list = Json::Array();
  for (const auto& [known, of] : kept) {
    Json entry = RatesJson(of);
    entry.Set("key", known);
    list.Append(std::move(entry));
  }
  const std::string text = Json::Object({{"schema", 1}, {"rates", std::move(list)}}).Text() + "\n";
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw Error(ErrorKind::kNoInput,
                "making the folder " + folder.string() + ": " + error.message());
  }
  OutputFile out(path);
  out.Write(std::as_bytes(std::span(text)));
  out.Commit();
}

memory::MachineRates MeasureRates(const std::string& model_file) {
  memory::MachineRates rates;
  const ops::Backend& backend = ops::FindBackend("auto");
  const int32_t threads = exec::DefaultThreads();
  exec::ComputeRate compute(backend);
  const uint64_t beyond_caches = exec::ReadRateBytes();
  {
    exec::Pool pool(threads, 0, true);
    exec::ReadRate read(beyond_caches);
    read.Measure(pool);  // the first may meet pages that are not there yet
    rates.host_read = BestOf([&] { return read.Measure(pool); });
  }
  exec::ExpertRate experts(backend, threads, beyond_caches);
  exec::Pool pool(threads, std::max(compute.scratch_bytes(), experts.scratch_bytes()), true);
  compute.Measure(pool);
  rates.host_macs = BestOf([&] { return compute.Measure(pool); });
  rates.experts = experts.MeasureRates(pool);
  if (!model_file.empty()) rates.file_read = FileRate(model_file);
  const double alone = 1 / BestOf([&] { return 1 / experts.MeasurePrompt(pool); });
  double seconds = 0;
  int runs = 0;
  try {
    rates.cards = exec::MeasureCards([&] {
      seconds += experts.MeasurePrompt(pool);
      ++runs;
    });
  } catch (const Error& error) {
    LOG(INFO) << "no card is measured: " << error.what();  // doctor tells why beside the rates
  }
  if (runs > 0) rates.experts.beside_link = std::max(1.0, seconds / runs / alone);
  return rates;
}

Json RatesJson(const memory::MachineRates& rates) {
  const auto measured = [](double rate) { return rate > 0 ? Json(rate) : Json(); };
  Json cards = Json::Array();
  for (const memory::CardRates& card : rates.cards) {
    cards.Append(Json::Object({{"id", card.id},
                               {"name", card.name},
                               {"read", measured(card.read)},
                               {"to_card", measured(card.to_card)},
                               {"to_card_beside", measured(card.to_card_beside)},
                               {"from_card", measured(card.from_card)},
                               {"hand_off", measured(card.hand_off)},
                               {"multiprocessors", card.multiprocessors}}));
  }
  const memory::HostExpertRates& of = rates.experts;
  Json experts;
  if (of.bytes > 0) {
    experts = Json::Object({{"bytes", of.bytes},
                            {"dispatch_us", of.dispatch_us},
                            {"expert_us", of.expert_us},
                            {"read_us", of.read_us},
                            {"fixed_us", of.fixed_us},
                            {"row_us", of.row_us},
                            {"beside_link", of.beside_link}});
  }
  return Json::Object({{"host_read", measured(rates.host_read)},
                       {"host_macs", measured(rates.host_macs)},
                       {"experts", std::move(experts)},
                       {"file_read", measured(rates.file_read)},
                       {"cards", std::move(cards)}});
}

}  // namespace bloomery::apps
