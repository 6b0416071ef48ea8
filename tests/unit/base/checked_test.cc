#include "runtime/base/checked.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/support/refusal.h"

namespace bloomery {
namespace {

using test::Refusal;
using test::RefusalOf;
using testing::HasSubstr;

constexpr uint64_t kMax = UINT64_MAX;

TEST(Checked, AddGivesTheLargestSumAndRefusesOnePastIt) {
  EXPECT_EQ(CheckedAdd(kMax - 1, uint64_t{1}, ErrorKind::kBadModel, "end"), kMax);
  const Refusal refusal =
      RefusalOf([] { CheckedAdd(kMax, uint64_t{1}, ErrorKind::kBadModel, "end of data"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("end of data: 18446744073709551615 + 1"));
}

TEST(Checked, MulRefusesAProductPast64Bits) {
  const uint64_t half = uint64_t{1} << 32;
  EXPECT_EQ(CheckedMul(half, half - 1, ErrorKind::kBadModel, "size"), kMax - half + 1);
  EXPECT_THAT(RefusalOf([&] { CheckedMul(half, half, ErrorKind::kBadModel, "size"); }).message,
              HasSubstr("4294967296 * 4294967296"));
}

TEST(Checked, SubRefusesToGoBelowZero) {
  EXPECT_EQ(CheckedSub(uint64_t{5}, uint64_t{5}, ErrorKind::kInternal, "rest"), 0u);
  EXPECT_EQ(RefusalOf([] { CheckedSub(4u, 5u, ErrorKind::kInternal, "rest"); }).kind,
            ErrorKind::kInternal);
}

TEST(Checked, NarrowKeepsTheValueOrRefuses) {
  EXPECT_EQ(CheckedNarrow<uint8_t>(255, ErrorKind::kBadModel, "n"), 255);
  EXPECT_EQ(CheckedNarrow<int32_t>(int64_t{INT32_MIN}, ErrorKind::kBadModel, "n"), INT32_MIN);
  EXPECT_THAT(RefusalOf([] { CheckedNarrow<uint8_t>(256, ErrorKind::kBadModel, "n"); }).message,
              HasSubstr("n: 256"));
  EXPECT_THAT(RefusalOf([] { CheckedNarrow<uint64_t>(-1, ErrorKind::kBadModel, "n"); }).message,
              HasSubstr("-1"));
}

TEST(Checked, AlignUpRoundsAndRefusesOverflow) {
  const auto up = [](uint64_t value) {
    return CheckedAlignUp(value, uint64_t{32}, ErrorKind::kBadModel, "aligned");
  };
  EXPECT_EQ(up(0), 0u);
  EXPECT_EQ(up(1), 32u);
  EXPECT_EQ(up(32), 32u);
  EXPECT_EQ(up(kMax - 31), kMax - 31);
  EXPECT_EQ(RefusalOf([&] { up(kMax - 30); }).kind, ErrorKind::kBadModel);
}

}  // namespace
}  // namespace bloomery
