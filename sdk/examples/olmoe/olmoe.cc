// A plugin for OLMoE (OLMoE-1B-7B and its kin), written from the plugin guide. What sets the models
// apart from others with routed experts: the norms of queries and keys run over all heads at once,
// and the picked experts' weights are the softmax's own, not renormalised.
#include <bloomery/bloomery.hpp>
#include <cmath>
#include <string>
#include <vector>

namespace sdk = bloomery::sdk;

namespace {

class Olmoe {
 public:
  static int32_t Probe(const sdk::Model& model);
  explicit Olmoe(const sdk::Context& context);
  void Describe(sdk::Seat& seat);
  void BuildMain(sdk::Graph& g, const bl_build& build) const;

 private:
  struct Layer {
    sdk::Weight norm, q, k, v, q_norm, k_norm, out, ffn_norm, router;
    sdk::Plane k_plane, v_plane;
    sdk::Bank bank;
  };
  Layer DescribeLayer(sdk::Seat& seat, int32_t l) const;
  sdk::Value Attend(sdk::Graph& g, const Layer& at, sdk::Value x) const;
  sdk::Value Route(sdk::Graph& g, const Layer& at, const std::string& name, sdk::Value x) const;

  uint32_t layer_count_, experts_, used_;
  uint64_t width_, heads_, kv_heads_, head_dim_, ff_, vocabulary_, context_;
  double eps_, rope_base_;
  sdk::Weight embedding_, out_norm_, head_;
  std::vector<Layer> layers_;
};

int32_t Olmoe::Probe(const sdk::Model& model) {
  if (model.arch() != "olmoe") {
    sdk::Refuse("architecture '" + std::string(model.arch()) + "' is not olmoe");
  }
  return 50;
}

Olmoe::Olmoe(const sdk::Context& context) {
  const sdk::Model& m = context.model;
  layer_count_ = static_cast<uint32_t>(m.U64In(m.ArchKey("block_count"), 1, 1024));
  width_ = m.U64In(m.ArchKey("embedding_length"), 1, 1 << 20);
  heads_ = m.U64In(m.ArchKey("attention.head_count"), 1, 1024);
  kv_heads_ = m.U64In(m.ArchKey("attention.head_count_kv"), 1, heads_);
  experts_ = static_cast<uint32_t>(m.U64In(m.ArchKey("expert_count"), 1, 1024));
  used_ = static_cast<uint32_t>(m.U64In(m.ArchKey("expert_used_count"), 1, experts_));
  ff_ = m.U64In(m.ArchKey("feed_forward_length"), 1, 1 << 20);
  context_ = m.U64In(m.ArchKey("context_length"), 1, UINT32_MAX);
  eps_ = m.F64(m.ArchKey("attention.layer_norm_rms_epsilon"));
  rope_base_ = m.FindF64(m.ArchKey("rope.freq_base")).value_or(10000.0);
  vocabulary_ = m.GetTensor("token_embd.weight").ne[1];
  if (width_ % heads_ != 0 || heads_ % kv_heads_ != 0) {
    sdk::Refuse("a width of " + std::to_string(width_) + ", " + std::to_string(heads_) +
                " heads and " + std::to_string(kv_heads_) +
                " kv heads: each must be a multiple of the next");
  }
  head_dim_ = width_ / heads_;
  // The config's clip_qkv; null in every published model.
  if (m.FindF64(m.ArchKey("attention.clamp_kqv")).value_or(0.0) != 0.0) {
    sdk::Refuse("attention.clamp_kqv is set; this plugin clamps no queries, keys and values");
  }
}

void Olmoe::Describe(sdk::Seat& seat) {
  seat.layers = layer_count_;
  seat.vocabulary = vocabulary_;
  seat.context_trained = context_;
  embedding_ = seat.AddWeight(
      {.pattern = "token_embd.weight", .role = BL_ROLE_TABLE, .ne = {width_, vocabulary_}});
  for (uint32_t l = 0; l < layer_count_; ++l) {
    layers_.push_back(DescribeLayer(seat, static_cast<int32_t>(l)));
  }
  out_norm_ =
      seat.AddWeight({.pattern = "output_norm.weight", .role = BL_ROLE_NORM, .ne = {width_}});
  head_ = seat.AddWeight(
      {.pattern = "output.weight", .role = BL_ROLE_HEAD, .ne = {width_, vocabulary_}});
  seat.AddEntry<&Olmoe::BuildMain>({.name = "main"});
}

Olmoe::Layer Olmoe::DescribeLayer(sdk::Seat& seat, int32_t l) const {
  const auto weight = [&](const char* name, bl_role role, std::vector<uint64_t> ne) {
    return seat.AddWeight({.pattern = std::string("blk.{l}.") + name + ".weight",
                           .role = role,
                           .layer = l,
                           .ne = std::move(ne)});
  };
  const uint64_t kv_width = kv_heads_ * head_dim_;
  Layer at;
  at.norm = weight("attn_norm", BL_ROLE_NORM, {width_});
  at.q = weight("attn_q", BL_ROLE_DENSE, {width_, width_});
  at.k = weight("attn_k", BL_ROLE_DENSE, {width_, kv_width});
  at.v = weight("attn_v", BL_ROLE_DENSE, {width_, kv_width});
  at.q_norm = weight("attn_q_norm", BL_ROLE_NORM, {width_});
  at.k_norm = weight("attn_k_norm", BL_ROLE_NORM, {kv_width});
  at.out = weight("attn_output", BL_ROLE_DENSE, {width_, width_});
  at.k_plane =
      seat.AddPlane({.name = "k", .layer = l, .plane_class = BL_CLASS_K, .width = kv_width});
  at.v_plane =
      seat.AddPlane({.name = "v", .layer = l, .plane_class = BL_CLASS_V, .width = kv_width});
  at.ffn_norm = weight("ffn_norm", BL_ROLE_NORM, {width_});
  at.router = weight("ffn_gate_inp", BL_ROLE_ROUTER, {width_, experts_});
  at.bank =
      seat.AddBank({.layer = l, .experts = experts_, .used = used_, .width = width_, .ff = ff_});
  const auto part = [&](const char* name, bl_bank_part which, uint64_t in, uint64_t out) {
    seat.AddWeight({.pattern = std::string("blk.{l}.") + name + ".weight",
                    .role = BL_ROLE_ROUTED,
                    .layer = l,
                    .ne = {in, out, experts_},
                    .bank = at.bank,
                    .part = which});
  };
  part("ffn_gate_exps", BL_PART_GATE, width_, ff_);
  part("ffn_up_exps", BL_PART_UP, width_, ff_);
  part("ffn_down_exps", BL_PART_DOWN, ff_, width_);
  return at;
}

// x + attention over the normed x.
sdk::Value Olmoe::Attend(sdk::Graph& g, const Layer& at, sdk::Value x) const {
  const auto heads = static_cast<int64_t>(heads_);
  const auto kv_heads = static_cast<int64_t>(kv_heads_);
  const auto head_dim = static_cast<int64_t>(head_dim_);
  const sdk::RopeOptions rope = {.base = rope_base_};
  const auto [q, k, v] = g.Linear(g.RmsNorm(x, at.norm, eps_), {at.q, at.k, at.v});
  const auto queries = g.RmsNorm(q, at.q_norm, eps_);  // before the heads are told apart
  const auto keys = g.RmsNorm(k, at.k_norm, eps_);
  g.Append(g.Rope(g.Reshape(keys, {head_dim, kv_heads}), rope), at.k_plane);
  g.Append(v, at.v_plane);
  const auto mixed =
      g.Attention(g.Rope(g.Reshape(queries, {head_dim, heads}), rope), at.k_plane, at.v_plane,
                  {.kv_heads = kv_heads, .scale = 1.0 / std::sqrt(static_cast<double>(head_dim))});
  return g.Add(x, g.Linear(g.Reshape(mixed, {heads * head_dim}), at.out));
}

// x + the picked experts over the normed x.
sdk::Value Olmoe::Route(sdk::Graph& g, const Layer& at, const std::string& name,
                        sdk::Value x) const {
  const auto normed = g.RmsNorm(x, at.ffn_norm, eps_);
  const auto routed =
      g.Router(normed, at.router, {.used = static_cast<int64_t>(used_), .renormalise = false});
  g.Export(name + ".router.ids", routed.ids);
  g.Export(name + ".router.weights", routed.weights);
  return g.RoutedExperts(normed, routed, x, at.bank);
}

void Olmoe::BuildMain(sdk::Graph& g, const bl_build& /*build*/) const {
  sdk::Value x = g.Embed(g.Tokens(), embedding_);
  for (size_t l = 0; l < layers_.size(); ++l) {
    const std::string name = "layer." + std::to_string(l);
    g.Layer(static_cast<int32_t>(l));
    g.Export(name + ".in", x);
    x = Route(g, layers_[l], name, Attend(g, layers_[l], x));
  }
  g.Layer(-1);
  g.Export("logits", g.Head(g.RmsNorm(g.SelectRows(x), out_norm_, eps_), head_));
}

}  // namespace

BLOOMERY_PLUGIN(Olmoe, "olmoe", "0.1.0")
