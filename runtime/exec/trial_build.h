// What is tried of a plugin's graphs before it is trusted with this process (plugin/trial.h).
#pragma once

#include "runtime/plugin/instance.h"
#include "runtime/plugin/trial.h"

namespace bloomery::exec {

// Lets the instance build its main entry, and the draft's step where it describes one, for one row
// and for several. Throws what the plugin and the builder refuse.
void BuildForTrial(plugin::Instance& instance);

// A trial that makes such graphs; with the model's own drafts of up to `draft_rows_max` tokens
// where that is not 0, as an instance for SeatOptions::drafts would be made.
plugin::TrialOptions TrialOf(int32_t draft_rows_max);

}  // namespace bloomery::exec
