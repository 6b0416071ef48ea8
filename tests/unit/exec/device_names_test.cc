#include "runtime/exec/device_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/exec/seat.h"
#include "tests/support/refusal.h"

namespace bloomery::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DeviceNames, CardsAreReadInTheOrderInWhichTheyAreNamed) {
  EXPECT_THAT(CardsNamed("CUDA0"), ElementsAre(0U));
  EXPECT_THAT(CardsNamed("CUDA12,CUDA0"), ElementsAre(12U, 0U));
  EXPECT_THAT(CardsNamed(" CUDA1 ,  CUDA1"), ElementsAre(1U, 1U));
  for (const char* none : {"auto", "none", "cpu"}) EXPECT_THAT(CardsNamed(none), IsEmpty()) << none;
  EXPECT_EQ(NameOfCards(CardsNamed("CUDA2, CUDA0")), "CUDA2,CUDA0");
}

TEST(DeviceNames, WhatNamesNoCardIsRefusedWithWhatIsPossible) {
  for (const char* bad : {"", ",", "CUDA", "CUDA0,", "CUDA0,,CUDA1", "cuda0", "CUDA00", "CUDA-1",
                          "CUDA+1", "CUDA1x", "CUDA4294967296", "Vulkan0", "CUDA0;CUDA1"}) {
    const test::Refusal refusal = test::RefusalOf([&] { CardsNamed(bad); });
    EXPECT_EQ(refusal.kind, ErrorKind::kUsage) << bad;
    EXPECT_THAT(refusal.message, HasSubstr("must be auto, none, or cards")) << bad;
  }
  for (const char* mixed : {"auto,CUDA0", "CUDA0,none", "cpu,cpu"}) {
    EXPECT_THAT(test::RefusalOf([&] { CardsNamed(mixed); }).message,
                HasSubstr("cannot be one of several devices"))
        << mixed;
  }
}

TEST(DeviceNames, AMarginIsOfTheCardInItsPlaceAmongThoseNamed) {
  SeatOptions options;
  options.card_margin = 7;
  options.card_margins = {100, 200};
  options.device = "auto";
  EXPECT_EQ(MarginOf(options, 0), 100U);
  EXPECT_EQ(MarginOf(options, 1), 200U);
  EXPECT_EQ(MarginOf(options, 2), 7U);
  options.device = "CUDA2,CUDA0,CUDA1";
  EXPECT_EQ(MarginOf(options, 2), 100U);
  EXPECT_EQ(MarginOf(options, 0), 200U);
  EXPECT_EQ(MarginOf(options, 1), 7U);
  options.card_margins.clear();
  EXPECT_EQ(MarginOf(options, 2), 7U);
}

}  // namespace
}  // namespace bloomery::exec
