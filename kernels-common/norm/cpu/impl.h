// RMS norm on lane types; the order is norm.h's. Internal.
#pragma once

#include "kernels-common/cpu/dot32.h"
#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/norm/norm.h"

namespace bloomery::kernels::cpu {

template <class V>
void RmsNormRows(const RmsNormArgs& args, std::size_t row_begin, std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    for (std::size_t group = 0; group < args.groups; ++group) {
      const float* x = args.x + row * args.x_stride + group * args.dim;
      float* y = args.y + row * args.y_stride + group * args.dim;
      const float mean = Dot32<V>(x, x, args.dim) / static_cast<float>(args.dim);
      const auto r = V::Set1(ExactInverseSqrt(mean + args.eps));
      for (std::size_t i = 0; i < args.dim; i += 8) {
        const std::size_t n = std::min<std::size_t>(8, args.dim - i);
        auto value = V::Mul(V::LoadFirst(x + i, n), r);
        if (args.weight != nullptr) {
          value = V::Mul(value, V::LoadFirst(args.weight + i, n));
        }
        V::StoreFirst(y + i, value, n);
      }
    }
  }
}

template <class V>
void L2NormRows(const L2NormArgs& args, std::size_t row_begin, std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    for (std::size_t group = 0; group < args.groups; ++group) {
      const float* x = args.x + row * args.x_stride + group * args.dim;
      float* y = args.y + row * args.y_stride + group * args.dim;
      const auto r = V::Set1(args.scale * ExactInverseSqrt(Dot32<V>(x, x, args.dim) + args.eps));
      for (std::size_t i = 0; i < args.dim; i += V::kLanes) {
        const std::size_t n = std::min(V::kLanes, args.dim - i);
        V::StoreFirst(y + i, V::Mul(V::LoadFirst(x + i, n), r), n);
      }
    }
  }
}

}  // namespace bloomery::kernels::cpu
