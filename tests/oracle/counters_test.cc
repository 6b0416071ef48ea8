// Equal bits must not be had for free by running rows one after another: a pass of 512 rows runs no
// more steps and reads hardly more weights than a pass of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/oracle/seat_fixture.h"

namespace bloomery::test {
namespace {

struct Work {
  uint64_t dispatches = 0;
  uint64_t weight_bytes = 0;
  uint64_t experts = 0;
  uint64_t least_bytes = 0;  // dense weights and distinct experts, once
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
  return {.dispatches = after.dispatches - before.dispatches,
          .weight_bytes = after.weight_bytes_read - before.weight_bytes_read,
          .experts = after.experts_picked - before.experts_picked,
          .least_bytes = seat.DenseBytes() + after.expert_bytes - before.expert_bytes};
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

// The byte bound that bench shows is counted from the picks and the description, not by the
// kernels: a row reads what it says but for the norms' gains, and 512 rows pick every expert.
TEST_P(CountedWork, TheLeastBytesOfARowAreThoseItsKernelsRead) {
  LoadedSeat loaded =
      LoadThroughPlugin(GetParam(), {.slot_context = 512, .rows_max = 512, .pin = false});
  const Work one = OfOnePass(*loaded.seat, 1);
  EXPECT_GE(static_cast<double>(one.weight_bytes), 0.98 * static_cast<double>(one.least_bytes));
  EXPECT_LE(static_cast<double>(one.weight_bytes), 1.02 * static_cast<double>(one.least_bytes));
  uint64_t used = 0;
  uint64_t all = 0;
  for (const plugin::Bank& bank : loaded.instance->description().banks) {
    used += bank.used;
    all += bank.experts;
  }
  EXPECT_EQ(one.experts, used);
  EXPECT_GT(OfOnePass(*loaded.seat, 512).experts, all * 9 / 10);
}

TEST_P(CountedWork, EachBankCountsTheRowsOfItsExpertsInPassesOfEverySize) {
  LoadedSeat loaded =
      LoadThroughPlugin(GetParam(), {.slot_context = 512, .rows_max = 512, .pin = false});
  OfOnePass(*loaded.seat, 512);
  OfOnePass(*loaded.seat, 1);
  const auto& described = loaded.instance->description().banks;
  const exec::Residency residency = loaded.seat->ReadResidency();
  ASSERT_EQ(residency.banks.size(), described.size());
  for (size_t i = 0; i < described.size(); ++i) {
    const std::vector<uint64_t>& picks = residency.banks[i].picks;
    EXPECT_EQ(residency.banks[i].layer, described[i].layer);
    ASSERT_EQ(picks.size(), described[i].experts);
    EXPECT_EQ(std::accumulate(picks.begin(), picks.end(), uint64_t{0}), 513U * described[i].used);
    EXPECT_LE(*std::max_element(picks.begin(), picks.end()), 513U);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CountedWork, testing::Values(MiniPath(), SeedlingPath()),
                         [](const testing::TestParamInfo<std::string>& model) {
                           return model.param == MiniPath() ? "Mini" : "Seedling";
                         });

}  // namespace
}  // namespace bloomery::test
