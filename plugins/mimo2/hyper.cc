#include "hyper.h"

#include <algorithm>
#include <bloomery/errors.hpp>
#include <cmath>
#include <initializer_list>
#include <string>

namespace bloomery::mimo2 {
namespace {

// Far above any model of this family; keeps products of two of them inside 64 bits.
constexpr uint64_t kWidthMax = uint64_t{1} << 20;
constexpr uint64_t kLayersMax = 1024;
constexpr uint64_t kHeadsMax = 1024;
constexpr uint64_t kExpertsMax = 1024;
constexpr uint64_t kWindowMax = uint64_t{1} << 20;

void RefuseUnless(bool holds, const std::string& text) {
  if (!holds) sdk::Refuse(text);
}

// Reads keys by their names behind the architecture's.
class Reader {
 public:
  explicit Reader(const sdk::Model& model) : model_(model) {}

  Hyper Read() {
    const auto blocks = static_cast<uint32_t>(In("block_count", 1, kLayersMax));
    hyper_.draft_layers = DraftLayers(blocks);
    ReadShape();
    ReadLayers(blocks, blocks - hyper_.draft_layers);
    const auto any = [&](bool LayerHyper::* what) {
      return std::ranges::any_of(hyper_.layers, what);
    };
    if (any(&LayerHyper::routed)) ReadExperts();
    if (hyper_.draft_layers > 0 || !std::ranges::all_of(hyper_.layers, &LayerHyper::routed)) {
      hyper_.ff = In("feed_forward_length", 1, kWidthMax);
    }
    if (hyper_.draft.sliding || any(&LayerHyper::sliding)) {
      hyper_.window = In("attention.sliding_window", 1, kWindowMax);
      const std::string base = model_.ArchKey("rope.freq_base_swa");
      hyper_.rope_base_sliding =
          model_.Has(base) ? Above("rope.freq_base_swa", 1.0) : hyper_.rope_base;
    }
    return std::move(hyper_);
  }

 private:
  uint64_t In(const char* key, uint64_t low, uint64_t high) const {
    return model_.U64In(model_.ArchKey(key), low, high);
  }
  // A number that the formulas divide by or take the logarithm of. NaN fails every comparison.
  double Above(const char* name, double least) const {
    const std::string key = model_.ArchKey(name);
    const double value = model_.F64(key);
    RefuseUnless(value > least && std::isfinite(value),
                 "metadata key '" + key + "' is " + std::to_string(value) +
                     ", must be a finite number above " + std::to_string(least));
    return value;
  }
  bool HasTensor(uint32_t layer, const std::string& name) const {
    return model_.FindTensor("blk." + std::to_string(layer) + "." + name).has_value();
  }

  bool HasAny(uint32_t layer, std::initializer_list<const char*> names) const {
    return std::ranges::any_of(names, [&](const char* name) { return HasTensor(layer, name); });
  }

  // Counted in block_count where the file holds them; a number without their tensors says nothing.
  // A file that holds them alone is no model.
  uint32_t DraftLayers(uint32_t blocks) const {
    const std::string key = model_.ArchKey("nextn_predict_layers");
    if (!model_.Has(key)) return 0;
    const auto drafts = static_cast<uint32_t>(model_.U64In(key, 0, blocks - 1));
    if (drafts == 0 || !HasTensor(blocks - drafts, "nextn.eh_proj.weight")) return 0;
    RefuseUnless(HasTensor(0, "attn_norm.weight"),
                 "tensor 'blk.0.attn_norm.weight' is missing: this file holds the draft layers of "
                 "a model alone, from 'blk." +
                     std::to_string(blocks - drafts) +
                     "' on; open the model's own file, and give this one as -md");
    return drafts;
  }

  void ReadShape() {
    hyper_.width = In("embedding_length", 1, kWidthMax);
    hyper_.heads = In("attention.head_count", 1, kHeadsMax);
    hyper_.key_dim = In("attention.key_length", 2, kWidthMax);
    hyper_.value_dim = In("attention.value_length", 1, kWidthMax);
    hyper_.rope_dims = In("rope.dimension_count", 2, hyper_.key_dim);
    RefuseUnless(hyper_.rope_dims % 2 == 0,
                 "metadata key '" + model_.ArchKey("rope.dimension_count") + "' is " +
                     std::to_string(hyper_.rope_dims) + ", must be even");
    hyper_.rope_base = Above("rope.freq_base", 1.0);
    hyper_.value_scale = Above("attention.value_scale", 0.0);
    hyper_.eps = Above("attention.layer_norm_rms_epsilon", 0.0);
    hyper_.context = In("context_length", 1, UINT32_MAX);
    hyper_.vocabulary = model_.GetTensor("token_embd.weight").ne[1];
  }

  void ReadLayers(uint32_t blocks, uint32_t layers) {
    const std::string kv_key = model_.ArchKey("attention.head_count_kv");
    const std::string pattern_key = model_.ArchKey("attention.sliding_window_pattern");
    const std::vector<int64_t> kv_heads = model_.I64Array(kv_key);
    const std::vector<bool> sliding = model_.FlagArray(pattern_key);
    const auto check = [&](const std::string& key, size_t size) {
      RefuseUnless(size == blocks, "metadata key '" + key + "' has " + std::to_string(size) +
                                       " values for " + std::to_string(blocks) + " layers");
    };
    check(kv_key, kv_heads.size());
    check(pattern_key, sliding.size());
    for (uint32_t l = 0; l < layers + std::min(1U, hyper_.draft_layers); ++l) {
      const int64_t kv = kv_heads[l];
      RefuseUnless(kv > 0 && hyper_.heads % static_cast<uint64_t>(kv) == 0,
                   "metadata key '" + kv_key + "', item " + std::to_string(l) + " is " +
                       std::to_string(kv) + ", must divide '" +
                       model_.ArchKey("attention.head_count") +
                       "' = " + std::to_string(hyper_.heads));
      CheckFused(l, static_cast<uint64_t>(kv));
      // One of a layer's tensors says of which kind it is, so that a missing one is missed.
      const LayerHyper layer{.sliding = sliding[l],
                             .fused = !HasTensor(l, "attn_q.weight"),
                             .routed = HasAny(l, {"ffn_gate_inp.weight", "ffn_gate_exps.weight",
                                                  "ffn_up_exps.weight", "ffn_down_exps.weight"}),
                             .kv_heads = static_cast<uint64_t>(kv)};
      if (l == layers) {
        hyper_.draft = layer;
        continue;
      }
      hyper_.layers.push_back(layer);
      hyper_.biased = hyper_.biased || HasTensor(l, "exp_probs_b.bias");
    }
  }

  // The parts of a tensor that holds queries, keys and values are all of it.
  void CheckFused(uint32_t layer, uint64_t kv_heads) const {
    const std::string name = "blk." + std::to_string(layer) + ".attn_qkv.weight";
    if (!model_.FindTensor(name)) return;
    const uint64_t rows =
        hyper_.heads * hyper_.key_dim + kv_heads * (hyper_.key_dim + hyper_.value_dim);
    const uint64_t found = model_.GetTensor(name).ne[1];
    RefuseUnless(found == rows, "tensor '" + name + "' has " + std::to_string(found) +
                                    " rows; its heads are " + std::to_string(rows));
  }

  void ReadExperts() {
    hyper_.experts = static_cast<uint32_t>(In("expert_count", 1, kExpertsMax));
    hyper_.experts_used = static_cast<uint32_t>(In("expert_used_count", 1, hyper_.experts));
    hyper_.expert_ff = In("expert_feed_forward_length", 1, kWidthMax);
    constexpr uint64_t kSigmoid = 2;
    const std::string gating = model_.ArchKey("expert_gating_func");
    RefuseUnless(model_.FindU64(gating).value_or(kSigmoid) == kSigmoid,
                 "metadata key '" + gating + "' is not 2 (sigmoid), the router of this family");
    for (const char* name : {"expert_group_count", "expert_group_used_count"}) {
      const std::string key = model_.ArchKey(name);
      RefuseUnless(model_.FindU64(key).value_or(1) == 1,
                   "metadata key '" + key + "' is not 1: this family has no groups of experts");
    }
    const std::string scale = model_.ArchKey("expert_weights_scale");
    // Zero says the same as absence.
    if (model_.FindF64(scale).value_or(0.0) != 0.0) {
      hyper_.weights_scale = Above("expert_weights_scale", 0.0);
    }
  }

  const sdk::Model& model_;
  Hyper hyper_;
};

}  // namespace

Hyper ReadHyper(const sdk::Model& model) { return Reader(model).Read(); }

}  // namespace bloomery::mimo2
