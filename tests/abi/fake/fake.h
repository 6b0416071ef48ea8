// A whole plugin in miniature for the ABI's tests: architecture "fake", a few layers that use every
// standard operator, and one operator of its own, fake.scale, with a CPU kernel. fake.cc exports
// it; the flawed plugins export it with one thing broken.
#pragma once

#include <bloomery/chat.h>

#include <bloomery/bloomery.hpp>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Versions of the same plugin that compete for a model differ in these.
#ifndef FAKE_NAME
#define FAKE_NAME "fake"
#endif
#ifndef FAKE_VERSION
#define FAKE_VERSION "0.1.0"
#endif

namespace bloomery::test {

// out = x * factor
struct ScaleOp {
  static void Infer(const sdk::InferCall& call) {
    if (call.In(0).dtype != BL_F32) sdk::Refuse("fake.scale takes f32");
    call.SetOut(0, call.In(0));
  }
};

struct ScaleKernel {
  static int32_t Tasks(const sdk::Args& args) { return args.live_rows(); }
  static void Run(const sdk::Args& args, int32_t row) {
    const auto factor = static_cast<float>(args.attrs().F64("factor").value_or(1.0));
    const auto in = args.In(0).Row<const float>(row);
    const auto out = args.Out(0).Row<float>(row);
    for (size_t i = 0; i < in.size(); ++i) out[i] = in[i] * factor;
  }
};

// out = x * x, with two kernels and an expansion that all say so.
struct SquareOp {
  static void Infer(const sdk::InferCall& call) { call.SetOut(0, call.In(0)); }
  static void Expand(sdk::Graph& g, const sdk::NodeView& node, std::span<sdk::Value> outs) {
    outs[0] = g.Mul(node.inputs[0], node.inputs[0]);
  }
};

struct SquareKernel {
  static int32_t Tasks(const sdk::Args& args) { return args.live_rows(); }
  static void Run(const sdk::Args& args, int32_t row) {
    const auto in = args.In(0).Row<const float>(row);
    const auto out = args.Out(0).Row<float>(row);
    for (size_t i = 0; i < in.size(); ++i) out[i] = in[i] * in[i];
  }
};

struct SquareAtOnceKernel {
  static int32_t Tasks(const sdk::Args& /*args*/) { return 1; }
  static void Run(const sdk::Args& args, int32_t /*task*/) {
    for (int32_t row = 0; row < args.live_rows(); ++row) SquareKernel::Run(args, row);
  }
};

inline constexpr bl_chat_recording kFakeRecordings[] = {
    {sizeof(bl_chat_recording), 0, R"({"messages": [{"role": "user", "content": "hi"}]})",
     "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "<think>short</think>hello",
     R"({"content": "hello", "reasoning_content": "short"})"},
    {sizeof(bl_chat_recording), 0,
     R"({"messages": [{"role": "user", "content": "time?"}], "tools": [{"type": "function",
         "function": {"name": "clock", "parameters": {"type": "object",
                      "properties": {"zone": {"type": "string"}}}}}]})",
     nullptr,
     "Let me look.<tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}\n"
     "</tool_call>",
     R"({"content": "Let me look.", "tool_calls": [{"type": "function",
         "function": {"name": "clock", "arguments": "{\"zone\":\"UTC\"}"}}]})"}};

inline constexpr bl_chat_1 kFakeChat = {
    .size = sizeof(bl_chat_1),
    .n_pre_patterns = 0,
    .pre_tokenizer = "qwen2",
    .pre_patterns = nullptr,
    .reasoning_open = "<think>",
    .reasoning_close = "</think>",
    .tool_syntax = "hermes",
    .tool_parser = nullptr,
    .render = nullptr,
    .stop_texts = nullptr,
    .stop_ids = nullptr,
    .n_stop_texts = 0,
    .n_stop_ids = 0,
    .sampling = {sizeof(bl_sampling), 20, 0.6, 0.95, 0.0, 0.0},
    .recordings = kFakeRecordings,
    .n_recordings = 2,
    .reserved = 0,
};

class Fake {
 public:
  static int32_t Probe(const sdk::Model& model) {
    if (model.arch() != "fake") {
      sdk::Refuse("architecture '" + std::string(model.arch()) + "' is not 'fake'");
    }
    return 50;
  }

  explicit Fake(const sdk::Context& context) : scratch_(context.host.Alloc(256)) {
    const sdk::Model& m = context.model;
    layers_ = static_cast<int32_t>(m.U64In(m.ArchKey("block_count"), 1, 64));
    width_ = m.U64In(m.ArchKey("embedding_length"), 32, 4096);
    heads_ = m.U64In(m.ArchKey("attention.head_count"), 1, 64);
    kv_heads_ = m.U64In(m.ArchKey("attention.head_count_kv"), 1, heads_);
    experts_ = m.U64In(m.ArchKey("expert_count"), 1, 64);
    used_ = m.U64In(m.ArchKey("expert_used_count"), 1, experts_);
    ff_ = m.U64In(m.ArchKey("expert_feed_forward_length"), 32, 4096);
    factor_ = m.FindF64(m.ArchKey("factor")).value_or(0.5);
    vocabulary_ = m.GetTensor("token_embd.weight").ne[1];
    if (width_ % heads_ != 0) sdk::Refuse("embedding_length is no multiple of head_count");
  }

  void Describe(sdk::Seat& seat) {
    seat.layers = static_cast<uint32_t>(layers_);
    seat.vocabulary = vocabulary_;
    seat.context_trained = 4096;
    embedding_ = seat.AddWeight(
        {.pattern = "token_embd.weight", .role = BL_ROLE_TABLE, .ne = {width_, vocabulary_}});
    head_ = seat.AddWeight({.pattern = "token_embd.weight",
                            .role = BL_ROLE_HEAD,
                            .ne = {width_, vocabulary_},
                            .flags = BL_WEIGHT_ALIAS});
    seat.Ignore("rope_freqs.weight");
    seat.Ignore("blk.{l}.unused.weight");
    for (int32_t l = 0; l < layers_; ++l) DescribeLayer(seat, l);
    seat.AddOp<ScaleOp>(
        {.name = FAKE_NAME ".scale", .inputs = {{"x"}}, .outputs = {{"y"}}, .attrs = {"factor"}});
    seat.AddCpuKernel<ScaleKernel>({.in = {BL_ENC_F32}, .out = {BL_ENC_F32}});
    seat.AddOp<SquareOp>({.name = FAKE_NAME ".square", .inputs = {{"x"}}, .outputs = {{"y"}}});
    seat.AddCpuKernel<SquareKernel>({.in = {BL_ENC_F32}, .out = {BL_ENC_F32}, .priority = 1});
    seat.AddCpuKernel<SquareAtOnceKernel>({.in = {BL_ENC_F32}, .out = {BL_ENC_F32}});
    seat.AddEntry<&Fake::BuildMain>({.name = "main"});
  }

  static const void* GetExtension(std::string_view id) {
    return id == BL_EXT_CHAT_1 ? &kFakeChat : nullptr;
  }

 private:
  struct Layer {
    sdk::Weight norm, qkv[3], out, router;
    sdk::Plane k, v;
    sdk::Bank bank;
  };

  void DescribeLayer(sdk::Seat& seat, int32_t l) {
    const uint64_t d = width_ / heads_;
    const auto dense = [&](const char* name, uint64_t n) {
      return seat.AddWeight(
          {.pattern = std::string("blk.{l}.") + name + ".weight", .layer = l, .ne = {width_, n}});
    };
    const auto part = [&](const char* name, bl_bank_part which, sdk::Bank bank) {
      const bool down = which == BL_PART_DOWN;
      seat.AddWeight({.pattern = std::string("blk.{l}.") + name + ".weight",
                      .role = BL_ROLE_ROUTED,
                      .layer = l,
                      .ne = {down ? ff_ : width_, down ? width_ : ff_, experts_},
                      .bank = bank,
                      .part = which});
    };
    Layer layer;
    layer.norm = seat.AddWeight(
        {.pattern = "blk.{l}.norm.weight", .role = BL_ROLE_NORM, .layer = l, .ne = {width_}});
    layer.qkv[0] = dense("q", width_);
    layer.qkv[1] = dense("k", kv_heads_ * d);
    layer.qkv[2] = dense("v", kv_heads_ * d);
    layer.out = dense("out", width_);
    layer.router = seat.AddWeight({.pattern = "blk.{l}.router.weight",
                                   .role = BL_ROLE_ROUTER,
                                   .layer = l,
                                   .ne = {width_, experts_}});
    layer.k =
        seat.AddPlane({.name = "k", .layer = l, .plane_class = BL_CLASS_K, .width = kv_heads_ * d});
    layer.v =
        seat.AddPlane({.name = "v", .layer = l, .plane_class = BL_CLASS_V, .width = kv_heads_ * d});
    layer.bank = seat.AddBank({.layer = l,
                               .experts = static_cast<uint32_t>(experts_),
                               .used = static_cast<uint32_t>(used_),
                               .width = width_,
                               .ff = ff_});
    part("gate", BL_PART_GATE, layer.bank);
    part("up", BL_PART_UP, layer.bank);
    part("down", BL_PART_DOWN, layer.bank);
    at_.push_back(layer);
  }

  void BuildMain(sdk::Graph& g, const bl_build&) const {
    const auto d = static_cast<int64_t>(width_ / heads_);
    const auto heads = static_cast<int64_t>(heads_);
    const auto kv_heads = static_cast<int64_t>(kv_heads_);
    auto x = g.Embed(g.Tokens(), embedding_);
    for (int32_t l = 0; l < layers_; ++l) {
      const Layer& at = at_[static_cast<size_t>(l)];
      g.Layer(l);
      const auto y = g.RmsNorm(x, at.norm, 1e-6);
      const auto [q, k, v] = g.Linear(y, {at.qkv[0], at.qkv[1], at.qkv[2]});
      g.Append(g.Rope(g.Reshape(k, {d, kv_heads}), {.base = 10000.0}), at.k);
      g.Append(v, at.v);
      const auto rotated = g.Rope(g.Reshape(q, {d, heads}), {.base = 10000.0});
      const auto a =
          g.Attention(rotated, at.k, at.v,
                      {.kv_heads = kv_heads, .scale = 1.0 / std::sqrt(static_cast<double>(d))});
      x = g.Add(x, g.Linear(g.Reshape(a, {static_cast<int64_t>(width_)}), at.out));
      const sdk::Value in[] = {g.Node(FAKE_NAME ".square", 1, std::span(&y, 1), {}, {}, {})};
      const auto scaled =
          g.Node(FAKE_NAME ".scale", 1, in, {}, {}, sdk::Attrs().F64("factor", factor_));
      const auto routed = g.Router(scaled, at.router, {.used = static_cast<int64_t>(used_)});
      x = g.RoutedExperts(scaled, routed, x, at.bank);
    }
    g.Layer(-1);
    g.Export("logits", g.Head(g.SelectRows(x), head_));
  }

  sdk::Host::Memory scratch_;
  int32_t layers_ = 0;
  uint64_t width_ = 0, heads_ = 0, kv_heads_ = 0, experts_ = 0, used_ = 0, ff_ = 0, vocabulary_ = 0;
  double factor_ = 0.0;
  sdk::Weight embedding_, head_;
  std::vector<Layer> at_;
};

}  // namespace bloomery::test
