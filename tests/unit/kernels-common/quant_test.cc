#include "kernels-common/quant/cpu/quant.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels-common/quant/reference.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::AlignedBytes;
using testing::FirstDifference;
using testing::Random;

// One quantised row and what it holds.
struct Row {
  std::vector<int> codes;
  std::vector<float> scales;
  std::vector<int> sums;
};

Row Quantise(Isa isa, const std::vector<float>& x, std::size_t group) {
  AlignedBytes bytes(QuantisedRowBytes(x.size(), group));
  const QuantisedRows rows = MakeQuantisedRows(bytes.data(), x.size(), group);
  cpu::QuantiseRows(isa, x.data(), x.size(), rows, 0, 1);
  Row row;
  row.codes.assign(rows.codes(0), rows.codes(0) + x.size());
  row.scales.assign(rows.scales(0), rows.scales(0) + (x.size() + group - 1) / group);
  row.sums.assign(rows.sums(0), rows.sums(0) + x.size() / kSumValues);
  return row;
}

TEST(QuantiseRows, ScaleIsTheMaximumOver127AndCodesRoundToEven) {
  for (const Isa isa : AvailableIsas()) {
    std::vector<float> x(32, 0.0F);
    x[0] = 127.0F;  // a = 1, r = 1: values are codes
    x[1] = 0.5F;    // ties go to the even code
    x[2] = 1.5F;
    x[3] = 2.5F;
    x[4] = -0.5F;
    x[5] = -1.5F;
    x[6] = -127.0F;
    x[7] = -0.0F;
    x[8] = 126.5F;
    const Row row = Quantise(isa, x, 32);
    EXPECT_EQ(row.scales[0], 1.0F);
    const std::vector<int> expected = {127, 0, 2, 2, 0, -2, -127, 0, 126};
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), row.codes.begin())) << IsaName(isa);
    EXPECT_EQ(row.sums, (std::vector<int>{127 + 2 + 2 - 2 - 127 + 126, 0}));
  }
}

TEST(QuantiseRows, TinyGroupsAreZeroDenormalsToo) {
  for (const Isa isa : AvailableIsas()) {
    std::vector<float> x(512, 1e-40F);
    std::fill(x.begin() + 256, x.end(), 0x1p-100F);
    const Row row = Quantise(isa, x, 256);
    EXPECT_EQ(row.scales[0], 0.0F);
    EXPECT_EQ(row.codes[0], 0);
    EXPECT_EQ(row.scales[1], 0x1p-100F / 127.0F);
    EXPECT_EQ(row.codes[256], 127);
    EXPECT_EQ(row.sums[16], 127 * 16);
    const Row below = Quantise(isa, std::vector<float>(32, std::nextafter(0x1p-100F, 0.0F)), 32);
    EXPECT_EQ(below.scales[0], 0.0F);
    EXPECT_EQ(below.codes[3], 0);
  }
}

TEST(QuantiseRows, OneValueThatIsNotFiniteMakesItsGroupNan) {
  for (const Isa isa : AvailableIsas()) {
    for (const float bad : {INFINITY, -INFINITY, NAN, -NAN}) {
      std::vector<float> x(96, 1.0F);
      x[40] = bad;
      const Row row = Quantise(isa, x, 32);
      EXPECT_EQ(row.scales[0], 1.0F / 127.0F);
      EXPECT_TRUE(std::isnan(row.scales[1]));
      EXPECT_EQ(std::count(row.codes.begin() + 32, row.codes.begin() + 64, 0), 32);
      EXPECT_EQ(row.sums[2], 0);
      EXPECT_EQ(row.codes[64], 127);
    }
  }
}

TEST(QuantiseRows, EveryIsaEqualsTheReferenceOnRandomRows) {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    const std::size_t group = random.Below(2) == 0 ? 32 : 256;
    const std::size_t k = 16 * (1 + random.Below(60));
    const float magnitude = std::ldexp(1.0F, static_cast<int>(random.Below(240)) - 120);
    const std::vector<float> x = random.Values(k, magnitude);
    AlignedBytes bytes(QuantisedRowBytes(k, group));
    const QuantisedRows rows = MakeQuantisedRows(bytes.data(), k, group);
    reference::QuantiseRow(x.data(), rows, 0);
    for (const Isa isa : AvailableIsas()) {
      const Row row = Quantise(isa, x, group);
      EXPECT_TRUE(std::equal(row.codes.begin(), row.codes.end(), rows.codes(0)));
      EXPECT_TRUE(std::equal(row.sums.begin(), row.sums.end(), rows.sums(0)));
      EXPECT_TRUE(std::equal(row.scales.begin(), row.scales.end(), rows.scales(0)));
      EXPECT_EQ(std::count(row.codes.begin(), row.codes.end(), -128), 0);
    }
  }
}

TEST(KvRows, F32AndF16AndQ8DecodeToWhatTheyHold) {
  Random random(9);
  for (const Isa isa : AvailableIsas()) {
    for (const std::size_t width : {32U, 96U, 128U, 512U}) {
      const std::vector<float> x = random.Values(width, 4.0F);
      for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8_0}) {
        std::vector<std::byte> row(KvRowBytes(type, width));
        std::vector<float> back(width);
        cpu::EncodeKvRow(isa, type, x.data(), width, row.data());
        cpu::DecodeKvRow(isa, type, row.data(), width, back.data());
        const double bound = type == KvType::kF32 ? 0 : type == KvType::kF16 ? 2e-3 : 2.2e-2;
        for (std::size_t i = 0; i < width; ++i) {
          EXPECT_NEAR(back[i], x[i], bound);
        }
      }
    }
  }
}

TEST(KvRows, EveryIsaWritesAndReadsTheReferencesBytes) {
  Random random(10);
  for (int round = 0; round < 300; ++round) {
    const KvType type = std::vector{KvType::kF32, KvType::kF16, KvType::kQ8_0}[random.Below(3)];
    const std::size_t width =
        type == KvType::kQ8_0 ? 32 * (1 + random.Below(9)) : 1 + random.Below(99);
    std::vector<float> x =
        random.Values(width, std::ldexp(1.0F, static_cast<int>(random.Below(250)) - 125));
    const float special[] = {INFINITY, -INFINITY, NAN, -0.0F, 1e-42F, 65520.0F, 3e38F};
    if (random.Below(2) == 0) {
      x[random.Below(width)] = special[random.Below(7)];
    }
    std::vector<std::byte> expected(KvRowBytes(type, width));
    reference::EncodeKvRow(type, x.data(), width, expected.data());
    std::vector<float> values(width);
    reference::DecodeKvRow(type, expected.data(), width, values.data());
    for (const Isa isa : AvailableIsas()) {
      std::vector<std::byte> row(expected.size());
      cpu::EncodeKvRow(isa, type, x.data(), width, row.data());
      EXPECT_EQ(row, expected) << static_cast<int>(type) << " " << width << " " << IsaName(isa);
      std::vector<float> back(width);
      cpu::DecodeKvRow(isa, type, row.data(), width, back.data());
      EXPECT_EQ(FirstDifference(back, values), width);
    }
  }
}

TEST(KvRows, Q8ScaleIsTheHalfAndCodesFollowTheRoundedScale) {
  std::vector<float> x(32, 0.0F);
  x[0] = 1.0F;
  x[1] = -0.5F;
  for (const Isa isa : AvailableIsas()) {
    std::byte block[34];
    cpu::EncodeKvRow(isa, KvType::kQ8_0, x.data(), 32, block);
    std::uint16_t half = 0;
    std::memcpy(&half, block, 2);
    EXPECT_EQ(half, FloatToHalf(1.0F / 127.0F));
    EXPECT_EQ(static_cast<int>(static_cast<std::int8_t>(block[2])), 127);
    EXPECT_EQ(static_cast<int>(static_cast<std::int8_t>(block[3])), -64);  // -63.5 and a bit
  }
}

}  // namespace
}  // namespace bloomery::kernels
