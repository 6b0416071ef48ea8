// Which models to take on this machine: the seats' own lists (<seat>.models.json beside a plugin's
// manifest) held against memory, best first, for people and for programs (docs/agents.md). Opens
// no model, takes no memory of a card, asks no network. Also the place where a model's short name
// becomes its repository.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/exec/nvml.h"
#include "runtime/memory/host_memory.h"
#include "runtime/serve/json_value.h"
#include "runtime/serve/settings.h"

namespace bloomery::apps {

// One model that a seat's list names.
struct ListedModel {
  std::string name;  // "qwen-30b"
  std::string arch;
  std::string repo;  // empty: the bundled demo model
  std::string quant;
  uint64_t bytes = 0;              // about, of the weights
  uint64_t context_row_bytes = 0;  // of one row of context in f16
  int32_t context_trained = 0;
  std::string why;
};

// All lists of the plugins that can be found, in their order, then the demo model. Error(kBadModel)
// naming the file for a list that is none.
std::vector<ListedModel> ListedModels(const serve::ServeSettings& settings,
                                      const std::string& executable,
                                      const std::string& plugin_path_variable);

struct MachineView {
  std::string cpu;
  int32_t cores = 0;
  std::vector<std::string> features;
  uint64_t ram_total = 0;
  std::optional<memory::HostLimit> available;  // the smallest of machine and control groups
  std::vector<exec::VideoCard> cards;
};
MachineView LookAtMachine();
// The host as documents have it.
serve::Json HostJson(const MachineView& machine);

// How a model fits.
struct Fit {
  bool fits = false;
  std::string place;    // "CUDA0", "CUDA0,CUDA1", "cpu"; empty where it does not fit
  int32_t context = 0;  // the largest offered that fits
  uint64_t need = 0;    // bytes, with that context
};
Fit FitOf(const ListedModel& model, const MachineView& machine);

// The document of --recommend --json. `cached` says whether a model lies checked in the cache.
serve::Json RecommendJson(const std::vector<ListedModel>& models, const MachineView& machine,
                          const std::function<bool(const ListedModel&)>& cached);
// The same for people.
void PrintRecommendation(std::ostream& out, const std::vector<ListedModel>& models,
                         const MachineView& machine);

// Where -m is a name and no path, the listed model of that name takes its place in `settings`
// (hf_repo, or the demo model). Error(kUsage) listing the names for an unknown one.
void ResolveModelName(serve::ServeSettings& settings, const std::string& executable,
                      const std::string& plugin_path_variable);

// Runs --recommend.
void Recommend(const serve::ServeSettings& settings, const std::string& executable,
               const std::string& plugin_path_variable, std::ostream& out);

}  // namespace bloomery::apps
