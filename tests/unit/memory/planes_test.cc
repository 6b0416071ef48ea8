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
  PlaneStore store({spec, spec}, 3, 130, 64);
  EXPECT_EQ(PlaneStore::Bytes(spec, 3, 130, 64), 3U * 256U * 16U);
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
        EXPECT_LE(at + view.row_bytes, begin + PlaneStore::Bytes(spec, 3, 130, 64));
        rows.insert(at);
      }
    }
  }
  EXPECT_EQ(rows.size(), 2U * 3U * 130U);
}

TEST(Planes, ACopyTakesTheFirstRowsOfEveryPlaneAcrossBlocks) {
  const PlaneSpec spec = {.name = "k", .type = BL_F32, .width = 2};
  PlaneStore store({spec, spec}, 2, 300, 64);
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

// A ring that keeps 9 rows before the next one, beside an append plane.
class Rings : public testing::Test {
 protected:
  static constexpr int32_t kPass = 300;
  static constexpr int32_t kBack = 384 - 9;  // 9 + 300 rows are 3 blocks
  const PlaneSpec append_ = {.name = "k", .type = BL_F32, .width = 1};
  const PlaneSpec ring_ = {
      .name = "r", .rule = BL_PLANE_RING, .type = BL_F32, .width = 1, .window = 10};

  // The slot runs passes up to `length`; each row holds its position and slot.
  static void Go(PlaneStore& store, int32_t slot, int32_t length) {
    for (int32_t first = store.Length(slot); first < length; first = store.Length(slot)) {
      const int32_t end = std::min(length, first + kPass);
      ASSERT_TRUE(store.rings().Hold(slot, first));
      store.rings().WillWrite(slot, end);
      for (int32_t row = first; row < end; ++row) {
        for (size_t plane = 0; plane < 2; ++plane) {
          *At(store, plane, slot, row) = Value(slot, row);
        }
      }
      store.SetLength(slot, end);
    }
  }
  static float* At(const PlaneStore& store, size_t plane, int32_t slot, int32_t row) {
    return static_cast<float*>(bl_plane_row(&store.View(plane), slot, row));
  }
  static float Value(int32_t slot, int32_t row) { return static_cast<float>(row + 10000 * slot); }
  static void ExpectBefore(const PlaneStore& store, int32_t slot, int32_t of_slot) {
    const int32_t length = store.Length(slot);
    EXPECT_TRUE(store.rings().Hold(slot, length));
    for (int32_t row = std::max(0, length - 9); row < length; ++row) {
      EXPECT_EQ(*At(store, 1, slot, row), Value(of_slot, row)) << row << " of " << length;
    }
  }
};

TEST_F(Rings, TakeTheBytesOfTheirRowsAndNoMoreThanTheSlot) {
  EXPECT_EQ(RingRows(ring_, 4096, kPass), 384);
  EXPECT_EQ(RingRows(ring_, 4096, 1), 384);    // 9 + 256 that can be cut back
  EXPECT_EQ(RingRows(ring_, 4096, 512), 640);  // 9 + 512
  EXPECT_EQ(RingRows(ring_, 200, kPass), 256);
  EXPECT_EQ(PlaneStore::Bytes(ring_, 2, 4096, kPass), 2U * 384U * 4U);
  EXPECT_EQ(PlaneStateBytes(ring_), 9U * 4U);
  EXPECT_EQ(PlaneStateBytes(append_), 0U);
}

TEST_F(Rings, HoldWhatARowReadsWhereverTheSlotStands) {
  PlaneStore store({append_, ring_}, 2, 4096, kPass);
  for (const int32_t length : {1, 9, 10, 300, 383, 384, 385, 1000, 4096}) {
    Go(store, 0, length);
    ExpectBefore(store, 0, 0);
  }
  Go(store, 1, 1000);  // all of its ring
  ExpectBefore(store, 0, 0);
  ExpectBefore(store, 1, 1);
}

TEST_F(Rings, ASlotIsCutBackAsFarAsRowsWereNotWrittenOver) {
  PlaneStore store({append_, ring_}, 1, 4096, kPass);
  Go(store, 0, 384);  // all of them are still there
  EXPECT_TRUE(store.rings().Hold(0, 1));
  Go(store, 0, 1000);
  EXPECT_TRUE(store.rings().Hold(0, 1000 - kBack));
  EXPECT_FALSE(store.rings().Hold(0, 1000 - kBack - 1));
  EXPECT_TRUE(store.rings().Hold(0, 0));  // an empty slot reads nothing
  store.SetLength(0, 1000 - kBack);
  ExpectBefore(store, 0, 0);
  Go(store, 0, 640);
  EXPECT_FALSE(store.rings().Hold(0, 1000 - kBack - 1));  // they do not come back
  ExpectBefore(store, 0, 0);
  store.SetLength(0, 0);
  Go(store, 0, 20);
  EXPECT_TRUE(store.rings().Hold(0, 5));
}

TEST_F(Rings, APassThatFailsCanBeTakenBackAndCostsWhatItWrote) {
  PlaneStore store({append_, ring_}, 1, 4096, kPass);
  Go(store, 0, 1000);
  store.rings().WillWrite(0, 1000 + kPass);
  for (int32_t row = 1000; row < 1000 + kPass; ++row) *At(store, 1, 0, row) = -1.0F;
  ExpectBefore(store, 0, 0);
  EXPECT_FALSE(store.rings().Hold(0, 1000 - kBack));
  EXPECT_TRUE(store.rings().Hold(0, 1000 + kPass - kBack));
}

TEST_F(Rings, ACopyOfTheirRowsIsTheStateOfAnySlotWithThoseRows) {
  for (const int32_t length : {4, 9, 200, 1000}) {
    PlaneStore store({append_, ring_}, 2, 4096, kPass);
    Go(store, 0, length);
    std::vector<std::byte> state(store.RingBytes(), std::byte{0x55});
    ASSERT_EQ(state.size(), 36U);
    store.ReadRings(0, state);
    std::vector<std::byte> rows(static_cast<size_t>(length) * store.RowBytes());
    store.Read(0, 0, length, rows);
    Go(store, 1, 700);
    store.SetLength(1, 0);
    store.Append(1, rows, length, 0, length);
    EXPECT_FALSE(store.rings().Hold(1, length));
    EXPECT_TRUE(store.rings().Hold(1, 0));
    store.WriteRings(1, state);
    ExpectBefore(store, 1, 0);
    EXPECT_EQ(store.rings().Hold(1, length - 1), length <= 9);
    Go(store, 1, length + 5);
    // Back in the slot's own path, past what the ring has.
    Go(store, 0, length + 900);
    EXPECT_FALSE(store.rings().Hold(0, length));
    store.SetLength(0, length);
    store.WriteRings(0, state);
    ExpectBefore(store, 0, 0);
  }
}

TEST_F(Rings, ACopiedSlotHasTheRowsThatAreThere) {
  PlaneStore store({append_, ring_}, 2, 4096, kPass);
  Go(store, 1, 700);
  store.SetLength(1, 0);
  Go(store, 0, 1000);
  store.Copy(0, 1, 900);
  ExpectBefore(store, 1, 0);
  EXPECT_TRUE(store.rings().Hold(1, 1000 - kBack));
  EXPECT_FALSE(store.rings().Hold(1, 1000 - kBack - 1));
  EXPECT_EQ(*At(store, 0, 1, 899), Value(0, 899));
}

}  // namespace
}  // namespace bloomery::memory
