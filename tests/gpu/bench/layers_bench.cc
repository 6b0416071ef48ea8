// All layers of a decode pass of one row, attention included: six launches a layer against one
// launch for all (one_row_layers.h). Banks of experts rotate, so that weights come from memory.
#include <string>

#include "tests/gpu/bench/bench.h"
#include "tests/gpu/layer_case.h"

namespace bloomery::kernels::bench {
namespace {

constexpr int kLayers = 48;
constexpr int kBanks = 12;
constexpr std::size_t kCapacity = 4352;

const Registered kPasses("decode 48 layers", [] {
  testing::LayerCase layers(kLayers, kBanks, kCapacity);
  for (const std::int32_t index : {0, 100, 512, 4096}) {
    layers.SetRow(0, index);
    const std::string depth = ", depth " + std::to_string(index);
    Measure("decode 48 layers, six launches each" + depth, {}, 2,
            [&](const cuda::Launch& launch, int) { return layers.SixLaunches(launch); });
    Measure("decode 48 layers, one launch" + depth, {}, 2,
            [&](const cuda::Launch& launch, int) { return layers.OneLaunch(launch); });
  }
});

}  // namespace
}  // namespace bloomery::kernels::bench
