#include "runtime/memory/lanes.h"

#include <gtest/gtest.h>

namespace bloomery::memory {
namespace {

TEST(Lanes, APassLeavesTheStateItReadUntilTheNextOne) {
  Lanes lanes(2, 2);
  EXPECT_EQ(lanes.Holding(1, 0), Lanes::kNone);
  const int32_t first = lanes.Claim(1, 0);
  EXPECT_EQ(lanes.Keepable(1, 100), 0);  // the pass may still fail
  lanes.Set(1, first, 10);
  const int32_t second = lanes.Claim(1, 10);
  EXPECT_NE(second, first);
  EXPECT_EQ(lanes.Holding(1, 10), first);
  lanes.Set(1, second, 14);
  EXPECT_EQ(lanes.Keepable(1, 14), 14);
  EXPECT_EQ(lanes.Keepable(1, 13), 10);
  EXPECT_EQ(lanes.Keepable(1, 9), 0);
  EXPECT_EQ(lanes.Claim(1, 14), first);  // never the one that is read
  EXPECT_EQ(lanes.Keepable(1, 13), 0);
  EXPECT_EQ(lanes.Keepable(0, 14), 0);  // the other slot's
}

TEST(Lanes, TheLaneThatIsReadIsNotWrittenThoughItIsTheOldest) {
  Lanes lanes(1, 2);
  const int32_t first = lanes.Claim(0, 0);
  lanes.Set(0, first, 5);
  const int32_t second = lanes.Claim(0, 5);
  lanes.Set(0, second, 8);
  EXPECT_EQ(lanes.Claim(0, 5), second);
  EXPECT_EQ(lanes.Holding(0, 5), first);
}

TEST(Lanes, CuttingForgetsWhatLiesBehind) {
  Lanes lanes(1, 2);
  lanes.Set(0, lanes.Claim(0, 0), 5);
  lanes.Set(0, lanes.Claim(0, 5), 8);
  lanes.Cut(0, 5);
  EXPECT_EQ(lanes.Keepable(0, 100), 5);
  lanes.Cut(0, 4);
  EXPECT_EQ(lanes.Keepable(0, 100), 0);
  EXPECT_EQ(lanes.Holding(0, 5), Lanes::kNone);
}

// Parts of a pass take turns on two lanes; what there was before the first stays to the end.
TEST(Lanes, PartsOfAPassLeaveTheStateFromBeforeAllOfThem) {
  Lanes lanes(1, LanesOfWindow(1, 4));
  EXPECT_EQ(lanes.lanes_of_slot(), 3);
  const int32_t before = lanes.Claim(0, 0);
  lanes.Set(0, before, 20);
  for (const int32_t length : {20, 52, 84, 116, 148}) {
    int32_t claimed = Lanes::kNone;
    lanes.Claim(0, length, {&claimed, 1}, 20);
    EXPECT_NE(claimed, before) << length;
    EXPECT_NE(claimed, lanes.Holding(0, length)) << length;
    lanes.Set(0, claimed, length + 32);
  }
  EXPECT_EQ(lanes.Holding(0, 20), before);
  lanes.Cut(0, 20);
  EXPECT_EQ(lanes.Keepable(0, 200), 20);
}

}  // namespace
}  // namespace bloomery::memory
