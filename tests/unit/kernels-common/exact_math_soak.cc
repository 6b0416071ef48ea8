// Every one of the 2^32 floats through exp and silu: scalar bits = lane bits of every set, largest
// error in ulp against long double, one hash a function. Prints a line each; exits 1 on a
// difference.
#include <cmath>
#include <cstdio>

#include "kernels-common/cpu/lanes_scalar.h"
#include "kernels-common/elementwise/cpu/elementwise.h"
#include "tests/unit/kernels-common/support.h"
#if defined(__AVX2__)
#include "kernels-common/cpu/lanes_avx2.h"
#endif
#include "kernels-common/exact_math/lanes.h"

namespace bloomery::kernels {
namespace {

constexpr std::size_t kChunk = 1U << 16U;

#if defined(__AVX2__)
using Lanes = cpu::Avx2Lanes;
#else
using Lanes = cpu::ScalarLanes;
#endif

struct Totals {
  std::uint64_t exp_hash = testing::HashBits({});
  std::uint64_t silu_hash = testing::HashBits({});
  std::uint64_t differences = 0;
  double worst_ulp = 0.0;
};

double Ulps(float made, long double exact) {
  const float rounded = static_cast<float>(exact);
  const long double ulp = std::nextafter(std::fabs(rounded), INFINITY) - std::fabs(rounded);
  return static_cast<double>(std::fabs(static_cast<long double>(made) - exact) / ulp);
}

void RunChunk(std::uint32_t first, Totals* totals) {
  static const std::vector<float> ones(kChunk, 1.0F);
  std::vector<float> x(kChunk);
  std::vector<float> exp(kChunk);
  std::vector<float> silu(kChunk);
  std::vector<float> lanes(kChunk);
  for (std::size_t i = 0; i < kChunk; ++i) {
    x[i] = std::bit_cast<float>(first + static_cast<std::uint32_t>(i));
    exp[i] = ExactExp(x[i]);
    silu[i] = ExactSilu(x[i]);
    if (x[i] >= -87.0F && x[i] <= 88.0F) {
      totals->worst_ulp =
          std::fmax(totals->worst_ulp, Ulps(exp[i], std::exp(static_cast<long double>(x[i]))));
    }
  }
  for (std::size_t i = 0; i < kChunk; i += 8) {
    Lanes::Store(lanes.data() + i, ExpLanes<Lanes>(Lanes::Load(x.data() + i)));
  }
  totals->differences += testing::FirstDifference(lanes, exp) != kChunk ? 1 : 0;
  cpu::SwiGlu(DetectIsa(), x.data(), ones.data(), lanes.data(), kChunk);
  totals->differences += testing::FirstDifference(lanes, silu) != kChunk ? 1 : 0;
  totals->exp_hash = testing::HashBits(exp, totals->exp_hash);
  totals->silu_hash = testing::HashBits(silu, totals->silu_hash);
}

int Main() {
  Totals totals;
  for (std::uint64_t first = 0; first < (1ULL << 32U); first += kChunk) {
    RunChunk(static_cast<std::uint32_t>(first), &totals);
  }
  std::printf("exp  hash %016llx, largest error %.4f ulp on [-87, 88]\n",
              static_cast<unsigned long long>(totals.exp_hash), totals.worst_ulp);
  std::printf("silu hash %016llx\n", static_cast<unsigned long long>(totals.silu_hash));
  std::printf("chunks where scalar and lanes differ: %llu\n",
              static_cast<unsigned long long>(totals.differences));
  return totals.differences == 0 && totals.worst_ulp < 1.0 ? 0 : 1;
}

}  // namespace
}  // namespace bloomery::kernels

int main() { return bloomery::kernels::Main(); }
