// The Qwen3 mixture-of-experts models: grouped-query attention with a norm on each query and key
// head and rope over neox halves, then a softmax router over SwiGLU experts, in every layer.

#include <algorithm>
#include <array>
#include <bloomery/bloomery.hpp>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "chat.h"
#include "hyper.h"

namespace bloomery::qwen3 {
namespace {

constexpr auto kArchitectures = std::to_array<std::string_view>({QWEN3_ARCHITECTURES});

struct Layer {
  sdk::Weight attn_norm, q, k, v, q_norm, k_norm, attn_out;
  sdk::Weight ffn_norm, router;
  sdk::Bank bank;
  sdk::Plane k_plane, v_plane;
};

class Qwen3 {
 public:
  static int32_t Probe(const sdk::Model& model) {
    if (std::ranges::find(kArchitectures, model.arch()) == kArchitectures.end()) {
      sdk::Refuse("the architecture '" + std::string(model.arch()) + "' is not one of this plugin");
    }
    constexpr int32_t kScore = 50;  // room for a plugin that serves one release better
    return kScore;
  }

  explicit Qwen3(const sdk::Context& context) : hyper_(ReadHyper(context.model)) {}

  void Describe(sdk::Seat& seat) {
    seat.layers = hyper_.layers;
    seat.vocabulary = hyper_.vocabulary;
    seat.context_trained = hyper_.context;
    embedding_ = seat.AddWeight({.pattern = "token_embd.weight",
                                 .role = BL_ROLE_TABLE,
                                 .ne = {hyper_.width, hyper_.vocabulary}});
    for (uint32_t l = 0; l < hyper_.layers; ++l) {
      layers_.push_back(DescribeLayer(seat, static_cast<int32_t>(l)));
    }
    output_norm_ = seat.AddWeight(
        {.pattern = "output_norm.weight", .role = BL_ROLE_NORM, .ne = {hyper_.width}});
    const uint32_t alias = BL_WEIGHT_ALIAS;
    head_ = seat.AddWeight({.pattern = hyper_.tied_head ? "token_embd.weight" : "output.weight",
                            .role = BL_ROLE_HEAD,
                            .ne = {hyper_.width, hyper_.vocabulary},
                            .flags = hyper_.tied_head ? alias : 0});
    seat.AddEntry<&Qwen3::BuildMain>({.name = "main", .needs = BL_NEEDS_LOGITS});
  }

  void BuildMain(sdk::Graph& g, const bl_build& /*build*/) const {
    sdk::Value x = g.Embed(g.Tokens(), embedding_);
    for (size_t l = 0; l < layers_.size(); ++l) {
      g.Layer(static_cast<int32_t>(l));
      const std::string name = "layer." + std::to_string(l);
      g.Export(name + ".in", x);
      x = Attention(g, layers_[l], x);
      x = Experts(g, layers_[l], name, x);
    }
    g.Layer(-1);
    const sdk::Value hidden = g.RmsNorm(g.SelectRows(x), output_norm_, hyper_.eps);
    g.Export("hidden", hidden);
    g.Export("logits", g.Head(hidden, head_));
  }

  static const void* GetExtension(std::string_view id) {
    return id == BL_EXT_CHAT_1 ? &Chat() : nullptr;
  }

 private:
  Layer DescribeLayer(sdk::Seat& seat, int32_t l) const {
    const auto weight = [&](const char* name, bl_role role, std::vector<uint64_t> ne) {
      return seat.AddWeight({.pattern = std::string("blk.{l}.") + name + ".weight",
                             .role = role,
                             .layer = l,
                             .ne = std::move(ne)});
    };
    const uint64_t q_width = hyper_.heads * hyper_.key_dim;
    const uint64_t k_width = hyper_.kv_heads * hyper_.key_dim;
    const uint64_t v_width = hyper_.kv_heads * hyper_.value_dim;
    const uint64_t out_width = hyper_.heads * hyper_.value_dim;
    Layer layer;
    layer.attn_norm = weight("attn_norm", BL_ROLE_NORM, {hyper_.width});
    layer.q = weight("attn_q", BL_ROLE_DENSE, {hyper_.width, q_width});
    layer.k = weight("attn_k", BL_ROLE_DENSE, {hyper_.width, k_width});
    layer.v = weight("attn_v", BL_ROLE_DENSE, {hyper_.width, v_width});
    layer.q_norm = weight("attn_q_norm", BL_ROLE_NORM, {hyper_.key_dim});
    layer.k_norm = weight("attn_k_norm", BL_ROLE_NORM, {hyper_.key_dim});
    layer.attn_out = weight("attn_output", BL_ROLE_DENSE, {out_width, hyper_.width});
    layer.ffn_norm = weight("ffn_norm", BL_ROLE_NORM, {hyper_.width});
    layer.router = weight("ffn_gate_inp", BL_ROLE_ROUTER, {hyper_.width, hyper_.experts});
    layer.bank = seat.AddBank({.layer = l,
                               .experts = hyper_.experts,
                               .used = hyper_.experts_used,
                               .width = hyper_.width,
                               .ff = hyper_.expert_ff});
    const auto part = [&](const char* name, bl_bank_part kind, uint64_t in, uint64_t out) {
      seat.AddWeight({.pattern = std::string("blk.{l}.") + name + ".weight",
                      .role = BL_ROLE_ROUTED,
                      .layer = l,
                      .ne = {in, out, hyper_.experts},
                      .bank = layer.bank,
                      .part = kind});
    };
    part("ffn_gate_exps", BL_PART_GATE, hyper_.width, hyper_.expert_ff);
    part("ffn_up_exps", BL_PART_UP, hyper_.width, hyper_.expert_ff);
    part("ffn_down_exps", BL_PART_DOWN, hyper_.expert_ff, hyper_.width);
    const std::string number = std::to_string(l);
    layer.k_plane = seat.AddPlane(
        {.name = "k." + number, .layer = l, .plane_class = BL_CLASS_K, .width = k_width});
    layer.v_plane = seat.AddPlane(
        {.name = "v." + number, .layer = l, .plane_class = BL_CLASS_V, .width = v_width});
    return layer;
  }

  // x + output projection of attention over the normed x.
  sdk::Value Attention(sdk::Graph& g, const Layer& layer, sdk::Value x) const {
    const auto heads = static_cast<int64_t>(hyper_.heads);
    const auto kv_heads = static_cast<int64_t>(hyper_.kv_heads);
    const auto key_dim = static_cast<int64_t>(hyper_.key_dim);
    const sdk::RopeOptions rope = {.dims = static_cast<int64_t>(hyper_.rope_dims),
                                   .base = hyper_.rope_base};
    const sdk::Value normed = g.RmsNorm(x, layer.attn_norm, hyper_.eps);
    const auto [q, k, v] = g.Linear(normed, {layer.q, layer.k, layer.v});
    const auto turn = [&](sdk::Value value, sdk::Weight norm, int64_t count) {
      return g.Rope(g.RmsNorm(g.Reshape(value, {key_dim, count}), norm, hyper_.eps), rope);
    };
    const sdk::Value queries = turn(q, layer.q_norm, heads);
    g.Append(turn(k, layer.k_norm, kv_heads), layer.k_plane);
    g.Append(v, layer.v_plane);
    const sdk::Value mixed =
        g.Attention(queries, layer.k_plane, layer.v_plane,
                    {.kv_heads = kv_heads, .scale = 1.0 / std::sqrt(static_cast<double>(key_dim))});
    const auto out_width = static_cast<int64_t>(hyper_.heads * hyper_.value_dim);
    return g.Add(x, g.Linear(g.Reshape(mixed, {out_width}), layer.attn_out));
  }

  // x + the picked experts over the normed x.
  sdk::Value Experts(sdk::Graph& g, const Layer& layer, const std::string& name,
                     sdk::Value x) const {
    const sdk::Value normed = g.RmsNorm(x, layer.ffn_norm, hyper_.eps);
    const sdk::Routed routed =
        g.Router(normed, layer.router, {.used = static_cast<int64_t>(hyper_.experts_used)});
    g.Export(name + ".router.logits", routed.logits);
    g.Export(name + ".router.weights", routed.weights);
    g.Export(name + ".router.ids", routed.ids);
    return g.RoutedExperts(normed, routed, x, layer.bank);
  }

  Hyper hyper_;
  sdk::Weight embedding_, output_norm_, head_;
  std::vector<Layer> layers_;
};

}  // namespace
}  // namespace bloomery::qwen3

BLOOMERY_PLUGIN(bloomery::qwen3::Qwen3, QWEN3_NAME, QWEN3_VERSION)
