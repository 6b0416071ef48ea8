#include "kernels-common/cpu/lanes_avx2.h"
#include "kernels-common/elementwise/cpu/impl.h"
#include "kernels-common/elementwise/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::avx2 {

void Add(const float* a, const float* b, float* y, std::size_t count) {
  AddLanes<Avx2Lanes>(a, b, y, count);
}

void SwiGlu(const float* gate, const float* up, float* h, std::size_t count) {
  SwiGluLanes<Avx2Lanes>(gate, up, h, count);
}

void Gate(const GateArgs& args, std::size_t row_begin, std::size_t row_end) {
  GateRows<Avx2Lanes>(args, row_begin, row_end);
}

}  // namespace bloomery::kernels::cpu::avx2
