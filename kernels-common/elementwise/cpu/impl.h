// Elementwise steps on lane types. Internal.
#pragma once

#include <algorithm>

#include "kernels-common/elementwise/elementwise.h"
#include "kernels-common/exact_math/lanes.h"

namespace bloomery::kernels::cpu {

template <class V>
void AddLanes(const float* a, const float* b, float* y, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 8) {
    const std::size_t n = std::min<std::size_t>(8, count - i);
    V::StoreFirst(y + i, V::Add(V::LoadFirst(a + i, n), V::LoadFirst(b + i, n)), n);
  }
}

template <class V>
void SwiGluLanes(const float* gate, const float* up, float* h, std::size_t count) {
  for (std::size_t i = 0; i < count; i += V::kLanes) {
    const std::size_t n = std::min(V::kLanes, count - i);
    const auto silu = SiluLanes<V>(V::LoadFirst(gate + i, n));
    V::StoreFirst(h + i, V::Mul(silu, V::LoadFirst(up + i, n)), n);
  }
}

template <class V>
void GateRows(const GateArgs& args, std::size_t row_begin, std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    const float* x = args.x + row * args.width;
    const float* gate = args.gate + row * (args.single ? 1 : args.width);
    for (std::size_t i = 0; i < args.width; i += V::kLanes) {
      const std::size_t n = std::min(V::kLanes, args.width - i);
      const auto g = args.single ? V::Set1(gate[0]) : V::LoadFirst(gate + i, n);
      const auto factor =
          args.function == GateFunction::kSilu ? SiluLanes<V>(g) : SigmoidLanes<V>(g);
      V::StoreFirst(args.y + row * args.width + i, V::Mul(V::LoadFirst(x + i, n), factor), n);
    }
  }
}

}  // namespace bloomery::kernels::cpu
