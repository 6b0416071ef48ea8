#include "runtime/plugin/sized.h"

#include <bloomery/seat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/refusal.h"

namespace bloomery::plugin {
namespace {

using test::RefusalOf;

// bl_workspace as a later minor may make it.
struct Longer {
  bl_workspace head;
  uint64_t appended;
};

TEST(Sized, ItemsOfALaterMinorAreSteppedByTheirOwnSize) {
  std::array<Longer, 3> items{};
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].head.size = sizeof(Longer);
    items[i].head.bytes = 100 + i;
    items[i].appended = 999;
  }
  const SizedArray<bl_workspace> array(&items[0].head, 3, "thing");
  EXPECT_EQ(array[0].bytes, 100u);
  EXPECT_EQ(array[2].bytes, 102u);
}

TEST(Sized, SmallerThanTheFirstMinorIsRefused) {
  bl_workspace item{};
  item.size = sizeof(item) - 4;
  const auto refusal = RefusalOf([&] { CopySized(&item, "workspace"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, testing::HasSubstr("workspace, field size: 12"));
}

TEST(Sized, AbsurdSizesAreRefused) {
  bl_workspace item{};
  for (const uint32_t size : {0u, 17u, 4100u, 0xffffffffu}) {
    item.size = size;
    EXPECT_THROW(CopySized(&item, "workspace"), Error) << size;
  }
  item.size = sizeof(item);
  EXPECT_NO_THROW(CopySized(&item, "workspace"));
}

TEST(Sized, ArraysOfMixedSizesAreRefusedByIndex) {
  std::array<bl_workspace, 3> items{};
  for (auto& item : items) item.size = sizeof(bl_workspace);
  items[2].size = sizeof(bl_workspace) + 8;
  const SizedArray<bl_workspace> array(items.data(), 3, "thing");
  EXPECT_NO_THROW(array[1]);
  EXPECT_THAT(RefusalOf([&] { array[2]; }).message, testing::HasSubstr("thing 2, field size"));
}

TEST(Sized, NullArraysAndHugeCountsAreRefused) {
  EXPECT_NO_THROW(SizedArray<bl_workspace>(nullptr, 0, "thing"));
  EXPECT_THAT(RefusalOf([] { SizedArray<bl_workspace>(nullptr, 2, "thing"); }).message,
              testing::HasSubstr("thing: null"));
  bl_workspace item{};
  item.size = sizeof(item);
  const uint32_t max = limits::kSeatItemsMax;
  EXPECT_NO_THROW(SizedArray<bl_workspace>(&item, max, "thing"));
  EXPECT_THROW(SizedArray<bl_workspace>(&item, max + 1, "thing"), Error);
}

}  // namespace
}  // namespace bloomery::plugin
