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
              HasSubstr("'qwen3moe.expert_shared_count' is not 0"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("nextn_predict_layers", uint32_t{1}); }),
              HasSubstr("'qwen3moe.nextn_predict_layers' is not 0"));
  EXPECT_THAT(
      Refused([](TinyFile& f) { f.tensors["blk.0.ffn_gate_up_exps.weight"] = {32, 64, 4}; }),
      HasSubstr("'blk.0.ffn_gate_up_exps.weight'"));
}

TEST(Qwen3Plugin, MissingOrContradictingMetadataIsRefusedByKey) {
  for (const char* key :
       {"block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
        "attention.layer_norm_rms_epsilon", "rope.freq_base", "expert_count", "expert_used_count",
        "expert_feed_forward_length", "context_length"}) {
    EXPECT_THAT(Refused([&](TinyFile& f) { f.keys.erase(key); }),
                HasSubstr("metadata key 'qwen3moe." + std::string(key) + "' is missing"));
  }
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

}  // namespace
}  // namespace bloomery
