#include "kernels-common/cpu/lanes_scalar.h"
#include "kernels-common/elementwise/cpu/impl.h"
#include "kernels-common/elementwise/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::scalar {

void Add(const float* a, const float* b, float* y, std::size_t count) {
  AddLanes<ScalarLanes>(a, b, y, count);
}

void SwiGlu(const float* gate, const float* up, float* h, std::size_t count) {
  SwiGluLanes<ScalarLanes>(gate, up, h, count);
}

}  // namespace bloomery::kernels::cpu::scalar
