// A plugin for GLM-4.5, GLM-4.5-Air and their kin (architecture glm4moe), written by a reader of
// the plugin guide. What sets the models apart: biases on queries, keys and values, rope on the
// first half of a head, norms on heads in some models only, dense first layers, a sigmoid router
// whose bias chooses and does not weigh, a shared expert that no gate scales, and a layer behind
// the last that guesses the token after the next: the draft head.
#include <bloomery/chat.h>

#include <bloomery/blocks/draft_head.hpp>
#include <bloomery/bloomery.hpp>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

namespace sdk = bloomery::sdk;
namespace blocks = bloomery::sdk::blocks;

namespace {

struct Layer {
  blocks::Attention attention;
  blocks::FeedForward feed_forward;
};

class Glm4moe {
 public:
  static int32_t Probe(const sdk::Model& model);
  static const void* GetExtension(std::string_view id);
  explicit Glm4moe(const sdk::Context& context);
  void Describe(sdk::Seat& seat);
  void BuildMain(sdk::Graph& g, const bl_build& build) const;
  void BuildDraft(sdk::Graph& g, const bl_build& /*build*/) const { head_.Build(g, Trunk()); }

 private:
  void ReadShapes(const sdk::Model& m);
  static bool AnyLayerHas(const sdk::Model& m, uint32_t layers, const std::string& name);
  static void RefuseWhatIsLeftOut(const sdk::Model& m, uint64_t head_dim);
  blocks::FeedForwardShape FeedForwardOf(uint32_t layer) const;
  blocks::DraftTrunk Trunk() const { return {embedding_, out_norm_, out_}; }

  uint32_t layer_count_, dense_layers_;
  uint64_t vocabulary_, context_, dense_ff_;
  blocks::AttentionShape attention_;
  blocks::FeedForwardShape experts_;
  bool tied_, drafts_;
  std::vector<std::string> left_out_;  // tensors of layers behind the last that are not run
  sdk::Weight embedding_, out_norm_, out_;
  std::vector<Layer> layers_;
  blocks::DraftHead head_;
};

int32_t Glm4moe::Probe(const sdk::Model& model) {
  if (model.arch() != "glm4moe") {
    sdk::Refuse("architecture '" + std::string(model.arch()) + "' is not glm4moe");
  }
  return 50;
}

// Thoughts stand between <think> and </think>; a turn ends where the next one's mark begins.
const void* Glm4moe::GetExtension(std::string_view id) {
  static constexpr const char* kStops[] = {"<|user|>", "<|observation|>", "<|endoftext|>"};
  static constexpr bl_chat_recording kRecordings[] = {
      {.size = sizeof(bl_chat_recording),
       .reserved = 0,
       .request_json = R"({"messages": [{"role": "user", "content": "Umbrella?"}], "tools": [
          {"type": "function", "function": {"name": "forecast", "parameters": {"type": "object",
           "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}]})",
       .prompt = nullptr,
       .output = "\n<think>I need the forecast.</think>\nLet me look.\n<tool_call>forecast\n"
                 "<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
                 "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
       .message_json = R"({"role": "assistant", "reasoning_content": "I need the forecast.",
          "content": "Let me look.", "tool_calls": [{"type": "function", "function":
          {"name": "forecast", "arguments": "{\"city\": \"Oslo\", \"days\": 2}"}}]})"}};
  static constexpr bl_chat_1 kChat = {.size = sizeof(bl_chat_1),
                                      .n_pre_patterns = 0,
                                      .pre_tokenizer = nullptr,
                                      .pre_patterns = nullptr,
                                      .reasoning_open = "<think>",
                                      .reasoning_close = "</think>",
                                      .tool_syntax = "glm_xml",
                                      .tool_parser = nullptr,
                                      .render = nullptr,
                                      .stop_texts = kStops,
                                      .stop_ids = nullptr,
                                      .n_stop_texts = 3,
                                      .n_stop_ids = 0,
                                      .sampling = {.size = sizeof(bl_sampling),
                                                   .top_k = -1,
                                                   .temperature = 0.6,
                                                   .top_p = 1.0,
                                                   .min_p = NAN,
                                                   .presence_penalty = NAN},
                                      .recordings = kRecordings,
                                      .n_recordings = 1,
                                      .reserved = 0};
  return id == BL_EXT_CHAT_1 ? &kChat : nullptr;
}

Glm4moe::Glm4moe(const sdk::Context& context) {
  const sdk::Model& m = context.model;
  // The file counts the layer that drafts, too.
  const auto blocks = static_cast<uint32_t>(m.U64In(m.ArchKey("block_count"), 1, 1024));
  const uint64_t heads = m.FindU64(m.ArchKey("nextn_predict_layers")).value_or(0);
  if (heads >= blocks) {
    sdk::Refuse("nextn_predict_layers is " + std::to_string(heads) + " of a block_count of " +
                std::to_string(blocks) + ": no layer is left");
  }
  layer_count_ = blocks - static_cast<uint32_t>(heads);
  dense_layers_ =
      static_cast<uint32_t>(m.U64In(m.ArchKey("leading_dense_block_count"), 0, layer_count_));
  context_ = m.U64In(m.ArchKey("context_length"), 1, UINT32_MAX);
  vocabulary_ = m.GetTensor("token_embd.weight").ne[1];
  tied_ = !m.FindTensor("output.weight");
  ReadShapes(m);
  RefuseWhatIsLeftOut(m, attention_.key_dim);
  // One layer drafts, applied again and again; files may have been stripped of it.
  drafts_ = (context.params->features & BL_FEATURE_DRAFT) != 0 &&
            m.FindTensor("blk." + std::to_string(layer_count_) + ".nextn.eh_proj.weight");
  for (uint32_t l = layer_count_ + (drafts_ ? 1 : 0); l < blocks; ++l) {
    for (std::string& name : m.TensorsOf(l)) left_out_.push_back(std::move(name));
  }
}

void Glm4moe::ReadShapes(const sdk::Model& m) {
  const uint64_t width = m.U64In(m.ArchKey("embedding_length"), 1, 1 << 20);
  const uint64_t heads = m.U64In(m.ArchKey("attention.head_count"), 1, 1024);
  const uint64_t head_dim = m.U64In(m.ArchKey("attention.key_length"), 2, 1 << 16);
  const double eps = m.F64(m.ArchKey("attention.layer_norm_rms_epsilon"));
  attention_ = {.width = width,
                .heads = heads,
                .kv_heads = m.U64In(m.ArchKey("attention.head_count_kv"), 1, heads),
                .key_dim = head_dim,
                .value_dim = head_dim,
                .rope_dims = m.U64In(m.ArchKey("rope.dimension_count"), 2, head_dim),
                .rope_base = m.F64(m.ArchKey("rope.freq_base")),
                .eps = eps,
                .head_norms = AnyLayerHas(m, layer_count_, "attn_q_norm.weight") ||
                              AnyLayerHas(m, layer_count_, "attn_k_norm.weight"),
                .biases = AnyLayerHas(m, layer_count_, "attn_q.bias") ||
                          AnyLayerHas(m, layer_count_, "attn_k.bias") ||
                          AnyLayerHas(m, layer_count_, "attn_v.bias")};
  if (heads % attention_.kv_heads != 0) {
    sdk::Refuse(std::to_string(heads) + " heads cannot share " +
                std::to_string(attention_.kv_heads) + " kv heads: the first must be a multiple");
  }
  if (attention_.rope_dims % 2 != 0) {
    sdk::Refuse("rope.dimension_count is " + std::to_string(attention_.rope_dims) +
                ": rope turns pairs");
  }
  const auto experts = static_cast<uint32_t>(m.U64In(m.ArchKey("expert_count"), 1, 4096));
  const uint64_t ff = m.U64In(m.ArchKey("expert_feed_forward_length"), 1, 1 << 20);
  dense_ff_ = m.U64In(m.ArchKey("feed_forward_length"), 1, 1 << 20);
  experts_ = {
      .width = width,
      .eps = eps,
      .norm = "post_attention_norm",
      .ff = ff,
      .experts = experts,
      .experts_used = static_cast<uint32_t>(m.U64In(m.ArchKey("expert_used_count"), 1, experts)),
      .shared_ff = ff * m.U64In(m.ArchKey("expert_shared_count"), 0, 64),
      .shared_gated = false,
      .scoring = "sigmoid",
      .selection_bias = true,
      .renormalise = m.Bool(m.ArchKey("expert_weights_norm")),
      .weight_sum_min = 1e-20,
      .weight_scale = m.F64(m.ArchKey("expert_weights_scale"))};
}

// Where one layer has them, each must: whether it does is checked when it is described.
bool Glm4moe::AnyLayerHas(const sdk::Model& m, uint32_t layers, const std::string& name) {
  for (uint32_t l = 0; l < layers; ++l) {
    if (m.FindTensor("blk." + std::to_string(l) + "." + name)) return true;
  }
  return false;
}

void Glm4moe::RefuseWhatIsLeftOut(const sdk::Model& m, uint64_t head_dim) {
  if (m.FindU64(m.ArchKey("attention.value_length")).value_or(head_dim) != head_dim) {
    sdk::Refuse("attention.value_length is not attention.key_length");
  }
  constexpr uint64_t kSigmoid = 2;
  const uint64_t scoring = m.FindU64(m.ArchKey("expert_gating_func")).value_or(kSigmoid);
  if (scoring != kSigmoid) {
    sdk::Refuse("expert_gating_func is " + std::to_string(scoring) + ": only 2 (sigmoid) is known");
  }
  for (const char* key : {"expert_group_count", "expert_group_used_count"}) {
    if (m.FindU64(m.ArchKey(key)).value_or(1) > 1) {
      sdk::Refuse(std::string(key) + " is above 1; this plugin picks among all experts at once");
    }
  }
  if (m.FindStr(m.ArchKey("rope.scaling.type")).value_or("none") != "none") {
    sdk::Refuse("rope.scaling.type is set; this plugin scales no positions");
  }
  if (m.Has(m.ArchKey("rope.dimension_sections"))) {
    sdk::Refuse("rope.dimension_sections is set (a model that sees); this plugin is for text");
  }
}

blocks::FeedForwardShape Glm4moe::FeedForwardOf(uint32_t layer) const {
  blocks::FeedForwardShape shape = experts_;
  if (layer < dense_layers_) {
    shape.experts = 0;
    shape.ff = dense_ff_;
  }
  return shape;
}

void Glm4moe::Describe(sdk::Seat& seat) {
  seat.layers = layer_count_ + (drafts_ ? 1 : 0);
  seat.vocabulary = vocabulary_;
  seat.context_trained = context_;
  const uint64_t width = attention_.width;
  embedding_ = seat.AddWeight(
      {.pattern = "token_embd.weight", .role = BL_ROLE_TABLE, .ne = {width, vocabulary_}});
  for (uint32_t l = 0; l < layer_count_; ++l) {
    const blocks::LayerWeights weights(seat, static_cast<int32_t>(l));
    layers_.push_back(
        {.attention = {weights, attention_}, .feed_forward = {weights, FeedForwardOf(l)}});
  }
  out_norm_ =
      seat.AddWeight({.pattern = "output_norm.weight", .role = BL_ROLE_NORM, .ne = {width}});
  const uint32_t alias = BL_WEIGHT_ALIAS;
  out_ = seat.AddWeight({.pattern = tied_ ? "token_embd.weight" : "output.weight",
                         .role = BL_ROLE_HEAD,
                         .ne = {width, vocabulary_},
                         .flags = tied_ ? alias : 0});
  for (const std::string& name : left_out_) seat.Ignore(name);
  seat.AddEntry<&Glm4moe::BuildMain>({.name = "main"});
  if (!drafts_) return;
  head_ = {
      {seat, static_cast<int32_t>(layer_count_), BL_OWNER_DRAFT},
      {.width = width, .vocabulary = vocabulary_, .eps = attention_.eps, .keeps_normed = false},
      attention_,
      experts_};
  seat.AddEntry<&Glm4moe::BuildDraft>({.name = "draft", .kind = BL_ENTRY_DRAFT_STEP});
}

void Glm4moe::BuildMain(sdk::Graph& g, const bl_build& /*build*/) const {
  sdk::Value x = g.Embed(g.Tokens(), embedding_);
  for (size_t l = 0; l < layers_.size(); ++l) {
    const std::string name = "layer." + std::to_string(l);
    g.Layer(static_cast<int32_t>(l));
    g.Export(name + ".in", x);
    x = layers_[l].feed_forward.Build(g, name, layers_[l].attention.Build(g, x));
  }
  if (drafts_) head_.Store(g, Trunk(), g.RmsNorm(x, out_norm_, attention_.eps));
  g.Layer(-1);
  g.Export("logits", g.Head(g.RmsNorm(g.SelectRows(x), out_norm_, attention_.eps), out_));
}

}  // namespace

BLOOMERY_PLUGIN(Glm4moe, "glm4moe", "0.1.0")
