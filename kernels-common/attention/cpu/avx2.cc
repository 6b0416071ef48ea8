#include "kernels-common/attention/cpu/isa_entries.h"
#include "kernels-common/attention/cpu/window_impl.h"
#include "kernels-common/cpu/lanes_avx2.h"

namespace bloomery::kernels::cpu::avx2 {
namespace {

// Tiles of two queries by four vectors: eight sums, four operands and a broadcast of sixteen
// registers.
struct Lanes : Avx2Lanes {
  static constexpr std::size_t kScoreQueries = 2;
  static constexpr std::size_t kValueQueries = 2;
};

}  // namespace

const WindowKernels& Window() { return kWindowKernels<Lanes>; }

}  // namespace bloomery::kernels::cpu::avx2
