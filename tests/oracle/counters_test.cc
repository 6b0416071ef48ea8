// Equal bits must not be had for free by running rows one after another: a pass of 512 rows runs no
// more steps and reads hardly more weights than a pass of one.
#include <gtest/gtest.h>

#include "tests/oracle/seat_fixture.h"

namespace bloomery::test {
namespace {

struct Work {
  uint64_t dispatches = 0;
  uint64_t weight_bytes = 0;
};

Work OfOnePass(exec::Seat& seat, int32_t rows) {
  seat.Cut(0, 0);
  std::vector<exec::PassRow> pass;
  pass.reserve(static_cast<size_t>(rows));
  for (int32_t i = 0; i < rows; ++i) {
    // All kinds of tokens, so that all experts are picked.
    pass.push_back({.slot = 0, .index = i, .token = (i * 37 + 11) % 2012, .logits = i + 1 == rows});
  }
  const exec::SeatCounters before = seat.counters();
  seat.Run(pass);
  const exec::SeatCounters after = seat.counters();
  EXPECT_EQ(after.passes, before.passes + 1);
  return {after.dispatches - before.dispatches, after.weight_bytes_read - before.weight_bytes_read};
}

class CountedWork : public testing::TestWithParam<std::string> {};

TEST_P(CountedWork, A512RowPassCostsAtMostEightOneRowPassesInStepsAndWeightBytes) {
  LoadedSeat loaded =
      LoadThroughPlugin(GetParam(), {.slot_context = 512, .rows_max = 512, .pin = false});
  const Work one = OfOnePass(*loaded.seat, 1);
  const Work many = OfOnePass(*loaded.seat, 512);
  EXPECT_GT(one.dispatches, 0U);
  EXPECT_LE(many.dispatches, 8 * one.dispatches);
  EXPECT_LE(many.weight_bytes, 8 * one.weight_bytes);
  // And not less than once through: no kernel forgets to count.
  EXPECT_GT(many.weight_bytes, one.weight_bytes);
  EXPECT_EQ(OfOnePass(*loaded.seat, 1).weight_bytes, one.weight_bytes);
}

INSTANTIATE_TEST_SUITE_P(Models, CountedWork, testing::Values(MiniPath(), SeedlingPath()),
                         [](const testing::TestParamInfo<std::string>& model) {
                           return model.param == MiniPath() ? "Mini" : "Seedling";
                         });

}  // namespace
}  // namespace bloomery::test
