// The MiMo-V2 models: layers of full attention between layers that see their last keys only, with
// sinks and more key and value heads; keys wider than values; then a dense SwiGLU in the first
// layer and experts behind a sigmoid router with a selection bias in the others.

#include <algorithm>
#include <array>
#include <bloomery/blocks/attention.hpp>
#include <bloomery/blocks/draft_head.hpp>
#include <bloomery/blocks/feed_forward.hpp>
#include <bloomery/bloomery.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "chat.h"
#include "hyper.h"

namespace bloomery::mimo2 {
namespace {

namespace blocks = sdk::blocks;

constexpr std::string_view kArchitecture = "mimo2";

// What a router of eight tiny gates divides by at least.
constexpr double kWeightSumMin = 0x1p-14;

// What a draft layer of a file may hold: one sliding layer with a dense block, and what joins it.
constexpr auto kDraftTensors = std::to_array<std::string_view>(
    {"attn_norm", "attn_qkv", "attn_q", "attn_k", "attn_v", "attn_sinks", "attn_output", "ffn_norm",
     "ffn_gate", "ffn_up", "ffn_down", "layer_output_norm", "nextn.eh_proj", "nextn.enorm",
     "nextn.hnorm", "nextn.shared_head_norm", "nextn.embed_tokens", "nextn.shared_head_head"});

struct Layer {
  blocks::Attention attention;
  blocks::FeedForward feed_forward;
};

class Mimo2 {
 public:
  static int32_t Probe(const sdk::Model& model) {
    if (model.arch() != kArchitecture) {
      sdk::Refuse("the architecture '" + std::string(model.arch()) + "' is not one of this plugin");
    }
    return 100;
  }

  explicit Mimo2(const sdk::Context& context)
      : hyper_(ReadHyper(context.model)),
        drafts_(hyper_.draft_layers > 0 && (context.params->features & BL_FEATURE_DRAFT) != 0) {}

  void Describe(sdk::Seat& seat) {
    const auto layers = static_cast<uint32_t>(hyper_.layers.size());
    seat.layers = layers + (drafts_ ? 1 : 0);
    seat.vocabulary = hyper_.vocabulary;
    seat.context_trained = hyper_.context;
    const std::vector<uint64_t> table = {hyper_.width, hyper_.vocabulary};
    embedding_ =
        seat.AddWeight({.pattern = "token_embd.weight", .role = BL_ROLE_TABLE, .ne = table});
    for (uint32_t l = 0; l < layers; ++l) {
      const blocks::LayerWeights weights(seat, static_cast<int32_t>(l));
      layers_.push_back(DescribeLayer(weights, hyper_.layers[l]));
    }
    output_norm_ = seat.AddWeight(
        {.pattern = "output_norm.weight", .role = BL_ROLE_NORM, .ne = {hyper_.width}});
    head_ = seat.AddWeight({.pattern = "output.weight", .role = BL_ROLE_HEAD, .ne = table});
    if (drafts_) {
      // The first layer behind the trunk; a release has three, each for a token further. The first
      // alone is run, again on its own guess.
      draft_ = blocks::DraftHead({seat, static_cast<int32_t>(layers), BL_OWNER_DRAFT},
                                 {.width = hyper_.width,
                                  .vocabulary = hyper_.vocabulary,
                                  .eps = hyper_.eps,
                                  .keeps_normed = false,
                                  .other_norm = "layer_output_norm.weight"},
                                 AttentionOf(hyper_.draft), FeedForwardOf(hyper_.draft));
      seat.AddEntry<&Mimo2::BuildDraft>({.name = "draft", .kind = BL_ENTRY_DRAFT_STEP});
    }
    for (uint32_t l = seat.layers; l < layers + hyper_.draft_layers; ++l) {
      for (const std::string_view name : kDraftTensors) {
        seat.Ignore("blk." + std::to_string(l) + "." + std::string(name) + ".weight");
      }
    }
    seat.AddEntry<&Mimo2::BuildMain>({.name = "main", .needs = BL_NEEDS_LOGITS});
  }

  void BuildMain(sdk::Graph& g, const bl_build& /*build*/) const {
    sdk::Value x = g.Embed(g.Tokens(), embedding_);
    for (size_t l = 0; l < layers_.size(); ++l) {
      g.Layer(static_cast<int32_t>(l));
      const std::string name = "layer." + std::to_string(l);
      g.Export(name + ".in", x);
      x = layers_[l].feed_forward.Build(g, name, layers_[l].attention.Build(g, x));
    }
    if (drafts_) {
      g.Layer(static_cast<int32_t>(layers_.size()));
      g.Export("layer." + std::to_string(layers_.size()) + ".in", x);
      draft_.Store(g, Trunk(), x);
    }
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
    return id == BL_EXT_CHAT_1 ? &ChatOf(hyper_.vocabulary) : nullptr;
  }

 private:
  blocks::DraftTrunk Trunk() const { return {embedding_, output_norm_, head_}; }

  Layer DescribeLayer(const blocks::LayerWeights& weights, const LayerHyper& at) const {
    return {blocks::Attention(weights, AttentionOf(at)),
            blocks::FeedForward(weights, FeedForwardOf(at))};
  }

  blocks::AttentionShape AttentionOf(const LayerHyper& at) const {
    return {.width = hyper_.width,
            .heads = hyper_.heads,
            .kv_heads = at.kv_heads,
            .key_dim = hyper_.key_dim,
            .value_dim = hyper_.value_dim,
            .rope_dims = hyper_.rope_dims,
            .rope_base = at.sliding ? hyper_.rope_base_sliding : hyper_.rope_base,
            .eps = hyper_.eps,
            .head_norms = false,
            .fused = at.fused,
            .window = at.sliding ? hyper_.window : 0,
            .sinks = at.sliding,
            .value_scale = hyper_.value_scale};
  }

  blocks::FeedForwardShape FeedForwardOf(const LayerHyper& at) const {
    return {.width = hyper_.width,
            .eps = hyper_.eps,
            .ff = at.routed ? hyper_.expert_ff : hyper_.ff,
            .experts = at.routed ? hyper_.experts : 0,
            .experts_used = hyper_.experts_used,
            .scoring = "sigmoid",
            .selection_bias = hyper_.biased,
            .weight_sum_min = kWeightSumMin,
            .weight_scale = hyper_.weights_scale};
  }

  Hyper hyper_;
  bool drafts_;  // the draft layer is run
  blocks::DraftHead draft_;
  sdk::Weight embedding_, output_norm_, head_;
  std::vector<Layer> layers_;
};

}  // namespace
}  // namespace bloomery::mimo2

BLOOMERY_PLUGIN(bloomery::mimo2::Mimo2, "mimo2", "0.1.0")
