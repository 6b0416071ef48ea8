// The kernels of a window with AVX-512: sixteen lanes a register, thirty-two registers.
#include "kernels-common/attention/cpu/isa_entries.h"
#include "kernels-common/attention/cpu/window_impl.h"
#include "kernels-common/cpu/lanes_avx512.h"

namespace bloomery::kernels::cpu::avx512vnni {
namespace {

struct Lanes : Avx512Lanes {
  // Scores: 8 sums of the lane that is being added, 8 that wait for their partner. Values: 16 sums.
  static constexpr std::size_t kScoreQueries = 4;
  static constexpr std::size_t kValueQueries = 8;
};

}  // namespace

const WindowKernels& Window() { return kWindowKernels<Lanes>; }

}  // namespace bloomery::kernels::cpu::avx512vnni
