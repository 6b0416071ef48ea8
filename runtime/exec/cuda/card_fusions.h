// Which nodes of a graph run together in one launch of a card: found before lowering, so that each
// node's emitter only looks up its part.
#pragma once

#include <map>
#include <vector>

#include "runtime/exec/lower/buffers.h"
#include "runtime/graph/graph.h"

namespace bloomery::exec {

// The nodes around one attention: norms and rope of its heads and the appends to its planes, all
// done by the attention's own launch.
struct AttentionFusion {
  graph::ValueId q = 0;  // as the projection left them
  graph::ValueId k = 0;
  graph::ValueId v = 0;
  graph::NodeId q_norm = -1;  // rms_norm, or -1
  graph::NodeId k_norm = -1;
  graph::NodeId rope = -1;  // of q (k's is the same), or -1
};

class CardFusions {
 public:
  // `wanted`: values that are read after the pass.
  CardFusions(const graph::Graph& graph, const std::vector<bool>& live,
              const std::vector<graph::ValueId>& wanted);

  // Its work is done by another node's launch.
  bool absorbed(graph::NodeId node) const { return absorbed_[static_cast<size_t>(node)]; }
  const AttentionFusion* attention(graph::NodeId node) const;
  // The add that a linear of one matrix does itself, or -1.
  graph::NodeId residual_add(graph::NodeId linear) const;
  // Nodes that read the value, in order. Reshapes of a value are read through.
  const std::vector<graph::NodeId>& readers(graph::ValueId value) const {
    return readers_[static_cast<size_t>(value)];
  }
  bool wanted(graph::ValueId value) const { return wanted_[static_cast<size_t>(value)]; }
  graph::ValueId Source(graph::ValueId value) const { return SourceOf(graph_, value); }

 private:
  bool Only(graph::ValueId value, graph::NodeId reader) const;
  // The node that makes `value` when it is an `op` and nothing but `reader` reads it; else -1.
  graph::NodeId OwnProducer(graph::ValueId value, const char* op, graph::NodeId reader) const;
  graph::NodeId OnlyAppendTo(uint32_t plane, graph::NodeId before) const;
  void MatchAttention(graph::NodeId node);
  void MatchResidual(graph::NodeId node);

  const graph::Graph& graph_;
  const std::vector<bool>& live_;
  std::vector<std::vector<graph::NodeId>> readers_;  // by value, of the source
  std::vector<bool> wanted_;                         // by value, of the source
  std::vector<bool> absorbed_;
  std::map<graph::NodeId, AttentionFusion> attentions_;
  std::map<graph::NodeId, graph::NodeId> residuals_;
};

}  // namespace bloomery::exec
