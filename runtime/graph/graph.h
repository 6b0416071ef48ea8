// The intermediate form of one program: SSA values and the nodes that make them, in program order.
// Order is also the order of effects: nodes that touch one plane run in the order they were added.
// Made by a GraphBuilder, read by lowering; plain data, no kernels, no memory of values.
#pragma once

#include <bloomery/graph.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/attrs.h"
#include "runtime/graph/operator.h"

namespace bloomery::graph {

using ValueId = int32_t;  // 1 … values; 0 is none
using NodeId = int32_t;

struct PlaneUse {
  uint32_t plane = 0;  // index into the seat's planes
  bl_access access = BL_READ;
};

struct Value {
  Shape shape = {};
  NodeId producer = -1;                 // -1: a row field, or it crosses
  bl_row_field field = BL_FIELD_TOKEN;  // where there is no producer
  bool crosses = false;                 // another stage makes it (stages.h)
};

struct Node {
  const OperatorSchema* op = nullptr;
  int32_t layer = -1;
  std::vector<ValueId> inputs = {};  // 0 where an optional input is absent
  std::vector<uint32_t> weights = {};
  std::vector<PlaneUse> planes = {};
  Attrs attrs = {};
  std::vector<ValueId> outputs = {};
};

struct Export {
  std::string name = {};
  ValueId value = 0;
};

struct Graph {
  std::vector<Value> values;  // values[id - 1]
  std::vector<Node> nodes;
  std::vector<Export> exports;

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id) - 1]; }
  // The exported value of that name, or 0.
  ValueId FindExport(std::string_view name) const;
};

// "linear/1".
std::string OperatorName(const OperatorSchema& op);

// Which nodes a program must run to give the values named in `wanted` and to have all its effects
// on planes: one flag a node.
std::vector<bool> LiveNodes(const Graph& graph, const std::vector<ValueId>& wanted);

}  // namespace bloomery::graph
