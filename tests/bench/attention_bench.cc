// One attention layer of Qwen3-30B-A3B (32 heads over 4 kv heads of 128) on one thread: one row,
// and eight rows that share the decoding of the window, at growing depths.
#include <benchmark/benchmark.h>

#include "kernels-common/attention/cpu/attention.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

void RunAttention(benchmark::State& state) {
  const auto type = static_cast<KvType>(state.range(0));
  const auto depth = static_cast<std::size_t>(state.range(1));
  const auto rows = static_cast<std::size_t>(state.range(2));
  constexpr std::size_t kWidth = 512;
  testing::Random random(1);
  std::vector<std::byte> plane(depth * KvRowBytes(type, kWidth));
  const std::vector<float> x = random.Values(kWidth);
  for (std::size_t i = 0; i < depth; ++i) {
    cpu::EncodeKvRow(DetectIsa(), type, x.data(), kWidth,
                     plane.data() + i * KvRowBytes(type, kWidth));
  }
  const KvView view = {type, kWidth, KvRowBytes(type, kWidth), plane.data(), nullptr, 0, depth};
  const std::vector<float> q = random.Values(rows * 4096);
  std::vector<float> out(q.size());
  const std::vector<std::int32_t> index(rows, static_cast<std::int32_t>(depth - 1));
  AttentionArgs args;
  args.q = q.data();
  args.out = out.data();
  args.q_stride = args.out_stride = 4096;
  args.heads = 32;
  args.kv_heads = 4;
  args.key_dim = args.value_dim = 128;
  args.scale = 0.088F;
  args.keys = args.values = &view;
  args.index = index.data();
  testing::AlignedBytes scratch(cpu::AttentionScratchBytes(args));
  for (auto _ : state) {
    for (std::size_t head = 0; head < 4; ++head) {
      cpu::Attention(DetectIsa(), args, 0, rows, head, scratch.span());
    }
    benchmark::ClobberMemory();
  }
  state.counters["op/s"] = benchmark::Counter(
      4.0 * 4096.0 *
          static_cast<double>(depth * rows * static_cast<std::size_t>(state.iterations())),
      benchmark::Counter::kIsRate);
}

BENCHMARK(RunAttention)->ArgsProduct({{0, 1, 2}, {512, 4096}, {1, 8, 32}});

}  // namespace
}  // namespace bloomery::kernels
