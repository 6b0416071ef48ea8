// Linear on one thread: bytes a second of weights at one row, operations a second (2 a weight and
// row) at many. Shapes of Qwen3-30B-A3B: an expert's gate (768 x 2048) and an attention projection.
#include <benchmark/benchmark.h>

#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

void RunLinear(benchmark::State& state) {
  const FormatTraits& format = *FindFormat(static_cast<int>(state.range(0)));
  const auto n = static_cast<std::size_t>(state.range(1));
  const auto rows = static_cast<std::size_t>(state.range(2));
  const Isa isa = state.range(3) == 0 ? Isa::kScalar : Isa::kAvx2;
  testing::LinearCase any(format, 2048, n, rows, 1);
  std::vector<float> y;
  const LinearArgs args = any.Args(y);
  std::size_t bytes = 0;
  for (auto _ : state) {
    bytes += cpu::Linear(isa, args, 0, n, any.scratch.span());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
  state.counters["op/s"] = benchmark::Counter(
      2.0 * 2048.0 * static_cast<double>(n * rows * static_cast<std::size_t>(state.iterations())),
      benchmark::Counter::kIsRate);
  state.SetLabel(std::string(format.name) + " " + IsaName(isa));
}

BENCHMARK(RunLinear)
    ->ArgsProduct({{12, 14, 8, 30, 0}, {4096}, {1, 2, 8, 64, 512}, {1}})
    ->ArgsProduct({{12}, {768}, {1, 64}, {0}});

}  // namespace
}  // namespace bloomery::kernels
