#include "kernels-common/cpu/isa.h"

#include <array>
#include <cstddef>

#if defined(BLOOMERY_KERNELS_AVX2)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

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

// CPUID leaf 7: AMX tiles and their products of int8 and of bf16.
bool CpuHasAmx() {
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t c = 0;
  std::uint32_t d = 0;
  constexpr std::uint32_t kNeeded = (1U << 24U) | (1U << 25U) | (1U << 22U);
  return HasAvx512Vnni() && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
         (d & kNeeded) == kNeeded;
}

// Empty, or what the system says against it. The right lasts as long as the process, for all its
// threads; a second request does nothing.
std::string_view AskForAmx() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr std::uint32_t kTileState = (1U << 17U) | (1U << 18U);
  if ((low & kTileState) != kTileState) {
    return "the system does not save its registers (XCR0)";
  }
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) {
    return "the kernel refuses its state (arch_prctl ARCH_REQ_XCOMP_PERM)";
  }
  return {};
}
#else
bool HasAvx2() { return false; }
bool HasAvx512Vnni() { return false; }
bool CpuHasAmx() { return false; }
std::string_view AskForAmx() { return {}; }
#endif

struct Amx {
  bool cpu = CpuHasAmx();
  std::string_view refusal = cpu ? AskForAmx() : std::string_view();
  bool usable() const { return cpu && refusal.empty(); }
};

const Amx& AmxOnce() {
  static const Amx amx;
  return amx;
}

constexpr std::array<Isa, 4> kAll = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni, Isa::kAmx};

}  // namespace

Isa DetectIsa() { return AvailableIsas().back(); }

std::span<const Isa> AvailableIsas() {
  const Isa best = AmxOnce().usable() ? Isa::kAmx
                   : HasAvx512Vnni()  ? Isa::kAvx512Vnni
                   : HasAvx2()        ? Isa::kAvx2
                                      : Isa::kScalar;
  return std::span<const Isa>(kAll).first(static_cast<std::size_t>(best) + 1);
}

std::string_view WhyNoAmx() { return AmxOnce().refusal; }

const char* IsaName(Isa isa) { return kIsaNames[static_cast<size_t>(isa)].data(); }

}  // namespace bloomery::kernels
