#include "runtime/graph/graph.h"

namespace bloomery::graph {

ValueId Graph::FindExport(std::string_view name) const {
  for (const Export& exported : exports) {
    if (exported.name == name) return exported.value;
  }
  return 0;
}

std::string OperatorName(const OperatorSchema& op) {
  return std::string(op.name) + "/" + std::to_string(op.version);
}

std::vector<bool> LiveNodes(const Graph& graph, const std::vector<ValueId>& wanted) {
  std::vector<bool> value_live(graph.values.size() + 1, false);
  for (const ValueId value : wanted) value_live[static_cast<size_t>(value)] = true;
  std::vector<bool> node_live(graph.nodes.size(), false);
  // Producers come before consumers, so one sweep from the end finds all.
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool live = false;
    for (const ValueId out : node.outputs) live = live || value_live[static_cast<size_t>(out)];
    for (const PlaneUse& use : node.planes) live = live || (use.access & BL_WRITE) != 0;
    if (!live) continue;
    node_live[i] = true;
    for (const ValueId in : node.inputs) value_live[static_cast<size_t>(in)] = true;
  }
  return node_live;
}

}  // namespace bloomery::graph
