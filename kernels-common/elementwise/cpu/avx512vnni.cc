#include "kernels-common/cpu/lanes_avx512.h"
#include "kernels-common/elementwise/cpu/impl.h"
#include "kernels-common/elementwise/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::avx512vnni {

void SwiGlu(const float* gate, const float* up, float* h, std::size_t count) {
  SwiGluLanes<Avx512Lanes>(gate, up, h, count);
}

}  // namespace bloomery::kernels::cpu::avx512vnni
