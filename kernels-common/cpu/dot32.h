// N8's order on lane types: P_l over k = l mod 32 by ascending fma from +0, then the tree 16, 8, 4,
// 2, 1. Four vectors of eight, or two of sixteen, hold the 32 lanes; a tail changes only the lanes
// it reaches. Internal.
#pragma once

#include <algorithm>
#include <cstddef>

namespace bloomery::kernels::cpu {

// Lanes of vector p (k = V::kLanes * p and on, mod 32) that a tail of `tail` values reaches.
template <class V>
std::size_t TailLanes(std::size_t tail, std::size_t p) {
  constexpr std::size_t kLanes = V::kLanes;
  return tail <= kLanes * p ? 0 : std::min(kLanes, tail - kLanes * p);
}

// Step 16 of the tree, and 8 where vectors hold eight; V::Reduce ends it.
template <class V>
typename V::F Fold(const typename V::F* lanes) {
  if constexpr (V::kLanes == 16) {
    return V::Add(lanes[0], lanes[1]);
  } else {
    return V::Add(V::Add(lanes[0], lanes[2]), V::Add(lanes[1], lanes[3]));
  }
}

template <class V>
float Dot32(const float* a, const float* b, std::size_t k) {
  typename V::F lanes[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
  std::size_t i = 0;
  for (; i + 32 <= k; i += 32) {
    for (std::size_t p = 0; p < 4; ++p) {
      lanes[p] = V::Fma(V::Load(a + i + 8 * p), V::Load(b + i + 8 * p), lanes[p]);
    }
  }
  for (std::size_t p = 0; p < 4 && i < k; ++p) {
    const std::size_t n = TailLanes<V>(k - i, p);
    const auto sum =
        V::Fma(V::LoadFirst(a + i + 8 * p, n), V::LoadFirst(b + i + 8 * p, n), lanes[p]);
    lanes[p] = V::First(n, sum, lanes[p]);
  }
  return V::Reduce(Fold<V>(lanes));
}

template <class V>
float Sum32(const float* a, std::size_t k) {
  typename V::F lanes[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
  std::size_t i = 0;
  for (; i + 32 <= k; i += 32) {
    for (std::size_t p = 0; p < 4; ++p) {
      lanes[p] = V::Add(lanes[p], V::Load(a + i + 8 * p));
    }
  }
  for (std::size_t p = 0; p < 4 && i < k; ++p) {
    const std::size_t n = TailLanes<V>(k - i, p);
    lanes[p] = V::First(n, V::Add(lanes[p], V::LoadFirst(a + i + 8 * p, n)), lanes[p]);
  }
  return V::Reduce(Fold<V>(lanes));
}

}  // namespace bloomery::kernels::cpu
