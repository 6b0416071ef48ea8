#include "kernels-common/exact_math/exact_math.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels-common/cpu/lanes_scalar.h"
#include "kernels-common/elementwise/cpu/elementwise.h"
#include "kernels-common/exact_math/lanes.h"
#include "kernels-common/exact_math/trig.h"
#include "tests/unit/kernels-common/support.h"
#if defined(__AVX2__)
#include "kernels-common/cpu/lanes_avx2.h"
#endif

namespace bloomery::kernels {
namespace {

using testing::FirstDifference;
using testing::HashBits;
using testing::Random;

// Every 4099th float of all bit patterns (4099 is prime): a million over all exponents and signs.
std::vector<float> SampleOfAllFloats() {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < (1ULL << 32U); bits += 4099) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  while (values.size() % 8 != 0) {
    values.push_back(0.0F);
  }
  return values;
}

// Distance of `made` to the exact value in units of the last place of the exact value.
double Ulps(float made, long double exact) {
  const float rounded = static_cast<float>(exact);
  const long double ulp = std::nextafter(std::fabs(rounded), INFINITY) - std::fabs(rounded);
  return static_cast<double>(std::fabs(static_cast<long double>(made) - exact) / ulp);
}

template <class V>
std::vector<float> ExpByLanes(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); i += 8) {
    V::Store(y.data() + i, ExpLanes<V>(V::Load(x.data() + i)));
  }
  return y;
}

// The committed hash of the sample: exp must not change, on any machine or compiler.
constexpr std::uint64_t kExpHash = 0xA113847B980561BDULL;
constexpr std::uint64_t kSiluHash = 0xA5070E9C3B5C8910ULL;

TEST(ExactExp, IsWithinOneUlpOfTheClampedExponential) {
  double worst = 0.0;
  for (const float x : SampleOfAllFloats()) {
    if (x != x) {
      EXPECT_TRUE(std::isnan(ExactExp(x)));
      continue;
    }
    const float clamped = std::fmin(std::fmax(x, -87.0F), 88.0F);
    worst = std::fmax(worst, Ulps(ExactExp(x), std::exp(static_cast<long double>(clamped))));
  }
  // The sample is thin where it matters; a dense sweep of [-87, 88] besides.
  for (int i = 0; i < 1'000'000; ++i) {
    const float x = -87.0F + 175.0F * static_cast<float>(i) / 1e6F;
    worst = std::fmax(worst, Ulps(ExactExp(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 1.0);
  EXPECT_GT(worst, 0.5);  // the measure works
}

TEST(ExactExp, HasTheFixedPointsAttentionRelysOn) {
  EXPECT_EQ(ExactExp(0.0F), 1.0F);
  EXPECT_EQ(ExactExp(-0.0F), 1.0F);
  EXPECT_EQ(ExactExp(-INFINITY), ExactExp(-87.0F));
  EXPECT_EQ(ExactExp(INFINITY), ExactExp(88.0F));
  EXPECT_TRUE(std::isfinite(ExactExp(88.0F)));
  EXPECT_TRUE(std::isnormal(ExactExp(-87.0F)));
}

TEST(ExactExp, ScalarLanesAndAvx2AgreeOnTheCommittedHash) {
  const std::vector<float> x = SampleOfAllFloats();
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = ExactExp(x[i]);
  }
  EXPECT_EQ(HashBits(y), kExpHash) << std::hex << HashBits(y);
  EXPECT_EQ(FirstDifference(ExpByLanes<cpu::ScalarLanes>(x), y), y.size());
#if defined(__AVX2__)
  EXPECT_EQ(FirstDifference(ExpByLanes<cpu::Avx2Lanes>(x), y), y.size());
#endif
}

TEST(ExactSilu, EveryIsaAgreesOnTheCommittedHash) {
  const std::vector<float> x = SampleOfAllFloats();
  const std::vector<float> ones(x.size(), 1.0F);
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = ExactSilu(x[i]);
  }
  EXPECT_EQ(HashBits(y), kSiluHash) << std::hex << HashBits(y);
  for (const Isa isa : AvailableIsas()) {
    std::vector<float> made(x.size());
    cpu::SwiGlu(isa, x.data(), ones.data(), made.data(), x.size());
    EXPECT_EQ(FirstDifference(made, y), y.size()) << IsaName(isa);
  }
}

TEST(ExactSilu, IsWithinThreeUlpsWhereTheExponentialIsNotClamped) {
  double worst = 0.0;
  for (int i = 0; i < 1'000'000; ++i) {
    const float x = -87.0F + 174.0F * static_cast<float>(i) / 1e6F;
    const long double wide = x;
    if (x != 0.0F) {
      worst = std::fmax(worst, Ulps(ExactSilu(x), wide / (1.0L + std::exp(-wide))));
    }
  }
  EXPECT_LT(worst, 3.0);
}

TEST(ExactSinCos, IsFarInsideF32UpToMillionsOfRadians) {
  Random random(3);
  double worst = 0.0;
  for (int i = 0; i < 400'000; ++i) {
    const double angle =
        static_cast<double>(random.Unit()) * std::ldexp(1.0, static_cast<int>(random.Below(22)));
    const SinCosResult made = ExactSinCos(angle);
    const long double wide = angle;
    worst = std::fmax(worst, static_cast<double>(std::fabs(made.sin - std::sin(wide))));
    worst = std::fmax(worst, static_cast<double>(std::fabs(made.cos - std::cos(wide))));
  }
  EXPECT_LT(worst, 4e-16);
}

TEST(ExactSinCos, KnowsTheQuadrants) {
  constexpr double kPi = 3.14159265358979323846;
  const double sines[] = {0, 1, 0, -1};
  for (int n = -9; n < 9; ++n) {
    const SinCosResult made = ExactSinCos(n * kPi / 2);
    EXPECT_NEAR(made.sin, sines[(n + 12) % 4], 1e-14) << n;
    EXPECT_NEAR(made.cos, sines[(n + 13) % 4], 1e-14) << n;
  }
}

TEST(ExactPowerOf, IsCloseToLongDoubleForRopeFrequencies) {
  for (const double theta : {1e4, 1e6, 1e7, 5e6, 123456.789}) {
    for (int i = 0; i < 128; ++i) {
      const double exponent = -2.0 * i / 256.0;
      const long double exact = std::pow(static_cast<long double>(theta), exponent);
      EXPECT_LT(std::fabs(ExactPowerOf(theta, exponent) / exact - 1.0L), 1e-14L);
    }
  }
  EXPECT_EQ(ExactPowerOf(1e7, 0.0), 1.0);
}

}  // namespace
}  // namespace bloomery::kernels
