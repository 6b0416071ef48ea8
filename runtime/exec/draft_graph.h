// What the graph of a draft's step may touch. Its rows lie behind the slot's length and are never
// taken back: it may append there, which the next pass overwrites, and hand a state on through the
// one more lane that TAP planes have for it. Whatever else it reads or writes would be another
// row's state.
#pragma once

#include <string_view>

#include "runtime/graph/graph.h"
#include "runtime/plugin/description.h"

namespace bloomery::exec {

// Throws Error(kUnsupported) naming the plugin, the draft entry, the operator and the plane where a
// node uses a ring, or a fixed plane that is no tap.
void CheckDraftGraph(const graph::Graph& graph, const plugin::Description& description,
                     std::string_view plugin);

}  // namespace bloomery::exec
