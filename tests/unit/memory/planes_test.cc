#include "runtime/memory/planes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/support/refusal.h"

namespace bloomery::memory {
namespace {

TEST(Planes, RowBytesFollowTheType) {
  EXPECT_EQ(PlaneRowBytes({.name = "k", .type = BL_F32, .width = 64}), 256U);
  EXPECT_EQ(PlaneRowBytes({.name = "k", .type = BL_F16, .width = 64}), 128U);
  EXPECT_EQ(PlaneRowBytes({.name = "k", .type = BL_Q8_0, .width = 64}), 68U);
}

TEST(Planes, AWidthThatTheTypeCannotHoldIsRefusedByName) {
  const test::Refusal refusal = test::RefusalOf(
      [] { static_cast<void>(PlaneRowBytes({.name = "k.3", .type = BL_Q8_0, .width = 48})); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  EXPECT_THAT(refusal.message, testing::HasSubstr("plane 'k.3' has rows of 48 values"));
  EXPECT_EQ(test::RefusalOf([] {
              static_cast<void>(PlaneRowBytes({.name = "k", .type = 7777, .width = 32}));
            }).kind,
            ErrorKind::kUsage);
}

TEST(Planes, EveryRowOfEverySlotHasBytesOfItsOwn) {
  const PlaneSpec spec = {.name = "k", .type = BL_F16, .width = 8};
  PlaneStore store({spec, spec}, 3, 130);
  EXPECT_EQ(PlaneStore::Bytes(spec, 3, 130), 3U * 256U * 16U);
  std::set<const void*> rows;
  for (size_t plane = 0; plane < 2; ++plane) {
    const bl_plane_view& view = store.View(plane);
    EXPECT_EQ(view.capacity, 130);
    EXPECT_EQ(view.block_rows % 128, 0);
    for (int32_t slot = 0; slot < 3; ++slot) {
      for (int32_t row = 0; row < 130; ++row) {
        const auto* at = static_cast<const char*>(bl_plane_row(&view, slot, row));
        const auto* begin = static_cast<const char*>(view.data);
        EXPECT_GE(at, begin);
        EXPECT_LE(at + view.row_bytes, begin + PlaneStore::Bytes(spec, 3, 130));
        rows.insert(at);
      }
    }
  }
  EXPECT_EQ(rows.size(), 2U * 3U * 130U);
}

TEST(Planes, ACopyTakesTheFirstRowsOfEveryPlaneAcrossBlocks) {
  const PlaneSpec spec = {.name = "k", .type = BL_F32, .width = 2};
  PlaneStore store({spec, spec}, 2, 300);
  const auto value = [&](size_t plane, int32_t slot, int32_t row) {
    return static_cast<float*>(bl_plane_row(&store.View(plane), slot, row));
  };
  for (size_t plane = 0; plane < 2; ++plane) {
    for (int32_t row = 0; row < 300; ++row) {
      value(plane, 0, row)[1] = static_cast<float>(row + 1000 * static_cast<int32_t>(plane));
      value(plane, 1, row)[1] = -1.0F;
    }
  }
  store.SetLength(0, 300);
  store.Copy(0, 1, 257);
  EXPECT_EQ(store.Length(1), 257);
  EXPECT_EQ(store.Length(0), 300);
  for (size_t plane = 0; plane < 2; ++plane) {
    for (int32_t row = 0; row < 257; ++row) {
      ASSERT_EQ(value(plane, 1, row)[1],
                static_cast<float>(row + 1000 * static_cast<int32_t>(plane)));
    }
    EXPECT_EQ(value(plane, 1, 257)[1], -1.0F);  // one past the copied rows
  }
}

}  // namespace
}  // namespace bloomery::memory
