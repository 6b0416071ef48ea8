#include "kernels-common/exact_math/trig.h"
#include "kernels-common/rope/rope.h"

namespace bloomery::kernels {

void RopeFrequencies(double theta, std::size_t n_rot, double* frequencies) {
  for (std::size_t i = 0; i < n_rot / 2; ++i) {
    frequencies[i] =
        ExactPowerOf(theta, -2.0 * static_cast<double>(i) / static_cast<double>(n_rot));
  }
}

}  // namespace bloomery::kernels
