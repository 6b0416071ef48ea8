#include "kernels-common/rope/reference.h"

#include "kernels-common/exact_math/trig.h"

namespace bloomery::kernels::reference {

void Rope(const RopeArgs& args, std::size_t row_begin, std::size_t row_end) {
  const std::size_t half = args.n_rot / 2;
  for (std::size_t row = row_begin; row < row_end; ++row) {
    for (std::size_t head = 0; head < args.heads; ++head) {
      const float* x = args.x + row * args.x_stride + head * args.head_dim;
      float* y = args.y + row * args.y_stride + head * args.head_dim;
      for (std::size_t i = 0; i < half; ++i) {
        const auto turn =
            ExactSinCos(static_cast<double>(args.positions[row]) * args.frequencies[i]);
        const float c = static_cast<float>(turn.cos) * args.magnitude;
        const float s = static_cast<float>(turn.sin) * args.magnitude;
        const float a = x[i];
        const float b = x[i + half];
        y[i] = a * c - b * s;
        y[i + half] = b * c + a * s;
      }
      for (std::size_t i = args.n_rot; i < args.head_dim; ++i) {
        y[i] = x[i];
      }
    }
  }
}

}  // namespace bloomery::kernels::reference
