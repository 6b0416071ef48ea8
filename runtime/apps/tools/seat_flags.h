// From a file to a seat that runs passes, for tools that need neither engine nor server: the flags
// they share, and file, plugin, instance and seat put together. Loading is single-threaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/apps/tools/arguments.h"
#include "runtime/exec/seat.h"
#include "runtime/model/inventory.h"
#include "runtime/plugin/discovery.h"
#include "runtime/plugin/instance.h"

namespace bloomery::apps {

struct SeatFlags {
  std::string model;
  std::vector<std::string> plugin_dirs;
  int64_t ubatch = 512;
  int64_t batch = 2048;
  std::string kernels = "auto";
  std::string type_k = "f16";
  std::string type_v = "f16";
  std::string load_mode = "auto";
  std::string device = "auto";
  // As written; empty: not given. The server's table of flags reads them.
  std::string card_shares;
  std::string place;
  std::string card_layers;
  std::string host_expert_layers;
  std::vector<std::string> tensor_rules;
  std::string card_budget;
  std::string host_budget;
  std::string residency;
  std::string routing_trace;
  std::string delta_rule;
};

// -m, --plugin-dir, -ub, -b, -dev, -ts, --isa (--kernels), -ctk, -ctv, -lm, --mmap, --no-mmap,
// --place, -ngl, -ncmoe, -ot, --card-budget, --host-budget, --residency, --routing-trace,
// --delta-rule.
void AddSeatFlags(Arguments& arguments, SeatFlags& flags);

struct LoadedSeat {
  std::unique_ptr<model::ModelFile> model;
  std::unique_ptr<plugin::Instance> instance;
  std::unique_ptr<exec::Seat> seat;
};

// The file or folder that the flags name, or the demo model's. Error(kUsage) for a name that is
// neither.
std::string ModelPathOf(const SeatFlags& flags);

// Errors of the step that refuses. `threads` 0: one a physical core.
LoadedSeat LoadSeatOf(const SeatFlags& flags, int32_t threads, int64_t slot_context,
                      int32_t slots = 1);

// The plugins that --plugin-dir, $BLOOMERY_PLUGIN_PATH and the bundle offer.
plugin::Discovery DiscoverPlugins(const std::vector<std::string>& plugin_dirs);

}  // namespace bloomery::apps
