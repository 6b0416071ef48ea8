// The delta rule of one value head of 128 keys and values, row by row and in chunks. `row/s` are
// rows a second; names end with the rows of a call. Heads take turns, as in a model, so that states
// come from where they lie between calls.
#include <benchmark/benchmark.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels-common/delta/cpu/delta.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

constexpr std::size_t kDim = 128;
constexpr std::size_t kKeyHeads = 16;
constexpr std::size_t kValueHeads = 32;

void DeltaForm(benchmark::State& state, Isa isa, bool chunks) {
  const auto rows = static_cast<std::size_t>(state.range(0));
  testing::Random random(1);
  // Keys and queries of about length one.
  const float length = std::sqrt(3.0F / static_cast<float>(kDim));
  const std::vector<float> q = random.Values(rows * kKeyHeads * kDim, length);
  const std::vector<float> k = random.Values(rows * kKeyHeads * kDim, length);
  const std::vector<float> v = random.Values(rows * kValueHeads * kDim);
  const std::vector<float> a = random.Values(rows * kValueHeads, 2.0F);
  const std::vector<float> b = random.Values(rows * kValueHeads, 2.0F);
  const std::vector<float> decay(kValueHeads, -0.5F);
  const std::vector<float> bias(kValueHeads, -1.0F);
  std::vector<float> states(kValueHeads * kDim * kDim);
  std::vector<float> out(v.size());
  DeltaArgs args;
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.a = a.data();
  args.b = b.data();
  args.out = out.data();
  args.key_heads = kKeyHeads;
  args.value_heads = kValueHeads;
  args.key_dim = args.value_dim = kDim;
  args.decay = decay.data();
  args.dt_bias = bias.data();
  args.state_in = states.data();
  args.state_out = states.data();
  testing::AlignedBytes scratch(cpu::DeltaChunksScratchBytes(args));
  std::size_t head = 0;
  for (auto _ : state) {
    if (chunks) {
      cpu::DeltaChunks(isa, args, rows, head, scratch.span());
    } else {
      cpu::Delta(isa, args, rows, head);
    }
    head = (head + 1) % kValueHeads;
    benchmark::ClobberMemory();
  }
  state.counters["row/s"] =
      benchmark::Counter(static_cast<double>(rows) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

const bool kDeltaRegistered = [] {
  for (const Isa isa : AvailableIsas()) {
    for (const bool chunks : {false, true}) {
      const std::string name =
          std::string("delta/") + (chunks ? "chunks/" : "steps/") + IsaName(isa);
      auto* const made = benchmark::RegisterBenchmark(
          name.c_str(), [isa, chunks](benchmark::State& state) { DeltaForm(state, isa, chunks); });
      for (const std::int64_t rows : {1, 8, 16, 32, 64, 128, 512}) made->Arg(rows);
    }
  }
  return true;
}();

}  // namespace
}  // namespace bloomery::kernels
