// The mimo2 plugin over files made here, of the sheet's tiny shape: what it reads from metadata,
// what it refuses and with which words, and that MXFP4 experts and both forms of the projections
// are served. Its numbers are tested against the oracles (tests/oracle).
#include <bloomery/chat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "kernels-common/quant/quant.h"
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

constexpr uint32_t kMxfp4 = 39;

// Four layers, full, sliding, sliding, full; the first dense. 64 wide, 4 heads of 24 and 16 over 1
// or 2, 8 experts of which 2 are used, a window of 8, 128 tokens.
class TinyFile {
 public:
  TinyFile() {
    for (const auto& [key, value] :
         std::map<std::string, uint32_t>{{"block_count", 4},
                                         {"context_length", 256},
                                         {"embedding_length", 64},
                                         {"feed_forward_length", 96},
                                         {"attention.head_count", 4},
                                         {"attention.key_length", 24},
                                         {"attention.value_length", 16},
                                         {"attention.sliding_window", 8},
                                         {"rope.dimension_count", 8},
                                         {"expert_count", 8},
                                         {"expert_used_count", 2},
                                         {"expert_feed_forward_length", 32},
                                         {"expert_gating_func", 2}}) {
      Set(key, value);
    }
    SetArray("attention.head_count_kv", {1, 2, 2, 1});
    SetArray("attention.sliding_window_pattern", {0, 1, 1, 0});
    Set("attention.value_scale", 0.707F);
    Set("attention.layer_norm_rms_epsilon", 1e-6F);
    Set("rope.freq_base", 1e7F);
    Set("rope.freq_base_swa", 1e4F);
    tensors = {{"token_embd.weight", {64, 128}},
               {"output_norm.weight", {64}},
               {"output.weight", {64, 128}}};
    for (uint64_t l = 0; l < 4; ++l) {
      const bool sliding = l == 1 || l == 2;
      Add(l, "attn_norm.weight", {64});
      Add(l, "attn_qkv.weight", {64, 96 + (sliding ? 80U : 40U)});
      Add(l, "attn_output.weight", {64, 64});
      if (sliding) Add(l, "attn_sinks.weight", {4});
      Add(l, "ffn_norm.weight", {64});
      if (l == 0) {
        Add(l, "ffn_gate.weight", {64, 96});
        Add(l, "ffn_up.weight", {64, 96});
        Add(l, "ffn_down.weight", {96, 64});
        continue;
      }
      Add(l, "ffn_gate_inp.weight", {64, 8});
      Add(l, "exp_probs_b.bias", {8});
      Add(l, "ffn_gate_exps.weight", {64, 32, 8});
      Add(l, "ffn_up_exps.weight", {64, 32, 8});
      Add(l, "ffn_down_exps.weight", {32, 64, 8});
    }
  }

  void Add(uint64_t layer, const std::string& name, std::vector<uint64_t> ne) {
    tensors["blk." + std::to_string(layer) + "." + name] = std::move(ne);
  }

  // A key without its architecture prefix; a second value replaces the first.
  template <typename T>
  void Set(const std::string& key, const T& value) {
    keys[key] = [this, key, value](test::GgufWriter& writer) {
      writer.Add(arch + "." + key, value);
    };
  }
  template <typename T = int32_t>
  void SetArray(const std::string& key, const std::vector<T>& values) {
    keys[key] = [this, key, values](test::GgufWriter& writer) {
      writer.AddArray(arch + "." + key, values);
    };
  }

  // Values of a tensor depend on its name alone, so that files differ in one thing at a time.
  static std::vector<float> Values(const std::string& name, uint64_t count) {
    auto seed = static_cast<uint32_t>(std::hash<std::string>()(name));
    std::vector<float> values;
    for (uint64_t i = 0; i < count; ++i) {
      seed = seed * 1664525U + 1013904223U;
      values.push_back(static_cast<float>(seed >> 8) / 16777216.0F - 0.5F);
    }
    return values;
  }

  model::ModelFile Open() const {
    test::GgufWriter writer;
    writer.Add("general.architecture", arch);
    for (const auto& [key, add] : keys) add(writer);
    for (const auto& [name, ne] : tensors) {
      uint64_t count = 1;
      for (const uint64_t n : ne) count *= n;
      if (mxfp4_experts && name.find("_exps.") != std::string::npos) {
        writer.AddTensor(name, ne, kMxfp4, Mxfp4(name, count));
        continue;
      }
      std::vector<float> values = values_of.count(name) ? values_of.at(name) : Values(name, count);
      std::string data;
      for (const float value : values) data += test::GgufWriter::Encode(value);
      writer.AddTensor(name, ne, 0, data);
    }
    return model::OpenGguf(test::MemoryFileSystem("tiny.gguf", writer.Bytes()), "tiny.gguf");
  }

  // Blocks of a scale near 2^-4 and codes drawn.
  static std::string Mxfp4(const std::string& name, uint64_t count) {
    std::string data;
    const std::vector<float> drawn = Values(name, count / 32 * 17);
    for (uint64_t i = 0; i < drawn.size(); ++i) {
      const auto byte = static_cast<int>((drawn[i] + 0.5F) * 256.0F);
      data += static_cast<char>(i % 17 == 0 ? 0x7A + byte % 3 : byte);
    }
    return data;
  }

  std::string arch = "mimo2";
  bool mxfp4_experts = false;
  std::map<std::string, std::function<void(test::GgufWriter&)>> keys;
  std::map<std::string, std::vector<uint64_t>> tensors;
  std::map<std::string, std::vector<float>> values_of;
};

plugin::LoadedPlugin Plugin() {
  return plugin::LoadPlugin(BLOOMERY_BINARY_DIR "/plugins/mimo2/libmimo2.so");
}

exec::SeatOptions Options() {
  return {.slot_context = 64, .rows_max = 16, .threads = 1, .k_type = BL_F32, .v_type = BL_F32};
}

// Logits of every row, in passes of so many.
std::vector<std::vector<float>> LogitsOf(const TinyFile& file, const std::vector<int32_t>& ids,
                                         size_t batch = 16,
                                         const exec::SeatOptions& options = Options()) {
  const model::ModelFile model = file.Open();
  plugin::Instance instance(Plugin(), model, exec::InstanceOptionsOf(options));
  const std::unique_ptr<exec::Seat> seat = exec::LoadSeat(model, instance, options);
  std::vector<std::vector<float>> out;
  for (size_t begin = 0; begin < ids.size(); begin += batch) {
    std::vector<exec::PassRow> rows;
    for (size_t i = begin; i < std::min(ids.size(), begin + batch); ++i) {
      rows.push_back({0, static_cast<int32_t>(i), ids[i], true});
    }
    seat->Run(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span<const float> logits = seat->Logits(static_cast<int32_t>(i));
      out.emplace_back(logits.begin(), logits.end());
    }
  }
  return out;
}

std::string Refused(const std::function<void(TinyFile&)>& change) {
  TinyFile file;
  change(file);
  return test::RefusalOf([&] { LogitsOf(file, {1, 2, 3}); }).message;
}

std::vector<int32_t> Ids(size_t count) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((i * 37 + 5) % 128));
  return ids;
}

TEST(Mimo2Plugin, RowsHaveTheSameBitsInEveryBatchWithFloatAndMxfp4Experts) {
  for (const bool mxfp4 : {false, true}) {
    TinyFile file;
    file.mxfp4_experts = mxfp4;
    const auto one_by_one = LogitsOf(file, Ids(40), 1);
    for (const auto& row : one_by_one) {
      ASSERT_EQ(row.size(), 128U);
      EXPECT_THAT(row, testing::Each(testing::Truly([](float x) { return std::isfinite(x); })));
    }
    for (const size_t batch : {3U, 8U, 16U}) EXPECT_EQ(LogitsOf(file, Ids(40), batch), one_by_one);
    exec::SeatOptions reference = Options();
    reference.kernels = "reference";
    EXPECT_EQ(LogitsOf(file, Ids(40), 8, reference), one_by_one);
  }
}

// The rows of the fused matrix in three tensors.
TEST(Mimo2Plugin, SplitAndFusedProjectionsGiveTheSameBits) {
  TinyFile split;
  for (uint64_t l = 0; l < 4; ++l) {
    const std::string layer = "blk." + std::to_string(l) + ".";
    const uint64_t kv = l == 1 || l == 2 ? 2 : 1;
    const uint64_t rows = 96 + kv * 40;
    const std::vector<float> fused = TinyFile::Values(layer + "attn_qkv.weight", 64 * rows);
    split.tensors.erase(layer + "attn_qkv.weight");
    const auto part = [&](const std::string& name, uint64_t row0, uint64_t count) {
      split.tensors[layer + name] = {64, count};
      split.values_of[layer + name] = {fused.begin() + static_cast<ptrdiff_t>(64 * row0),
                                       fused.begin() + static_cast<ptrdiff_t>(64 * (row0 + count))};
    };
    part("attn_q.weight", 0, 96);
    part("attn_k.weight", 96, kv * 24);
    part("attn_v.weight", 96 + kv * 24, kv * 16);
  }
  EXPECT_EQ(LogitsOf(split, Ids(20)), LogitsOf(TinyFile(), Ids(20)));
}

TEST(Mimo2Plugin, EachHyperParameterReachesTheLogits) {
  const auto base = LogitsOf(TinyFile(), Ids(30)).back();
  const auto changed = [&](const std::function<void(TinyFile&)>& change) {
    TinyFile file;
    change(file);
    return LogitsOf(file, Ids(30)).back() != base;
  };
  EXPECT_TRUE(changed([](TinyFile& f) { f.Set("attention.sliding_window", uint32_t{9}); }));
  EXPECT_TRUE(changed([](TinyFile& f) { f.Set("attention.value_scale", 1.0F); }));
  EXPECT_TRUE(changed([](TinyFile& f) { f.Set("rope.freq_base", 2e7F); }));
  EXPECT_TRUE(changed([](TinyFile& f) { f.keys.erase("rope.freq_base_swa"); }));
  EXPECT_TRUE(changed([](TinyFile& f) { f.Set("rope.dimension_count", uint32_t{10}); }));
  EXPECT_TRUE(changed([](TinyFile& f) { f.Set("expert_weights_scale", 2.0F); }));
  EXPECT_FALSE(changed([](TinyFile& f) { f.Set("expert_weights_scale", 0.0F); }));
  EXPECT_TRUE(changed([](TinyFile& f) {
    for (const char* l : {"1", "2", "3"}) {
      f.tensors.erase("blk." + std::string(l) + ".exp_probs_b.bias");
    }
  }));
  EXPECT_TRUE(changed(
      [](TinyFile& f) { f.values_of["blk.2.attn_sinks.weight"] = {60.0F, 60.0F, 60.0F, 60.0F}; }));
}

TEST(Mimo2Plugin, ThePatternMayBeBooleans) {
  TinyFile file;
  file.SetArray<bool>("attention.sliding_window_pattern", {false, true, true, false});
  EXPECT_EQ(LogitsOf(file, Ids(12)), LogitsOf(TinyFile(), Ids(12)));
}

TEST(Mimo2Plugin, DraftLayersBehindTheTrunkAreLeftOutAndAFileOfThemAloneIsRefused) {
  const auto with_draft = [](TinyFile& f) {
    f.Set("block_count", uint32_t{5});
    f.Set("nextn_predict_layers", uint32_t{1});
    f.SetArray("attention.head_count_kv", {1, 2, 2, 1, 2});
    f.SetArray("attention.sliding_window_pattern", {0, 1, 1, 0, 1});
    f.Add(4, "nextn.eh_proj.weight", {128, 64});
    f.Add(4, "nextn.enorm.weight", {64});
    f.Add(4, "nextn.hnorm.weight", {64});
    f.Add(4, "attn_qkv.weight", {64, 176});
    f.Add(4, "attn_sinks.weight", {4});
    f.Add(4, "layer_output_norm.weight", {64});
  };
  TinyFile file;
  with_draft(file);
  EXPECT_EQ(LogitsOf(file, Ids(12)), LogitsOf(TinyFile(), Ids(12)));
  EXPECT_THAT(Refused([&](TinyFile& f) {
                with_draft(f);
                f.Add(4, "nextn.other.weight", {64});
              }),
              HasSubstr("blk.4.nextn.other.weight"));
  EXPECT_THAT(Refused([&](TinyFile& f) {
                with_draft(f);
                std::erase_if(f.tensors, [](const auto& tensor) {
                  return tensor.first.starts_with("blk.") && !tensor.first.starts_with("blk.4.");
                });
              }),
              HasSubstr("draft layers of a model alone"));
}

TEST(Mimo2Plugin, AnotherArchitectureIsNotClaimed) {
  TinyFile file;
  file.arch = "llama";
  const model::ModelFile model = file.Open();
  const plugin::HostModel host(model);
  EXPECT_THAT(test::RefusalOf([&] { plugin::Probe(Plugin(), host.raw()); }).message,
              HasSubstr("'llama'"));
}

TEST(Mimo2Plugin, MetadataThatIsMissingOrContradictsItselfIsRefusedByKey) {
  for (const char* key :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.head_count_kv", "attention.key_length",
        "attention.value_length", "attention.value_scale", "attention.layer_norm_rms_epsilon",
        "attention.sliding_window", "attention.sliding_window_pattern", "rope.dimension_count",
        "rope.freq_base", "expert_count", "expert_used_count", "expert_feed_forward_length"}) {
    EXPECT_THAT(Refused([&](TinyFile& f) { f.keys.erase(key); }),
                HasSubstr("'mimo2." + std::string(key) + "' is missing"));
  }
  EXPECT_THAT(Refused([](TinyFile& f) { f.SetArray("attention.head_count_kv", {1, 2, 2}); }),
              HasSubstr("'mimo2.attention.head_count_kv' has 3 values for 4 layers"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("attention.head_count_kv", uint32_t{1}); }),
              HasSubstr("'mimo2.attention.head_count_kv' is not an array"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.SetArray("attention.head_count_kv", {1, 3, 2, 1}); }),
              HasSubstr("item 1 is 3, must divide 'mimo2.attention.head_count' = 4"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.SetArray("attention.head_count_kv", {1, 2, -2, 1}); }),
              HasSubstr("item 2 is -2"));
  EXPECT_THAT(
      Refused([](TinyFile& f) { f.SetArray("attention.sliding_window_pattern", {0, 1, 2, 0}); }),
      HasSubstr("'mimo2.attention.sliding_window_pattern', item 2 is not 0 or 1"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("attention.sliding_window", uint32_t{0}); }),
              HasSubstr("'mimo2.attention.sliding_window' is 0"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("rope.dimension_count", uint32_t{7}); }),
              HasSubstr("'mimo2.rope.dimension_count' is 7, must be even"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("rope.dimension_count", uint32_t{26}); }),
              HasSubstr("'mimo2.rope.dimension_count' is 26"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("expert_gating_func", uint32_t{1}); }),
              HasSubstr("'mimo2.expert_gating_func' is not 2 (sigmoid)"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("expert_group_count", uint32_t{4}); }),
              HasSubstr("'mimo2.expert_group_count' is not 1"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Set("expert_used_count", uint32_t{9}); }),
              HasSubstr("'mimo2.expert_used_count' is 9"));
  for (const float bad : {0.0F, -1.0F, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(Refused([&](TinyFile& f) { f.Set("attention.value_scale", bad); }),
                HasSubstr("'mimo2.attention.value_scale' is"));
  }
}

TEST(Mimo2Plugin, TensorsThatAreMissingMisshapenOrUnknownAreRefusedByName) {
  for (const char* name :
       {"token_embd.weight", "output.weight", "output_norm.weight", "blk.0.attn_norm.weight",
        "blk.1.attn_sinks.weight", "blk.2.attn_output.weight", "blk.0.ffn_down.weight",
        "blk.3.ffn_up_exps.weight", "blk.3.ffn_gate_inp.weight", "blk.2.exp_probs_b.bias",
        "blk.2.attn_qkv.weight"}) {
    EXPECT_THAT(Refused([&](TinyFile& f) { f.tensors.erase(name); }), HasSubstr(name));
  }
  // Both forms of the projections, and a part of one.
  EXPECT_THAT(Refused([](TinyFile& f) { f.Add(2, "attn_q.weight", {64, 96}); }),
              HasSubstr("blk.2.attn_k.weight"));
  EXPECT_THAT(Refused([](TinyFile& f) {
                f.Add(2, "attn_q.weight", {64, 96});
                f.Add(2, "attn_k.weight", {64, 48});
                f.Add(2, "attn_v.weight", {64, 32});
              }),
              HasSubstr("blk.2.attn_qkv.weight"));
  // Sinks where a layer sees everything, and a name that nobody knows.
  EXPECT_THAT(Refused([](TinyFile& f) { f.Add(3, "attn_sinks.weight", {4}); }),
              HasSubstr("blk.3.attn_sinks.weight"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Add(1, "attn_surprise.weight", {4}); }),
              HasSubstr("blk.1.attn_surprise.weight"));
  EXPECT_THAT(Refused([](TinyFile& f) { f.Add(1, "attn_sinks.weight", {5}); }),
              HasSubstr("blk.1.attn_sinks.weight"));
  for (const uint64_t rows : {136, 177}) {
    EXPECT_THAT(Refused([&](TinyFile& f) { f.Add(1, "attn_qkv.weight", {64, rows}); }),
                HasSubstr("blk.1.attn_qkv.weight"));
  }
  EXPECT_THAT(Refused([](TinyFile& f) {
                f.values_of["blk.1.attn_sinks.weight"] = {
                    0.0F, std::numeric_limits<float>::quiet_NaN(), 0.0F, 0.0F};
              }),
              HasSubstr("blk.1.attn_sinks.weight"));
}

TEST(Mimo2Plugin, TheChatExtensionSaysHowItIsTalkedTo) {
  const model::ModelFile model = TinyFile().Open();
  plugin::Instance instance(Plugin(), model, exec::InstanceOptionsOf(Options()));
  const auto* chat = static_cast<const bl_chat_1*>(instance.Extension(BL_EXT_CHAT_1));
  ASSERT_NE(chat, nullptr);
  EXPECT_STREQ(chat->tool_syntax, "qwen_xml_inline");
  EXPECT_STREQ(chat->reasoning_open, "<think>");
  EXPECT_STREQ(chat->reasoning_close, "</think>");
  EXPECT_STREQ(chat->pre_tokenizer, "qwen2");
  EXPECT_EQ(chat->n_stop_ids, 0U);  // those of the releases are no tokens here
  EXPECT_DOUBLE_EQ(chat->sampling.top_p, 0.95);
}

}  // namespace
}  // namespace bloomery
