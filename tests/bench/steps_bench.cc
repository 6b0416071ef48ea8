// The steps between the products, on one thread with the sizes of Qwen3-30B-A3B (width 2048, 32
// heads and 4 kv heads of 128, 128 experts of which 8, expert width 768), of one row and of a
// prompt's 512. `B/s` are bytes read and written, `op/s` what the formula asks for in f32 (an exp
// counts as its seven fma and three products); for gate and up the 8-bit products. Names end with
// the rows.
#include <benchmark/benchmark.h>

#include <functional>
#include <string>

#include "kernels-common/attention/cpu/attention.h"
#include "kernels-common/elementwise/cpu/elementwise.h"
#include "kernels-common/moe/cpu/moe.h"
#include "kernels-common/norm/cpu/norm.h"
#include "kernels-common/rope/cpu/rope.h"
#include "tests/bench/bounds.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

constexpr std::size_t kWidth = 2048;
constexpr std::size_t kHeads = 32;
constexpr std::size_t kHeadDim = 128;
constexpr std::size_t kKvWidth = 512;
constexpr std::size_t kExperts = 128;
constexpr std::size_t kTopK = 8;
constexpr std::size_t kFf = 768;
constexpr double kExpOperations = 17.0;

std::size_t Rows(const benchmark::State& state) { return static_cast<std::size_t>(state.range(0)); }

// `values` f32 moved and `operations` done a row.
void Count(benchmark::State& state, double bytes_row, double operations_row, Isa isa,
           Arithmetic arithmetic = Arithmetic::kFloat) {
  const double rows = static_cast<double>(Rows(state)) * static_cast<double>(state.iterations());
  SetShares(state, bytes_row * rows, operations_row * rows, arithmetic, isa);
}

void QuantiseStep(benchmark::State& state, Isa isa, std::size_t group) {
  const std::vector<float> x = testing::Random(1).Values(Rows(state) * kWidth);
  testing::AlignedBytes memory(Rows(state) * QuantisedRowBytes(kWidth, group));
  const QuantisedRows out = MakeQuantisedRows(memory.data(), kWidth, group);
  for (auto _ : state) {
    cpu::QuantiseRows(isa, x.data(), kWidth, out, 0, Rows(state));
    benchmark::ClobberMemory();
  }
  Count(state, kWidth * 4.0 + static_cast<double>(out.row_bytes), kWidth * 3.0, isa);
}

void NormStep(benchmark::State& state, Isa isa, std::size_t groups, std::size_t dim) {
  const std::size_t width = groups * dim;
  const std::vector<float> x = testing::Random(1).Values(Rows(state) * width);
  const std::vector<float> weight = testing::Random(2).Values(dim);
  std::vector<float> y(x.size());
  const RmsNormArgs args = {x.data(), width, y.data(), width, groups, dim, weight.data(), 1e-6F};
  for (auto _ : state) {
    cpu::RmsNorm(isa, args, 0, Rows(state));
    benchmark::ClobberMemory();
  }
  Count(state, static_cast<double>(width) * 8.0, static_cast<double>(width) * 4.0, isa);
}

void RopeStep(benchmark::State& state, Isa isa) {
  constexpr std::size_t kQ = kHeads * kHeadDim;
  const std::vector<float> x = testing::Random(1).Values(Rows(state) * kQ);
  std::vector<float> y(x.size());
  std::vector<double> frequencies(kHeadDim / 2);
  RopeFrequencies(1e6, kHeadDim, frequencies.data());
  std::vector<std::int32_t> positions(Rows(state));
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions[i] = static_cast<std::int32_t>(4096 + i);
  }
  RopeArgs args;
  args.x = x.data();
  args.y = y.data();
  args.x_stride = args.y_stride = kQ;
  args.heads = kHeads;
  args.head_dim = args.n_rot = kHeadDim;
  args.frequencies = frequencies.data();
  args.positions = positions.data();
  for (auto _ : state) {
    cpu::Rope(isa, args, 0, Rows(state));
    benchmark::ClobberMemory();
  }
  Count(state, kQ * 8.0, kQ * 3.0, isa);
}

void RouteStep(benchmark::State& state, Isa isa) {
  const std::vector<float> logits = testing::Random(1).Values(Rows(state) * kExperts, 4.0F);
  std::vector<std::int32_t> ids(Rows(state) * kTopK);
  std::vector<float> weights(ids.size());
  RouterArgs args;
  args.experts = kExperts;
  args.top_k = kTopK;
  args.logits = logits.data();
  args.logits_stride = kExperts;
  args.ids = ids.data();
  args.weights = weights.data();
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::Route(isa, args, 0, Rows(state)));
    benchmark::ClobberMemory();
  }
  Count(state, kExperts * 4.0 + kTopK * 8.0, kExperts * (kExpOperations + 2.0), isa);
}

// One expert of Q4_K, its picks being all rows.
void GateUpStep(benchmark::State& state, Isa isa) {
  const FormatTraits& format = *FindFormat(12);
  testing::LinearCase gate(format, kWidth, kFf, Rows(state), 1);
  testing::LinearCase up(format, kWidth, kFf, Rows(state), 2);
  std::vector<float> h(Rows(state) * kFf);
  ExpertGateUpArgs args;
  const LinearArgs linear = gate.Args(h);
  args.gate = linear.weight;
  args.quantised = linear.quantised;
  std::vector<float> unused;
  args.up = up.Args(unused).weight;
  args.places = Rows(state);
  args.h = h.data();
  args.h_stride = kFf;
  testing::AlignedBytes scratch(cpu::ExpertGateUpScratchBytes(isa, kWidth, Rows(state)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::ExpertGateUp(isa, args, 0, kFf, scratch.span()));
    benchmark::ClobberMemory();
  }
  const double bytes = 2.0 * static_cast<double>(kFf * RowBytes(format, kWidth));
  Count(state, bytes / static_cast<double>(Rows(state)), 4.0 * kWidth * kFf, isa,
        Arithmetic::kBytes);
}

void SwiGluStep(benchmark::State& state, Isa isa) {
  const std::size_t count = Rows(state) * kFf * kTopK;
  const std::vector<float> gate = testing::Random(1).Values(count, 4.0F);
  const std::vector<float> up = testing::Random(2).Values(count);
  std::vector<float> h(count);
  for (auto _ : state) {
    cpu::SwiGlu(isa, gate.data(), up.data(), h.data(), count);
    benchmark::ClobberMemory();
  }
  constexpr double kValues = kFf * kTopK;
  Count(state, kValues * 12.0, kValues * (kExpOperations + 3.0), isa);
}

void PickSumStep(benchmark::State& state, Isa isa) {
  const std::size_t pairs = Rows(state) * kTopK;
  const std::vector<float> y = testing::Random(1).Values(pairs * kWidth);
  const std::vector<float> weights = testing::Random(2).Values(pairs);
  const std::vector<float> residual = testing::Random(3).Values(Rows(state) * kWidth);
  std::vector<std::int32_t> places(pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    places[i] = static_cast<std::int32_t>(i);
  }
  std::vector<float> out(residual.size());
  PickSumArgs args;
  args.y = y.data();
  args.pair_places = places.data();
  args.weights = weights.data();
  args.top_k = kTopK;
  args.y_stride = args.dim = args.residual_stride = args.out_stride = kWidth;
  args.residual = residual.data();
  args.out = out.data();
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::PickSum(isa, args, 0, Rows(state), 0, kWidth));
    benchmark::ClobberMemory();
  }
  Count(state, kWidth * 4.0 * (kTopK + 2.0), kWidth * 4.0 * kTopK, isa);
}

void AppendStep(benchmark::State& state, Isa isa, KvType type) {
  const std::vector<float> x = testing::Random(1).Values(Rows(state) * kKvWidth);
  const std::size_t row_bytes = KvRowBytes(type, kKvWidth);
  testing::AlignedBytes plane(Rows(state) * row_bytes);
  const KvView view = {type, kKvWidth, row_bytes, plane.data(), nullptr, 0, Rows(state)};
  std::vector<std::int32_t> index(Rows(state));
  for (std::size_t i = 0; i < index.size(); ++i) {
    index[i] = static_cast<std::int32_t>(i);
  }
  const KvAppendArgs args = {x.data(), kKvWidth, &view, nullptr, index.data()};
  for (auto _ : state) {
    cpu::KvAppend(isa, args, 0, Rows(state));
    benchmark::ClobberMemory();
  }
  Count(state, kKvWidth * 4.0 + static_cast<double>(row_bytes),
        type == KvType::kQ8_0 ? kKvWidth * 3.0 : 0.0, isa);
}

void AddStep(benchmark::State& state, Isa isa) {
  const std::size_t count = Rows(state) * kWidth;
  const std::vector<float> a = testing::Random(1).Values(count);
  const std::vector<float> b = testing::Random(2).Values(count);
  std::vector<float> y(count);
  for (auto _ : state) {
    cpu::Add(isa, a.data(), b.data(), y.data(), count);
    benchmark::ClobberMemory();
  }
  Count(state, kWidth * 12.0, kWidth, isa);
}

void EmbedStep(benchmark::State& state, Isa isa) {
  constexpr std::size_t kTokens = 4096;
  const FormatTraits& format = *FindFormat(12);
  testing::LinearCase table(format, kWidth, kTokens, 1, 1);
  std::vector<float> unused;
  testing::Random random(2);
  std::vector<std::int32_t> ids(Rows(state));
  for (std::int32_t& id : ids) {
    id = static_cast<std::int32_t>(random.Below(kTokens));
  }
  std::vector<float> y(Rows(state) * kWidth);
  const EmbedArgs args = {table.Args(unused).weight, ids.data(), y.data(), kWidth};
  for (auto _ : state) {
    cpu::Embed(isa, args, 0, Rows(state));
    benchmark::ClobberMemory();
  }
  Count(state, static_cast<double>(RowBytes(format, kWidth)) + kWidth * 4.0, 0.0, isa);
}

struct Step {
  const char* name;
  std::function<void(benchmark::State&, Isa)> run;
};

const bool kStepsRegistered = [] {
  const Step steps[] = {
      {"quantise_rows_256",
       [](benchmark::State& state, Isa isa) { QuantiseStep(state, isa, 256); }},
      {"quantise_rows_32", [](benchmark::State& state, Isa isa) { QuantiseStep(state, isa, 32); }},
      {"rms_norm", [](benchmark::State& state, Isa isa) { NormStep(state, isa, 1, kWidth); }},
      {"head_norm",
       [](benchmark::State& state, Isa isa) { NormStep(state, isa, kHeads, kHeadDim); }},
      {"rope", RopeStep},
      {"route", RouteStep},
      {"gate_up_Q4_K", GateUpStep},
      {"swiglu", SwiGluStep},
      {"pick_sum", PickSumStep},
      {"append_f16",
       [](benchmark::State& state, Isa isa) { AppendStep(state, isa, KvType::kF16); }},
      {"append_q8_0",
       [](benchmark::State& state, Isa isa) { AppendStep(state, isa, KvType::kQ8_0); }},
      {"add", AddStep},
      {"embed_Q4_K", EmbedStep},
  };
  for (const Step& step : steps) {
    for (const Isa isa : AvailableIsas()) {
      const std::string name = std::string("step/") + step.name + "/" + IsaName(isa);
      benchmark::RegisterBenchmark(
          name.c_str(), [run = step.run, isa](benchmark::State& state) { run(state, isa); })
          ->Arg(1)
          ->Arg(512);
    }
  }
  return true;
}();

}  // namespace
}  // namespace bloomery::kernels
