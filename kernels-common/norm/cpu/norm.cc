#include "kernels-common/norm/cpu/norm.h"

#include "kernels-common/cpu/dispatch.h"
#include "kernels-common/norm/cpu/isa_entries.h"

namespace bloomery::kernels::cpu {

void RmsNorm(Isa isa, const RmsNormArgs& args, std::size_t row_begin, std::size_t row_end) {
  BLOOMERY_KERNEL(isa, RmsNorm)(args, row_begin, row_end);
}

void L2Norm(Isa isa, const L2NormArgs& args, std::size_t row_begin, std::size_t row_end) {
  BLOOMERY_KERNEL(isa, L2Norm)(args, row_begin, row_end);
}

}  // namespace bloomery::kernels::cpu
