#include "tests/bench/bounds.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <vector>

namespace bloomery::kernels {
namespace {

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

#if defined(__x86_64__)
// Operations a second of twelve independent chains of one instruction.
#define BLOOMERY_CHAINS(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11)
#define BLOOMERY_VNNI(i) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #i "\n"
#define BLOOMERY_FMA(i) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #i "\n"
#define BLOOMERY_FMA16(i) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" #i "\n"
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

double Bound(Arithmetic arithmetic, Isa isa) {
  static const double fma = BLOOMERY_MEASURE(BLOOMERY_FMA, 16.0);
  static const double fma_16 =
      DetectIsa() >= Isa::kAvx512Vnni ? BLOOMERY_MEASURE(BLOOMERY_FMA16, 32.0) : 0.0;
  static const double madd = BLOOMERY_MEASURE(BLOOMERY_MADD, 64.0);
  static const double vnni =
      DetectIsa() >= Isa::kAvx512Vnni ? BLOOMERY_MEASURE(BLOOMERY_VNNI, 128.0) : 0.0;
  static const double tiles = DetectIsa() == Isa::kAmx ? TileBound() : 0.0;
  if (arithmetic == Arithmetic::kFloat) return isa >= Isa::kAvx512Vnni ? fma_16 : fma;
  return isa == Isa::kAmx ? tiles : isa == Isa::kAvx512Vnni ? vnni : madd;
}
#else
double Bound(Arithmetic /*arithmetic*/, Isa /*isa*/) { return 0.0; }
#endif

}  // namespace

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

double ArithmeticBound(Arithmetic arithmetic, Isa isa) {
  return isa == Isa::kScalar ? 0.0 : Bound(arithmetic, isa);
}

void SetShares(benchmark::State& state, double bytes, double operations, Arithmetic arithmetic,
               Isa isa) {
  const auto rate = [](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsRate);
  };
  state.counters["B/s"] = rate(bytes);
  state.counters["share_of_read_bound"] = rate(bytes / ReadBound());
  if (operations == 0.0) return;
  state.counters["op/s"] = rate(operations);
  const double bound = ArithmeticBound(arithmetic, isa);
  if (bound > 0.0) state.counters["share_of_arith_bound"] = rate(operations / bound);
}

}  // namespace bloomery::kernels
