// Prompts over split banks: experts that came for one stay on the card, copies that fail, and rows
// that leave a split slot and come back elsewhere.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/exec/seat.h"
#include "tests/gpu/seat/placed.h"
#include "tests/gpu/seat/split_options.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/refusal.h"

namespace bloomery::test {
namespace {

// Rows of the experts of a bank that have a frame now.
uint64_t SeatedRows(const exec::BankPicks& bank) {
  uint64_t rows = 0;
  for (size_t i = 0; i < bank.picks.size(); ++i) {
    if (bank.frame_of[i] >= 0) rows += bank.picks[i];
  }
  return rows;
}

exec::SeatOptions Residing(int32_t frames) {
  exec::SeatOptions options = SplitOptions("CUDA0", frames);
  options.residency.kind = memory::ResidencyKind::kPayback;
  // Nothing pays but what comes for a prompt anyway.
  options.residency.rates = memory::ResidencyRates{.host_us = 1, .card_us = 1, .copy_us = 1e6};
  options.share_rates = kAllLink;
  return options;
}

class CardSplitPrompt : public PlacedTest {};
INSTANTIATE_TEST_SUITE_P(OneCard, CardSplitPrompt, ::testing::Values(kOneCard), NameOfPlacing);
INSTANTIATE_TEST_SUITE_P(CardStages, CardSplitPrompt, ::testing::Values(kHalves), NameOfPlacing);

TEST_P(CardSplitPrompt, TheHottestExpertsThatCameStayAndTheBitsStay) {
  const std::vector<int32_t> ids = LongIds(300);
  const LoadedSeat whole = LoadThroughPlugin(SeedlingPath(), SplitOptions("CUDA0", -1));
  const Rows prompt = Again(*whole.seat, ids, 300);
  const Rows decode = Again(*whole.seat, std::span(ids).first(60), 1);
  const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), Placed(Residing(2)));
  exec::Seat& seat = *card.seat;
  EXPECT_EQ(FirstDifference(Again(seat, ids, 300), prompt), "");
  const std::vector<exec::BankPicks> banks = seat.ReadResidency().banks;
  uint64_t seated = 0;
  uint64_t seed = 0;
  for (const exec::BankPicks& bank : banks) {
    seated += SeatedRows(bank);
    seed += bank.picks[0] + bank.picks[1];
    EXPECT_EQ(std::ranges::count_if(bank.frame_of, [](int32_t frame) { return frame >= 0; }), 2);
  }
  EXPECT_GT(seated, seed);
  EXPECT_EQ(FirstDifference(Again(seat, std::span(ids).first(60), 1), decode), "");
  const exec::ResidencyStatus status = seat.ReadResidencyStatus();
  EXPECT_GT(status.counters.moves, 0U);
  EXPECT_EQ(status.stopped, "");
  EXPECT_EQ(FirstDifference(Again(seat, ids, 300), prompt), "");
  // A reset brings the seed back, from the host's memory.
  seat.RequestResidencyReset();
  EXPECT_EQ(FirstDifference(Again(seat, std::span(ids).first(60), 1), decode), "");
  for (size_t bank = 0; bank < banks.size(); ++bank) {
    EXPECT_GE(seat.FramesOf(bank)[0], 0);
    EXPECT_GE(seat.FramesOf(bank)[1], 0);
  }
}

TEST_P(CardSplitPrompt, NothingStaysWhereResidencyIsOff) {
  const std::vector<int32_t> ids = LongIds(300);
  exec::SeatOptions options = Placed(Residing(2));
  options.residency.kind = memory::ResidencyKind::kOff;
  const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), options);
  Again(*card.seat, ids, 300);
  for (const exec::BankPicks& bank : card.seat->ReadResidency().banks) {
    EXPECT_EQ(bank.frame_of[0], 0);
    EXPECT_EQ(bank.frame_of[1], 1);
  }
}

TEST_P(CardSplitPrompt, ACopyThatFailsEndsThePassByNameAndTheNextOneHasItsBits) {
  const std::vector<int32_t> ids = LongIds(300);
  const LoadedSeat whole = LoadThroughPlugin(SeedlingPath(), SplitOptions("CUDA0", -1));
  const Rows expected = Again(*whole.seat, ids, 300);
  int copies = 0;
  int fails_at = -1;
  exec::SeatOptions options = Placed(Residing(2));
  options.split_hooks.stream_fails = [&] { return copies++ == fails_at; };
  const LoadedSeat card = LoadThroughPlugin(SeedlingPath(), options);
  for (const int at : {0, 1, 3, 5}) {
    copies = 0;
    fails_at = at;
    const Refusal refusal = RefusalOf([&] { Again(*card.seat, ids, 300); });
    EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
    EXPECT_NE(refusal.message.find("experts of layer"), std::string::npos) << refusal.message;
    fails_at = -1;
    EXPECT_EQ(FirstDifference(Again(*card.seat, ids, 300), expected), "") << at;
  }
}

// What --cache-disk, --slot-save-path and the prompt cache do with a slot, over splits.
TEST_P(CardSplitPrompt, RowsOfASplitSlotGoOnWithTheSameBitsWhereverTheyAreRestored) {
  const std::vector<int32_t> ids = LongIds(290);
  const std::vector<int32_t> rest = {ids[3], ids[5], ids[8], ids[13]};
  const LoadedSeat from = LoadThroughPlugin(SeedlingPath(), Placed(Residing(3)));
  Again(*from.seat, ids, 290);
  std::vector<std::vector<std::byte>> chunks;
  constexpr int32_t kChunk = exec::RowChunk::kRowsMax;
  for (int32_t first = 0; first < 290; first += kChunk) {
    const int32_t rows = std::min(kChunk, 290 - first);
    chunks.emplace_back(static_cast<size_t>(rows) * from.seat->StateRowBytes());
    from.seat->ReadRows(0, first, rows, chunks.back());
  }
  const auto go_on = [&](exec::Seat& seat, int32_t slot) {
    Rows logits;
    for (size_t i = 0; i < rest.size(); ++i) {
      const exec::PassRow row{
          .slot = slot, .index = 290 + static_cast<int32_t>(i), .token = rest[i], .logits = true};
      seat.Run({&row, 1});
      const std::span<const float> values = seat.Logits(0);
      logits.emplace_back(values.begin(), values.end());
    }
    return logits;
  };
  const Rows expected = go_on(*from.seat, 0);
  for (const int32_t frames : {0, 3, -1}) {
    SCOPED_TRACE(frames);
    exec::SeatOptions options = Placed(Residing(frames));
    options.slots = 2;
    const LoadedSeat to = LoadThroughPlugin(SeedlingPath(), options);
    EXPECT_EQ(to.seat->StateFormat(), from.seat->StateFormat());
    ASSERT_EQ(to.seat->StateRowBytes(), from.seat->StateRowBytes());
    Again(*to.seat, std::span(ids).last(40), 40, 1);  // something else lay there
    to.seat->Cut(1, 0);
    int32_t first = 0;
    for (const std::vector<std::byte>& bytes : chunks) {
      const int32_t rows = std::min(kChunk, 290 - first);
      to.seat->AppendRows(1, {.rows = rows, .bytes = bytes}, 0, rows);
      first += rows;
    }
    EXPECT_EQ(FirstDifference(go_on(*to.seat, 1), expected), "");
  }
}

}  // namespace
}  // namespace bloomery::test
