// The MiMo-V2 models: layers of full attention between layers that see their last keys only, with
// sinks and more key and value heads; keys wider than values; then a dense SwiGLU in the first
// layer and experts behind a sigmoid router with a selection bias in the others.

#include <algorithm>
#include <array>
#include <bloomery/blocks/attention.hpp>
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

// The first layer behind the trunk's guesses the token after the next: it joins the next token with
// what the trunk's last layer left before it, and is one more layer over what it was given before.
// A release has three, each for a token further; the first alone is run, again on its own guess.
struct Draft {
  sdk::Weight token_norm, hidden_norm, join;
  // Absent ones are the model's.
  sdk::Weight embedding, head, head_norm, output_norm;
  sdk::Plane tap;  // what the trunk's last layer left of the row before
  Layer layer;
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
      draft_ = DescribeDraft(seat);
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
      draft_.layer.attention.Store(g, JoinDraft(g, g.Previous(x, draft_.tap)));
    }
    g.Layer(-1);
    const sdk::Value hidden = g.RmsNorm(g.SelectRows(x), output_norm_, hyper_.eps);
    g.Export("hidden", hidden);
    g.Export("logits", g.Head(hidden, head_));
  }

  void BuildDraft(sdk::Graph& g, const bl_build& /*build*/) const {
    g.Layer(static_cast<int32_t>(layers_.size()));
    sdk::Value x = draft_.layer.attention.Build(g, JoinDraft(g, g.Recall(draft_.tap)));
    x = draft_.layer.feed_forward.Build(g, "draft", x);
    g.Keep(x, draft_.tap);
    g.Layer(-1);
    const sdk::Weight norm = g.Has(draft_.head_norm)     ? draft_.head_norm
                             : g.Has(draft_.output_norm) ? draft_.output_norm
                                                         : output_norm_;
    const sdk::Value hidden = g.RmsNorm(g.SelectRows(x), norm, hyper_.eps);
    g.Export("logits", g.Head(hidden, g.Has(draft_.head) ? draft_.head : head_));
  }

  static const void* GetExtension(std::string_view id) {
    return id == BL_EXT_CHAT_1 ? &Chat() : nullptr;
  }
  const void* InstanceExtension(std::string_view id) const {
    return id == BL_EXT_CHAT_1 ? &ChatOf(hyper_.vocabulary) : nullptr;
  }

 private:
  Draft DescribeDraft(sdk::Seat& seat) const {
    const blocks::LayerWeights weights(seat, static_cast<int32_t>(layers_.size()), BL_OWNER_DRAFT);
    const std::vector<uint64_t> table = {hyper_.width, hyper_.vocabulary};
    const auto optional = [&](const char* name, bl_role role, const std::vector<uint64_t>& ne) {
      return weights.Add(name, role, ne, BL_WEIGHT_OPTIONAL);
    };
    Draft draft;
    draft.token_norm = weights.Add("nextn.enorm.weight", BL_ROLE_NORM, {hyper_.width});
    draft.hidden_norm = weights.Add("nextn.hnorm.weight", BL_ROLE_NORM, {hyper_.width});
    draft.join =
        weights.Add("nextn.eh_proj.weight", BL_ROLE_DENSE, {2 * hyper_.width, hyper_.width});
    draft.embedding = optional("nextn.embed_tokens.weight", BL_ROLE_TABLE, table);
    draft.head = optional("nextn.shared_head_head.weight", BL_ROLE_HEAD, table);
    draft.head_norm = optional("nextn.shared_head_norm.weight", BL_ROLE_NORM, {hyper_.width});
    draft.output_norm = optional("layer_output_norm.weight", BL_ROLE_NORM, {hyper_.width});
    draft.tap = weights.AddState("hidden", hyper_.width, BL_CLASS_TAP);
    draft.layer = DescribeLayer(weights, hyper_.draft);
    return draft;
  }

  // The rows' tokens, and what the trunk left before each, as the draft's layer takes them.
  sdk::Value JoinDraft(sdk::Graph& g, sdk::Value before) const {
    const sdk::Value tokens =
        g.Embed(g.Tokens(), g.Has(draft_.embedding) ? draft_.embedding : embedding_);
    return g.Linear(g.Concat(g.RmsNorm(tokens, draft_.token_norm, hyper_.eps),
                             g.RmsNorm(before, draft_.hidden_norm, hyper_.eps)),
                    draft_.join);
  }

  Layer DescribeLayer(const blocks::LayerWeights& weights, const LayerHyper& at) const {
    Layer layer;
    layer.attention = blocks::Attention(
        weights, {.width = hyper_.width,
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
                  .keeps_rows = weights.owner() == BL_OWNER_DRAFT,
                  .sinks = at.sliding,
                  .value_scale = hyper_.value_scale});
    layer.feed_forward =
        blocks::FeedForward(weights, {.width = hyper_.width,
                                      .eps = hyper_.eps,
                                      .ff = at.routed ? hyper_.expert_ff : hyper_.ff,
                                      .experts = at.routed ? hyper_.experts : 0,
                                      .experts_used = hyper_.experts_used,
                                      .scoring = "sigmoid",
                                      .selection_bias = hyper_.biased,
                                      .weight_sum_min = kWeightSumMin,
                                      .weight_scale = hyper_.weights_scale});
    return layer;
  }

  Hyper hyper_;
  bool drafts_;  // the draft layer is run
  Draft draft_;
  sdk::Weight embedding_, output_norm_, head_;
  std::vector<Layer> layers_;
};

}  // namespace
}  // namespace bloomery::mimo2

BLOOMERY_PLUGIN(bloomery::mimo2::Mimo2, "mimo2", "0.1.0")
