// Grouped-query attention: rope over the first values of a head, and what a model has of a norm on
// each query and key head, biases of queries, keys and values, a sliding window (its planes are
// then rings), sinks, a factor on values, queries, keys and values in one matrix, and a sigmoid
// gate on what comes out: each head's queries are then followed by its gates in one matrix.
#pragma once

#include <bloomery/blocks/layer.hpp>
#include <cmath>
#include <cstdint>
#include <string>

namespace bloomery::sdk::blocks {

struct AttentionShape {
  uint64_t width = 0;  // of the residual stream
  uint64_t heads = 0;
  uint64_t kv_heads = 0;
  uint64_t key_dim = 0;    // of one head, queries and keys
  uint64_t value_dim = 0;  // of one head; key_dim where gated
  uint64_t rope_dims = 0;  // rotated values of a head
  double rope_base = 0;
  double eps = 0;
  bool gated = false;
  bool head_norms = true;
  bool fused = false;   // attn_qkv: queries, then keys, then values; not with gates or biases
  bool biases = false;  // attn_q.bias, attn_k.bias, attn_v.bias
  uint64_t window = 0;  // keys that a row sees, its own included; 0: all before it
  // Planes keep every row though a window is seen: those of a draft, whose steps write behind the
  // slot's end, where a ring would lose rows that are still read.
  bool keeps_rows = false;
  bool sinks = false;  // attn_sinks, one a head
  double value_scale = 1.0;
};

class Attention {
 public:
  Attention() = default;
  Attention(const LayerWeights& layer, const AttentionShape& shape) : shape_(shape) {
    const uint64_t query_width = shape.heads * shape.key_dim * (shape.gated ? 2 : 1);
    const uint64_t k_width = shape.kv_heads * shape.key_dim;
    const uint64_t v_width = shape.kv_heads * shape.value_dim;
    norm_ = layer.Add("attn_norm.weight", BL_ROLE_NORM, {shape.width});
    if (shape.fused) {
      const auto part = [&](uint64_t row0, uint64_t rows) {
        return layer.AddPart("attn_qkv.weight", BL_ROLE_DENSE, shape.width, row0, rows);
      };
      q_ = part(0, query_width);
      k_ = part(query_width, k_width);
      v_ = part(query_width + k_width, v_width);
    } else {
      q_ = layer.Add("attn_q.weight", BL_ROLE_DENSE, {shape.width, query_width});
      k_ = layer.Add("attn_k.weight", BL_ROLE_DENSE, {shape.width, k_width});
      v_ = layer.Add("attn_v.weight", BL_ROLE_DENSE, {shape.width, v_width});
    }
    if (shape.biases) {
      q_bias_ = layer.Add("attn_q.bias", BL_ROLE_DENSE, {query_width});
      k_bias_ = layer.Add("attn_k.bias", BL_ROLE_DENSE, {k_width});
      v_bias_ = layer.Add("attn_v.bias", BL_ROLE_DENSE, {v_width});
    }
    if (shape.head_norms) {
      q_norm_ = layer.Add("attn_q_norm.weight", BL_ROLE_NORM, {shape.key_dim});
      k_norm_ = layer.Add("attn_k_norm.weight", BL_ROLE_NORM, {shape.key_dim});
    }
    if (shape.sinks) sinks_ = layer.Add("attn_sinks.weight", BL_ROLE_DENSE, {shape.heads});
    out_ = layer.Add("attn_output.weight", BL_ROLE_DENSE,
                     {shape.heads * shape.value_dim, shape.width});
    k_plane_ = AddPlane(layer, "k", BL_CLASS_K, k_width);
    v_plane_ = AddPlane(layer, "v", BL_CLASS_V, v_width);
  }

  // x + the output projection of attention over the normed x.
  Value Build(Graph& g, Value x) const {
    const auto heads = static_cast<int64_t>(shape_.heads);
    const auto kv_heads = static_cast<int64_t>(shape_.kv_heads);
    const auto key_dim = static_cast<int64_t>(shape_.key_dim);
    const Value normed = g.RmsNorm(x, norm_, shape_.eps);
    const auto [q, k, v] =
        shape_.biases ? g.LinearBiased(normed, {{q_, q_bias_}, {k_, k_bias_}, {v_, v_bias_}})
                      : g.Linear(normed, {q_, k_, v_});
    Value queries = g.Reshape(q, {key_dim * (shape_.gated ? 2 : 1), heads});
    Value gates;
    if (shape_.gated) {
      gates = g.Slice(queries, key_dim, key_dim);
      queries = g.Slice(queries, 0, key_dim);
    }
    queries = Turn(g, queries, q_norm_);
    AppendRows(g, k, v);
    Value mixed = g.Attention(queries, k_plane_, v_plane_,
                              {.kv_heads = kv_heads,
                               .scale = 1.0 / std::sqrt(static_cast<double>(key_dim)),
                               .window = static_cast<int64_t>(shape_.window),
                               .sinks = sinks_});
    if (shape_.gated) mixed = g.Gate(mixed, gates, "sigmoid");
    const auto out_width = static_cast<int64_t>(shape_.heads * shape_.value_dim);
    return g.Add(x, g.Linear(g.Reshape(mixed, {out_width}), out_));
  }

  // Only what later rows will read of these: what Build appends for the same x.
  void Store(Graph& g, Value x) const {
    const Value normed = g.RmsNorm(x, norm_, shape_.eps);
    const auto [k, v] = shape_.biases ? g.LinearBiased(normed, {{k_, k_bias_}, {v_, v_bias_}})
                                      : g.Linear(normed, {k_, v_});
    AppendRows(g, k, v);
  }

 private:
  Plane AddPlane(const LayerWeights& layer, const std::string& name, bl_plane_class plane_class,
                 uint64_t width) const {
    return shape_.window == 0 || shape_.keeps_rows
               ? layer.AddRows(name, plane_class, width)
               : layer.AddRing(name, plane_class, width, shape_.window);
  }
  void AppendRows(Graph& g, Value k, Value v) const {
    const auto key_dim = static_cast<int64_t>(shape_.key_dim);
    const auto kv_heads = static_cast<int64_t>(shape_.kv_heads);
    g.Append(Turn(g, g.Reshape(k, {key_dim, kv_heads}), k_norm_), k_plane_);
    g.Append(shape_.value_scale == 1.0 ? v : g.Scale(v, shape_.value_scale), v_plane_);
  }
  Value Turn(Graph& g, Value heads, Weight norm) const {
    return g.Rope(norm ? g.RmsNorm(heads, norm, shape_.eps) : heads,
                  {.dims = static_cast<int64_t>(shape_.rope_dims), .base = shape_.rope_base});
  }

  AttentionShape shape_;
  Weight norm_, q_, k_, v_, q_bias_, k_bias_, v_bias_, q_norm_, k_norm_, sinks_, out_;
  Plane k_plane_, v_plane_;
};

}  // namespace bloomery::sdk::blocks
