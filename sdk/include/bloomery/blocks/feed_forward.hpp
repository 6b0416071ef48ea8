// Feed-forward blocks: dense SwiGLU, and routed SwiGLU experts by a softmax or sigmoid router, with
// a bias that chooses and a shared expert, as it is or behind a sigmoid gate, where there are such.
#pragma once

#include <bloomery/blocks/layer.hpp>
#include <cstdint>
#include <string>

namespace bloomery::sdk::blocks {

struct FeedForwardShape {
  uint64_t width = 0;  // of the residual stream
  double eps = 0;
  std::string norm = "ffn_norm";  // name of the norm before it
  uint64_t ff = 0;                // inner width of the dense block, or of one expert
  uint32_t experts = 0;           // 0: dense
  uint32_t experts_used = 0;
  uint64_t shared_ff = 0;    // inner width of the shared expert; 0: none
  bool shared_gated = true;  // a sigmoid scales the shared expert (ffn_gate_inp_shexp)
  std::string scoring = "softmax";
  bool selection_bias = false;  // exp_probs_b, one an expert
  bool renormalise = true;      // the picks' weights are divided by their sum,
  double weight_sum_min = 0.0;  // or by this where that is less
  double weight_scale = 1.0;
};

class FeedForward {
 public:
  FeedForward() = default;
  FeedForward(const LayerWeights& layer, const FeedForwardShape& shape) : shape_(shape) {
    norm_ = layer.Add(shape.norm + ".weight", BL_ROLE_NORM, {shape.width});
    if (shape.experts == 0) {
      dense_ = AddSwiGlu(layer, "", BL_ROLE_DENSE, shape.ff);
      return;
    }
    router_ = layer.Add("ffn_gate_inp.weight", BL_ROLE_ROUTER, {shape.width, shape.experts});
    if (shape.selection_bias) {
      router_bias_ = layer.Add("exp_probs_b.bias", BL_ROLE_ROUTER, {shape.experts});
    }
    bank_ = layer.seat().AddBank({.layer = layer.layer(),
                                  .owner = layer.owner(),
                                  .experts = shape.experts,
                                  .used = shape.experts_used,
                                  .width = shape.width,
                                  .ff = shape.ff});
    layer.AddRouted("ffn_gate_exps.weight", bank_, BL_PART_GATE,
                    {shape.width, shape.ff, shape.experts});
    layer.AddRouted("ffn_up_exps.weight", bank_, BL_PART_UP,
                    {shape.width, shape.ff, shape.experts});
    layer.AddRouted("ffn_down_exps.weight", bank_, BL_PART_DOWN,
                    {shape.ff, shape.width, shape.experts});
    if (shape.shared_ff == 0) return;
    if (shape.shared_gated) {
      shared_gate_ = layer.Add("ffn_gate_inp_shexp.weight", BL_ROLE_SHARED, {shape.width, 1});
    }
    shared_ = AddSwiGlu(layer, "_shexp", BL_ROLE_SHARED, shape.shared_ff);
  }

  // x + the block over the normed x. `name` is what observations are exported under.
  Value Build(Graph& g, const std::string& name, Value x) const {
    const Value normed = g.RmsNorm(x, norm_, shape_.eps);
    if (shape_.experts == 0) return g.Add(x, Build(g, dense_, normed));
    Value residual = x;
    if (shape_.shared_ff != 0) {
      const Value gate = shape_.shared_gated ? g.Linear(normed, shared_gate_) : Value{};
      const Value shared = Build(g, shared_, normed);
      residual = g.Add(x, gate ? g.Gate(shared, gate, "sigmoid") : shared);
    }
    const Routed routed = g.Router(normed, router_,
                                   {.scoring = shape_.scoring,
                                    .used = static_cast<int64_t>(shape_.experts_used),
                                    .renormalise = shape_.renormalise,
                                    .scale = shape_.weight_scale,
                                    .bias = router_bias_,
                                    .sum_min = shape_.weight_sum_min});
    g.Export(name + ".router.logits", routed.logits);
    g.Export(name + ".router.weights", routed.weights);
    g.Export(name + ".router.ids", routed.ids);
    return g.RoutedExperts(normed, routed, residual, bank_);
  }

 private:
  struct SwiGlu {
    Weight gate, up, down;
  };

  SwiGlu AddSwiGlu(const LayerWeights& layer, const std::string& suffix, bl_role role,
                   uint64_t ff) const {
    return {.gate = layer.Add("ffn_gate" + suffix + ".weight", role, {shape_.width, ff}),
            .up = layer.Add("ffn_up" + suffix + ".weight", role, {shape_.width, ff}),
            .down = layer.Add("ffn_down" + suffix + ".weight", role, {ff, shape_.width})};
  }
  static Value Build(Graph& g, const SwiGlu& weights, Value x) {
    const auto [gate, up] = g.Linear(x, {weights.gate, weights.up});
    return g.Linear(g.Gate(up, gate, "silu"), weights.down);
  }

  FeedForwardShape shape_;
  Weight norm_, router_, router_bias_, shared_gate_;
  Bank bank_;
  SwiGlu dense_, shared_;
};

}  // namespace bloomery::sdk::blocks
