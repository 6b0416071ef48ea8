// The standard operator set (<bloomery/operators.h>): schemas and inference, plus the operators
// that a plugin registers. Which kernel runs an operator is lowering's matter; its steps are in the
// files of the topics beside this one. Constant after construction; any thread.
#pragma once

#include <bloomery/seat.h>

#include <deque>
#include <string_view>
#include <vector>

#include "runtime/graph/operator.h"

namespace bloomery::ops {

// The standard operators, one schema each.
std::vector<graph::OperatorSchema> StandardOperators();

class Operators : public graph::OperatorSet {
 public:
  // The standard set alone.
  Operators();

  // Adds a plugin's own operator. Throws Error(kBadModel) when its name is not
  // "<plugin>.<something>", it is registered already, or it has no inference. `op` outlives this
  // set.
  void Add(std::string_view plugin, const bl_op& op);

  const graph::OperatorSchema* Find(std::string_view name, uint32_t version,
                                    uint32_t* other_version) const override;

 private:
  std::deque<graph::OperatorSchema> schemas_;  // graphs point at them
};

}  // namespace bloomery::ops
