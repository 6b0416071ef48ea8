// The models of the Qwen3 family: grouped-query attention with a norm on each query and key head
// and rope over neox halves, then a dense SwiGLU or a softmax router over SwiGLU experts, in every
// layer. The hybrid ones have gated delta-net layers between layers of gated attention, and a
// shared expert.

#include <algorithm>
#include <array>
#include <bloomery/blocks/attention.hpp>
#include <bloomery/blocks/delta_net.hpp>
#include <bloomery/blocks/draft_head.hpp>
#include <bloomery/blocks/feed_forward.hpp>
#include <bloomery/bloomery.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat.h"
#include "hyper.h"

namespace bloomery::qwen3 {
namespace {

namespace blocks = sdk::blocks;

constexpr auto kArchitectures = std::to_array<std::string_view>({QWEN3_ARCHITECTURES});

// What a draft layer of a file may hold: one layer of attention and experts, and what joins it.
constexpr auto kDraftTensors = std::to_array<std::string_view>({"attn_norm",
                                                                "attn_q",
                                                                "attn_k",
                                                                "attn_v",
                                                                "attn_q_norm",
                                                                "attn_k_norm",
                                                                "attn_output",
                                                                "post_attention_norm",
                                                                "ffn_gate",
                                                                "ffn_up",
                                                                "ffn_down",
                                                                "ffn_gate_inp",
                                                                "ffn_gate_exps",
                                                                "ffn_up_exps",
                                                                "ffn_down_exps",
                                                                "ffn_gate_inp_shexp",
                                                                "ffn_gate_shexp",
                                                                "ffn_up_shexp",
                                                                "ffn_down_shexp",
                                                                "nextn.eh_proj",
                                                                "nextn.enorm",
                                                                "nextn.hnorm",
                                                                "nextn.shared_head_norm",
                                                                "nextn.embed_tokens",
                                                                "nextn.shared_head_head"});

// One of the two mixers.
struct Layer {
  std::optional<blocks::DeltaNet> delta;
  std::optional<blocks::Attention> attention;
  blocks::FeedForward feed_forward;
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

  explicit Qwen3(const sdk::Context& context)
      : hyper_(ReadHyper(context.model)),
        drafts_(hyper_.draft_layers > 0 && (context.params->features & BL_FEATURE_DRAFT) != 0) {}

  void Describe(sdk::Seat& seat) {
    seat.layers = hyper_.layers + (drafts_ ? 1 : 0);
    seat.vocabulary = hyper_.vocabulary;
    seat.context_trained = hyper_.context;
    embedding_ = seat.AddWeight({.pattern = "token_embd.weight",
                                 .role = BL_ROLE_TABLE,
                                 .ne = {hyper_.width, hyper_.vocabulary}});
    for (uint32_t l = 0; l < hyper_.layers; ++l) layers_.push_back(DescribeLayer(seat, l));
    output_norm_ = seat.AddWeight(
        {.pattern = "output_norm.weight", .role = BL_ROLE_NORM, .ne = {hyper_.width}});
    const uint32_t alias = BL_WEIGHT_ALIAS;
    head_ = seat.AddWeight({.pattern = hyper_.tied_head ? "token_embd.weight" : "output.weight",
                            .role = BL_ROLE_HEAD,
                            .ne = {hyper_.width, hyper_.vocabulary},
                            .flags = hyper_.tied_head ? alias : 0});
    // Only the first draft layer is run; it is applied again and again.
    if (drafts_) {
      draft_ = blocks::DraftHead(
          {seat, static_cast<int32_t>(hyper_.layers), BL_OWNER_DRAFT},
          {.width = hyper_.width, .vocabulary = hyper_.vocabulary, .eps = hyper_.eps},
          AttentionOf(), FeedForwardOf());
      seat.AddEntry<&Qwen3::BuildDraft>({.name = "draft", .kind = BL_ENTRY_DRAFT_STEP});
    }
    for (uint32_t l = seat.layers; l < hyper_.layers + hyper_.draft_layers; ++l) {
      for (const std::string_view name : kDraftTensors) {
        seat.Ignore("blk." + std::to_string(l) + "." + std::string(name) + ".weight");
      }
    }
    seat.AddEntry<&Qwen3::BuildMain>({.name = "main", .needs = BL_NEEDS_LOGITS});
  }

  void BuildMain(sdk::Graph& g, const bl_build& /*build*/) const {
    sdk::Value x = g.Embed(g.Tokens(), embedding_);
    for (size_t l = 0; l < layers_.size(); ++l) {
      const Layer& layer = layers_[l];
      g.Layer(static_cast<int32_t>(l));
      const std::string name = "layer." + std::to_string(l);
      g.Export(name + ".in", x);
      x = layer.delta ? layer.delta->Build(g, x) : layer.attention->Build(g, x);
      x = layer.feed_forward.Build(g, name, x);
    }
    if (drafts_) draft_.Store(g, Trunk(), g.RmsNorm(x, output_norm_, hyper_.eps));
    g.Layer(-1);
    const sdk::Value hidden = g.RmsNorm(g.SelectRows(x), output_norm_, hyper_.eps);
    g.Export("hidden", hidden);
    g.Export("logits", g.Head(hidden, head_));
  }

  void BuildDraft(sdk::Graph& g, const bl_build& /*build*/) const { draft_.Build(g, Trunk()); }

  static const void* GetExtension(std::string_view id) {
    return id == BL_EXT_CHAT_1 ? &Chat() : nullptr;
  }
  const void* InstanceExtension(std::string_view id) const {
    return id == BL_EXT_CHAT_1 && hyper_.hybrid ? &HybridChat() : nullptr;
  }

 private:
  Layer DescribeLayer(sdk::Seat& seat, uint32_t l) const {
    const blocks::LayerWeights weights(seat, static_cast<int32_t>(l));
    Layer layer;
    if (hyper_.recurrent[l]) {
      layer.delta.emplace(weights, blocks::DeltaNetShape{.width = hyper_.width,
                                                         .key_heads = hyper_.delta.key_heads,
                                                         .value_heads = hyper_.delta.value_heads,
                                                         .head_dim = hyper_.delta.head_dim,
                                                         .taps = hyper_.delta.taps,
                                                         .eps = hyper_.eps});
    } else {
      layer.attention.emplace(weights, AttentionOf());
    }
    layer.feed_forward = blocks::FeedForward(weights, FeedForwardOf());
    return layer;
  }

  blocks::DraftTrunk Trunk() const { return {embedding_, output_norm_, head_}; }

  blocks::AttentionShape AttentionOf() const {
    return {.width = hyper_.width,
            .heads = hyper_.heads,
            .kv_heads = hyper_.kv_heads,
            .key_dim = hyper_.key_dim,
            .value_dim = hyper_.value_dim,
            .rope_dims = hyper_.rope_dims,
            .rope_base = hyper_.rope_base,
            .eps = hyper_.eps,
            .gated = hyper_.hybrid};
  }

  blocks::FeedForwardShape FeedForwardOf() const {
    return {.width = hyper_.width,
            .eps = hyper_.eps,
            .norm = hyper_.hybrid ? "post_attention_norm" : "ffn_norm",
            .ff = hyper_.ff,
            .experts = hyper_.experts,
            .experts_used = hyper_.experts_used,
            .shared_ff = hyper_.shared_ff};
  }

  Hyper hyper_;
  bool drafts_;  // the draft block is run
  blocks::DraftHead draft_;
  sdk::Weight embedding_, output_norm_, head_;
  std::vector<Layer> layers_;
};

}  // namespace
}  // namespace bloomery::qwen3

BLOOMERY_PLUGIN(bloomery::qwen3::Qwen3, QWEN3_NAME, QWEN3_VERSION)
