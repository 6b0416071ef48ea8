#include "kernels-common/cpu/fp_environment.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace bloomery::kernels {
namespace {

// What changes a result: rounding mode, flush to zero, denormals are zero. Exception flags and
// masks do not, but unmasked exceptions would trap, so the default masks all.
#if defined(__x86_64__)
constexpr std::uint64_t kDefault = 0x1F80;
constexpr std::uint64_t kResultBits = 0xE040;
std::uint64_t Read() { return _mm_getcsr(); }
void Write(std::uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
constexpr std::uint64_t kDefault = 0;
constexpr std::uint64_t kResultBits = (1ULL << 24U) | (3ULL << 22U) | (1ULL << 19U);
std::uint64_t Read() {
  std::uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void Write(std::uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
#error "kernels-common needs the floating-point control register of this machine"
#endif

}  // namespace

bool FpEnvironmentIsDefault() { return (Read() & kResultBits) == (kDefault & kResultBits); }

ScopedFpEnvironment::ScopedFpEnvironment() : saved_(Read()) { Write(kDefault); }

ScopedFpEnvironment::~ScopedFpEnvironment() { Write(saved_); }

}  // namespace bloomery::kernels
