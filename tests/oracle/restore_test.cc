// Rows that left a slot and came back: what runs on them has the bits of a cold run, for every type
// of planes, on the CPU and on a card.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/oracle/seat_fixture.h"
#include "tests/support/safetensors.h"

namespace bloomery::test {
namespace {

constexpr int32_t kChunk = exec::RowChunk::kRowsMax;

TEST(PromptCacheSeat, ARestoredSlotHasTheBitsOfAColdRun) {
  const Safetensors golden(SourceDir() + "/tests/data/mini/qwen3moe/golden.safetensors");
  std::vector<int32_t> ids = golden.Get("long.ids").ints;
  ids.resize(300);
  const std::vector<int32_t> rest = {ids[290], ids[291], ids[292]};
  constexpr int32_t kKept = 290;  // ends inside of a chunk
  for (const bl_dtype type : {BL_F32, BL_F16, BL_Q8_0}) {
    SCOPED_TRACE(type);
    const LoadedSeat loaded = LoadThroughPlugin(SeedlingPath(), {.slots = 3,
                                                                 .slot_context = 512,
                                                                 .rows_max = 64,
                                                                 .pin = false,
                                                                 .k_type = type,
                                                                 .v_type = type});
    exec::Seat& seat = *loaded.seat;
    RunAll(seat, std::span(ids).first(kKept), 64, 0);
    const auto cold = GoOn(seat, rest, kKept, 0);
    // Other rows lie where the restored ones will, and a few of the same lie there already. Those
    // come from a pass like the cold run's: prompts on a card have a band by the rows of a pass.
    RunAll(seat, std::span(ids).last(200), 64, 2);
    seat.Cut(2, 0);
    RunAll(seat, std::span(ids).first(64), 64, 2);
    seat.Cut(2, 5);
    for (int32_t first = 0; first < kKept; first += kChunk) {
      const int32_t rows = std::min(kChunk, kKept - first);
      std::vector<std::byte> bytes(static_cast<size_t>(rows) * seat.StateRowBytes());
      seat.ReadRows(0, first, rows, bytes);
      const int32_t skip = first == 0 ? 5 : 0;
      seat.AppendRows(2, {.rows = rows, .bytes = bytes}, skip, rows - skip);
    }
    ASSERT_EQ(seat.Length(2), kKept);
    const auto warm = GoOn(seat, rest, kKept, 2);
    for (size_t row = 0; row < rest.size(); ++row) {
      EXPECT_EQ(std::memcmp(cold[row].data(), warm[row].data(), cold[row].size() * sizeof(float)),
                0)
          << row;
    }
  }
}

}  // namespace
}  // namespace bloomery::test
