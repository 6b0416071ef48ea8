// Lowering: from a graph to the steps of a program. Picks the encodings that consumers want (one
// quantisation step a value and group, shared by all its readers), expands routed experts into
// steps over grouped picks, drops what nothing reads, and lets buffers share memory by lifetime.
#pragma once

#include <string>
#include <vector>

#include "runtime/exec/lower/program.h"
#include "runtime/graph/graph.h"
#include "runtime/ops/backend.h"
#include "runtime/plugin/description.h"

namespace bloomery::exec {

struct LowerOptions {
  int32_t rows = 0;                       // the row bucket
  const ops::Backend* backend = nullptr;  // for scratch sizes
  int32_t threads = 1;                    // that will run the program
  int32_t slots = 1;
  int32_t slot_context = 0;   // rows of a slot's planes
  bool delta_chunks = false;  // the delta rule of prompts in chunks, where the backend has them
  std::vector<std::string> wanted = {};  // exports to keep to the end of the pass
};

// Throws Error(kUnsupported) naming operator, layer and weight where no kernel fits, and
// Error(kBadModel) where a wanted export is not there.
LoweredGraph Lower(graph::Graph graph, const plugin::Description& description,
                   const LowerOptions& options);

}  // namespace bloomery::exec
