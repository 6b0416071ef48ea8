// Steps of the router and of the pick sum that both instruction sets share. Internal.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels-common/cpu/dot32.h"
#include "kernels-common/exact_math/lanes.h"
#include "kernels-common/moe/moe.h"

namespace bloomery::kernels::cpu {

template <class V>
bool SoftmaxRow(const float* logits, std::size_t experts, float* p) {
  float max = logits[0];
  bool finite = true;
  for (std::size_t i = 0; i < experts; ++i) {
    finite = finite && std::isfinite(logits[i]);
    max = std::max(max, logits[i]);
  }
  if (!finite) {
    std::fill_n(p, experts, 0.0F);
    return false;
  }
  for (std::size_t i = 0; i < experts; i += 8) {
    const std::size_t n = std::min<std::size_t>(8, experts - i);
    V::StoreFirst(p + i, ExpLanes<V>(V::Sub(V::LoadFirst(logits + i, n), V::Set1(max))), n);
  }
  const auto sum = V::Set1(Sum32<V>(p, experts));
  for (std::size_t i = 0; i < experts; i += 8) {
    const std::size_t n = std::min<std::size_t>(8, experts - i);
    V::StoreFirst(p + i, V::Div(V::LoadFirst(p + i, n), sum), n);
  }
  return true;
}

template <class V>
bool SigmoidRow(const float* logits, std::size_t experts, float* p) {
  for (std::size_t i = 0; i < experts; ++i) {
    if (std::isfinite(logits[i])) continue;
    std::fill_n(p, experts, 0.0F);
    return false;
  }
  for (std::size_t i = 0; i < experts; i += 8) {
    const std::size_t n = std::min<std::size_t>(8, experts - i);
    V::StoreFirst(p + i, SigmoidLanes<V>(V::LoadFirst(logits + i, n)), n);
  }
  return true;
}

// N7's limit: a pick that reaches it fails its row.
inline constexpr float kPickLimit = 0x1p26F;

// Columns one at a time.
inline bool PickSumColumns(const PickSumArgs& args, std::size_t row, std::size_t column_begin,
                           std::size_t column_end) {
  bool valid = true;
  for (std::size_t i = column_begin; i < column_end; ++i) {
    std::int64_t sum = 0;
    for (std::size_t pick = 0; pick < args.top_k; ++pick) {
      const std::size_t pair = row * args.top_k + pick;
      if (args.pair_places[pair] < 0) continue;
      const auto place = static_cast<std::size_t>(args.pair_places[pair]);
      const float v = args.weights[pair] * args.y[place * args.y_stride + i];
      if (std::fabs(v) < kPickLimit) {
        sum += static_cast<std::int64_t>(std::rint(static_cast<double>(v) * 0x1p32));
      } else {
        valid = false;
      }
    }
    if (args.sums != nullptr) {
      args.sums[row * args.dim + i] = sum;
      continue;
    }
    const float moe = static_cast<float>(sum) * 0x1p-32F;
    args.out[row * args.out_stride + i] =
        args.residual == nullptr ? moe : args.residual[row * args.residual_stride + i] + moe;
  }
  return valid;
}

}  // namespace bloomery::kernels::cpu
