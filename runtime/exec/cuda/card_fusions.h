// Which nodes of a graph run together in one launch of a card: found before lowering, so that each
// node's emitter only looks up its part.
#pragma once

#include <map>
#include <vector>

#include "runtime/exec/lower/buffers.h"
#include "runtime/graph/graph.h"

namespace bloomery::exec {

// The nodes around one attention: norms and rope of its heads, the factor on its values and the
// appends to its planes, all done by the attention's own launch.
struct AttentionFusion {
  graph::ValueId q = 0;  // as the projection left them
  graph::ValueId k = 0;
  graph::ValueId v = 0;
  graph::NodeId q_norm = -1;  // rms_norm, or -1
  graph::NodeId k_norm = -1;
  graph::NodeId rope = -1;  // of q (k's is the same), or -1
  graph::NodeId v_scale = -1;
};

// What a delta rule's launch reads: heads inside of rows of `x` from value `first` on, and the norm
// that it does itself.
struct DeltaInput {
  graph::ValueId x = 0;
  int64_t first = 0;
  graph::NodeId l2_norm = -1;  // or none
};
struct DeltaFusion {
  DeltaInput q, k, v;
};

// What a gate's launch does beside it: the norm in front, or where there is none the slice that its
// gates are, and a sum behind.
struct GateFusion {
  graph::NodeId norm = -1;   // rms_norm of x
  graph::NodeId slice = -1;  // of gates
  graph::NodeId add = -1;
};

class CardFusions {
 public:
  // `wanted`: values that are read after the pass.
  CardFusions(const graph::Graph& graph, const std::vector<bool>& live,
              const std::vector<graph::ValueId>& wanted);

  // Its work is done by another node's launch.
  bool absorbed(graph::NodeId node) const { return absorbed_[static_cast<size_t>(node)]; }
  const AttentionFusion* attention(graph::NodeId node) const;
  // Of a delta rule or a gate.
  const DeltaFusion& delta(graph::NodeId node) const { return deltas_.at(node); }
  const GateFusion& gate(graph::NodeId node) const { return gates_.at(node); }
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
  void MatchDelta(graph::NodeId node);
  void MatchGate(graph::NodeId node);
  // The one add that reads `made` of `node`, where what it is added to is there by then; or -1.
  graph::NodeId AddBehind(graph::ValueId made, graph::NodeId node) const;

  const graph::Graph& graph_;
  const std::vector<bool>& live_;
  std::vector<std::vector<graph::NodeId>> readers_;  // by value, of the source
  std::vector<bool> wanted_;                         // by value, of the source
  std::vector<bool> absorbed_;
  std::map<graph::NodeId, AttentionFusion> attentions_;
  std::map<graph::NodeId, graph::NodeId> residuals_;
  std::map<graph::NodeId, DeltaFusion> deltas_;
  std::map<graph::NodeId, GateFusion> gates_;
};

}  // namespace bloomery::exec
