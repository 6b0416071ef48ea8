// Windows of drafts on a card: their rows have the bits of rows one by one and of the CPU, a cut
// inside one leaves what rows one by one leave, alone, beside other slots and over split banks.
// What drafts of a real engine answer is tested by tests/oracle/drafts_test.cc, which run.sh runs
// on the card, too.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "runtime/exec/seat.h"
#include "tests/gpu/seat/placed.h"
#include "tests/gpu/seat/rows.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/refusal.h"

namespace bloomery::test {
namespace {

using Ids = std::vector<int32_t>;

std::string HybridPath() { return SourceDir() + "/tests/data/mini/qwen35moe/model-mtp.gguf"; }

exec::SeatOptions Options(const char* device, int32_t window, int32_t slots = 2) {
  return {.slots = slots,
          .slot_context = 512,
          .rows_max = 64,
          .window_rows = window,
          .threads = 8,
          .pin = false,
          .device = device};
}

// Rows of a window of the slot, behind what it holds.
void Add(std::vector<exec::PassRow>* rows, const exec::Seat& seat, int32_t slot,
         std::span<const int32_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    rows->push_back({.slot = slot,
                     .index = seat.Length(slot) + static_cast<int32_t>(i),
                     .token = ids[i],
                     .logits = true,
                     .keep = i + 1 < ids.size()});
  }
}

Rows RunWindow(exec::Seat& seat, int32_t slot, std::span<const int32_t> ids) {
  std::vector<exec::PassRow> rows;
  Add(&rows, seat, slot, ids);
  seat.Run(rows);
  return LogitsOf(seat, ids.size());
}

// Windows of all lengths, each cut to a number of rows that goes round; after them the slot's rows
// and states. `expected` has gone there row by row.
void ExpectWindowsAreRowsOneByOne(exec::Seat& seat, exec::Seat& expected, int32_t window,
                                  const Ids& ids) {
  for (exec::Seat* each : {&seat, &expected}) {
    each->Cut(0, 0);
    RunAll(*each, std::span(ids).first(20), 5);
  }
  size_t at = 20;
  for (int32_t turn = 0; at + static_cast<size_t>(window) < ids.size(); ++turn) {
    const size_t rows = static_cast<size_t>(turn % window) + 1;
    const size_t kept = 1 + static_cast<size_t>(turn * 3) % rows;
    // What comes behind the rows to keep is wrong, as rejected guesses are.
    Ids guesses(ids.begin() + static_cast<std::ptrdiff_t>(at),
                ids.begin() + static_cast<std::ptrdiff_t>(at + rows));
    for (size_t i = kept; i < rows; ++i) guesses[i] = (guesses[i] + 1) % 900;
    const Rows got = RunWindow(seat, 0, guesses);
    seat.Cut(0, static_cast<int32_t>(at + kept));
    const Rows want = GoOn(expected, std::span(guesses).first(kept), static_cast<int32_t>(at), 0);
    ASSERT_EQ(
        FirstDifference(Rows(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(kept)), want),
        "")
        << "at " << at << ", " << kept << " of " << rows << " rows";
    at += kept;
    ASSERT_EQ(HeldBy(seat, 0), HeldBy(expected, 0)) << "at " << at;
  }
}

struct File {
  const char* name;
  std::string (*path)();
};
constexpr std::array<File, 3> kFiles = {
    {{"mini", MiniPath}, {"seedling", SeedlingPath}, {"hybrid", HybridPath}}};

class CardDrafts : public PlacedTest {};
INSTANTIATE_TEST_SUITE_P(OneCard, CardDrafts, ::testing::Values(kOneCard), NameOfPlacing);
INSTANTIATE_TEST_SUITE_P(CardStages, CardDrafts, ::testing::Values(kHalves), NameOfPlacing);

TEST_P(CardDrafts, WindowsAndTheirCutsAreRowsOneByOneOnTheCardAndOnTheCpu) {
  for (const File& file : kFiles) {
    for (const int32_t window : {2, 4, 8}) {
      SCOPED_TRACE(std::string(file.name) + ", windows of " + std::to_string(window));
      const LoadedSeat windowed = LoadThroughPlugin(file.path(), Placed(Options("CUDA0", window)));
      const LoadedSeat single = LoadThroughPlugin(file.path(), Options("CUDA0", 1));
      const LoadedSeat cpu = LoadThroughPlugin(file.path(), Options("cpu", 1));
      const Ids ids = SomeIds(160, 900);
      ExpectWindowsAreRowsOneByOne(*windowed.seat, *single.seat, window, ids);
      ExpectWindowsAreRowsOneByOne(*windowed.seat, *cpu.seat, window, ids);
    }
  }
}

TEST_P(CardDrafts, WindowsOfSlotsTogetherAreThoseAlone) {
  for (const File& file : kFiles) {
    SCOPED_TRACE(file.name);
    const LoadedSeat together = LoadThroughPlugin(file.path(), Placed(Options("CUDA0", 4, 3)));
    const LoadedSeat alone = LoadThroughPlugin(file.path(), Options("CUDA0", 1, 3));
    const Ids ids = SomeIds(300, 900, 3);
    const auto of = [&](int32_t slot, size_t first, size_t count) {
      return std::span(ids).subspan(static_cast<size_t>(slot) * 100 + first, count);
    };
    for (int32_t slot = 0; slot < 3; ++slot) {
      RunAll(*together.seat, of(slot, 0, 8), 8, slot);
      RunAll(*alone.seat, of(slot, 0, 8), 8, slot);
    }
    // Windows of 3, 1 and 4 rows; cut to 2, 1 and 1.
    const std::array<size_t, 3> rows_of = {3, 1, 4};
    const std::array<size_t, 3> kept_of = {2, 1, 1};
    std::array<size_t, 3> at = {8, 8, 8};
    for (int turn = 0; turn < 12; ++turn) {
      std::vector<exec::PassRow> rows;
      for (const int32_t slot : {2, 0, 1}) {
        const auto s = static_cast<size_t>(slot);
        Add(&rows, *together.seat, slot, of(slot, at[s], rows_of[s]));
      }
      together.seat->Run(rows);
      const Rows got = LogitsOf(*together.seat, rows.size());
      size_t first = 0;
      for (const int32_t slot : {2, 0, 1}) {
        const auto s = static_cast<size_t>(slot);
        const auto begin = got.begin() + static_cast<std::ptrdiff_t>(first);
        const Rows kept(begin, begin + static_cast<std::ptrdiff_t>(kept_of[s]));
        const Rows want =
            GoOn(*alone.seat, of(slot, at[s], kept_of[s]), static_cast<int32_t>(at[s]), slot);
        ASSERT_EQ(FirstDifference(kept, want), "") << "slot " << slot << ", turn " << turn;
        first += rows_of[s];
        at[s] += kept_of[s];
        together.seat->Cut(slot, static_cast<int32_t>(at[s]));
      }
    }
    for (int32_t slot = 0; slot < 3; ++slot) {
      EXPECT_EQ(HeldBy(*together.seat, slot), HeldBy(*alone.seat, slot)) << slot;
    }
  }
}

TEST_P(CardDrafts, TheBestLogitsOfEveryRowOfAWindowComeBack) {
  const LoadedSeat loaded = LoadThroughPlugin(HybridPath(), Placed(Options("CUDA0", 8, 1)));
  const Ids ids = SomeIds(16, 900);
  RunAll(*loaded.seat, std::span(ids).first(8), 8);
  const Rows rows = RunWindow(*loaded.seat, 0, std::span(ids).last(8));
  for (int32_t i = 0; i < 8; ++i) {
    const std::span<const exec::BestLogit> best = loaded.seat->BestLogits(i);
    ASSERT_FALSE(best.empty()) << i;
    EXPECT_EQ(best[0].token, Argmax(rows[static_cast<size_t>(i)])) << i;
  }
}

TEST_P(CardDrafts, WindowsOverSplitBanksAreThoseOverWholeOnes) {
  for (const File& file : {kFiles[0], kFiles[2]}) {
    SCOPED_TRACE(file.name);
    exec::SeatOptions options = Placed(Options("CUDA0", 4));
    options.card_frames = 3;
    const LoadedSeat split = LoadThroughPlugin(file.path(), options);
    const LoadedSeat whole = LoadThroughPlugin(file.path(), Options("CUDA0", 1));
    ExpectWindowsAreRowsOneByOne(*split.seat, *whole.seat, 4, SomeIds(100, 900));
  }
}

// The bits of a step are those of the CPU's, so both guess the same, and so are the head's rows
// that passes of few rows leave.
TEST_P(CardDrafts, TheHeadGuessesAsOnTheCpuAtEveryDepthBesideOtherSlots) {
  const auto with_head = [](const char* device) {
    exec::SeatOptions options = Options(device, 4, 3);
    options.drafts = true;
    return options;
  };
  const LoadedSeat cpu = LoadThroughPlugin(HybridPath(), with_head("cpu"));
  const LoadedSeat card = LoadThroughPlugin(HybridPath(), Placed(with_head("CUDA0")));
  ASSERT_TRUE(card.seat->limits().drafts);
  const Ids ids = SomeIds(80, 900);
  for (size_t at = 0; at + 8 <= ids.size(); at += 8) {
    for (int32_t slot = 0; slot < 3; ++slot) {
      // Windows of which some rows are taken back.
      const auto rows = std::span(ids).subspan(at, 4 + static_cast<size_t>(slot) / 2);
      const int32_t length = card.seat->Length(slot) + 2 + slot;
      const Rows got = RunWindow(*card.seat, slot, rows.first(4));
      ASSERT_EQ(FirstDifference(got, RunWindow(*cpu.seat, slot, rows.first(4))), "");
      for (exec::Seat* seat : {card.seat.get(), cpu.seat.get()}) {
        seat->Cut(slot, std::min(length, seat->Length(slot)));
      }
      ASSERT_EQ(HeldBy(*card.seat, slot), HeldBy(*cpu.seat, slot)) << "slot " << slot;
    }
    std::array<int32_t, 3> tokens = {ids[at], ids[at + 1], ids[at + 2]};
    for (int32_t depth = 0; depth < 3; ++depth) {
      std::vector<exec::DraftRow> rows;
      for (int32_t slot = 0; slot < 3; ++slot) {
        rows.push_back({.slot = slot, .depth = depth, .token = tokens[static_cast<size_t>(slot)]});
      }
      const bool sure = at % 16 == 0;
      const std::span<const exec::Drafted> expected = cpu.seat->RunDraft(rows, sure);
      const std::span<const exec::Drafted> got = card.seat->RunDraft(rows, sure);
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_EQ(got[i].token, expected[i].token) << "depth " << depth << ", slot " << i;
        ASSERT_EQ(got[i].probability, expected[i].probability);
        tokens[i] = expected[i].token;
      }
    }
  }
}

TEST_P(CardDrafts, AHeadBesideSplitBanksIsRefusedByName) {
  exec::SeatOptions options = Placed(Options("CUDA0", 4));
  options.drafts = true;
  options.card_frames = 3;
  const Refusal refusal = RefusalOf([&] { LoadThroughPlugin(HybridPath(), options); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_NE(refusal.message.find("--draft mtp"), std::string::npos) << refusal.message;
}

// The models that run.sh benches: a row alone goes other ways there than rows of a window.
TEST_P(CardDrafts, WindowsOfAWholeModelAreRowsOneByOne) {
  int files = 0;
  for (const char* name : {"BLOOMERY_TEST_MODEL", "BLOOMERY_TEST_HYBRID"}) {
    const char* path = std::getenv(name);
    if (path == nullptr) continue;
    ++files;
    SCOPED_TRACE(path);
    // Two slots of one seat, so that the model is loaded once.
    const LoadedSeat loaded = LoadThroughPlugin(path, Placed(Options("CUDA0", 4)));
    exec::Seat& seat = *loaded.seat;
    const Ids ids = SomeIds(60, 900);
    for (const int32_t slot : {0, 1}) RunAll(seat, std::span(ids).first(8), 8, slot);
    for (size_t at = 8; at + 4 < ids.size(); at += 3) {
      const Rows got = RunWindow(seat, 0, std::span(ids).subspan(at, 4));
      seat.Cut(0, static_cast<int32_t>(at) + 3);
      const Rows want = GoOn(seat, std::span(ids).subspan(at, 3), static_cast<int32_t>(at), 1);
      ASSERT_EQ(FirstDifference(Rows(got.begin(), got.begin() + 3), want), "") << at;
    }
    EXPECT_EQ(HeldBy(seat, 0), HeldBy(seat, 1));
  }
  if (files == 0) GTEST_SKIP() << "neither BLOOMERY_TEST_MODEL nor BLOOMERY_TEST_HYBRID is set";
}

}  // namespace
}  // namespace bloomery::test
