// Linear on one thread. At one row: weight bytes a second, and their share of what one thread reads
// from memory (`of_read`; weights that stay in L3 may go beyond 1). At many: operations a second, 2
// a weight and row, and their share of the arithmetic bound (`of_bound`): the multiply-add of 8-bit
// integers that the instruction set has, or f32 fma. Both bounds are measured first.
#include <benchmark/benchmark.h>
#include <ctime>

#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

constexpr std::size_t kLength = 2048;

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Bytes a second of plain loads over 512 MB.
double ReadBound() {
  static const double bound = [] {
    const std::vector<std::uint64_t> memory(std::size_t{1} << 26U, 1);
    double best = 0.0;
    for (int round = 0; round < 3; ++round) {
      const double start = ThreadSeconds();
      std::uint64_t sums[8] = {};
      for (std::size_t i = 0; i < memory.size(); i += 8) {
        for (std::size_t lane = 0; lane < 8; ++lane) {
          sums[lane] += memory[i + lane];
        }
      }
      benchmark::DoNotOptimize(sums);
      best = std::max(best, 8.0 * static_cast<double>(memory.size()) / (ThreadSeconds() - start));
    }
    return best;
  }();
  return bound;
}

#if defined(__x86_64__)
// Operations a second of twelve independent chains of one instruction.
#define BLOOMERY_CHAINS(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11)
#define BLOOMERY_VNNI(i) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #i "\n"
#define BLOOMERY_FMA(i) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #i "\n"
// A product of 32 codes with AVX2: pairs to int16, to int32, and the sum; 12 instructions are 4.
#define BLOOMERY_MADD(i)                   \
  "vpmaddubsw %%ymm14, %%ymm15, %%ymm12\n" \
  "vpmaddwd %%ymm14, %%ymm12, %%ymm12\n"   \
  "vpaddd %%ymm12, %%ymm" #i ", %%ymm" #i "\n"
#define BLOOMERY_MEASURE(x, operations_each)                                                     \
  [] {                                                                                           \
    constexpr int kRounds = 4000000;                                                             \
    const double start = ThreadSeconds();                                                        \
    for (int i = 0; i < kRounds; ++i) {                                                          \
      asm volatile(BLOOMERY_CHAINS(x)::                                                          \
                       : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                         "xmm9", "xmm10", "xmm11", "xmm12", "xmm14", "xmm15");                   \
    }                                                                                            \
    return 12.0 * (operations_each) * kRounds / (ThreadSeconds() - start);                       \
  }()

// Operations a second of four independent chains of tile products.
double TileBound() {
  struct alignas(64) Shape {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t unused[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } shape;
  asm volatile("ldtilecfg %0" ::"m"(shape) : "memory");
  constexpr int kRounds = 1000000;
  const double start = ThreadSeconds();
  for (int i = 0; i < kRounds; ++i) {
    asm volatile(
        "tdpbssd %tmm6, %tmm4, %tmm0\n"
        "tdpbssd %tmm6, %tmm5, %tmm1\n"
        "tdpbssd %tmm7, %tmm4, %tmm2\n"
        "tdpbssd %tmm7, %tmm5, %tmm3\n");
  }
  const double seconds = ThreadSeconds() - start;
  asm volatile("tilerelease" ::: "memory");
  return 4.0 * 2.0 * 16.0 * 16.0 * 64.0 * kRounds / seconds;
}

double ArithmeticBound(const FormatTraits& format, Isa isa) {
  static const double fma = BLOOMERY_MEASURE(BLOOMERY_FMA, 16.0);
  static const double madd = BLOOMERY_MEASURE(BLOOMERY_MADD, 64.0);
  static const double vnni =
      DetectIsa() >= Isa::kAvx512Vnni ? BLOOMERY_MEASURE(BLOOMERY_VNNI, 128.0) : 0.0;
  static const double tiles = DetectIsa() == Isa::kAmx ? TileBound() : 0.0;
  return format.activation_group == 0 ? fma
         : isa == Isa::kAmx           ? tiles
         : isa == Isa::kAvx512Vnni    ? vnni
                                      : madd;
}
#else
double ArithmeticBound(const FormatTraits& /*format*/, Isa /*isa*/) { return 0.0; }
#endif

void RunLinear(benchmark::State& state, const FormatTraits& format, Isa isa) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const auto rows = static_cast<std::size_t>(state.range(1));
  const double read_bound = ReadBound();
  const double bound = ArithmeticBound(format, isa);
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
  const auto rate = [](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsRate);
  };
  state.counters["B/s"] = rate(bytes);
  state.counters["of_read"] = rate(bytes / read_bound);
  state.counters["op/s"] = rate(operations);
  if (isa != Isa::kScalar && bound > 0.0) {
    state.counters["of_bound"] = rate(operations / bound);
  }
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
