#include "kernels-common/norm/reference.h"

#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/linear/reference.h"

namespace bloomery::kernels::reference {

void RmsNorm(const RmsNormArgs& args, std::size_t row_begin, std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    for (std::size_t group = 0; group < args.groups; ++group) {
      const float* x = args.x + row * args.x_stride + group * args.dim;
      float* y = args.y + row * args.y_stride + group * args.dim;
      const float mean = Dot32(x, x, args.dim) / static_cast<float>(args.dim);
      const float r = ExactInverseSqrt(mean + args.eps);
      for (std::size_t i = 0; i < args.dim; ++i) {
        const float scaled = x[i] * r;
        y[i] = args.weight == nullptr ? scaled : scaled * args.weight[i];
      }
    }
  }
}

void L2Norm(const L2NormArgs& args, std::size_t row_begin, std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    for (std::size_t group = 0; group < args.groups; ++group) {
      const float* x = args.x + row * args.x_stride + group * args.dim;
      float* y = args.y + row * args.y_stride + group * args.dim;
      const float r = args.scale * ExactInverseSqrt(Dot32(x, x, args.dim) + args.eps);
      for (std::size_t i = 0; i < args.dim; ++i) y[i] = x[i] * r;
    }
  }
}

}  // namespace bloomery::kernels::reference
