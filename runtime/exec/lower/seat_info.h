// A checked seat description as graphs and lowering look at it: shapes of weights, planes and
// banks, and the operator set with the plugin's own operators in it.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/operator.h"
#include "runtime/ops/operators.h"
#include "runtime/plugin/description.h"

namespace bloomery::exec {

graph::SeatInfo MakeSeatInfo(const plugin::Description& description);

// The standard operators and those of a description, which it outlives. An operator without a CPU
// kernel is expanded while the graph is built.
class SeatOperators {
 public:
  SeatOperators(std::string_view plugin, const plugin::Description& description);
  SeatOperators(const SeatOperators&) = delete;
  SeatOperators& operator=(const SeatOperators&) = delete;

  const ops::Operators& set() const { return set_; }

 private:
  // The C form of one operator, which points into this struct.
  struct Parts {
    std::vector<bl_port> inputs, weights, outputs;
    std::vector<const char*> attrs;
    std::vector<bl_kernel> kernels;
    bl_op op{};
  };
  std::deque<Parts> parts_;
  ops::Operators set_;
};

}  // namespace bloomery::exec
