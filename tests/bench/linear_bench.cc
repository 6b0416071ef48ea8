// Linear on one thread: weight bytes a second count at one row (weights that stay in L3 may go
// beyond 1 of the read bound), at many rows operations, 2 a weight and row. Then the quantisers.
#include <benchmark/benchmark.h>

#include "tests/bench/bounds.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

constexpr std::size_t kLength = 2048;

void RunLinear(benchmark::State& state, const FormatTraits& format, Isa isa) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const auto rows = static_cast<std::size_t>(state.range(1));
  testing::LinearCase any(format, kLength, n, rows, 1);
  std::vector<float> y;
  const LinearArgs args = any.Args(y);
  double bytes = 0.0;
  for (auto _ : state) {
    bytes += static_cast<double>(cpu::Linear(isa, args, 0, n, any.scratch.span()));
    benchmark::ClobberMemory();
  }
  const double operations =
      2.0 * static_cast<double>(kLength * n * rows) * static_cast<double>(state.iterations());
  SetShares(state, bytes, operations,
            format.activation_group == 0 ? Arithmetic::kFloat : Arithmetic::kBytes, isa);
}

// One benchmark a format and instruction set: linear/Q4_K/avx2/4096/1.
const bool kRegistered = [] {
  for (const FormatTraits& format : Formats()) {
    for (const Isa isa : AvailableIsas()) {
      const std::string name = std::string("linear/") + format.name + "/" + IsaName(isa);
      auto* run = benchmark::RegisterBenchmark(
          name.c_str(), [&format, isa](benchmark::State& state) { RunLinear(state, format, isa); });
      if (isa == Isa::kScalar) {
        run->Args({768, 1})->Args({768, 64});
      } else {
        run->ArgsProduct({{4096}, {1, 2, 4, 8, 16, 32, 64, 512}});
      }
    }
  }
  return true;
}();

void RunQuantise(benchmark::State& state, const FormatTraits& format) {
  testing::Random random(1);
  const std::vector<float> x = random.Values(std::size_t{1} << 16U);
  std::vector<std::byte> row(RowBytes(format, x.size()));
  for (auto _ : state) {
    benchmark::DoNotOptimize(format.quantise_row(x.data(), nullptr, row.data(), x.size()));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(x.size()) * state.iterations());
  SetShares(state, 4.0 * static_cast<double>(x.size()) * static_cast<double>(state.iterations()),
            0.0, Arithmetic::kFloat, Isa::kAvx2);
}

const bool kQuantisersRegistered = [] {
  for (const FormatTraits& format : Formats()) {
    if (format.quantise_row != nullptr && format.activation_group != 0) {
      benchmark::RegisterBenchmark(
          (std::string("quantise/") + format.name).c_str(),
          [&format](benchmark::State& state) { RunQuantise(state, format); });
    }
  }
  return true;
}();

}  // namespace
}  // namespace bloomery::kernels
