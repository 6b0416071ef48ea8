// One attention layer of Qwen3-30B-A3B (32 heads over 4 kv heads of 128) on one thread: one row,
// and rows that share the decoding of a window, at growing depths. 65536 keys and values of f16 are
// 128 MiB: they come from memory. `op/s` are multiplies and adds, `B/s` what is read of the
// planes.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <memory>

#include "kernels-common/attention/cpu/attention.h"
#include "tests/bench/bounds.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

constexpr std::size_t kWidth = 512;

// On large pages, as the engine's planes are.
class Plane {
 public:
  Plane(KvType type, std::size_t depth)
      : row_bytes_(KvRowBytes(type, kWidth)), bytes_(depth * row_bytes_ + kPage) {
    void* base = bytes_.data();
    std::size_t room = bytes_.span().size();
    auto* rows = static_cast<std::byte*>(std::align(kPage, depth * row_bytes_, base, room));
    madvise(rows, depth * row_bytes_, MADV_HUGEPAGE);
    testing::Random random(1);
    const std::vector<float> x = random.Values(kWidth);
    for (std::size_t i = 0; i < depth; ++i) {
      cpu::EncodeKvRow(DetectIsa(), type, x.data(), kWidth, rows + i * row_bytes_);
    }
    view_ = {type, kWidth, row_bytes_, rows, nullptr, 0, depth};
  }
  const KvView* view() const { return &view_; }

 private:
  static constexpr std::size_t kPage = std::size_t{1} << 21U;
  std::size_t row_bytes_;
  testing::AlignedBytes bytes_;
  KvView view_;
};

struct Case {
  Case(const benchmark::State& state)
      : depth(static_cast<std::size_t>(state.range(1))),
        rows(static_cast<std::size_t>(state.range(2))),
        keys(static_cast<KvType>(state.range(0)), depth),
        values(static_cast<KvType>(state.range(0)), depth),
        q(testing::Random(2).Values(rows * 4096)),
        out(q.size()),
        index(rows, static_cast<std::int32_t>(depth - 1)) {
    args.q = q.data();
    args.out = out.data();
    args.q_stride = args.out_stride = 4096;
    args.heads = 32;
    args.kv_heads = 4;
    args.key_dim = args.value_dim = 128;
    args.scale = 0.088F;
    args.keys = keys.view();
    args.values = values.view();
    args.index = index.data();
  }
  void Count(benchmark::State& state) const {
    const auto passes = static_cast<double>(state.iterations());
    SetShares(state, 2.0 * static_cast<double>(depth * keys.view()->row_bytes) * passes,
              4.0 * 4096.0 * static_cast<double>(depth * rows) * passes, Arithmetic::kFloat,
              DetectIsa());
  }

  std::size_t depth;
  std::size_t rows;
  Plane keys;
  Plane values;
  std::vector<float> q;
  std::vector<float> out;
  std::vector<std::int32_t> index;
  AttentionArgs args;
};

void RunAttention(benchmark::State& state) {
  Case made(state);
  testing::AlignedBytes scratch(cpu::AttentionScratchBytes(made.args));
  for (auto _ : state) {
    for (std::size_t head = 0; head < 4; ++head) {
      cpu::Attention(DetectIsa(), made.args, 0, made.rows, head, scratch.span());
    }
    benchmark::ClobberMemory();
  }
  made.Count(state);
}

// Spans of 8 windows, all kv heads of a span together, then the merge.
void RunSplitAttention(benchmark::State& state) {
  Case made(state);
  constexpr std::size_t kSpan = 2;
  const std::size_t windows = (made.depth + kAttentionWindow - 1) / kAttentionWindow;
  const std::size_t part = cpu::AttentionPartBytes(made.args, made.rows);
  const std::size_t parts = windows - kSpan + 1;
  testing::AlignedBytes scratch(cpu::AttentionScratchBytes(made.args));
  testing::AlignedBytes results(4 * parts * part);
  for (auto _ : state) {
    for (std::size_t window = 0; window < windows; window += kSpan) {
      for (std::size_t head = 0; head < 4; ++head) {
        std::byte* at = results.data() + head * parts * part;
        cpu::AttentionWindows(DetectIsa(), made.args, 0, made.rows, head, window,
                              std::min(windows, window + kSpan),
                              window == 0 ? at : at + (1 + window - kSpan) * part, scratch.span());
      }
    }
    for (std::size_t head = 0; head < 4; ++head) {
      cpu::AttentionMerge(made.args, 0, made.rows, head, 0, 8, kSpan,
                          results.data() + head * parts * part);
    }
    benchmark::ClobberMemory();
  }
  made.Count(state);
}

BENCHMARK(RunAttention)->ArgsProduct({{0, 1, 2}, {512, 4096, 65536}, {1, 8, 32}});
BENCHMARK(RunSplitAttention)->ArgsProduct({{0, 1, 2}, {4096, 65536}, {1, 8}});

}  // namespace
}  // namespace bloomery::kernels
