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
  const std::string shared = model.ArchKey("expert_shared_count");
  const uint64_t count = model.FindU64(shared).value_or(0);
  const bool one = count == 1 && model.Has(model.ArchKey("expert_shared_feed_forward_length"));
  RefuseUnless(count == 0 || one, "metadata key '" + shared + "' is " + std::to_string(count) +
                                      ": this version does not compute that part");
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

void ReadFeedForward(const sdk::Model& model, Hyper& hyper) {
  const auto in = [&](const char* key, uint64_t low, uint64_t high) {
    return model.U64In(model.ArchKey(key), low, high);
  };
  // Dense models have no such key, or say 0.
  if (model.FindU64(model.ArchKey("expert_count")).value_or(0) == 0) {
    const std::string router = "blk.0.ffn_gate_inp.weight";
    RefuseUnless(!model.FindTensor(router), "tensor '" + router + "' is there, metadata key '" +
                                                model.ArchKey("expert_count") + "' is not");
    hyper.ff = in("feed_forward_length", 1, kWidthMax);
    return;
  }
  hyper.experts = static_cast<uint32_t>(in("expert_count", 1, kExpertsMax));
  hyper.experts_used = static_cast<uint32_t>(in("expert_used_count", 1, kExpertsMax));
  hyper.ff = in("expert_feed_forward_length", 1, kWidthMax);
  if (model.Has(model.ArchKey("expert_shared_feed_forward_length"))) {
    hyper.shared_ff = in("expert_shared_feed_forward_length", 0, kWidthMax);
  }
  CheckRouter(model);
  CheckExperts(model, hyper);
}

// The file's own list where it has one, else every layer but each interval-th.
std::vector<bool> RecurrentLayers(const sdk::Model& model, const Hyper& hyper) {
  const std::string list = model.ArchKey("attention.recurrent_layers");
  std::vector<bool> recurrent(hyper.layers);
  if (!model.Has(list)) {
    const std::string key = model.ArchKey("full_attention_interval");
    constexpr uint64_t kUsual = 4;
    const uint64_t interval = model.Has(key) ? model.U64In(key, 1, kLayersMax) : kUsual;
    for (uint32_t l = 0; l < hyper.layers; ++l) recurrent[l] = (l + 1) % interval != 0;
    return recurrent;
  }
  const std::vector<bool> said = model.FlagArray(list);
  const uint32_t all = hyper.layers + hyper.draft_layers;
  RefuseUnless(said.size() == all, "metadata key '" + list + "' has " +
                                       std::to_string(said.size()) + " values for " +
                                       std::to_string(all) + " layers");
  for (uint32_t l = 0; l < hyper.layers; ++l) recurrent[l] = said[l];
  return recurrent;
}

// Text rows have one position on every axis, so sections change nothing; they must still be those
// of this family.
void CheckSections(const sdk::Model& model, const Hyper& hyper) {
  const std::string key = model.ArchKey("rope.dimension_sections");
  if (!model.Has(key)) return;
  int64_t sum = 0;
  for (const int64_t section : model.I64Array(key)) {
    RefuseUnless(section >= 0 && section <= static_cast<int64_t>(kWidthMax),
                 "metadata key '" + key + "' has a section of " + std::to_string(section));
    sum += section;
  }
  RefuseUnless(sum == static_cast<int64_t>(hyper.rope_dims / 2),
               "metadata key '" + key + "' sums to " + std::to_string(sum) + ", must be half of '" +
                   model.ArchKey("rope.dimension_count") +
                   "' = " + std::to_string(hyper.rope_dims));
}

void ReadHybrid(const sdk::Model& model, Hyper& hyper) {
  const auto in = [&](const char* key, uint64_t low, uint64_t high) {
    return model.U64In(model.ArchKey(key), low, high);
  };
  hyper.hybrid = true;
  constexpr uint64_t kTapsMax = 8;
  hyper.delta.taps = in("ssm.conv_kernel", 2, kTapsMax);
  hyper.delta.head_dim = in("ssm.state_size", 1, kWidthMax);
  hyper.delta.key_heads = in("ssm.group_count", 1, kHeadsMax);
  hyper.delta.value_heads = in("ssm.time_step_rank", 1, kHeadsMax);
  const uint64_t inner = in("ssm.inner_size", 1, kWidthMax);
  RefuseUnless(inner == hyper.delta.value_heads * hyper.delta.head_dim,
               "metadata key '" + model.ArchKey("ssm.inner_size") + "' is " +
                   std::to_string(inner) + ", must be '" + model.ArchKey("ssm.time_step_rank") +
                   "' times '" + model.ArchKey("ssm.state_size") + "'");
  RefuseUnless(hyper.delta.value_heads % hyper.delta.key_heads == 0,
               "metadata key '" + model.ArchKey("ssm.time_step_rank") + "' is " +
                   std::to_string(hyper.delta.value_heads) + ", no multiple of '" +
                   model.ArchKey("ssm.group_count") +
                   "' = " + std::to_string(hyper.delta.key_heads));
  RefuseUnless(hyper.key_dim == hyper.value_dim,
               "metadata keys '" + model.ArchKey("attention.key_length") + "' and '" +
                   model.ArchKey("attention.value_length") +
                   "' differ: gates have the width of "
                   "keys and meet values");
  hyper.recurrent = RecurrentLayers(model, hyper);
  CheckSections(model, hyper);
}

}  // namespace

Hyper ReadHyper(const sdk::Model& model) {
  const auto in = [&](const char* key, uint64_t low, uint64_t high) {
    return model.U64In(model.ArchKey(key), low, high);
  };
  Hyper hyper;
  const auto blocks = static_cast<uint32_t>(in("block_count", 1, kLayersMax));
  const std::string drafts = model.ArchKey("nextn_predict_layers");
  hyper.draft_layers =
      model.Has(drafts) ? static_cast<uint32_t>(model.U64In(drafts, 0, blocks - 1)) : 0;
  hyper.layers = blocks - hyper.draft_layers;
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
  hyper.recurrent.resize(hyper.layers);
  if (model.Has(model.ArchKey("ssm.state_size"))) ReadHybrid(model, hyper);
  ReadFeedForward(model, hyper);
  hyper.context = in("context_length", 1, UINT32_MAX);
  hyper.vocabulary = model.GetTensor("token_embd.weight").ne[1];
  hyper.tied_head = !model.FindTensor("output.weight");
  return hyper;
}

}  // namespace bloomery::qwen3
