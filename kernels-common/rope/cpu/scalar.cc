#include "kernels-common/cpu/lanes_scalar.h"
#include "kernels-common/rope/cpu/impl.h"
#include "kernels-common/rope/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::scalar {

void Rope(const RopeArgs& args, std::size_t row_begin, std::size_t row_end) {
  RopeRows<ScalarLanes>(args, row_begin, row_end,
                        [](const RopeArgs& a, double position, RopeTurns* turns) {
                          FillTurns(a, position, 0, a.n_rot / 2, turns);
                        });
}

}  // namespace bloomery::kernels::cpu::scalar
