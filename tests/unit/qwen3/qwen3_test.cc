// The qwen3 plugin over files made here: what it reads from metadata, what it refuses and with
// which words, and that it serves a tied head. Its numbers are tested against the oracles
// (tests/oracle).
#include <bloomery/chat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "runtime/exec/seat.h"
#include "runtime/model/gguf.h"
#include "runtime/plugin/host_model.h"
#include "runtime/plugin/instance.h"
#include "runtime/plugin/library.h"
#include "runtime/plugin/select.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"

namespace bloomery {
namespace {

using testing::HasSubstr;

// A file of one layer: 32 wide, 2 heads of 16 over 1, 4 experts of which 2 are used, 20 tokens.
class TinyFile {
 public:
  TinyFile() {
    for (const auto& [key, value] :
         std::map<std::string, uint32_t>{{"block_count", 1},
                                         {"context_length", 128},
                                         {"embedding_length", 32},
                                         {"attention.head_count", 2},
                                         {"attention.head_count_kv", 1},
                                         {"attention.key_length", 16},
                                         {"attention.value_length", 16},
                                         {"expert_count", 4},
                                         {"expert_used_count", 2},
                                         {"expert_feed_forward_length", 32}}) {
      Set(key, value);
    }
    Set("attention.layer_norm_rms_epsilon", 1e-6F);
    Set("rope.freq_base", 1e6F);
    tensors = {{"token_embd.weight", {32, 20}},
               {"output_norm.weight", {32}},
               {"output.weight", {32, 20}},
               {"blk.0.attn_norm.weight", {32}},
               {"blk.0.attn_q.weight", {32, 32}},
               {"blk.0.attn_k.weight", {32, 16}},
               {"blk.0.attn_v.weight", {32, 16}},
               {"blk.0.attn_q_norm.weight", {16}},
               {"blk.0.attn_k_norm.weight", {16}},
               {"blk.0.attn_output.weight", {32, 32}},
               {"blk.0.ffn_norm.weight", {32}},
               {"blk.0.ffn_gate_inp.weight", {32, 4}},
               {"blk.0.ffn_gate_exps.weight", {32, 32, 4}},
               {"blk.0.ffn_up_exps.weight", {32, 32, 4}},
               {"blk.0.ffn_down_exps.weight", {32, 32, 4}}};
  }

  // A key without its architecture prefix; a second value replaces the first.
  template <typename T>
  void Set(const std::string& key, const T& value) {
    keys[key] = [this, key, value](test::GgufWriter& writer) {
      writer.Add(arch + "." + key, value);
    };
  }

  model::ModelFile Open() const {
    test::GgufWriter writer;
    writer.Add("general.architecture", arch);
    for (const auto& [key, add] : keys) add(writer);
    for (const auto& [name, ne] : tensors) {
      uint64_t count = 1;
      for (const uint64_t n : ne) count *= n;
      // Values of a tensor depend on its name alone, so that files differ in one thing at a time.
      auto seed = static_cast<uint32_t>(
          std::hash<std::string>()(same_as.count(name) ? same_as.at(name) : name));
      std::string data;
      for (uint64_t i = 0; i < count; ++i) {
        seed = seed * 1664525U + 1013904223U;
        data += test::GgufWriter::Encode(static_cast<float>(seed >> 8) / 16777216.0F - 0.4F);
      }
      writer.AddTensor(name, ne, 0, data);
    }
    return model::OpenGguf(test::MemoryFileSystem("tiny.gguf", writer.Bytes()), "tiny.gguf");
  }

  std::string arch = "qwen3moe";
  std::map<std::string, std::function<void(test::GgufWriter&)>> keys;
  std::map<std::string, std::vector<uint64_t>> tensors;
  std::map<std::string, std::string> same_as;  // tensor → tensor whose values it has
};

plugin::LoadedPlugin Plugin() {
  return plugin::LoadPlugin(BLOOMERY_BINARY_DIR "/plugins/qwen3/libqwen3.so");
}

const exec::SeatOptions kOptions = {
    .slot_context = 64, .rows_max = 16, .threads = 1, .k_type = BL_F32, .v_type = BL_F32};

std::vector<float> LastLogits(const TinyFile& file, const std::vector<int32_t>& ids) {
  const model::ModelFile model = file.Open();
  plugin::Instance instance(Plugin(), model, exec::InstanceOptionsOf(kOptions));
  const std::unique_ptr<exec::Seat> seat = exec::LoadSeat(model, instance, kOptions);
  std::vector<exec::PassRow> rows;
  rows.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    rows.push_back({0, static_cast<int32_t>(i), ids[i], i + 1 == ids.size()});
  }
  seat->Run(rows);
  const std::span<const float> logits = seat->Logits(0);
  return {logits.begin(), logits.end()};
}

std::string Refused(const std::function<void(TinyFile&)>& change) {
  TinyFile file;
  change(file);
  return test::RefusalOf([&] { LastLogits(file, {1, 2, 3}); }).message;
}

const std::vector<int32_t> kIds = {3, 1, 4, 1, 5, 9, 2, 6};

TEST(Qwen3Plugin, AFileOfTheFamilyIsServed) {
  const std::vector<float> logits = LastLogits(TinyFile(), kIds);
  EXPECT_EQ(logits.size(), 20U);
  EXPECT_THAT(logits, testing::Each(testing::Truly([](float x) { return std::isfinite(x); })));
}

TEST(Qwen3Plugin, AnotherArchitectureIsNotClaimed) {
  TinyFile file;
  file.arch = "llama";
  const model::ModelFile model = file.Open();
  const plugin::HostModel host(model);
  EXPECT_THAT(test::RefusalOf([&] { plugin::Probe(Plugin(), host.raw()); }).message,
              HasSubstr("'llama'"));
}

TEST(Qwen3Plugin, ATiedHeadUsesTheEmbedding) {
  TinyFile tied;
  tied.tensors.erase("output.weight");
  TinyFile copied;
  copied.same_as["output.weight"] = "token_embd.weight";
  EXPECT_EQ(LastLogits(tied, kIds), LastLogits(copied, kIds));
  EXPECT_NE(LastLogits(tied, kIds), LastLogits(TinyFile(), kIds));
}

TEST(Qwen3Plugin, HyperParametersComeFromTheFileAndTheirDefaultsFromOthers) {
  const std::vector<float> plain = LastLogits(TinyFile(), kIds);
  TinyFile same;  // what absent keys stand for, said aloud
  same.Set("rope.dimension_count", uint32_t{16});
  same.Set("rope.scaling.type", std::string("none"));
  same.Set("expert_gating_func", uint32_t{1});
  same.Set("expert_weights_norm", true);
  EXPECT_EQ(LastLogits(same, kIds), plain);
  TinyFile shorter;
  shorter.keys.erase("attention.key_length");
  shorter.keys.erase("attention.value_length");
  EXPECT_EQ(LastLogits(shorter, kIds), plain);  // 32 / 2 heads
  const auto differs = [&](const std::string& key, auto value) {
    TinyFile other;
    other.Set(key, value);
    EXPECT_NE(LastLogits(other, kIds), plain) << key;
  };
  differs("rope.freq_base", 1e4F);
  differs("rope.dimension_count", uint32_t{8});
  differs("attention.layer_norm_rms_epsilon", 1e-2F);
  differs("expert_used_count", uint32_t{3});
}

TEST(Qwen3Plugin, WhatItDoesNotComputeIsRefusedByKeyOrTensor) {
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("rope.scaling.type", std::string("yarn")); }),
              HasSubstr("'qwen3moe.rope.scaling.type' is 'yarn'"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("rope.scaling.factor", 4.0F); }),
              HasSubstr("'qwen3moe.rope.scaling.factor' is 4"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("expert_gating_func", uint32_t{2}); }),
              HasSubstr("'qwen3moe.expert_gating_func' is not 1"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("expert_weights_norm", false); }),
              HasSubstr("'qwen3moe.expert_weights_norm' is false"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("expert_shared_count", uint32_t{1}); }),
              HasSubstr("'qwen3moe.expert_shared_count' is 1"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("nextn_predict_layers", uint32_t{1}); }),
              HasSubstr("'qwen3moe.nextn_predict_layers' is 1, outside"));
  EXPECT_THAT(
      Refused([](TinyFile& f) { f.tensors["blk.0.ffn_gate_up_exps.weight"] = {32, 64, 4}; }),
      HasSubstr("'blk.0.ffn_gate_up_exps.weight'"));
}

TEST(Qwen3Plugin, MissingOrContradictingMetadataIsRefusedByKey) {
  for (const char* key :
       {"block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
        "attention.layer_norm_rms_epsilon", "rope.freq_base", "expert_used_count",
        "expert_feed_forward_length", "context_length"}) {
    EXPECT_THAT(Refused([&](TinyFile& f) { f.keys.erase(key); }),
                HasSubstr("metadata key 'qwen3moe." + std::string(key) + "' is missing"));
  }
  EXPECT_THAT(Refused([](TinyFile& f) { f.keys.erase("expert_count"); }),
              HasSubstr("'qwen3moe.expert_count' is not"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("attention.head_count_kv", uint32_t{0}); }),
              HasSubstr("'qwen3moe.attention.head_count_kv' is 0"));
  EXPECT_THAT(Refused([](TinyFile& f) {
                f.Set("attention.head_count", uint32_t{3}),
                    f.Set("attention.head_count_kv", uint32_t{2});
              }),
              HasSubstr("the first must be a multiple"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("expert_used_count", uint32_t{5}); }),
              HasSubstr("'qwen3moe.expert_used_count' is 5, above"));
}

TEST(Qwen3Plugin, NumbersThatNoFormulaTakesAreRefusedByKey) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinity, -infinity, 0.0F, -1e-6F}) {
    EXPECT_THAT(Refused([&](TinyFile& f) { f.Set("attention.layer_norm_rms_epsilon", bad); }),
                HasSubstr("'qwen3moe.attention.layer_norm_rms_epsilon' is"))
        << bad;
  }
  for (const float bad : {nan, infinity, 1.0F, -1e6F}) {
    EXPECT_THAT(Refused([&](TinyFile& f) { f.Set("rope.freq_base", bad); }),
                HasSubstr("'qwen3moe.rope.freq_base' is"))
        << bad;
  }
}

TEST(Qwen3Plugin, TensorsThatAreMissingMisshapenOrUnknownAreRefusedByName) {
  EXPECT_THAT(Refused([](TinyFile& f) { f.tensors.erase("blk.0.attn_k.weight"); }),
              HasSubstr("blk.0.attn_k.weight"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.tensors["blk.0.attn_q.weight"] = {32, 48}; }),
              HasSubstr("blk.0.attn_q.weight"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.tensors["blk.0.attn_q.bias"] = {32}; }),
              HasSubstr("blk.0.attn_q.bias"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.tensors.erase("token_embd.weight"); }),
              HasSubstr("token_embd.weight"));
}

TEST(Qwen3Plugin, TheChatExtensionSaysHowItIsTalkedTo) {
  const auto* chat = static_cast<const bl_chat_1*>(Plugin().table->get_extension(BL_EXT_CHAT_1));
  ASSERT_NE(chat, nullptr);
  EXPECT_STREQ(chat->pre_tokenizer, "qwen2");
  EXPECT_STREQ(chat->reasoning_open, "<think>");
  EXPECT_STREQ(chat->reasoning_close, "</think>");
  EXPECT_STREQ(chat->tool_syntax, "hermes");
  EXPECT_EQ(chat->n_stop_ids, 0U);
  EXPECT_EQ(chat->sampling.top_k, 20);
  EXPECT_EQ(Plugin().table->get_extension("bloomery.image/1"), nullptr);
}

// The same file with dense blocks.
TinyFile DenseFile() {
  TinyFile file;
  file.arch = "qwen3";
  for (const char* key : {"expert_count", "expert_used_count", "expert_feed_forward_length"}) {
    file.keys.erase(key);
  }
  file.Set("feed_forward_length", uint32_t{64});
  for (const char* name : {"gate_inp", "gate_exps", "up_exps", "down_exps"}) {
    file.tensors.erase("blk.0.ffn_" + std::string(name) + ".weight");
  }
  file.tensors["blk.0.ffn_gate.weight"] = {32, 64};
  file.tensors["blk.0.ffn_up.weight"] = {32, 64};
  file.tensors["blk.0.ffn_down.weight"] = {64, 32};
  return file;
}

// Two layers: a recurrent one and one of gated attention; a shared expert; and a draft layer.
TinyFile HybridFile() {
  TinyFile file;
  file.arch = "qwen35moe";
  file.Set("block_count", uint32_t{3});
  file.Set("nextn_predict_layers", uint32_t{1});
  file.Set("full_attention_interval", uint32_t{2});
  file.Set("rope.dimension_count", uint32_t{8});
  file.Set("expert_shared_feed_forward_length", uint32_t{32});
  for (const auto& [key, value] : std::map<std::string, uint32_t>{{"conv_kernel", 4},
                                                                  {"state_size", 16},
                                                                  {"group_count", 1},
                                                                  {"time_step_rank", 2},
                                                                  {"inner_size", 32}}) {
    file.Set("ssm." + key, value);
  }
  const auto layers = file.tensors;
  for (const auto& [name, ne] : layers) {
    if (name.starts_with("blk.0.")) file.tensors.erase(name);
  }
  const auto block = [&](const std::string& l, bool recurrent) {
    std::map<std::string, std::vector<uint64_t>> made = {
        {"attn_norm.weight", {32}},          {"post_attention_norm.weight", {32}},
        {"ffn_gate_inp.weight", {32, 4}},    {"ffn_gate_exps.weight", {32, 32, 4}},
        {"ffn_up_exps.weight", {32, 32, 4}}, {"ffn_down_exps.weight", {32, 32, 4}},
        {"ffn_gate_inp_shexp.weight", {32}}, {"ffn_gate_shexp.weight", {32, 32}},
        {"ffn_up_shexp.weight", {32, 32}},   {"ffn_down_shexp.weight", {32, 32}}};
    const std::map<std::string, std::vector<uint64_t>> delta = {{"attn_qkv.weight", {32, 64}},
                                                                {"attn_gate.weight", {32, 32}},
                                                                {"ssm_alpha.weight", {32, 2}},
                                                                {"ssm_beta.weight", {32, 2}},
                                                                {"ssm_a", {2}},
                                                                {"ssm_dt.bias", {2}},
                                                                {"ssm_conv1d.weight", {4, 64}},
                                                                {"ssm_norm.weight", {16}},
                                                                {"ssm_out.weight", {32, 32}}};
    const std::map<std::string, std::vector<uint64_t>> attention = {
        {"attn_q.weight", {32, 64}},  {"attn_k.weight", {32, 16}},
        {"attn_v.weight", {32, 16}},  {"attn_q_norm.weight", {16}},
        {"attn_k_norm.weight", {16}}, {"attn_output.weight", {32, 32}}};
    made.insert(recurrent ? delta.begin() : attention.begin(),
                recurrent ? delta.end() : attention.end());
    for (const auto& [name, ne] : made) file.tensors["blk." + l + "." + name] = ne;
  };
  block("0", true);
  block("1", false);
  block("2", false);
  file.tensors["blk.2.nextn.eh_proj.weight"] = {64, 32};
  file.tensors["blk.2.nextn.enorm.weight"] = {32};
  file.tensors["blk.2.nextn.hnorm.weight"] = {32};
  return file;
}

void ExpectUsable(const std::vector<float>& logits) {
  ASSERT_EQ(logits.size(), 20U);
  for (const float logit : logits) EXPECT_TRUE(std::isfinite(logit));
  EXPECT_NE(*std::ranges::max_element(logits), *std::ranges::min_element(logits));
}

TEST(Qwen3Plugin, DenseAndHybridModelsAreServed) {
  ExpectUsable(LastLogits(DenseFile(), {1, 2, 3}));
  ExpectUsable(LastLogits(HybridFile(), {1, 2, 3}));
}

TEST(Qwen3Plugin, ARecurrentLayersHistoryReachesTheLogits) {
  EXPECT_NE(LastLogits(HybridFile(), {1, 2, 3}), LastLogits(HybridFile(), {7, 2, 3}));
}

TEST(Qwen3Plugin, LayersAreRecurrentAsTheFileSays) {
  constexpr const char* kKey = "qwen35moe.attention.recurrent_layers";
  const auto listed = [](auto add) {
    TinyFile file = HybridFile();
    file.keys["attention.recurrent_layers"] = add;
    file.keys.erase("full_attention_interval");
    return LastLogits(file, {1, 2, 3});
  };
  const auto usual = LastLogits(HybridFile(), {1, 2, 3});
  EXPECT_EQ(
      listed([&](auto& writer) { writer.template AddArray<bool>(kKey, {true, false, false}); }),
      usual);
  // Of whatever kind a converter writes.
  EXPECT_EQ(listed([&](auto& writer) { writer.template AddArray<uint8_t>(kKey, {1, 0, 0}); }),
            usual);
  EXPECT_EQ(listed([&](auto& writer) { writer.template AddArray<int32_t>(kKey, {1, 0, 0}); }),
            usual);
  EXPECT_EQ(listed([&](auto& writer) { writer.template AddArray<uint32_t>(kKey, {1, 0, 0}); }),
            usual);
  EXPECT_EQ(listed([&](auto& writer) { writer.template AddArray<int64_t>(kKey, {1, 0, 0}); }),
            usual);
  EXPECT_THAT(test::RefusalOf([&] {
                listed([&](auto& w) { w.template AddArray<int32_t>(kKey, {1, 2, 0}); });
              }).message,
              HasSubstr(kKey));
}

TEST(Qwen3Plugin, HybridMetadataThatContradictsItselfIsRefusedByKey) {
  const auto refused = [](const std::function<void(TinyFile&)>& change) {
    TinyFile file = HybridFile();
    change(file);
    return test::RefusalOf([&] { LastLogits(file, {1}); }).message;
  };
  EXPECT_THAT(refused([](TinyFile& f) { f.Set("ssm.inner_size", uint32_t{48}); }),
              HasSubstr("'qwen35moe.ssm.inner_size' is 48"));
  EXPECT_THAT(refused([](TinyFile& f) { f.Set("ssm.group_count", uint32_t{3}); }),
              HasSubstr("no multiple of 'qwen35moe.ssm.group_count' = 3"));
  EXPECT_THAT(refused([](TinyFile& f) { f.Set("ssm.conv_kernel", uint32_t{1}); }),
              HasSubstr("'qwen35moe.ssm.conv_kernel' is 1"));
  EXPECT_THAT(refused([](TinyFile& f) { f.tensors.erase("blk.0.ssm_a"); }),
              HasSubstr("blk.0.ssm_a"));
  EXPECT_THAT(refused([](TinyFile& f) { f.tensors["blk.2.nextn.other.weight"] = {32}; }),
              HasSubstr("blk.2.nextn.other.weight"));
  EXPECT_THAT(refused([](TinyFile& f) { f.Set("expert_shared_count", uint32_t{2}); }),
              HasSubstr("'qwen35moe.expert_shared_count' is 2"));
}

TEST(Qwen3Plugin, HybridModelsWriteTheirCallsAsXml) {
  const model::ModelFile model = HybridFile().Open();
  plugin::Instance instance(Plugin(), model, exec::InstanceOptionsOf(kOptions));
  const auto* chat = static_cast<const bl_chat_1*>(instance.Extension(BL_EXT_CHAT_1));
  ASSERT_NE(chat, nullptr);
  EXPECT_STREQ(chat->tool_syntax, "qwen_xml");
  EXPECT_EQ(chat->pre_tokenizer, nullptr);  // the file's
  const model::ModelFile plain = TinyFile().Open();
  plugin::Instance other(Plugin(), plain, exec::InstanceOptionsOf(kOptions));
  EXPECT_STREQ(static_cast<const bl_chat_1*>(other.Extension(BL_EXT_CHAT_1))->tool_syntax,
               "hermes");
}

}  // namespace
}  // namespace bloomery
