// The gated delta-net mixer: one projection to queries, keys and values, a short causal convolution
// over it, the gated delta rule, a norm on each value head, and a gate.
#pragma once

#include <bloomery/blocks/layer.hpp>
#include <cmath>
#include <cstdint>
#include <string>

namespace bloomery::sdk::blocks {

struct DeltaNetShape {
  uint64_t width = 0;  // of the residual stream
  uint64_t key_heads = 0;
  uint64_t value_heads = 0;  // a multiple of key_heads
  uint64_t head_dim = 0;     // of every head
  uint64_t taps = 0;         // of the convolution
  double eps = 0;
  std::string head_order = "tiled";  // of value heads over key heads: operators.h, delta_rule
  std::string out_gate = "silu";     // or "sigmoid"
};

class DeltaNet {
 public:
  DeltaNet() = default;
  DeltaNet(const LayerWeights& layer, const DeltaNetShape& shape) : shape_(shape) {
    const uint64_t keys = shape.key_heads * shape.head_dim;
    const uint64_t values = shape.value_heads * shape.head_dim;
    const uint64_t channels = 2 * keys + values;
    norm_ = layer.Add("attn_norm.weight", BL_ROLE_NORM, {shape.width});
    qkv_ = layer.Add("attn_qkv.weight", BL_ROLE_DENSE, {shape.width, channels});
    gate_ = layer.Add("attn_gate.weight", BL_ROLE_DENSE, {shape.width, values});
    alpha_ = layer.Add("ssm_alpha.weight", BL_ROLE_DENSE, {shape.width, shape.value_heads});
    beta_ = layer.Add("ssm_beta.weight", BL_ROLE_DENSE, {shape.width, shape.value_heads});
    decay_ = layer.Add("ssm_a", BL_ROLE_DENSE, {shape.value_heads});
    dt_bias_ = layer.Add("ssm_dt.bias", BL_ROLE_DENSE, {shape.value_heads});
    conv_ = layer.Add("ssm_conv1d.weight", BL_ROLE_DENSE, {shape.taps, channels});
    head_norm_ = layer.Add("ssm_norm.weight", BL_ROLE_NORM, {shape.head_dim});
    out_ = layer.Add("ssm_out.weight", BL_ROLE_DENSE, {values, shape.width});
    conv_state_ = layer.AddState("conv", (shape.taps - 1) * channels);
    state_ = layer.AddState("delta", shape.value_heads * shape.head_dim * shape.head_dim);
  }

  // x + the output projection of the mixer over the normed x.
  Value Build(Graph& g, Value x) const {
    const auto dim = static_cast<int64_t>(shape_.head_dim);
    const auto key_heads = static_cast<int64_t>(shape_.key_heads);
    const auto value_heads = static_cast<int64_t>(shape_.value_heads);
    const int64_t keys = key_heads * dim;
    const int64_t values = value_heads * dim;
    const Value normed = g.RmsNorm(x, norm_, shape_.eps);
    const auto [qkv, z, a, b] = g.Linear(normed, {qkv_, gate_, alpha_, beta_});
    const Value mixed = g.ShortConv(qkv, conv_, conv_state_);
    const Value q = g.Reshape(g.Slice(mixed, 0, keys), {dim, key_heads});
    const Value k = g.Reshape(g.Slice(mixed, keys, keys), {dim, key_heads});
    const Value v = g.Reshape(g.Slice(mixed, 2 * keys, values), {dim, value_heads});
    constexpr double kL2Eps = 1e-6;
    const Value read =
        g.DeltaRule({.q = g.L2Norm(q, kL2Eps, 1.0 / std::sqrt(static_cast<double>(dim))),
                     .k = g.L2Norm(k, kL2Eps),
                     .v = v,
                     .a = a,
                     .b = b,
                     .decay = decay_,
                     .dt_bias = dt_bias_,
                     .state = state_},
                    shape_.head_order);
    const Value out = g.Gate(g.RmsNorm(read, head_norm_, shape_.eps),
                             g.Reshape(z, {dim, value_heads}), shape_.out_gate);
    return g.Add(x, g.Linear(g.Reshape(out, {values}), out_));
  }

 private:
  DeltaNetShape shape_;
  Weight norm_, qkv_, gate_, alpha_, beta_, decay_, dt_bias_, conv_, head_norm_, out_;
  Plane conv_state_, state_;
};

}  // namespace bloomery::sdk::blocks
