// Residency on a card: the bits stay those of the CPU while a policy moves experts and is reset,
// and traces of a card, split or whole, have the picks that the CPU's has.
#include <gtest/gtest.h>

#include <bit>

#include "runtime/exec/seat.h"
#include "runtime/memory/residency/trace.h"
#include "tests/gpu/seat/split_options.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/temp_dir.h"

namespace bloomery::test {
namespace {

TEST(CardResidency, BitsStayWhileExpertsMoveAndAfterAReset) {
  const std::vector<int32_t> ids = LongIds(200);
  const LoadedSeat cpu = LoadThroughPlugin(SeedlingPath(), SplitOptions("cpu", -1));
  const auto expected = RunAll(*cpu.seat, ids, 1);
  for (const auto kind : {memory::ResidencyKind::kLru, memory::ResidencyKind::kPayback}) {
    exec::SeatOptions options = SplitOptions("CUDA0", 2);
    options.residency.kind = kind;
    options.residency.rates = memory::ResidencyRates{.host_us = 50, .card_us = 1, .copy_us = 1};
    const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), options);
    for (int round = 0; round < 2; ++round) {
      card.seat->Cut(0, 0);
      const auto got = RunAll(*card.seat, ids, 1);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t row = 0; row < got.size(); ++row) {
        for (size_t i = 0; i < got[row].size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[row][i]), std::bit_cast<uint32_t>(expected[row][i]))
              << memory::NameOf(kind) << ", row " << row;
        }
      }
      card.seat->RequestResidencyReset();
    }
    const exec::ResidencyStatus status = card.seat->ReadResidencyStatus();
    EXPECT_EQ(status.stopped, "");
    EXPECT_EQ(status.counters.moves_failed, 0U);
    EXPECT_EQ(status.counters.resets, 1U);
    if (kind == memory::ResidencyKind::kLru) {
      EXPECT_GT(status.counters.moves, 50U);
    }
  }
}

TEST(CardResidency, TracesOfTheCardHaveThePicksOfTheCpu) {
  const std::vector<int32_t> ids = LongIds(120);
  const TempDir folder;
  const auto trace = [&](const char* name, exec::SeatOptions options) {
    options.residency.trace = folder.File(name);
    const LoadedSeat seat = LoadThroughPlugin(SeedlingPath(), options);
    for (const int32_t batch : {1, 5, 40}) {
      seat.seat->Cut(0, 0);
      RunAll(*seat.seat, ids, batch);
    }
    return folder.File(name);
  };
  const std::string cpu = trace("cpu", SplitOptions("cpu", -1));
  const std::string whole = trace("whole", SplitOptions("CUDA0", -1));
  const std::string split = trace("split", SplitOptions("CUDA0", 3));
  memory::TraceReader expected(RealFileSystem().Open(cpu));
  memory::TraceReader of_whole(RealFileSystem().Open(whole));
  memory::TraceReader of_split(RealFileSystem().Open(split));
  memory::TracePass a;
  memory::TracePass b;
  memory::TracePass c;
  size_t passes = 0;
  // Prompts' attention is a band on the card: picks of passes of few rows are the CPU's.
  while (expected.Next(&a)) {
    ASSERT_TRUE(of_whole.Next(&b));
    ASSERT_TRUE(of_split.Next(&c));
    ASSERT_EQ(b.rows, a.rows);
    EXPECT_EQ(c.experts, b.experts) << "pass " << passes;
    if (a.rows <= 8) {
      EXPECT_EQ(b.experts, a.experts) << "pass " << passes;
    }
    ++passes;
  }
  EXPECT_EQ(passes, 120U + 24 + 3);
}

}  // namespace
}  // namespace bloomery::test
