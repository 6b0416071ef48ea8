// Lowering for a card: from a graph to the launches of a program. Passes of up to 8 rows become six
// launches a layer where the graph has the usual shape (norm, quantise and projections; head norms,
// rope, append and attention; quantise, projection and residual; norm and router; selection, gate,
// up and activation; quantise, down, sum of picks and residual); longer ones the prompt kernels.
// What matches no fused launch becomes one launch an operator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/exec/cuda/card_program.h"
#include "runtime/graph/graph.h"
#include "runtime/plugin/description.h"

namespace bloomery::exec {

struct CardLowerOptions {
  int32_t rows = 0;      // the row bucket
  int32_t top_rows = 0;  // logit rows whose best logits the host gets
  const CardWeightLayout* weights = nullptr;
  int32_t slots = 1;
  int32_t slot_context = 0;  // rows of a slot's planes
  // Banks are split between card and host: expert launches read maps and hand picks over.
  bool split = false;
  bool picks = false;                           // keep what rows pick to the end of the pass
  std::vector<uint32_t> banks = {};             // with picks: those that the graph has, ascending
  std::vector<graph::Crossing> crossings = {};  // into the graph, where it is one of several stages
  std::vector<std::string> wanted = {};         // exports to keep to the end of the pass
};

// Throws Error(kUnsupported) naming operator, layer and weight where no kernel of the card fits,
// and Error(kBadModel) where a wanted export is not there.
CardLoweredGraph LowerForCard(const graph::Graph& graph, const plugin::Description& description,
                              const CardLowerOptions& options);

}  // namespace bloomery::exec
