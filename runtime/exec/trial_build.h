// What is tried of a plugin's graphs before it is trusted with this process (plugin/trial.h).
#pragma once

#include "runtime/plugin/instance.h"

namespace bloomery::exec {

// Lets the instance build its main entry for one row and for several. Throws what the plugin and
// the builder refuse.
void BuildForTrial(plugin::Instance& instance);

}  // namespace bloomery::exec
