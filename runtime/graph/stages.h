// A graph cut into stages: runs of its layers that are lowered by themselves, each for a memory of
// its own, and run one after the other. A value that an earlier stage makes and a later one reads
// crosses: the earlier stage exports it, the later one has it as a value that nobody makes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/graph/graph.h"

namespace bloomery::graph {

// A value of a stage that an earlier one makes.
struct Crossing {
  ValueId value = 0;  // the same in both stages
  size_t from = 0;    // the stage that makes it
};

struct Stage {
  // The nodes of its layers that something needs; values keep their numbers. Exports: those of the
  // whole graph that this stage makes, and CrossingName(v) for what later ones read.
  Graph graph;
  std::vector<Crossing> crossings;  // into it, ascending
};

// The export that a crossing value has in the stage that makes it.
std::string CrossingName(ValueId value);

// Stage i holds the layers below ends[i] that no stage before holds. Nodes of no layer are in the
// stage of the one before them: the first where there is none, the last behind the last layer.
// `ends` ascends. `wanted` are values to be read after a pass. Throws Error(kUnsupported) naming
// the layers whose plane would lie in two stages.
std::vector<Stage> CutIntoStages(const Graph& graph, std::span<const int32_t> ends,
                                 const std::vector<ValueId>& wanted);

}  // namespace bloomery::graph
