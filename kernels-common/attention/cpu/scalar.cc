#include "kernels-common/attention/cpu/isa_entries.h"
#include "kernels-common/attention/cpu/window_impl.h"
#include "kernels-common/cpu/lanes_scalar.h"

namespace bloomery::kernels::cpu::scalar {
namespace {

struct Lanes : ScalarLanes {
  static constexpr std::size_t kScoreQueries = 1;
  static constexpr std::size_t kValueQueries = 1;
};

}  // namespace

const WindowKernels& Window() { return kWindowKernels<Lanes>; }

}  // namespace bloomery::kernels::cpu::scalar
