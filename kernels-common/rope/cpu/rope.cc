#include "kernels-common/rope/cpu/rope.h"

#include <cassert>

#include "kernels-common/cpu/dispatch.h"
#include "kernels-common/rope/cpu/isa_entries.h"

namespace bloomery::kernels::cpu {

void Rope(Isa isa, const RopeArgs& args, std::size_t row_begin, std::size_t row_end) {
  assert(args.n_rot % 2 == 0 && args.n_rot <= kMaxRopeValues && args.n_rot <= args.head_dim);
  BLOOMERY_KERNEL(isa, Rope)(args, row_begin, row_end);
}

}  // namespace bloomery::kernels::cpu
