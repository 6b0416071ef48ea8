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

}  // namespace bloomery::kernels::cpu
