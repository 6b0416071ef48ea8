#include "kernels-common/cpu/lanes_avx2.h"
#include "kernels-common/norm/cpu/impl.h"
#include "kernels-common/norm/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::avx2 {

void RmsNorm(const RmsNormArgs& args, std::size_t row_begin, std::size_t row_end) {
  RmsNormRows<Avx2Lanes>(args, row_begin, row_end);
}

void L2Norm(const L2NormArgs& args, std::size_t row_begin, std::size_t row_end) {
  L2NormRows<Avx2Lanes>(args, row_begin, row_end);
}

}  // namespace bloomery::kernels::cpu::avx2
