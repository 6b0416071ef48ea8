// Prompt kernels at the shapes of Qwen3-30B-A3B Q4_K_M: width 2048, 128 experts use 8, ff 768.
#include <numeric>
#include <vector>

#include "kernels-common/linear/cuda/prompt_linear.h"
#include "kernels-common/linear/cuda/router.h"
#include "kernels-common/moe/cuda/prompt_experts.h"
#include "kernels-common/norm/cuda/norm.h"
#include "kernels-common/quant/cuda/quantise.h"
#include "tests/gpu/bench/bench.h"
#include "tests/gpu/device.h"

namespace bloomery::kernels::bench {
namespace {

using testing::Check;
using testing::DeviceArray;

constexpr std::int32_t kWidth = 2048;
constexpr std::int32_t kFf = 768;
constexpr std::int32_t kExperts = 128;
constexpr std::int32_t kTopK = 8;
constexpr int kRepetitions = 12;

// The linears' time does not depend on codes; bytes of 0x11 are small scales and codes everywhere.
class Bank {
 public:
  Bank(int type, std::int32_t n, std::int32_t k, std::int32_t experts)
      : bytes_(cuda::CardBytes(type, static_cast<std::size_t>(n), static_cast<std::size_t>(k))),
        data_(bytes_ * static_cast<std::size_t>(experts), 0x11) {
    weight_.format = FindFormat(type);
    weight_.data = data_.data();
    weight_.n = static_cast<std::size_t>(n);
    weight_.k = static_cast<std::size_t>(k);
    weight_.expert_bytes = bytes_;
  }
  const cuda::CardWeight& weight() const { return weight_; }
  double bytes() const { return static_cast<double>(data_.size()); }

 private:
  std::size_t bytes_;
  DeviceArray<std::byte> data_;
  cuda::CardWeight weight_;
};

QuantisedRows Rows(const DeviceArray<std::byte>& memory, std::int32_t k, std::size_t group) {
  return MakeQuantisedRows(memory.data(), static_cast<std::size_t>(k), group);
}

DeviceArray<std::byte> RowMemory(std::int32_t rows, std::int32_t k, std::size_t group) {
  return DeviceArray<std::byte>(QuantisedRowBytes(static_cast<std::size_t>(k), group) *
                                static_cast<std::size_t>(rows));
}

std::size_t Product(std::int32_t a, std::int32_t b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

void Dense(const char* name, int type, std::int32_t n, std::int32_t k, std::int32_t rows) {
  const FormatTraits& format = *FindFormat(type);
  const Bank bank(type, n, k, kRepetitions);
  const DeviceArray<std::byte> x = RowMemory(rows, k, format.activation_group);
  const DeviceArray<float> y(Product(rows, n));
  cuda::PromptLinearArgs args;
  args.input.quantised = Rows(x, k, format.activation_group);
  args.count = 1;
  args.matrices[0].weight = bank.weight();
  args.matrices[0].y = y.data();
  args.matrices[0].y_stride = static_cast<std::size_t>(n);
  args.rows.max = rows;
  const Work work = {bank.bytes() / kRepetitions, 2.0 * rows * n * k};
  Measure(std::string("prompt dense ") + format.name + " " + name + " rows " + std::to_string(rows),
          work, kRepetitions, [&](const cuda::Launch& launch, int i) {
            cuda::PromptLinearArgs one = args;
            one.matrices[0].weight.data = static_cast<const std::byte*>(bank.weight().data) +
                                          static_cast<std::size_t>(i) * bank.weight().expert_bytes;
            return cuda::PromptLinear(launch, one);
          });
}

// Router logits, grouping and the grouped linears of one layer. Picks spread by a fixed hash, or
// (skew) as real routers do: a few experts have many times the mean.
class Experts {
 public:
  Experts(std::int32_t rows, int gate_type, int down_type, bool skew)
      : rows_(rows),
        gate_(gate_type, kFf, kWidth, kExperts),
        up_(gate_type, kFf, kWidth, kExperts),
        down_(down_type, kWidth, kFf, kExperts),
        x_(RowMemory(rows, kWidth, 256)),
        h_(Product(rows * kTopK, kFf)),
        quantised_h_(RowMemory(rows * kTopK, kFf, 256)),
        y_(Product(rows * kTopK, kWidth)),
        ids_(Ids(rows, skew)),
        offsets_(kExperts + 1),
        place_rows_(Product(rows, kTopK)),
        pair_places_(Product(rows, kTopK)),
        tiles_(static_cast<std::size_t>(TilesMax())),
        tile_count_(1) {
    Check(cuda::PreparePromptExperts());
    Check(cuda::GroupPicks(testing::TestLaunch(), Group()));
    Check(cudaDeviceSynchronize());
  }

  std::int32_t TilesMax() const { return cuda::PickTilesMax(rows_, kTopK, kExperts); }

  cuda::GroupPicksArgs Group() const {
    cuda::GroupPicksArgs args;
    args.ids = ids_.data();
    args.top_k = kTopK;
    args.experts = kExperts;
    args.rows.max = rows_;
    args.groups = {offsets_.data(), place_rows_.data(), pair_places_.data(), tiles_.data(),
                   tile_count_.data()};
    return args;
  }
  cuda::PromptGateUpArgs GateUp() const {
    cuda::PromptGateUpArgs args;
    args.gate = gate_.weight();
    args.up = up_.weight();
    args.input.quantised = Rows(x_, kWidth, 256);
    args.groups = Group().groups;
    args.tiles_max = TilesMax();
    args.rows = rows_;
    args.h = h_.data();
    args.h_stride = kFf;
    return args;
  }
  cuda::PromptDownArgs Down() const {
    cuda::PromptDownArgs args;
    args.down = down_.weight();
    args.input.quantised = Rows(quantised_h_, kFf, 256);
    args.groups = Group().groups;
    args.tiles_max = TilesMax();
    args.rows = rows_;
    args.y = y_.data();
    args.y_stride = kWidth;
    return args;
  }
  cuda::QuantiseRowsArgs Quantise() const {
    return {h_.data(), kFf, Rows(quantised_h_, kFf, 256), {rows_ * kTopK, nullptr, 1}};
  }
  double GateUpBytes() const { return gate_.bytes() + up_.bytes(); }
  double DownBytes() const { return down_.bytes(); }
  const float* y() const { return y_.data(); }
  const std::int32_t* pair_places() const { return pair_places_.data(); }

 private:
  static std::vector<std::int32_t> Ids(std::int32_t rows, bool skew) {
    std::vector<std::int32_t> ids;
    std::uint32_t state = 12345;
    const auto next = [&state](std::uint32_t below) {
      state = state * 1664525U + 1013904223U;
      return (state >> 8U) % below;
    };
    for (std::int32_t row = 0; row < rows; ++row) {
      std::vector<std::int32_t> order(kExperts);
      std::iota(order.begin(), order.end(), 0);
      for (std::uint32_t i = 0; i < kTopK; ++i) {
        std::uint32_t at = next(kExperts - i);
        if (skew) {  // the square of a uniform number: density falls from the first experts on
          at = at * at / kExperts;
        }
        std::swap(order[i], order[i + at]);
        ids.push_back(order[i]);
      }
    }
    return ids;
  }

  std::int32_t rows_;
  Bank gate_;
  Bank up_;
  Bank down_;
  DeviceArray<std::byte> x_;
  DeviceArray<float> h_;
  DeviceArray<std::byte> quantised_h_;
  DeviceArray<float> y_;
  DeviceArray<std::int32_t> ids_;
  DeviceArray<std::int32_t> offsets_;
  DeviceArray<std::int32_t> place_rows_;
  DeviceArray<std::int32_t> pair_places_;
  DeviceArray<cuda::ExpertTile> tiles_;
  DeviceArray<std::int32_t> tile_count_;
};

void ExpertSteps(std::int32_t rows, int gate_type, int down_type, bool skew) {
  const Experts bank(rows, gate_type, down_type, skew);
  const std::string suffix = std::string(skew ? " skewed" : "") + " rows " + std::to_string(rows);
  const double operations = 2.0 * rows * kTopK * kWidth * kFf;
  Measure(std::string("prompt gate/up ") + FindFormat(gate_type)->name + suffix,
          {bank.GateUpBytes(), 2.0 * operations}, 4, [&](const cuda::Launch& launch, int) {
            return cuda::PromptGateUp(launch, bank.GateUp());
          });
  Measure(std::string("prompt down ") + FindFormat(down_type)->name + suffix,
          {bank.DownBytes(), operations}, 4,
          [&](const cuda::Launch& launch, int) { return cuda::PromptDown(launch, bank.Down()); });
}

void SmallSteps(std::int32_t rows) {
  const Experts bank(rows, 12, 12, true);
  const std::string suffix = " rows " + std::to_string(rows);
  const DeviceArray<float> x(Product(rows, kWidth));
  const DeviceArray<float> out(Product(rows, kWidth));
  const DeviceArray<float> weight(kWidth);
  const DeviceArray<std::byte> quantised = RowMemory(rows, kWidth, 256);
  const DeviceArray<float> router(Product(kExperts, kWidth));
  const DeviceArray<float> logits(Product(rows, kExperts));
  const DeviceArray<std::int32_t> ids(Product(rows, kTopK));
  const DeviceArray<float> weights(Product(rows, kTopK));
  const DeviceArray<std::int32_t> failed(1);
  cuda::RmsNormRowsArgs norm;
  norm.norm = {x.data(), kWidth, nullptr, kWidth, 1, kWidth, weight.data(), 1e-6F};
  norm.quantised = Rows(quantised, kWidth, 256);
  norm.rows.max = rows;
  Measure("prompt norm+quantise" + suffix, {5.0 * rows * kWidth, 0}, kRepetitions,
          [&](const cuda::Launch& launch, int) { return cuda::RmsNormRows(launch, norm); });
  cuda::RouterLinearArgs linear;
  linear.weight = router.data();
  linear.n = kExperts;
  linear.k = kWidth;
  linear.x = x.data();
  linear.x_stride = kWidth;
  linear.y = logits.data();
  linear.y_stride = kExperts;
  linear.rows.max = rows;
  Check(cuda::PrepareRouterLinear());
  Measure("prompt router" + suffix, {4.0 * rows * kWidth, 2.0 * rows * kWidth * kExperts},
          kRepetitions,
          [&](const cuda::Launch& launch, int) { return cuda::RouterLinear(launch, linear); });
  cuda::RouteRowsArgs route;
  route.router.experts = route.router.logits_stride = kExperts;
  route.router.top_k = kTopK;
  route.router.logits = logits.data();
  route.router.ids = ids.data();
  route.router.weights = weights.data();
  route.rows.max = rows;
  route.failed_row = failed.data();
  Measure("prompt route" + suffix, {4.0 * rows * kExperts, 0}, kRepetitions,
          [&](const cuda::Launch& launch, int) { return cuda::RouteRows(launch, route); });
  Measure("prompt group picks" + suffix, {4.0 * rows * kTopK, 0}, kRepetitions,
          [&](const cuda::Launch& launch, int) { return cuda::GroupPicks(launch, bank.Group()); });
  Measure(
      "prompt quantise h" + suffix, {5.0 * rows * kTopK * kFf, 0}, kRepetitions,
      [&](const cuda::Launch& launch, int) { return cuda::QuantiseRows(launch, bank.Quantise()); });
  cuda::PickSumRowsArgs sum;
  sum.sum.y = bank.y();
  sum.sum.y_stride = sum.sum.dim = sum.sum.out_stride = sum.sum.residual_stride = kWidth;
  sum.sum.pair_places = bank.pair_places();
  sum.sum.weights = weights.data();
  sum.sum.top_k = kTopK;
  sum.sum.residual = out.data();
  sum.sum.out = out.data();
  sum.rows.max = rows;
  sum.failed_row = failed.data();
  Measure("prompt pick sum" + suffix, {4.0 * rows * kWidth * (kTopK + 2), 0}, kRepetitions,
          [&](const cuda::Launch& launch, int) { return cuda::PickSumRows(launch, sum); });
}

void All() {
  Check(cuda::PreparePromptLinear());
  for (const std::int32_t rows : {512, 4096}) {
    ExpertSteps(rows, 12, 14, false);
    ExpertSteps(rows, 12, 12, true);
    Dense("qkv", 12, 5120, kWidth, rows);
    Dense("o", 12, kWidth, 4096, rows);
    Dense("qkv", 14, 5120, kWidth, rows);
    Dense("qkv", 8, 5120, kWidth, rows);
    SmallSteps(rows);
  }
}

const Registered kPrompt("prompt", All);

}  // namespace
}  // namespace bloomery::kernels::bench
