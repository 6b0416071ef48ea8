// A whole plugin to start from: copy this folder, rename, and change it into your model. It serves
// the invented architecture "toy": scaled embeddings, then in each layer attention with rope and a
// softmax router over SwiGLU experts. docs/plugin-guide.md goes through it.
#include <bloomery/bloomery.hpp>
#include <cmath>
#include <string>
#include <vector>

namespace sdk = bloomery::sdk;

namespace {

// An operator of its own: y = x · factor.
struct ScaleOp {
  static void Infer(const sdk::InferCall& call) { call.SetOut(0, call.In(0)); }
};
struct ScaleKernel {
  static int32_t Tasks(const sdk::Args& args) { return args.live_rows(); }  // independent pieces
  static void Run(const sdk::Args& args, int32_t row) {
    const auto factor = static_cast<float>(args.attrs().F64("factor").value_or(1.0));
    const auto in = args.In(0).Row<const float>(row);
    const auto out = args.Out(0).Row<float>(row);
    for (size_t i = 0; i < in.size(); ++i) out[i] = in[i] * factor;
  }
};

class Toy {
 public:
  static int32_t Probe(const sdk::Model& model);  // metadata only; 1 … 100, or a reason why not
  explicit Toy(const sdk::Context& context);      // reads the hyper-parameters
  void Describe(sdk::Seat& seat);                 // once: weights, banks, planes, entry
  void BuildMain(sdk::Graph& g, const bl_build& build) const;  // for each row count: the graph

 private:
  struct Layer {
    sdk::Weight norm, q, k, v, out, ffn_norm, router;
    sdk::Plane k_plane, v_plane;
    sdk::Bank bank;
  };
  Layer DescribeLayer(sdk::Seat& seat, int32_t l) const;

  uint32_t layer_count_, experts_, used_;
  uint64_t width_, heads_, kv_heads_, head_dim_, ff_, vocabulary_, context_;
  double scale_;
  sdk::Weight embedding_, out_norm_, head_;
  std::vector<Layer> layers_;
};

int32_t Toy::Probe(const sdk::Model& model) {
  if (model.arch() != "toy") {
    sdk::Refuse("architecture '" + std::string(model.arch()) + "' is not toy");
  }
  return 50;
}

Toy::Toy(const sdk::Context& context) {
  const sdk::Model& m = context.model;
  layer_count_ = static_cast<uint32_t>(m.U64In(m.ArchKey("block_count"), 1, 1024));
  width_ = m.U64In(m.ArchKey("embedding_length"), 1, 1 << 20);
  heads_ = m.U64In(m.ArchKey("attention.head_count"), 1, 1024);
  kv_heads_ = m.U64In(m.ArchKey("attention.head_count_kv"), 1, heads_);
  head_dim_ = m.U64In(m.ArchKey("attention.key_length"), 2, 1 << 16);
  experts_ = static_cast<uint32_t>(m.U64In(m.ArchKey("expert_count"), 1, 1024));
  used_ = static_cast<uint32_t>(m.U64In(m.ArchKey("expert_used_count"), 1, experts_));
  ff_ = m.U64In(m.ArchKey("expert_feed_forward_length"), 1, 1 << 20);
  context_ = m.U64In(m.ArchKey("context_length"), 1, UINT32_MAX);
  scale_ = m.FindF64(m.ArchKey("embedding_scale")).value_or(1.0);
  vocabulary_ = m.GetTensor("token_embd.weight").ne[1];
  if (heads_ % kv_heads_ != 0) {
    sdk::Refuse(std::to_string(heads_) + " heads cannot share " + std::to_string(kv_heads_) +
                " kv heads: the first must be a multiple");
  }
}

void Toy::Describe(sdk::Seat& seat) {
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
  seat.Ignore("rope_freqs.weight");
  seat.AddOp<ScaleOp>(
      {.name = "toy.scale", .inputs = {{"x"}}, .outputs = {{"y"}}, .attrs = {"factor"}});
  seat.AddCpuKernel<ScaleKernel>({.in = {BL_ENC_F32}, .out = {BL_ENC_F32}});
  seat.AddEntry<&Toy::BuildMain>({.name = "main"});
}

Toy::Layer Toy::DescribeLayer(sdk::Seat& seat, int32_t l) const {
  const auto dense = [&](const char* pattern, uint64_t in, uint64_t out) {
    return seat.AddWeight({.pattern = pattern, .layer = l, .ne = {in, out}});
  };
  const auto norm = [&](const char* pattern) {
    return seat.AddWeight({.pattern = pattern, .role = BL_ROLE_NORM, .layer = l, .ne = {width_}});
  };
  Layer at;
  at.norm = norm("blk.{l}.attn_norm.weight");
  at.q = dense("blk.{l}.attn_q.weight", width_, heads_ * head_dim_);
  at.k = dense("blk.{l}.attn_k.weight", width_, kv_heads_ * head_dim_);
  at.v = dense("blk.{l}.attn_v.weight", width_, kv_heads_ * head_dim_);
  at.out = dense("blk.{l}.attn_output.weight", heads_ * head_dim_, width_);
  at.k_plane = seat.AddPlane(
      {.name = "k", .layer = l, .plane_class = BL_CLASS_K, .width = kv_heads_ * head_dim_});
  at.v_plane = seat.AddPlane(
      {.name = "v", .layer = l, .plane_class = BL_CLASS_V, .width = kv_heads_ * head_dim_});
  at.ffn_norm = norm("blk.{l}.ffn_norm.weight");
  at.router = seat.AddWeight({.pattern = "blk.{l}.ffn_gate_inp.weight",
                              .role = BL_ROLE_ROUTER,
                              .layer = l,
                              .ne = {width_, experts_}});
  at.bank =
      seat.AddBank({.layer = l, .experts = experts_, .used = used_, .width = width_, .ff = ff_});
  const auto part = [&](const char* pattern, bl_bank_part which, uint64_t in, uint64_t out) {
    seat.AddWeight({.pattern = pattern,
                    .role = BL_ROLE_ROUTED,
                    .layer = l,
                    .ne = {in, out, experts_},
                    .bank = at.bank,
                    .part = which});
  };
  part("blk.{l}.ffn_gate_exps.weight", BL_PART_GATE, width_, ff_);
  part("blk.{l}.ffn_up_exps.weight", BL_PART_UP, width_, ff_);
  part("blk.{l}.ffn_down_exps.weight", BL_PART_DOWN, ff_, width_);
  return at;
}

void Toy::BuildMain(sdk::Graph& g, const bl_build& /*build*/) const {
  constexpr double kEps = 1e-6;
  const auto heads = static_cast<int64_t>(heads_);
  const auto kv_heads = static_cast<int64_t>(kv_heads_);
  const auto head_dim = static_cast<int64_t>(head_dim_);
  const sdk::RopeOptions rope = {.base = 10000.0};

  const sdk::Value embedded[] = {g.Embed(g.Tokens(), embedding_)};
  sdk::Value x = g.Node("toy.scale", 1, embedded, {}, {}, sdk::Attrs().F64("factor", scale_));
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& at = layers_[l];
    g.Layer(static_cast<int32_t>(l));
    g.Export("layer." + std::to_string(l) + ".in", x);
    const auto y = g.RmsNorm(x, at.norm, kEps);
    const auto [q, k, v] = g.Linear(y, {at.q, at.k, at.v});  // one launch
    g.Append(g.Rope(g.Reshape(k, {head_dim, kv_heads}), rope), at.k_plane);
    g.Append(v, at.v_plane);
    const auto a =
        g.Attention(g.Rope(g.Reshape(q, {head_dim, heads}), rope), at.k_plane, at.v_plane,
                    {.kv_heads = kv_heads, .scale = 1.0 / std::sqrt(head_dim)});
    x = g.Add(x, g.Linear(g.Reshape(a, {heads * head_dim}), at.out));
    const auto z = g.RmsNorm(x, at.ffn_norm, kEps);
    x = g.RoutedExperts(z, g.Router(z, at.router, {.used = used_}), x, at.bank);  // x + the experts
  }
  g.Layer(-1);
  g.Export("logits", g.Head(g.RmsNorm(g.SelectRows(x), out_norm_, kEps), head_));
}

}  // namespace

BLOOMERY_PLUGIN(Toy, "toy", "0.1.0")
