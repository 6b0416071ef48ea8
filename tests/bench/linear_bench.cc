// Linear on one thread: bytes a second of weights at one row, operations a second (2 a weight and
// row) at many. The shape is an attention projection of Qwen3-30B-A3B; the weights stay in L3.
#include <benchmark/benchmark.h>

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
  std::size_t bytes = 0;
  for (auto _ : state) {
    bytes += cpu::Linear(isa, args, 0, n, any.scratch.span());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
  state.counters["op/s"] = benchmark::Counter(
      2.0 * static_cast<double>(kLength * n * rows * static_cast<std::size_t>(state.iterations())),
      benchmark::Counter::kIsRate);
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
        run->ArgsProduct({{4096}, {1, 2, 4, 8, 64, 512}});
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace bloomery::kernels
