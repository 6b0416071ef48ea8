#include "kernels-common/cpu/isa.h"

#include <array>
#include <cstddef>

namespace bloomery::kernels {
namespace {

#if defined(BLOOMERY_KERNELS_AVX2)
// The compiler's test includes that the system saves the registers.
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         __builtin_cpu_supports("f16c") != 0;
}
bool HasAvx512Vnni() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
}
#else
bool HasAvx2() { return false; }
bool HasAvx512Vnni() { return false; }
#endif

constexpr std::array<Isa, 3> kAll = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni};

}  // namespace

Isa DetectIsa() { return AvailableIsas().back(); }

std::span<const Isa> AvailableIsas() {
  return std::span<const Isa>(kAll).first(HasAvx512Vnni() ? 3 : HasAvx2() ? 2 : 1);
}

const char* IsaName(Isa isa) { return kIsaNames[static_cast<size_t>(isa)].data(); }

}  // namespace bloomery::kernels
