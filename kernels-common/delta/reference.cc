#include "kernels-common/delta/reference.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/exact_math/trig.h"

namespace bloomery::kernels::reference {
namespace {

using Sums = std::array<float, kDeltaSums>;

float Joined(Sums sums) {
  for (std::size_t step = kDeltaSums / 2; step > 0; step /= 2) {
    for (std::size_t l = 0; l < step; ++l) sums[l] += sums[l + step];
  }
  return sums[0];
}

}  // namespace

void ShortConv(const ShortConvArgs& args, std::size_t rows, std::size_t channel_begin,
               std::size_t channel_end) {
  const std::size_t kept = args.taps - 1;
  for (std::size_t ch = channel_begin; ch < channel_end; ++ch) {
    std::array<float, kConvTapsMax> window{};  // oldest first, the row's own last
    for (std::size_t i = 0; i < kept; ++i) {
      window[i] = args.state_in == nullptr ? 0.0F : args.state_in[i * args.channels + ch];
    }
    for (std::size_t row = 0; row < rows; ++row) {
      window[kept] = args.x[row * args.x_stride + ch];
      float sum = 0.0F;
      for (std::size_t i = 0; i < args.taps; ++i) {
        sum = ExactFma(args.weight[ch * args.taps + i], window[i], sum);
      }
      args.y[row * args.y_stride + ch] = args.silu ? ExactSilu(sum) : sum;
      std::copy_n(window.begin() + 1, kept, window.begin());
    }
    for (std::size_t i = 0; i < kept; ++i) args.state_out[i * args.channels + ch] = window[i];
  }
}

void Delta(const DeltaArgs& args, std::size_t rows, std::size_t head) {
  const std::size_t n_k = args.key_dim;
  const std::size_t n_v = args.value_dim;
  std::vector<float> s(n_k * n_v, 0.0F);
  if (args.state_in != nullptr) {
    std::copy_n(args.state_in + head * s.size(), s.size(), s.begin());
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t at = row * args.value_heads + head;
    const float* q = args.q + (row * args.key_heads + args.KeyHead(head)) * n_k;
    const float* k = args.k + (row * args.key_heads + args.KeyHead(head)) * n_k;
    const float* v = args.v + at * n_v;
    const float decay = ExactExp(args.decay[head] * ExactSoftplus(args.a[at] + args.dt_bias[head]));
    const float strength = ExactSigmoid(args.b[at]);
    for (std::size_t j = 0; j < n_v; ++j) {
      Sums m{};
      for (std::size_t i = 0; i < n_k; ++i) {
        s[i * n_v + j] = decay * s[i * n_v + j];
        m[i % kDeltaSums] = ExactFma(s[i * n_v + j], k[i], m[i % kDeltaSums]);
      }
      const float u = strength * (v[j] - Joined(m));
      Sums out{};
      for (std::size_t i = 0; i < n_k; ++i) {
        s[i * n_v + j] = ExactFma(k[i], u, s[i * n_v + j]);
        out[i % kDeltaSums] = ExactFma(s[i * n_v + j], q[i], out[i % kDeltaSums]);
      }
      args.out[at * n_v + j] = Joined(out);
    }
  }
  std::copy_n(s.begin(), s.size(), args.state_out + head * s.size());
}

}  // namespace bloomery::kernels::reference
