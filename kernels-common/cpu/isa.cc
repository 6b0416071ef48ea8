#include "kernels-common/cpu/isa.h"

#include <array>

namespace bloomery::kernels {
namespace {

#if defined(BLOOMERY_KERNELS_AVX2)
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         __builtin_cpu_supports("f16c") != 0;
}
#else
bool HasAvx2() { return false; }
#endif

constexpr std::array<Isa, 2> kAll = {Isa::kScalar, Isa::kAvx2};

}  // namespace

Isa DetectIsa() { return AvailableIsas().back(); }

std::span<const Isa> AvailableIsas() { return std::span<const Isa>(kAll).first(HasAvx2() ? 2 : 1); }

const char* IsaName(Isa isa) { return isa == Isa::kAvx2 ? "avx2" : "scalar"; }

}  // namespace bloomery::kernels
