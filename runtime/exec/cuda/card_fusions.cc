#include "runtime/exec/cuda/card_fusions.h"

#include <bloomery/operators.h>

#include <algorithm>
#include <string_view>

namespace bloomery::exec {
namespace {

bool IsA(const graph::Node& node, std::string_view op) {
  return node.op->plugin_op == nullptr && node.op->name == op;
}

bool SameRope(const graph::Graph& graph, graph::NodeId a, graph::NodeId b) {
  const graph::Attrs& x = graph.nodes[static_cast<size_t>(a)].attrs;
  const graph::Attrs& y = graph.nodes[static_cast<size_t>(b)].attrs;
  return x.F64("base") == y.F64("base") && x.F64("scale", 1.0) == y.F64("scale", 1.0) &&
         x.I64("dims", -1) == y.I64("dims", -1);
}

}  // namespace

CardFusions::CardFusions(const graph::Graph& graph, const std::vector<bool>& live,
                         const std::vector<graph::ValueId>& wanted)
    : graph_(graph),
      live_(live),
      readers_(graph.values.size() + 1),
      wanted_(graph.values.size() + 1, false),
      absorbed_(graph.nodes.size(), false) {
  for (const graph::ValueId value : wanted) wanted_[static_cast<size_t>(Source(value))] = true;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const graph::Node& node = graph.nodes[i];
    if (!live[i] || IsA(node, BL_OP_RESHAPE)) continue;
    for (const graph::ValueId value : node.inputs) {
      if (value == 0) continue;
      std::vector<graph::NodeId>& readers = readers_[static_cast<size_t>(Source(value))];
      const auto id = static_cast<graph::NodeId>(i);
      if (readers.empty() || readers.back() != id) readers.push_back(id);
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!live[i]) continue;
    const auto id = static_cast<graph::NodeId>(i);
    if (IsA(graph.nodes[i], BL_OP_ATTENTION)) MatchAttention(id);
    if (IsA(graph.nodes[i], BL_OP_LINEAR)) MatchResidual(id);
    if (IsA(graph.nodes[i], BL_OP_DELTA_RULE)) MatchDelta(id);
    if (IsA(graph.nodes[i], BL_OP_GATE)) MatchGate(id);
  }
}

const AttentionFusion* CardFusions::attention(graph::NodeId node) const {
  const auto found = attentions_.find(node);
  return found == attentions_.end() ? nullptr : &found->second;
}

graph::NodeId CardFusions::residual_add(graph::NodeId linear) const {
  const auto found = residuals_.find(linear);
  return found == residuals_.end() ? -1 : found->second;
}

bool CardFusions::Only(graph::ValueId value, graph::NodeId reader) const {
  const std::vector<graph::NodeId>& all = readers(value);
  return !wanted(value) && all.size() == 1 && all.front() == reader;
}

graph::NodeId CardFusions::OwnProducer(graph::ValueId value, const char* op,
                                       graph::NodeId reader) const {
  const graph::ValueId source = Source(value);
  const graph::NodeId producer = graph_.value(source).producer;
  if (producer < 0 || !Only(source, reader)) return -1;
  return IsA(graph_.nodes[static_cast<size_t>(producer)], op) ? producer : -1;
}

// The one append to a plane, where nothing else touches the plane before `before`.
graph::NodeId CardFusions::OnlyAppendTo(uint32_t plane, graph::NodeId before) const {
  graph::NodeId append = -1;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const graph::Node& node = graph_.nodes[i];
    if (!live_[i]) continue;
    for (const graph::PlaneUse& use : node.planes) {
      if (use.plane != plane) continue;
      const auto id = static_cast<graph::NodeId>(i);
      if (IsA(node, BL_OP_APPEND)) {
        if (append >= 0 || id > before) return -1;
        append = id;
      } else if (id < before) {
        return -1;
      }
    }
  }
  return append;
}

void CardFusions::MatchAttention(graph::NodeId node) {
  const graph::Node& attention = graph_.nodes[static_cast<size_t>(node)];
  const graph::NodeId k_append = OnlyAppendTo(attention.planes[0].plane, node);
  const graph::NodeId v_append = OnlyAppendTo(attention.planes[1].plane, node);
  if (k_append < 0 || v_append < 0 || k_append == v_append) return;
  const auto input = [&](graph::NodeId id) {
    return graph_.nodes[static_cast<size_t>(id)].inputs[0];
  };
  AttentionFusion fusion;
  std::vector<graph::NodeId> done = {k_append, v_append};
  // The launch norms and turns heads as attention sees them: a norm over the whole width, or heads
  // of another size, is not its own.
  const int64_t head_dim = graph_.value(attention.inputs[0]).shape.ne[0];
  const auto of_heads = [&](graph::ValueId value, const char* op, graph::NodeId reader) {
    const graph::NodeId made = OwnProducer(value, op, reader);
    return made >= 0 && graph_.value(input(made)).shape.ne[0] == head_dim ? made : -1;
  };
  // Follows one of q and k back through rope and norm.
  const auto follow = [&](graph::ValueId value, graph::NodeId reader, graph::NodeId* rope,
                          graph::NodeId* norm) {
    *rope = of_heads(value, BL_OP_ROPE, reader);
    if (*rope >= 0) {
      done.push_back(*rope);
      value = input(reader = *rope);
    }
    *norm = of_heads(value, BL_OP_RMS_NORM, reader);
    if (*norm < 0) return value;
    done.push_back(*norm);
    return input(*norm);
  };
  graph::NodeId k_rope = -1;
  fusion.q = follow(attention.inputs[0], node, &fusion.rope, &fusion.q_norm);
  fusion.k = follow(input(k_append), k_append, &k_rope, &fusion.k_norm);
  fusion.v = input(v_append);
  fusion.v_scale = OwnProducer(fusion.v, BL_OP_SCALE, v_append);
  if (fusion.v_scale >= 0) {
    done.push_back(fusion.v_scale);
    fusion.v = input(fusion.v_scale);
  }
  if ((fusion.rope < 0) != (k_rope < 0)) return;
  if (fusion.rope >= 0 && !SameRope(graph_, fusion.rope, k_rope)) return;
  for (const graph::NodeId id : done) absorbed_[static_cast<size_t>(id)] = true;
  attentions_.emplace(node, fusion);
}

graph::NodeId CardFusions::AddBehind(graph::ValueId made, graph::NodeId node) const {
  made = Source(made);
  if (readers(made).size() != 1 || wanted(made)) return -1;
  const graph::NodeId add = readers(made).front();
  const graph::Node& sum = graph_.nodes[static_cast<size_t>(add)];
  if (!IsA(sum, BL_OP_ADD) || absorbed(add)) return -1;
  const bool first = Source(sum.inputs[0]) == made;
  const graph::ValueId other = Source(sum.inputs[first ? 1 : 0]);
  // Both operands the node's own, or one that is made only after it.
  return other == made || graph_.value(other).producer > node ? -1 : add;
}

void CardFusions::MatchResidual(graph::NodeId node) {
  const graph::Node& linear = graph_.nodes[static_cast<size_t>(node)];
  if (linear.outputs.size() != 1) return;
  const graph::NodeId add = AddBehind(linear.outputs[0], node);
  if (add < 0) return;
  absorbed_[static_cast<size_t>(add)] = true;
  residuals_.emplace(node, add);
}

void CardFusions::MatchDelta(graph::NodeId node) {
  const graph::Node& delta = graph_.nodes[static_cast<size_t>(node)];
  const auto input_of = [&](graph::NodeId id) {
    return graph_.nodes[static_cast<size_t>(id)].inputs[0];
  };
  const auto match = [&](graph::ValueId value, bool normed) {
    DeltaInput found;
    graph::NodeId reader = node;
    const int64_t dim = graph_.value(value).shape.ne[0];
    const graph::NodeId norm = normed ? OwnProducer(value, BL_OP_L2_NORM, reader) : -1;
    if (norm >= 0 && graph_.value(input_of(norm)).shape.ne[0] == dim) {
      absorbed_[static_cast<size_t>(norm)] = true;
      found.l2_norm = reader = norm;
      value = input_of(norm);
    }
    found.x = value;
    const graph::NodeId slice = OwnProducer(value, BL_OP_SLICE, reader);
    if (slice < 0) return found;
    const graph::Shape& whole = graph_.value(input_of(slice)).shape;
    if (whole.ne[0] != whole.width()) return found;  // of heads: they do not lie one after another
    absorbed_[static_cast<size_t>(slice)] = true;
    found.x = input_of(slice);
    found.first = graph_.nodes[static_cast<size_t>(slice)].attrs.I64("first");
    return found;
  };
  DeltaFusion fusion;
  fusion.q = match(delta.inputs[0], true);
  fusion.k = match(delta.inputs[1], true);
  fusion.v = match(delta.inputs[2], false);
  deltas_.emplace(node, fusion);
}

void CardFusions::MatchGate(graph::NodeId node) {
  const graph::Node& gate = graph_.nodes[static_cast<size_t>(node)];
  const bool single = graph_.value(gate.inputs[0]).shape != graph_.value(gate.inputs[1]).shape;
  GateFusion fusion;
  if (!single) fusion.norm = OwnProducer(gate.inputs[0], BL_OP_RMS_NORM, node);
  if (!single && fusion.norm < 0) {
    const graph::NodeId slice = OwnProducer(gate.inputs[1], BL_OP_SLICE, node);
    // Not one that is read as vectors of another length.
    const bool same = slice >= 0 && graph_.value(Source(gate.inputs[1])).shape ==
                                        graph_.value(gate.inputs[1]).shape;
    if (same) fusion.slice = slice;
  }
  if (fusion.norm < 0) fusion.add = AddBehind(gate.outputs[0], node);
  for (const graph::NodeId id : {fusion.norm, fusion.slice, fusion.add}) {
    if (id >= 0) absorbed_[static_cast<size_t>(id)] = true;
  }
  gates_.emplace(node, fusion);
}

}  // namespace bloomery::exec
