#include "hyper.h"

#include <bloomery/errors.hpp>
#include <cmath>
#include <string>

namespace bloomery::qwen3 {
namespace {

// Far above any model of this family; keeps products of two of them inside 64 bits.
constexpr uint64_t kWidthMax = uint64_t{1} << 20;
constexpr uint64_t kLayersMax = 1024;
constexpr uint64_t kHeadsMax = 1024;
constexpr uint64_t kExpertsMax = 1024;

void RefuseUnless(bool holds, const std::string& text) {
  if (!holds) sdk::Refuse(text);
}

// Older converters give no scaling keys, newer ones type "none".
void CheckRopeScaling(const sdk::Model& model) {
  const std::string type_key = model.ArchKey("rope.scaling.type");
  const auto type = model.FindStr(type_key);
  if (type && *type != "none") {
    sdk::Refuse("metadata key '" + type_key + "' is '" + std::string(*type) +
                "': scaled rope is not computed by this version; use a file without it");
  }
  for (const char* name : {"rope.scaling.factor", "rope.scale_linear"}) {
    const std::string key = model.ArchKey(name);
    const auto factor = model.FindF64(key);
    RefuseUnless(!factor || *factor == 1.0,
                 "metadata key '" + key + "' is " + std::to_string(factor.value_or(1.0)) +
                     ": scaled rope is not computed by this version; use a file without it");
  }
}

// A number that the formulas divide by or take the logarithm of. NaN fails every comparison.
double Above(const sdk::Model& model, const char* name, double least) {
  const std::string key = model.ArchKey(name);
  const double value = model.F64(key);
  RefuseUnless(value > least && std::isfinite(value),
               "metadata key '" + key + "' is " + std::to_string(value) +
                   ", must be a finite number above " + std::to_string(least));
  return value;
}

// The router of this family is a softmax over all experts whose picked weights are renormalised;
// files that say otherwise are of another kind.
void CheckRouter(const sdk::Model& model) {
  constexpr uint64_t kSoftmax = 1;
  const std::string gating = model.ArchKey("expert_gating_func");
  RefuseUnless(model.FindU64(gating).value_or(kSoftmax) == kSoftmax,
               "metadata key '" + gating + "' is not 1 (softmax), the router of this family");
  const std::string norm = model.ArchKey("expert_weights_norm");
  RefuseUnless(model.FindBool(norm).value_or(true),
               "metadata key '" + norm + "' is false: this family renormalises its pick weights");
  const std::string scale = model.ArchKey("expert_weights_scale");
  RefuseUnless(model.FindF64(scale).value_or(1.0) == 1.0,
               "metadata key '" + scale + "' is not 1: this family does not scale pick weights");
  for (const char* name : {"expert_shared_count", "nextn_predict_layers"}) {
    const std::string key = model.ArchKey(name);
    RefuseUnless(model.FindU64(key).value_or(0) == 0,
                 "metadata key '" + key + "' is not 0: this version does not compute that part");
  }
}

void CheckExperts(const sdk::Model& model, const Hyper& hyper) {
  RefuseUnless(hyper.experts_used <= hyper.experts,
               "metadata key '" + model.ArchKey("expert_used_count") + "' is " +
                   std::to_string(hyper.experts_used) + ", above '" +
                   model.ArchKey("expert_count") + "' = " + std::to_string(hyper.experts));
  const std::string fused = "blk.0.ffn_gate_up_exps.weight";
  RefuseUnless(!model.FindTensor(fused),
               "tensor '" + fused +
                   "': experts with gate and up in one tensor are not served by this version; "
                   "use a file with ffn_gate_exps and ffn_up_exps");
}

}  // namespace

Hyper ReadHyper(const sdk::Model& model) {
  const auto in = [&](const char* key, uint64_t low, uint64_t high) {
    return model.U64In(model.ArchKey(key), low, high);
  };
  Hyper hyper;
  hyper.layers = static_cast<uint32_t>(in("block_count", 1, kLayersMax));
  hyper.width = in("embedding_length", 1, kWidthMax);
  hyper.heads = in("attention.head_count", 1, kHeadsMax);
  hyper.kv_heads = in("attention.head_count_kv", 1, kHeadsMax);
  RefuseUnless(hyper.heads % hyper.kv_heads == 0,
               "metadata keys '" + model.ArchKey("attention.head_count") +
                   "' = " + std::to_string(hyper.heads) + " and '" +
                   model.ArchKey("attention.head_count_kv") +
                   "' = " + std::to_string(hyper.kv_heads) + ": the first must be a multiple");
  const std::string key_length = model.ArchKey("attention.key_length");
  if (model.Has(key_length)) {
    hyper.key_dim = model.U64In(key_length, 2, kWidthMax);
  } else {
    RefuseUnless(
        hyper.width % hyper.heads == 0,
        "metadata key '" + key_length + "' is missing, and the width does not divide by the heads");
    hyper.key_dim = hyper.width / hyper.heads;
  }
  const std::string value_length = model.ArchKey("attention.value_length");
  hyper.value_dim =
      model.Has(value_length) ? model.U64In(value_length, 1, kWidthMax) : hyper.key_dim;
  const std::string rope_dims = model.ArchKey("rope.dimension_count");
  hyper.rope_dims = model.Has(rope_dims) ? model.U64In(rope_dims, 2, hyper.key_dim) : hyper.key_dim;
  hyper.rope_base = Above(model, "rope.freq_base", 1.0);
  CheckRopeScaling(model);
  hyper.eps = Above(model, "attention.layer_norm_rms_epsilon", 0.0);
  hyper.experts = static_cast<uint32_t>(in("expert_count", 1, kExpertsMax));
  hyper.experts_used = static_cast<uint32_t>(in("expert_used_count", 1, kExpertsMax));
  hyper.expert_ff = in("expert_feed_forward_length", 1, kWidthMax);
  CheckRouter(model);
  CheckExperts(model, hyper);
  hyper.context = in("context_length", 1, UINT32_MAX);
  hyper.vocabulary = model.GetTensor("token_embd.weight").ne[1];
  hyper.tied_head = !model.FindTensor("output.weight");
  return hyper;
}

}  // namespace bloomery::qwen3
