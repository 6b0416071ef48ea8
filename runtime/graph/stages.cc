#include "runtime/graph/stages.h"

#include <algorithm>
#include <map>

#include "runtime/base/error.h"

namespace bloomery::graph {
namespace {

constexpr size_t kNoStage = SIZE_MAX;

// By node: its stage. Layers ascend in program order, so stages do.
std::vector<size_t> StagesOfNodes(const Graph& graph, std::span<const int32_t> ends) {
  int32_t last = -1;
  for (const Node& node : graph.nodes) last = std::max(last, node.layer);
  std::vector<size_t> stages;
  size_t stage = 0;
  int32_t layer = -1;
  for (const Node& node : graph.nodes) {
    layer = std::max(layer, node.layer);
    const bool behind = node.layer < 0 && layer == last && last >= 0;
    while (stage + 1 < ends.size() && (behind || layer >= ends[stage])) ++stage;
    stages.push_back(stage);
  }
  return stages;
}

// A plane's rows lie in one memory.
void CheckPlanes(const Graph& graph, const std::vector<size_t>& stages) {
  std::map<uint32_t, size_t> first;  // by plane: a node that uses it
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const PlaneUse& use : graph.nodes[i].planes) {
      const size_t other = first.try_emplace(use.plane, i).first->second;
      if (stages[other] == stages[i]) continue;
      throw Error(ErrorKind::kUnsupported,
                  "plane " + std::to_string(use.plane) + " is used by layers " +
                      std::to_string(graph.nodes[other].layer) + " and " +
                      std::to_string(graph.nodes[i].layer) +
                      ", which would lie on different cards; cut the layers elsewhere "
                      "(--tensor-split)");
    }
  }
}

}  // namespace

std::string CrossingName(ValueId value) { return "crossing." + std::to_string(value); }

std::vector<Stage> CutIntoStages(const Graph& graph, std::span<const int32_t> ends,
                                 const std::vector<ValueId>& wanted) {
  const std::vector<bool> live = LiveNodes(graph, wanted);
  const std::vector<size_t> stage_of_node = StagesOfNodes(graph, ends);
  CheckPlanes(graph, stage_of_node);
  std::vector<Stage> stages(ends.size());
  for (Stage& stage : stages) {
    stage.graph.values = graph.values;
    for (Value& value : stage.graph.values) {
      value.crosses = value.producer >= 0;  // until the stage turns out to make it
      value.producer = -1;
    }
  }
  std::vector<size_t> made_in(graph.values.size() + 1, kNoStage);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!live[i]) continue;
    const Node& node = graph.nodes[i];
    const size_t here = stage_of_node[i];
    Stage& stage = stages[here];
    for (const ValueId input : node.inputs) {
      if (input == 0) continue;
      const size_t from = made_in[static_cast<size_t>(input)];
      if (from == kNoStage || from == here) continue;
      if (std::ranges::find(stage.crossings, input, &Crossing::value) != stage.crossings.end()) {
        continue;
      }
      stage.crossings.push_back({input, from});
      std::vector<Export>& exports = stages[from].graph.exports;
      const std::string name = CrossingName(input);
      if (std::ranges::find(exports, name, &Export::name) == exports.end()) {
        exports.push_back({name, input});
      }
    }
    for (const ValueId output : node.outputs) {
      if (output == 0) continue;
      made_in[static_cast<size_t>(output)] = here;
      Value& value = stage.graph.values[static_cast<size_t>(output) - 1];
      value.producer = static_cast<NodeId>(stage.graph.nodes.size());
      value.crosses = false;
    }
    stage.graph.nodes.push_back(node);
  }
  for (const Export& exported : graph.exports) {
    const size_t here = made_in[static_cast<size_t>(exported.value)];
    if (here != kNoStage) stages[here].graph.exports.push_back(exported);
  }
  for (Stage& stage : stages) std::ranges::sort(stage.crossings, {}, &Crossing::value);
  return stages;
}

}  // namespace bloomery::graph
