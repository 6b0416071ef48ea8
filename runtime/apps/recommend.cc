#include "runtime/apps/recommend.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "runtime/apps/cards_json.h"
#include "runtime/apps/program.h"
#include "runtime/apps/tools/machine.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/hub/cache.h"
#include "runtime/hub/model_set.h"
#include "runtime/memory/plan.h"
#include "runtime/plugin/discovery.h"

namespace bloomery::apps {
namespace {

using serve::Json;

constexpr const char* kDemoName = "seedling";
constexpr uint64_t kDemoBytes = 13'415'232;
// Buffers of a pass, logits and what the process takes itself.
constexpr uint64_t kBesideBytes = uint64_t{1536} << 20;
// Contexts offered, where the model was trained with as much; below the last no agent gets far.
constexpr std::array<int32_t, 6> kContexts{262144, 131072, 65536, 32768, 16384, 8192};
constexpr size_t kListedMax = 256;

ListedModel DemoModel() {
  ListedModel demo;
  demo.name = kDemoName;
  demo.quant = "Q4_K_M";
  demo.bytes = kDemoBytes;
  demo.context_row_bytes = 4096;
  demo.context_trained = 4096;
  demo.why = "bundled; 22 million parameters, to try the server with";
  return demo;
}

class ListReader {
 public:
  explicit ListReader(std::string path) : path_(std::move(path)) {}

  void Read(std::vector<ListedModel>& models) const {
    const std::string text = ReadWholeFile(RealFileSystem(), path_, limits::kManifestBytesMax);
    const rapidjson::Document document = ParseJson(text, path_, {.kind = ErrorKind::kBadModel});
    const rapidjson::Value* list = document.IsObject() ? FindNonNull(document, "models") : nullptr;
    if (list == nullptr || !list->IsArray() || list->Size() > kListedMax) {
      Refuse("'models' must be a list");
    }
    for (const rapidjson::Value& entry : list->GetArray()) {
      if (!entry.IsObject()) Refuse("an entry of 'models' is no object");
      ListedModel model;
      model.name = Text(entry, "name");
      model.arch = Text(entry, "arch");
      model.repo = Text(entry, "repo");
      model.quant = Text(entry, "quant");
      model.why = Text(entry, "why");
      model.bytes = Number(entry, "bytes");
      model.context_row_bytes = Number(entry, "context_row_bytes");
      model.context_trained = static_cast<int32_t>(
          std::min<uint64_t>(Number(entry, "context_trained"), limits::kSlotContextMax));
      models.push_back(std::move(model));
    }
  }

 private:
  [[noreturn]] void Refuse(const std::string& why) const {
    throw Error(ErrorKind::kBadModel, path_ + ": " + why);
  }
  std::string Text(const rapidjson::Value& entry, const char* name) const {
    const rapidjson::Value* value = FindNonNull(entry, name);
    if (value == nullptr || !value->IsString()) Refuse(std::string(name) + " must be a text");
    return {value->GetString(), value->GetStringLength()};
  }
  uint64_t Number(const rapidjson::Value& entry, const char* name) const {
    const rapidjson::Value* value = FindNonNull(entry, name);
    if (value == nullptr || !value->IsUint64()) Refuse(std::string(name) + " must be a number");
    return value->GetUint64();
  }

  std::string path_;
};

// Those of the CPU's flags that kernels of ours look for.
std::vector<std::string> CpuFeatures() {
  static constexpr std::array<std::string_view, 11> kKnown{
      "avx",      "avx2",     "f16c",     "fma",         "bmi2",    "avx512f",
      "avx512bw", "avx512vl", "avx_vnni", "avx512_vnni", "amx_int8"};
  std::vector<std::string> found;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (std::find(kKnown.begin(), kKnown.end(), word) != kKnown.end()) found.push_back(word);
    }
    break;
  }
  return found;
}

Json CommandJson(const ListedModel& model, const Fit& fit) {
  Json command = Json::Array({"bloomery-serve"});
  if (!model.repo.empty()) {
    command.Append("--hf");
    command.Append(model.repo + ":" + model.quant);
  }
  if (fit.context > 0) {
    command.Append("-c");
    command.Append(std::to_string(fit.context));
  }
  return command;
}

std::string WhyOf(const ListedModel& model, const Fit& fit) {
  if (fit.fits) return model.why;
  return "needs about " + memory::FormatBytes(fit.need) +
         " on cards or in the host's memory: " + model.why;
}

bool IsCached(const hub::Cache& cache, const ListedModel& model) {
  if (model.repo.empty()) return true;
  const auto sets = cache.List(model.repo);
  return std::any_of(sets.begin(), sets.end(), [&](const hub::CachedSet& cached) {
    return !cached.set.files.empty() && cached.set.Complete() &&
           hub::MatchesQuant(cached.set, model.quant);
  });
}

}  // namespace

std::vector<ListedModel> ListedModels(const serve::ServeSettings& settings,
                                      const std::string& executable,
                                      const std::string& plugin_path_variable) {
  std::vector<ListedModel> models;
  const plugin::Discovery discovery =
      plugin::Discover(plugin::SearchList(settings.plugin_dirs, plugin_path_variable, executable));
  for (const plugin::Candidate& candidate : discovery.candidates) {
    std::filesystem::path list(candidate.manifest_path);
    list.replace_extension(".models.json");
    if (std::filesystem::is_regular_file(list)) ListReader(list.string()).Read(models);
  }
  // A plugin may lie in several folders.
  std::set<std::string> names;
  std::erase_if(models, [&](const ListedModel& m) { return !names.insert(m.name).second; });
  models.push_back(DemoModel());
  return models;
}

Json HostJson(const MachineView& machine) {
  Json features = Json::Array();
  for (const std::string& feature : machine.features) features.Append(feature);
  Json host = Json::Object({{"cpu", machine.cpu},
                            {"cores", machine.cores},
                            {"features", std::move(features)},
                            {"ram_total", machine.ram_total}});
  host.Set("ram_available", machine.available ? Json(machine.available->bytes) : Json());
  if (machine.available && machine.available->source != "MemAvailable") {
    host.Set("cgroup_limit", machine.available->bytes);
  }
  return host;
}

MachineView LookAtMachine() {
  const Machine machine = DescribeMachine();
  MachineView view;
  view.cpu = machine.cpu;
  view.cores = machine.cores;
  view.features = CpuFeatures();
  view.ram_total = memory::MachineMemory();
  view.available = memory::AvailableHostMemory();
  view.cards = exec::LookAtCards();
  return view;
}

namespace {

struct MemoryPlace {
  std::string name;
  uint64_t free = 0;
};

// Of several cards each has its layers, and buffers of its own.
MemoryPlace AllOf(const std::vector<MemoryPlace>& cards) {
  MemoryPlace all = {.name = "", .free = kBesideBytes};
  for (const MemoryPlace& card : cards) {
    all.name += (all.name.empty() ? "" : ",") + card.name;
    all.free += card.free - std::min(card.free, kBesideBytes);
  }
  return all;
}

}  // namespace

Fit FitOf(const ListedModel& model, const MachineView& machine) {
  const auto need = [&](int32_t context) {
    return model.bytes + kBesideBytes + model.context_row_bytes * static_cast<uint64_t>(context);
  };
  std::vector<MemoryPlace> places;
  for (const exec::VideoCard& card : machine.cards) {
    places.push_back({"CUDA" + std::to_string(card.index), card.free_bytes});
  }
  if (places.size() > 1) places.push_back(AllOf(places));
  places.push_back({"cpu", machine.available ? machine.available->bytes : 0});
  Fit fit{.place = ""};
  for (const int32_t context : kContexts) {
    if (context > model.context_trained && context != kContexts.back()) continue;
    fit.context = std::min(context, model.context_trained);
    fit.need = need(fit.context);
    for (const MemoryPlace& place : places) {
      if (fit.need > place.free) continue;
      fit.fits = true;
      fit.place = place.name;
      return fit;
    }
  }
  return fit;
}

namespace {

struct Ranked {
  const ListedModel* model;
  Fit fit;
};

// Best first: in the list's order, those that fit before the rest.
std::vector<Ranked> Rank(const std::vector<ListedModel>& models, const MachineView& machine) {
  std::vector<Ranked> ranked;
  for (const ListedModel& model : models) ranked.push_back({&model, FitOf(model, machine)});
  std::ranges::stable_partition(ranked, [](const Ranked& r) { return r.fit.fits; });
  return ranked;
}

}  // namespace

serve::Json RecommendJson(const std::vector<ListedModel>& models, const MachineView& machine,
                          const std::function<bool(const ListedModel&)>& cached) {
  const std::vector<Ranked> ranked = Rank(models, machine);
  Json list = Json::Array();
  for (const Ranked& r : ranked) {
    list.Append(Json::Object({{"name", r.model->name},
                              {"arch", r.model->arch},
                              {"repo", r.model->repo},
                              {"quant", r.model->quant},
                              {"bytes", r.model->bytes},
                              {"fit", r.fit.fits ? "whole" : "no"},
                              {"place", r.fit.place},
                              {"ctx", r.fit.fits ? r.fit.context : 0},
                              {"parallel", 1},
                              {"need", r.fit.need},
                              {"cached", cached(*r.model)},
                              {"command", CommandJson(*r.model, r.fit)},
                              {"why", WhyOf(*r.model, r.fit)}}));
  }
  Json document = Json::Object({{"schema", 1}, {"host", HostJson(machine)}});
  document.Set("devices", CardsJson(machine.cards));
  document.Set("models", std::move(list));
  const bool any = !ranked.empty() && ranked.front().fit.fits;
  document.Set("pick", any ? Json(ranked.front().model->name) : Json());
  return document;
}

void PrintRecommendation(std::ostream& out, const std::vector<ListedModel>& models,
                         const MachineView& machine) {
  out << "host: " << machine.cpu << ", " << machine.cores << " cores, "
      << memory::FormatBytes(machine.available ? machine.available->bytes : 0) << " available\n";
  for (const exec::VideoCard& card : machine.cards) {
    out << "CUDA" << card.index << ": " << card.name << ", " << memory::FormatBytes(card.free_bytes)
        << " free\n";
  }
  for (const Ranked& ranked : Rank(models, machine)) {
    const ListedModel& model = *ranked.model;
    const Fit& fit = ranked.fit;
    out << '\n' << model.name << ": ";
    if (fit.fits) {
      out << "fits on " << fit.place << " with a context of " << fit.context << "\n  ";
    } else {
      out << "does not fit\n  ";
    }
    out << WhyOf(model, fit) << '\n';
    if (!fit.fits) continue;
    out << "  bloomery-serve";
    if (!model.repo.empty()) out << " --hf " << model.repo << ':' << model.quant;
    out << " -c " << fit.context << '\n';
  }
}

void ResolveModelName(serve::ServeSettings& settings, const std::string& executable,
                      const std::string& plugin_path_variable) {
  const std::string& name = settings.model_path;
  std::error_code ignored;
  if (name.empty() || name.find('/') != std::string::npos || name.ends_with(".gguf") ||
      std::filesystem::exists(name, ignored)) {
    return;
  }
  std::string names;
  for (const ListedModel& model : ListedModels(settings, executable, plugin_path_variable)) {
    if (model.name == name) {
      settings.hf_repo = model.repo.empty() ? "" : model.repo + ":" + model.quant;
      settings.model_path.clear();
      return;
    }
    names += (names.empty() ? "" : ", ") + model.name;
  }
  throw Error(ErrorKind::kUsage,
              "--model " + Printable(name) + ": neither a file here nor one of " + names,
              "bloomery-serve --recommend");
}

void Recommend(const serve::ServeSettings& settings, const std::string& executable,
               const std::string& plugin_path_variable, std::ostream& out) {
  const auto models = ListedModels(settings, executable, plugin_path_variable);
  const MachineView machine = LookAtMachine();
  if (!settings.json) return PrintRecommendation(out, models, machine);
  const hub::Cache cache(hub::CacheRoot(Environment()));
  out << RecommendJson(models, machine,
                       [&](const ListedModel& model) { return IsCached(cache, model); })
             .Text()
      << '\n';
}

}  // namespace bloomery::apps
