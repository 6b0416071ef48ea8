// The host's side of bl_builder: a plugin's build function adds nodes through it, and gets a
// checked Graph out of it. Every call is checked against the operator set and the seat; the first
// failure is kept with operator, layer, port and shapes, and every later call fails too. One [load]
// thread.
//
//   GraphBuilder builder(operators, seat, {.rows = 32, .logit_rows = 32});
//   entry.build(instance, builder.abi(), &build);
//   Graph graph = builder.Take();
#pragma once

#include <bloomery/graph.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/operator.h"

namespace bloomery::graph {

struct BuildSizes {
  int32_t rows = 0;        // capacity of the pass-rows domain
  int32_t logit_rows = 0;  // capacity of the logit-rows domain; 0: the entry has none
};

class GraphBuilder {
 public:
  // `operators` and `seat` outlive the builder and its graph.
  GraphBuilder(const OperatorSet& operators, const SeatInfo& seat, BuildSizes sizes);
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  // What a build function is given; valid as long as the builder.
  const bl_builder* abi() const { return &abi_; }

  // The reason of the first failed call, if one failed.
  const std::optional<Error>& failure() const { return failure_; }

  // The finished graph; the builder is empty afterwards. Throws the first failure.
  Graph Take();

 private:
  bl_status Guard(const std::function<void()>& body) noexcept;
  std::string Where(const bl_node& node) const;

  void Layer(int32_t layer);
  void Input(bl_row_field field, bl_value* out);
  bl_status Weight(uint32_t index, bl_shape* out);
  void AddNode(const bl_node& node, bl_value* outs, uint32_t n_outs);
  void AddExpanded(const OperatorSchema& op, const bl_node& node, bl_value* outs, uint32_t n_outs);
  void CheckInputs(const OperatorSchema& op, const bl_node& node, std::vector<Shape>* shapes) const;
  void CheckWeights(const OperatorSchema& op, const bl_node& node) const;
  void CheckPlanes(const OperatorSchema& op, const bl_node& node) const;
  void CheckAttrs(const OperatorSchema& op, const Attrs& attrs) const;
  const Shape& ShapeOf(bl_value value) const;
  bl_status Domain(bl_domain_kind kind, bl_domain* out) const;
  void ExportValue(const char* name, bl_value value);

  const OperatorSet& operators_;
  const SeatInfo& seat_;
  BuildSizes sizes_;
  bl_builder abi_;
  Graph graph_;
  int32_t layer_ = -1;
  int32_t expansions_ = 0;  // open at the moment
  int32_t layer_highest_ = -1;
  std::optional<Error> failure_;
};

}  // namespace bloomery::graph
