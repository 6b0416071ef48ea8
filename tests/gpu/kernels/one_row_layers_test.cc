// All layers of a row in one launch against the six launches a layer that the other tests compare
// with the references: outputs and plane rows by bits.
#include "kernels-common/layer/cuda/one_row_layers.h"

#include <gtest/gtest.h>

#include <climits>
#include <limits>
#include <numeric>

#include "tests/gpu/kernels/device.h"
#include "tests/gpu/layer_case.h"

namespace bloomery::kernels {
namespace {

using testing::Check;
using testing::Finish;
using testing::LayerCase;
using testing::SameBits;
using testing::SameValues;
using testing::TestLaunch;

constexpr int kLayers = 5;
constexpr int kBanks = 2;

// What a pass leaves.
struct Left {
  std::vector<float> out;
  std::vector<std::uint16_t> rows;
  std::int32_t failed;
  std::vector<std::uint32_t> picks;
};

Left PassOf(LayerCase& layers, std::int32_t slot, std::int32_t index, bool one) {
  layers.SetRow(slot, index);
  Finish(one ? layers.OneLaunch(TestLaunch()) : layers.SixLaunches(TestLaunch()));
  return {layers.Output(), layers.PlaneRows(slot, index), layers.FailedRow(), layers.Picks()};
}

void ExpectSame(LayerCase& layers, std::int32_t slot, std::int32_t index) {
  const Left six = PassOf(layers, slot, index, false);
  Check(cudaMemset(layers.layers().back().down.out, 0xFF, LayerCase::kWidth * sizeof(float)));
  const Left one = PassOf(layers, slot, index, true);
  EXPECT_TRUE(SameBits(one.out, six.out)) << "index " << index;
  EXPECT_TRUE(SameValues(one.rows, six.rows)) << "index " << index;
  EXPECT_EQ(one.picks, six.picks) << "index " << index;
  EXPECT_EQ(std::accumulate(one.picks.begin(), one.picks.end(), 0U), 8 * layers.layers().size());
  EXPECT_EQ(one.failed, INT32_MAX);
  EXPECT_EQ(six.failed, INT32_MAX);
  double sum = 0;
  for (const float value : six.out) sum += value * value;
  EXPECT_TRUE(sum > 0 && sum < 1e30) << sum;  // the case itself says something
}

TEST(CardOneRowLayers, OneLayerHasTheBitsOfSixLaunches) {
  LayerCase layers(1, 1, 256);
  ASSERT_TRUE(cuda::OneRowLayersFit(TestLaunch(), layers.layers()));
  for (const std::int32_t index : {0, 5, 127, 128, 200}) ExpectSame(layers, 0, index);
}

TEST(CardOneRowLayers, HaveTheBitsOfSixLaunchesAtEveryDepth) {
  LayerCase layers(kLayers, kBanks, 13000);
  // Up to 102 windows: a merge takes 96 at a time.
  for (const std::int32_t index :
       {0,    1,    40,   127,  128,  129,  500,  767,  1000,  1100,  2047,
        2100, 4000, 4096, 4223, 4224, 4300, 8447, 8999, 12287, 12288, 12999}) {
    ExpectSame(layers, index % 2, index);
  }
}

// Two logits that agree to 25 bits, the higher id's the larger, and both among the largest: experts
// are asked for in the wrong order, and replaced.
TEST(CardOneRowLayers, ExpertsThatWereGuessedWrongAreReplaced) {
  constexpr std::size_t kWidth = LayerCase::kWidth;
  LayerCase layers(kLayers, kBanks, 256);
  for (const cuda::OneRowLayer& layer : layers.layers()) {
    auto* rows = static_cast<float*>(const_cast<void*>(layer.router.matrices[0].weight.data));
    std::vector<float> row(kWidth);
    Check(cudaMemcpy(row.data(), rows, kWidth * sizeof(float), cudaMemcpyDeviceToHost));
    const auto store = [&](std::size_t expert, float factor) {
      std::vector<float> scaled(row);
      for (float& value : scaled) value *= factor;
      Check(cudaMemcpy(rows + expert * kWidth, scaled.data(), kWidth * sizeof(float),
                       cudaMemcpyHostToDevice));
    };
    // One pair has positive logits.
    for (const float sign : {1.0F, -1.0F}) {
      const std::size_t first = sign > 0 ? 40 : 50;
      store(first, 4.0F * sign);
      store(first + 3, 4.0F * sign * (1.0F + 0x1p-21F));
    }
  }
  for (const std::int32_t index : {3, 4, 130, 131}) ExpectSame(layers, 0, index);
}

TEST(CardOneRowLayers, PassesFollowEachOther) {
  LayerCase layers(kLayers, kBanks, 1024);
  for (std::int32_t index = 120; index < 140; ++index) ExpectSame(layers, 1, index);
}

TEST(CardOneRowLayers, TagsBeginAnew) {
  LayerCase layers(kLayers, kBanks, 1024);
  const std::uint32_t epoch =
      UINT32_MAX - 2 * static_cast<std::uint32_t>(cuda::kOneRowLayersMax) - 11;
  Check(cudaMemcpy(layers.state(), &epoch, sizeof(epoch), cudaMemcpyHostToDevice));
  for (std::int32_t index = 250; index < 260; ++index) ExpectSame(layers, 0, index);
  std::uint32_t now = 0;
  Check(cudaMemcpy(&now, layers.state(), sizeof(now), cudaMemcpyDeviceToHost));
  EXPECT_LT(now, 100U);
}

TEST(CardOneRowLayers, ARowThatFailsIsNamed) {
  LayerCase layers(2, 1, 256);
  const float infinite = std::numeric_limits<float>::infinity();
  Check(cudaMemcpy(layers.input() + 7, &infinite, sizeof(infinite), cudaMemcpyHostToDevice));
  EXPECT_EQ(PassOf(layers, 0, 3, true).failed, 0);
}

TEST(CardOneRowLayers, OtherShapesAndBrokenChainsAreNotTaken) {
  LayerCase layers(2, 1, 256);
  const auto fits = [&](const auto& change) {
    std::vector<cuda::OneRowLayer> changed = layers.layers();
    change(changed);
    return cuda::OneRowLayersFit(TestLaunch(), changed);
  };
  using Layers = std::vector<cuda::OneRowLayer>;
  EXPECT_TRUE(fits([](Layers&) {}));
  EXPECT_FALSE(fits([](Layers& l) { l[1].qkv.x = l[0].output.matrices[0].y; }));
  EXPECT_FALSE(fits([](Layers& l) { l[1].attention.q = l[0].attention.q; }));
  EXPECT_FALSE(fits([](Layers& l) { l[0].attention.keys.type = KvType::kQ8_0; }));
  EXPECT_FALSE(fits([](Layers& l) { l[0].gate_up.top_k = 6; }));
  EXPECT_FALSE(fits([](Layers& l) { l[1].heads.frequencies += 1; }));
  EXPECT_FALSE(fits([](Layers& l) { l[0].output.matrices[0].bias = l[0].qkv.norm_weight; }));
  EXPECT_FALSE(fits([](Layers& l) { l[1].attention.window = 128; }));
  EXPECT_FALSE(fits([](Layers& l) { l[1].attention.sinks = l[0].qkv.norm_weight; }));
  EXPECT_FALSE(fits([](Layers& l) { l[0].heads.v_scale = 0.5F; }));
  EXPECT_FALSE(fits([](Layers& l) { l[1].gate_up.scoring.gate = RouterGate::kSigmoid; }));
  EXPECT_FALSE(fits([](Layers& l) { l[1].gate_up.scoring.bias = l[0].qkv.norm_weight; }));
  EXPECT_FALSE(fits([](Layers& l) { l.clear(); }));
  cuda::Launch older = TestLaunch();
  older.dependent = false;
  EXPECT_FALSE(cuda::OneRowLayersFit(older, layers.layers()));
}

}  // namespace
}  // namespace bloomery::kernels
