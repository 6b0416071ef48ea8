// The short convolution and the delta rule on lane types. Internal.
#pragma once

#include <algorithm>

#include "kernels-common/delta/delta.h"
#include "kernels-common/exact_math/lanes.h"
#include "kernels-common/exact_math/trig.h"

namespace bloomery::kernels::cpu {

// Lanes are channels.
template <class V>
void ShortConvLanes(const ShortConvArgs& args, std::size_t rows, std::size_t channel_begin,
                    std::size_t channel_end) {
  const std::size_t kept = args.taps - 1;
  for (std::size_t ch = channel_begin; ch < channel_end; ch += V::kLanes) {
    const std::size_t n = std::min(V::kLanes, channel_end - ch);
    typename V::F window[kConvTapsMax];
    typename V::F weight[kConvTapsMax];
    for (std::size_t i = 0; i < args.taps; ++i) {
      float taps[V::kLanes] = {};
      for (std::size_t lane = 0; lane < n; ++lane) {
        taps[lane] = args.weight[(ch + lane) * args.taps + i];
      }
      weight[i] = V::Load(taps);
    }
    for (std::size_t i = 0; i < kept; ++i) {
      window[i] = args.state_in == nullptr
                      ? V::Zero()
                      : V::LoadFirst(args.state_in + i * args.channels + ch, n);
    }
    for (std::size_t row = 0; row < rows; ++row) {
      window[kept] = V::LoadFirst(args.x + row * args.x_stride + ch, n);
      typename V::F sum = V::Zero();
      for (std::size_t i = 0; i < args.taps; ++i) sum = V::Fma(weight[i], window[i], sum);
      V::StoreFirst(args.y + row * args.y_stride + ch, args.silu ? SiluLanes<V>(sum) : sum, n);
      for (std::size_t i = 0; i < kept; ++i) window[i] = window[i + 1];
    }
    for (std::size_t i = 0; i < kept; ++i) {
      V::StoreFirst(args.state_out + i * args.channels + ch, window[i], n);
    }
  }
}

// The eight sums over keys l mod 8 of kVectors vectors of values.
template <class V, std::size_t kVectors>
struct DeltaSums {
  typename V::F of[kDeltaSums][kVectors];

  DeltaSums() {
    for (auto& sums : of) {
      for (typename V::F& sum : sums) sum = V::Zero();
    }
  }
  typename V::F Joined(std::size_t j) const {
    const auto pair = [&](std::size_t l) { return V::Add(of[l][j], of[l + 4][j]); };
    return V::Add(V::Add(pair(0), pair(2)), V::Add(pair(1), pair(3)));
  }
};

// Calls `step(i, l)` for each key i ascending, l = i mod 8 known to the compiler.
template <class Step>
void ForKeys(std::size_t n_k, const Step& step) {
  std::size_t i = 0;
  for (; i + kDeltaSums <= n_k; i += kDeltaSums) {
    for (std::size_t l = 0; l < kDeltaSums; ++l) step(i + l, l);
  }
  for (std::size_t l = 0; i + l < n_k; ++l) step(i + l, l);
}

// One row over the state, in two walks over it. Lanes are values: kVectors of them at a time stay
// in registers while the walk goes over the keys.
template <class V, std::size_t kVectors>
void DeltaColumns(float* s, std::size_t n_k, std::size_t n_v, const float* q, const float* k,
                  const float* v, float decay, float strength, float* out) {
  const auto d = V::Set1(decay);
  DeltaSums<V, kVectors> m;
  ForKeys(n_k, [&](std::size_t i, std::size_t l) {
    const auto key = V::Set1(k[i]);
    for (std::size_t j = 0; j < kVectors; ++j) {
      const auto decayed = V::Mul(d, V::Load(s + i * n_v + j * V::kLanes));
      V::Store(s + i * n_v + j * V::kLanes, decayed);
      m.of[l][j] = V::Fma(decayed, key, m.of[l][j]);
    }
  });
  typename V::F u[kVectors];
  for (std::size_t j = 0; j < kVectors; ++j) {
    u[j] = V::Mul(V::Set1(strength), V::Sub(V::Load(v + j * V::kLanes), m.Joined(j)));
  }
  DeltaSums<V, kVectors> read;
  ForKeys(n_k, [&](std::size_t i, std::size_t l) {
    const auto key = V::Set1(k[i]);
    const auto query = V::Set1(q[i]);
    for (std::size_t j = 0; j < kVectors; ++j) {
      const auto fresh = V::Fma(key, u[j], V::Load(s + i * n_v + j * V::kLanes));
      V::Store(s + i * n_v + j * V::kLanes, fresh);
      read.of[l][j] = V::Fma(fresh, query, read.of[l][j]);
    }
  });
  for (std::size_t j = 0; j < kVectors; ++j) V::Store(out + j * V::kLanes, read.Joined(j));
}

// Where the head's state behind the call goes, holding the one before it.
inline float* StateToChange(const DeltaArgs& args, std::size_t head) {
  const std::size_t values = args.key_dim * args.value_dim;
  float* s = args.state_out + head * values;
  if (args.state_in == nullptr) {
    std::fill_n(s, values, 0.0F);
  } else if (args.state_in != args.state_out) {
    std::copy_n(args.state_in + head * values, values, s);
  }
  return s;
}

// value_dim is a multiple of V::kLanes.
template <class V>
void DeltaLanes(const DeltaArgs& args, std::size_t rows, std::size_t head) {
  const std::size_t n_k = args.key_dim;
  const std::size_t n_v = args.value_dim;
  float* s = StateToChange(args, head);
  // Eight sums of so many vectors and what meets them fit the registers.
  constexpr std::size_t kVectors = V::kLanes == 16 ? 2 : 1;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t at = row * args.value_heads + head;
    const std::size_t key_row = row * args.key_heads + args.KeyHead(head);
    const float* q = args.q + key_row * n_k;
    const float* k = args.k + key_row * n_k;
    const float* v = args.v + at * n_v;
    float* out = args.out + at * n_v;
    const float decay = ExactExp(args.decay[head] * ExactSoftplus(args.a[at] + args.dt_bias[head]));
    const float strength = ExactSigmoid(args.b[at]);
    std::size_t j = 0;
    for (; j + kVectors * V::kLanes <= n_v; j += kVectors * V::kLanes) {
      DeltaColumns<V, kVectors>(s + j, n_k, n_v, q, k, v + j, decay, strength, out + j);
    }
    for (; kVectors > 1 && j < n_v; j += V::kLanes) {
      DeltaColumns<V, 1>(s + j, n_k, n_v, q, k, v + j, decay, strength, out + j);
    }
  }
}

}  // namespace bloomery::kernels::cpu
