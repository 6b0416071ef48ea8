#include "kernels-common/rope/cpu/rope.h"

#include <gtest/gtest.h>

#include "kernels-common/rope/reference.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::FirstDifference;
using testing::HashBits;
using testing::Random;

// Queries of 4 heads of 128 over positions up to 262143: no machine may differ in a bit.
constexpr std::uint64_t kCommittedHash = 0xF47DBD5C90B85B87ULL;

TEST(Rope, BitsOfLongPositionsAreTheCommittedOnes) {
  Random random(8);
  std::vector<double> frequencies(64);
  RopeFrequencies(1e7, 128, frequencies.data());
  const std::vector<float> x = random.Values(64 * 512);
  std::vector<std::int32_t> positions(64);
  for (auto& position : positions) {
    position = static_cast<std::int32_t>(random.Below(262144));
  }
  std::vector<float> y(x.size());
  RopeArgs args;
  args.x = x.data();
  args.y = y.data();
  args.x_stride = args.y_stride = 512;
  args.heads = 4;
  args.head_dim = args.n_rot = 128;
  args.frequencies = frequencies.data();
  args.positions = positions.data();
  for (const Isa isa : AvailableIsas()) {
    cpu::Rope(isa, args, 0, 64);
    EXPECT_EQ(HashBits(y), kCommittedHash) << std::hex << HashBits(y) << IsaName(isa);
  }
}

TEST(Rope, EqualsTheReferenceOverOddShapesInPlaceAndNot) {
  Random random(12);
  for (int round = 0; round < 150; ++round) {
    const std::size_t n_rot = 2 * (1 + random.Below(70));
    const std::size_t head_dim = n_rot + random.Below(20);
    const std::size_t heads = 1 + random.Below(4);
    const std::size_t rows = 1 + random.Below(4);
    const std::size_t stride = heads * head_dim + random.Below(7);
    std::vector<double> frequencies(n_rot / 2);
    RopeFrequencies(1e6, n_rot, frequencies.data());
    std::vector<std::int32_t> positions(rows);
    for (auto& position : positions) {
      position = static_cast<std::int32_t>(random.Below(1U << 20U)) - 1000;
    }
    const std::vector<float> x = random.Values(rows * stride);
    std::vector<float> expected(x.size(), 2.0F);
    RopeArgs args;
    args.x = x.data();
    args.x_stride = args.y_stride = stride;
    args.heads = heads;
    args.head_dim = head_dim;
    args.n_rot = n_rot;
    args.frequencies = frequencies.data();
    args.positions = positions.data();
    args.magnitude = random.Below(2) == 0 ? 1.0F : 1.19F;
    args.y = expected.data();
    reference::Rope(args, 0, rows);
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> y(x.size(), 2.0F);
      args.x = x.data();
      args.y = y.data();
      cpu::Rope(isa, args, 0, rows);
      EXPECT_EQ(FirstDifference(y, expected), y.size()) << n_rot << " " << IsaName(isa);
      std::vector<float> in_place = x;
      args.x = args.y = in_place.data();
      cpu::Rope(isa, args, 0, rows);
      for (std::size_t row = 0; row < rows; ++row) {
        const std::span<const float> made(in_place.data() + row * stride, heads * head_dim);
        const std::span<const float> want(expected.data() + row * stride, heads * head_dim);
        EXPECT_EQ(FirstDifference(made, want), made.size());
      }
    }
  }
}

// cos and sin themselves, through the pair (1, 0), against long double.
TEST(Rope, CosineAndSineAreWithinOneUlpAtEveryPositionTried) {
  std::vector<double> frequencies(64);
  for (const double theta : {1e6, 1e7}) {
    RopeFrequencies(theta, 128, frequencies.data());
    std::vector<float> x(128, 0.0F);
    std::fill_n(x.begin(), 64, 1.0F);
    std::vector<float> y(128);
    double worst = 0.0;
    for (std::int32_t position = 0; position < 262144; position += 1013) {
      RopeArgs args;
      args.x = x.data();
      args.y = y.data();
      args.heads = 1;
      args.head_dim = args.n_rot = 128;
      args.frequencies = frequencies.data();
      args.positions = &position;
      cpu::Rope(DetectIsa(), args, 0, 1);
      for (std::size_t i = 0; i < 64; ++i) {
        const long double angle =
            position * std::pow(static_cast<long double>(theta), -2.0L * i / 128.0L);
        worst = std::fmax(worst, static_cast<double>(std::fabs(y[i] - std::cos(angle))));
        worst = std::fmax(worst, static_cast<double>(std::fabs(y[i + 64] - std::sin(angle))));
      }
    }
    EXPECT_LT(worst, 0x1p-25 + 2e-10) << theta;  // half an ulp of 1 and the angle's error
  }
}

}  // namespace
}  // namespace bloomery::kernels
