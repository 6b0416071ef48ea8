#include "runtime/model/quant_mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/refusal.h"

namespace bloomery::model {
namespace {

using test::Refusal;
using test::RefusalOf;
using testing::HasSubstr;

TensorType TypeOf(std::string_view mix, const std::string& name, std::vector<uint64_t> ne,
                  const MixModel& model) {
  return TypeInMix(GetQuantMix(mix), model, name, ne, TensorType::kF32);
}

// The published layers of a 48-layer and a 40-layer Q4_K_M file.
TEST(QuantMix, Q4KMGivesMoreBitsToThePublishedLayers) {
  const auto chosen = [](uint64_t layers) {
    std::vector<uint64_t> list;
    for (uint64_t l = 0; l < layers; ++l) {
      const std::string block = "blk." + std::to_string(l) + ".";
      const TensorType down =
          TypeOf("Q4_K_M", block + "ffn_down_exps.weight", {768, 2048, 128}, {.layers = layers});
      EXPECT_EQ(down, TypeOf("q4_k_m", block + "attn_v.weight", {2048, 512}, {.layers = layers}));
      if (down == TensorType::kQ6_K) list.push_back(l);
    }
    return list;
  };
  EXPECT_EQ(chosen(48), (std::vector<uint64_t>{0,  1,  2,  3,  4,  5,  8,  11, 14, 17, 20, 23,
                                               26, 29, 32, 35, 38, 41, 42, 43, 44, 45, 46, 47}));
  EXPECT_EQ(chosen(40), (std::vector<uint64_t>{0,  1,  2,  3,  4,  7,  10, 13, 16, 19,
                                               22, 25, 28, 31, 34, 35, 36, 37, 38, 39}));
}

TEST(QuantMix, Q4KMGivesOtherTensorsTheirTypes) {
  const MixModel model{.layers = 48};
  EXPECT_EQ(TypeOf("Q4_K_M", "token_embd.weight", {2048, 4096}, model), TensorType::kQ4_K);
  EXPECT_EQ(TypeOf("Q4_K_M", "output.weight", {2048, 4096}, model), TensorType::kQ6_K);
  EXPECT_EQ(TypeOf("Q4_K_M", "blk.0.attn_q.weight", {2048, 4096}, model), TensorType::kQ4_K);
  EXPECT_EQ(TypeOf("Q4_K_M", "blk.0.ffn_up_exps.weight", {2048, 768, 128}, model),
            TensorType::kQ4_K);
  EXPECT_EQ(TypeOf("Q5_K_M", "blk.0.attn_q.weight", {2048, 4096}, model), TensorType::kQ5_K);
  EXPECT_EQ(TypeOf("Q5_K_M", "blk.0.attn_v.weight", {2048, 512}, model), TensorType::kQ6_K);
  // The embedding serves as head.
  EXPECT_EQ(TypeOf("Q4_K_M", "token_embd.weight", {2048, 4096}, {.layers = 48, .tied_head = true}),
            TensorType::kQ6_K);
}

// Of a Mixtral file: 32 layers, eight experts.
TEST(QuantMix, AttentionOfEightExpertModelsGetsMoreBits) {
  const MixModel eight{.layers = 32, .experts = 8};
  const MixModel more{.layers = 32, .experts = 16};
  const auto type = [](const char* mix, const char* part, const MixModel& model) {
    return TypeOf(mix, "blk.5." + std::string(part) + ".weight", {4096, 1024}, model);
  };
  for (const char* mix : {"Q4_K_M", "Q5_K_M"}) {
    EXPECT_EQ(type(mix, "attn_v", eight), TensorType::kQ8_0) << mix;
    EXPECT_EQ(type(mix, "attn_k", eight), TensorType::kQ8_0) << mix;
  }
  EXPECT_EQ(type("Q4_K_M", "attn_output", eight), TensorType::kQ5_K);
  EXPECT_EQ(type("Q5_K_M", "attn_output", eight), TensorType::kQ5_K);
  EXPECT_EQ(type("Q4_K_M", "attn_q", eight), TensorType::kQ4_K);
  EXPECT_EQ(type("Q4_K_M", "attn_k_norm", eight), TensorType::kF32);
  EXPECT_EQ(type("Q4_K_M", "attn_v", more), TensorType::kQ4_K);
  EXPECT_EQ(type("Q4_K_M", "attn_output", more), TensorType::kQ4_K);
}

TEST(QuantMix, SensitiveTensorsKeepTheirType) {
  const MixModel model{.layers = 48};
  for (const char* name : {"blk.3.ffn_gate_inp.weight", "blk.3.ssm_conv1d.weight",
                           "blk.3.attn_norm.weight", "blk.3.attn_q.bias", "blk.3.ssm_a"}) {
    EXPECT_EQ(TypeOf("Q4_K_M", name, {2048, 128}, model), TensorType::kF32) << name;
  }
  EXPECT_EQ(TypeOf("Q4_K_M", "blk.3.ffn_gate_inp_shexp.weight", {2048}, model), TensorType::kF32);
}

TEST(QuantMix, Mxfp4IsForStackedExpertsAlone) {
  const MixModel model{.layers = 2};
  EXPECT_EQ(TypeOf("MXFP4", "blk.0.ffn_up_exps.weight", {64, 64, 8}, model), TensorType::kMXFP4);
  EXPECT_EQ(TypeOf("MXFP4", "blk.0.attn_q.weight", {64, 64}, model), TensorType::kQ8_0);
  EXPECT_EQ(TypeOf("MXFP4", "output.weight", {64, 100}, model), TensorType::kQ8_0);
}

TEST(QuantMix, NarrowRowsGetSmallBlocksAndOthersAreRefusedByName) {
  const MixModel model{.layers = 2};
  EXPECT_EQ(TypeOf("Q4_K_M", "blk.0.attn_q.weight", {128, 64}, model), TensorType::kQ5_0);
  EXPECT_EQ(TypeOf("Q5_K_M", "blk.0.attn_q.weight", {96, 64}, model), TensorType::kQ5_1);
  EXPECT_EQ(TypeOf("Q6_K", "blk.0.attn_q.weight", {32, 64}, model), TensorType::kQ8_0);
  EXPECT_EQ(TypeOf("Q4_K_M", "output.weight", {128, 64}, model), TensorType::kQ8_0);
  EXPECT_EQ(TypeOf("Q4_0", "blk.0.attn_q.weight", {128, 64}, model), TensorType::kQ4_0);
  const Refusal refusal =
      RefusalOf([&] { TypeOf("Q6_K", "blk.0.attn_q.weight", {100, 64}, model); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("blk.0.attn_q.weight"));
  EXPECT_THAT(refusal.message, HasSubstr("rows of 100"));
}

TEST(QuantMix, UnknownNameIsRefusedWithTheKnownOnes) {
  const Refusal refusal = RefusalOf([] { GetQuantMix("Q3_K_S"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  EXPECT_THAT(refusal.message, HasSubstr("Q4_K_M"));
}

}  // namespace
}  // namespace bloomery::model
