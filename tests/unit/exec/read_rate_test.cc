#include "runtime/exec/cpu/read_rate.h"

#include <gtest/gtest.h>

namespace bloomery::exec {
namespace {

TEST(ReadRate, EveryByteIsReadOnceInEachMeasure) {
  Pool pool(3, 64, false);
  ReadRate rate((uint64_t{5} << 20) + 1000);  // whole pieces only
  EXPECT_EQ(rate.bytes(), uint64_t{5} << 20);
  for (int i = 0; i < 2; ++i) {
    EXPECT_GT(rate.Measure(pool), 0);
    // Every byte is 1: a piece left out, or read once more than another, changes the sum.
    EXPECT_EQ(rate.sum(), rate.bytes() / 8 * 0x0101010101010101U);
  }
}

TEST(ReadRate, TheBytesLeaveNoCacheAUsefulPart) {
  EXPECT_GT(ReadRateBytes(), uint64_t{64} << 20);
  EXPECT_LE(ReadRateBytes(), uint64_t{4} << 30);
}

}  // namespace
}  // namespace bloomery::exec
