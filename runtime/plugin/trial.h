// What a plugin does while a model loads, tried first in a child of this process: loading the
// library, probe, create, describe and whatever else is asked for. A plugin that crashes, hangs or
// ends the process there costs a refusal that says which call, and not the server. The child is a
// fork, so it knows the opened model; it logs nothing, touches no device, and is gone when the call
// returns. [load] thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "runtime/model/inventory.h"
#include "runtime/plugin/instance.h"

namespace bloomery::plugin {

struct TrialOptions {
  // Of all calls together. Sound plugins take milliseconds; a busy machine may be a hundred times
  // slower.
  std::chrono::milliseconds limit{20000};
  // What the child's instance is made with.
  InstanceOptions instance = {};
  // Called in the child with the plugin's instance; what it throws is no matter of the trial.
  std::function<void(Instance&)> build = {};
};

// Throws Error(kBadModel) naming the path, the call and what happened in it. A plugin that merely
// refuses, or that fails as the ABI allows, passes: the same calls in this process say why. Where
// no process can be made it passes with a warning in the log.
void TryPlugin(const std::string& path, const model::ModelFile& model,
               const TrialOptions& options = {});

}  // namespace bloomery::plugin
