// A model's own draft head: the layer that files keep behind the last ("nextn", or multi-token
// prediction). It joins each token with the hidden state of the row before it, runs one more layer
// of attention and feed-forward, and guesses the token after. Its weights, planes and bank have the
// owner DRAFT, its number is the one behind the model's layers, so the seat has one layer more.
//
//   Describe:  if (drafts_) head_ = {{seat, layers_, BL_OWNER_DRAFT}, shape, attention,
//   feed_forward};
//              seat.AddEntry<&M::BuildDraft>({.name = "draft", .kind = BL_ENTRY_DRAFT_STEP});
//   BuildMain: if (drafts_) head_.Store(g, trunk, hidden);  // behind the layers
//   BuildDraft: head_.Build(g, trunk);
#pragma once

#include <bloomery/blocks/attention.hpp>
#include <bloomery/blocks/feed_forward.hpp>
#include <bloomery/blocks/layer.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bloomery::sdk::blocks {

struct DraftHeadShape {
  uint64_t width = 0;
  uint64_t vocabulary = 0;
  double eps = 0;
  // A second guess joins the first one's hidden state: behind the norm before the logits, or as the
  // layer gives it.
  bool keeps_normed = true;
  // Another name of the head's own norm, taken where there is no nextn.shared_head_norm.
  const char* other_norm = nullptr;
};

// The model's own, where the file has none for the head.
struct DraftTrunk {
  Weight embedding, norm, head;
};

class DraftHead {
 public:
  DraftHead() = default;
  DraftHead(const LayerWeights& layer, const DraftHeadShape& shape, const AttentionShape& attention,
            const FeedForwardShape& feed_forward)
      : shape_(shape), layer_(layer.layer()) {
    AttentionShape keeping = attention;
    keeping.keeps_rows = true;  // steps write behind the slot's end
    const auto optional = [&](const char* name, bl_role role, std::vector<uint64_t> ne) {
      return layer.Add(name, role, std::move(ne), BL_WEIGHT_OPTIONAL);
    };
    const uint64_t width = shape.width;
    token_norm_ = layer.Add("nextn.enorm.weight", BL_ROLE_NORM, {width});
    hidden_norm_ = layer.Add("nextn.hnorm.weight", BL_ROLE_NORM, {width});
    join_ = layer.Add("nextn.eh_proj.weight", BL_ROLE_DENSE, {2 * width, width});
    embedding_ = optional("nextn.embed_tokens.weight", BL_ROLE_TABLE, {width, shape.vocabulary});
    head_ = optional("nextn.shared_head_head.weight", BL_ROLE_HEAD, {width, shape.vocabulary});
    norm_ = optional("nextn.shared_head_norm.weight", BL_ROLE_NORM, {width});
    if (shape.other_norm != nullptr) {
      other_norm_ = optional(shape.other_norm, BL_ROLE_NORM, {width});
    }
    tap_ = layer.AddState("hidden", width, BL_CLASS_TAP);
    attention_ = Attention(layer, keeping);
    feed_forward_ = FeedForward(layer, feed_forward);
  }

  // In the main entry, behind the layers: keeps what guesses will read of these rows, and the last
  // one's `hidden`, the model's state behind its last norm (or before it, as keeps_normed says of
  // the head's own). Leaves the layer's label set.
  void Store(Graph& g, const DraftTrunk& trunk, Value hidden) const {
    g.Layer(layer_);
    attention_.Store(g, Join(g, trunk, g.Previous(hidden, tap_)));
  }

  // The draft entry, whole.
  void Build(Graph& g, const DraftTrunk& trunk) const {
    g.Layer(layer_);
    const Value joined = Join(g, trunk, g.Recall(tap_));
    const Value x = feed_forward_.Build(g, "draft", attention_.Build(g, joined));
    const Value normed = g.RmsNorm(x, Norm(g, trunk), shape_.eps);
    g.Keep(shape_.keeps_normed ? normed : x, tap_);
    g.Layer(-1);
    g.Export("logits", g.Head(g.SelectRows(normed), g.Has(head_) ? head_ : trunk.head));
  }

 private:
  // The rows' tokens and the hidden state before each, as the layer takes them.
  Value Join(Graph& g, const DraftTrunk& trunk, Value before) const {
    const Value tokens = g.Embed(g.Tokens(), g.Has(embedding_) ? embedding_ : trunk.embedding);
    return g.Linear(g.Concat(g.RmsNorm(tokens, token_norm_, shape_.eps),
                             g.RmsNorm(before, hidden_norm_, shape_.eps)),
                    join_);
  }

  Weight Norm(Graph& g, const DraftTrunk& trunk) const {
    if (g.Has(norm_)) return norm_;
    return shape_.other_norm != nullptr && g.Has(other_norm_) ? other_norm_ : trunk.norm;
  }

  DraftHeadShape shape_;
  int32_t layer_ = -1;
  Weight token_norm_, hidden_norm_, join_;
  Weight embedding_, head_, norm_, other_norm_;  // may be absent
  Plane tap_;                                    // the hidden state of the row before
  Attention attention_;
  FeedForward feed_forward_;
};

}  // namespace bloomery::sdk::blocks
