// The plain definition of the routed-expert steps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/moe/moe.h"

namespace bloomery::kernels::reference {

// False where a logit of the row is not finite; ids are then distinct and in range, weights NaN.
bool RouteRow(const RouterArgs& args, std::size_t row);
// h of one place.
void ExpertGateUp(const ExpertGateUpArgs& args, std::size_t place, std::size_t n_begin,
                  std::size_t n_end);
// False where a pick of the row is not finite or |v_p| >= 2^26: the row's output is then
// unspecified.
bool PickSum(const PickSumArgs& args, std::size_t row);

}  // namespace bloomery::kernels::reference
