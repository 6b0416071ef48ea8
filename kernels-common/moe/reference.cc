#include "kernels-common/moe/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/linear/reference.h"

namespace bloomery::kernels::reference {

bool RouteRow(const RouterArgs& args, std::size_t row) {
  const float* logits = args.logits + row * args.logits_stride;
  std::vector<float> p(logits, logits + args.experts);
  const bool finite =
      std::all_of(p.begin(), p.end(), [](float value) { return std::isfinite(value); });
  if (finite && args.gate == RouterGate::kSigmoid) {
    for (float& value : p) {
      value = ExactSigmoid(value);
    }
  } else if (finite) {
    const float max = *std::max_element(p.begin(), p.end());
    for (float& value : p) {
      value = ExactExp(value - max);
    }
    const float sum = Sum32(p.data(), p.size());
    for (float& value : p) {
      value /= sum;
    }
  } else {
    std::fill(p.begin(), p.end(), 0.0F);
  }
  std::vector<float> choice = p;
  for (std::size_t e = 0; args.bias != nullptr && e < args.experts; ++e) {
    choice[e] += args.bias[e];
  }
  std::vector<std::int32_t> order(args.experts);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const float pa = choice[static_cast<std::size_t>(a)];
    const float pb = choice[static_cast<std::size_t>(b)];
    return pa > pb || (pa == pb && a < b);
  });
  float picked = 0.0F;
  for (std::size_t i = 0; i < args.top_k; ++i) {
    picked += p[static_cast<std::size_t>(order[i])];
  }
  picked = std::max(picked, args.sum_min);
  for (std::size_t i = 0; i < args.top_k; ++i) {
    args.ids[row * args.top_k + i] = order[i];
    const float value = p[static_cast<std::size_t>(order[i])];
    const float w = (args.renormalise ? value / picked : value) * args.weight_scale;
    args.weights[row * args.top_k + i] = finite ? w : std::numeric_limits<float>::quiet_NaN();
  }
  return finite;
}

void ExpertGateUp(const ExpertGateUpArgs& args, std::size_t place, std::size_t n_begin,
                  std::size_t n_end) {
  std::vector<float> up(n_end);
  LinearArgs linear;
  linear.weight = args.gate;
  linear.x = args.x;
  linear.x_stride = args.x_stride;
  linear.quantised = args.quantised;
  linear.row_ids = args.place_rows + place;
  linear.rows = 1;
  linear.y = args.h + place * args.h_stride;
  Linear(linear, n_begin, n_end);
  linear.weight = args.up;
  linear.y = up.data();
  Linear(linear, n_begin, n_end);
  float* h = args.h + place * args.h_stride;
  for (std::size_t n = n_begin; n < n_end; ++n) {
    h[n] = ExactSilu(h[n]) * up[n];
  }
}

bool PickSum(const PickSumArgs& args, std::size_t row) {
  bool valid = true;
  for (std::size_t i = 0; i < args.dim; ++i) {
    std::int64_t sum = 0;
    for (std::size_t pick = 0; pick < args.top_k; ++pick) {
      const std::size_t pair = row * args.top_k + pick;
      if (args.pair_places[pair] < 0) continue;
      const auto place = static_cast<std::size_t>(args.pair_places[pair]);
      const float v = args.weights[pair] * args.y[place * args.y_stride + i];
      if (!(std::fabs(v) < 0x1p26F)) {
        valid = false;
        continue;
      }
      sum += static_cast<std::int64_t>(std::rint(static_cast<double>(v) * 0x1p32));
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

}  // namespace bloomery::kernels::reference
