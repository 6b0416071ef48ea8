// Which plugin serves a model: manifests shortlist by the file's architecture string, then each
// shortlisted plugin is loaded and asked (probe). Those of folders that a flag named go before all
// others; among equals in that the highest score wins, then the highest version; a tie is refused.
// [load] thread.
//
//   Selection chosen = Select(model, Discover(SearchList(dirs, env, exe)));
//   Instance instance(chosen.plugin, model, options);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/model/inventory.h"
#include "runtime/plugin/discovery.h"
#include "runtime/plugin/library.h"
#include "runtime/plugin/trial.h"

namespace bloomery::plugin {

// There is no plugin at all: a build or an install without any seat.
class NoPluginError : public Error {
 public:
  using Error::Error;
};

struct Selection {
  LoadedPlugin plugin;
  int32_t score = 0;
  std::vector<Verdict> others;  // shortlisted plugins that were not taken, and why
};

// Throws NoPluginError where the search found none; Error(kBadModel): no plugin claims the
// architecture (with every folder and verdict), none of those that do could be loaded or accepts
// the file (path, reason and search list), or two are tied. With a trial each shortlisted plugin is
// tried in a child process before it is loaded here.
Selection Select(const model::ModelFile& model, const Discovery& discovery,
                 const TrialOptions* trial = nullptr);

// What probe says: the score, or Error(kBadModel) with the plugin's reason. Throws Error(kInternal)
// when it breaks the contract (an exception, a score outside 1 … 100, a refusal without a reason).
int32_t Probe(const LoadedPlugin& plugin, const bl_model& model);

}  // namespace bloomery::plugin
