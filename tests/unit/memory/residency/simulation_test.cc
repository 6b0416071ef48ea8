#include "runtime/memory/residency/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/base/error.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/memory/residency/routing.h"

namespace bloomery::memory {
namespace {

// A trace of one bank, one pick a row, a pass of one row each.
RoutingTrace Sequence(uint32_t experts, const std::vector<uint16_t>& picks) {
  const test::TempDir folder;
  const std::string path = folder.File("t");
  TraceWriter writer(path, {{.layer = 0, .experts = experts, .used = 1}}, 1, 1 << 20);
  for (const uint16_t& pick : picks) {
    const std::span<const uint16_t> one(&pick, 1);
    const uint8_t slot = 0;
    writer.Append({&slot, 1}, {.rows = 1, .experts = {&one, 1}});
  }
  writer.Finish();
  TraceReader reader(RealFileSystem().Open(path));
  return RoutingTrace(reader);
}

// The best over all ways of choosing after each pass, for small cases.
uint64_t BestByTrying(const std::vector<uint16_t>& picks, size_t at,
                      const std::set<uint16_t>& seated) {
  if (at == picks.size()) return 0;
  const uint64_t hit = seated.count(picks[at]);
  uint64_t best = BestByTrying(picks, at + 1, seated);
  if (hit == 0) {
    for (const uint16_t out : seated) {
      std::set<uint16_t> other = seated;
      other.erase(out);
      other.insert(picks[at]);
      best = std::max(best, BestByTrying(picks, at + 1, other));
    }
  }
  return hit + best;
}

TEST(Simulation, BeladyIsTheBestOfAllWaysWithBypass) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    std::vector<uint16_t> picks;
    for (int i = 0; i < 10; ++i) picks.push_back(static_cast<uint16_t>(random() % 5));
    const RoutingTrace trace = Sequence(5, picks);
    const SimulationResult belady = SimulateBelady(trace, {.frames = 2});
    EXPECT_EQ(belady.decode.hits, BestByTrying(picks, 0, {0, 1})) << round;
    EXPECT_EQ(belady.decode.reads, 10);
  }
}

// 0 and 1 are seated; 2 comes once and is left out, as each of the others is needed sooner.
TEST(Simulation, BeladyLeavesOutWhatIsNotNeededAgain) {
  const RoutingTrace trace = Sequence(3, {0, 2, 1, 0, 1});
  const SimulationResult belady = SimulateBelady(trace, {.frames = 2});
  EXPECT_EQ(belady.decode.hits, 4);
  EXPECT_EQ(belady.moves, 0);
}

TEST(Simulation, StaticHasTheHitsOfTheSeed) {
  RoutingTrace trace = Sequence(4, {0, 1, 2, 3, 0, 0});
  const SimulationResult off = Simulate(trace, ResidencyKind::kOff, {.frames = 2});
  EXPECT_EQ(off.decode.hits, 4);
  EXPECT_EQ(off.moves, 0);
  EXPECT_EQ(off.decode.passes, 6);
}

// A missed expert begins to move before the next pass and is there in the one after it.
TEST(Simulation, LruIsThereTwoPassesLater) {
  RoutingTrace trace = Sequence(4, {3, 3, 3, 3});
  const SimulationResult lru = Simulate(trace, ResidencyKind::kLru, {.frames = 1});
  EXPECT_EQ(lru.decode.hits, 2);
  EXPECT_EQ(lru.moves, 1);
}

TEST(Simulation, TimeIsTheSumOfItsParts) {
  RoutingTrace trace = Sequence(4, {0, 3});
  const SimulationOptions options{
      .frames = 1,
      .rates = {.host_us = 50, .card_us = 5, .copy_us = 100, .copy_weight = 0.5},
      .step = {.layer_us = 7, .hand_off_us = 2, .head_us = 11}};
  const SimulationResult off = Simulate(trace, ResidencyKind::kOff, options);
  EXPECT_DOUBLE_EQ(off.decode_us, (11 + 7 + 5) + (11 + 7 + 50 + 2));
  EXPECT_DOUBLE_EQ(off.DecodeRate(), 2e6 / 93);
}

// 16 rows pick expert 3 while 0 has the frame: it stays behind them, before any move could land.
TEST(Simulation, WhatAPromptBroughtStaysWhereAsked) {
  const test::TempDir folder;
  const std::string path = folder.File("t");
  TraceWriter writer(path, {{.layer = 0, .experts = 4, .used = 1}}, 16, 1 << 20);
  const std::vector<uint16_t> many(16, 3);
  const std::vector<uint8_t> slots(16, 0);
  std::span<const uint16_t> span = many;
  writer.Append(slots, {.rows = 16, .experts = {&span, 1}});
  span = span.first(1);
  writer.Append(std::span(slots).first(1), {.rows = 1, .experts = {&span, 1}});
  writer.Finish();
  TraceReader reader(RealFileSystem().Open(path));
  RoutingTrace trace(reader);
  SimulationOptions options{.frames = 1};
  EXPECT_EQ(Simulate(trace, ResidencyKind::kPayback, options).decode.hits, 0);
  options.stay = true;
  const SimulationResult stayed = Simulate(trace, ResidencyKind::kPayback, options);
  EXPECT_EQ(stayed.decode.hits, 1);
  EXPECT_EQ(stayed.stayed, 1);
  EXPECT_EQ(stayed.moves, 1);
  EXPECT_EQ(Simulate(trace, ResidencyKind::kOff, options).decode.hits, 0);
}

TEST(Simulation, SharedReadsCountOnceAndPromptsApart) {
  const test::TempDir folder;
  const std::string path = folder.File("t");
  const std::vector<uint16_t> few{1, 1, 0};
  const std::vector<uint16_t> many(16, 2);
  const std::vector<uint8_t> slots(16, 0);
  TraceWriter writer(path, {{.layer = 0, .experts = 4, .used = 1}}, 16, 1 << 20);
  std::span<const uint16_t> span = few;
  writer.Append(std::span(slots).first(3), {.rows = 3, .experts = {&span, 1}});
  span = many;
  writer.Append(slots, {.rows = 16, .experts = {&span, 1}});
  writer.Finish();
  TraceReader reader(RealFileSystem().Open(path));
  RoutingTrace trace(reader);
  const SimulationResult off = Simulate(trace, ResidencyKind::kOff, {.frames = 1});
  EXPECT_EQ(off.decode.rows, 3);
  EXPECT_EQ(off.decode.reads, 2);
  EXPECT_EQ(off.decode.hits, 1);
  EXPECT_EQ(off.prompt.rows, 16);
  EXPECT_EQ(off.prompt.reads, 1);
  EXPECT_EQ(off.prompt.hits, 0);
  // Card and host work at the same time: the longer one counts.
  const SimulationOptions rates{.frames = 1,
                                .rates = {.host_us = 50, .card_us = 5},
                                .step = {.layer_us = 7, .hand_off_us = 2, .head_us = 11}};
  EXPECT_DOUBLE_EQ(Simulate(trace, ResidencyKind::kOff, rates).decode_us, 11 + 7 + 52);
}

// Two prompts, the second of two passes; each text begins with the seed again.
TEST(Simulation, TextsArePlayedEachFromTheSeedOn) {
  const test::TempDir folder;
  const std::string path = folder.File("t");
  const std::vector<uint16_t> many(16, 2);
  const std::vector<uint8_t> slots(16, 0);
  TraceWriter writer(path, {{.layer = 0, .experts = 4, .used = 1}}, 16, 1 << 20);
  const auto append = [&](std::vector<uint16_t> picks) {
    const std::span<const uint16_t> span = picks;
    writer.Append(std::span(slots).first(picks.size()),
                  {.rows = static_cast<int32_t>(picks.size()), .experts = {&span, 1}});
  };
  append({0});
  append(many);
  for (const uint16_t pick : std::vector<uint16_t>{3, 3, 3, 1}) append({pick});
  append(many);
  append(many);
  append({0});
  writer.Finish();
  TraceReader reader(RealFileSystem().Open(path));
  const RoutingTrace trace(reader);
  std::vector<RoutingTrace> texts = trace.Texts(3);
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0].passes().size(), 4U);  // the prompt and three of the four passes behind it
  EXPECT_EQ(texts[1].passes().size(), 3U);
  SimulationResult lru = Simulate(texts[0], ResidencyKind::kLru, {.frames = 1});
  EXPECT_EQ(lru.decode.reads, 3);
  EXPECT_EQ(lru.decode.hits, 1);  // 2 comes of the prompt, then 3: it is there in the last pass
  EXPECT_EQ(Simulate(texts[1], ResidencyKind::kOff, {.frames = 1}).decode.hits, 1);
  lru.Add(Simulate(texts[1], ResidencyKind::kOff, {.frames = 1}));
  EXPECT_EQ(lru.decode.reads, 4);
  EXPECT_EQ(lru.decode.hits, 2);
  EXPECT_EQ(lru.prompt.passes, 3);
}

// 0 follows 0 once in three steps; the busiest eighth of 16 experts are two.
TEST(Simulation, StatisticsSayWhatATraceHas) {
  const TraceStatistics statistics = StatisticsOf(Sequence(16, {0, 0, 1, 2}));
  EXPECT_EQ(statistics.passes, 4);
  EXPECT_EQ(statistics.rows, 4);
  EXPECT_DOUBLE_EQ(statistics.busiest_eighth, 0.75);
  EXPECT_DOUBLE_EQ(statistics.repeated, 1.0 / 3);
}

// Eight banks of 64 experts with 16 frames: routing of topics that last 50 rows.
TEST(Simulation, OursComesNearBeladyAndTheSameTraceGivesTheSameNumbers) {
  const std::vector<BankFrames> shapes(8, {.experts = 64, .used = 4, .frames = 16});
  const test::TempDir folder;
  const std::string path = folder.File("t");
  const std::vector<TraceBank> banks(8, {.layer = 0, .experts = 64, .used = 4});
  {
    TraceWriter writer(path, banks, 1, uint64_t{1} << 24);
    Routing routing(shapes, 0.9, 0.98);
    const uint8_t slot = 0;
    for (int pass = 0; pass < 2000; ++pass) writer.Append({&slot, 1}, routing.Next());
    writer.Finish();
  }
  TraceReader reader(RealFileSystem().Open(path));
  RoutingTrace trace(reader);
  const SimulationOptions options{.frames = 16};
  const SimulationResult ours = Simulate(trace, ResidencyKind::kPayback, options);
  const SimulationResult off = Simulate(trace, ResidencyKind::kOff, options);
  const SimulationResult belady = SimulateBelady(trace, options);
  EXPECT_GT(ours.decode.HitRate(), 0.85 * belady.decode.HitRate());
  EXPECT_GT(ours.DecodeRate(), 1.3 * off.DecodeRate());
  EXPECT_LE(ours.DecodeRate(), belady.DecodeRate());
  const SimulationResult again = Simulate(trace, ResidencyKind::kPayback, options);
  EXPECT_EQ(again.decode.hits, ours.decode.hits);
  EXPECT_EQ(again.moves, ours.moves);
  EXPECT_EQ(again.decode_us, ours.decode_us);
}

}  // namespace
}  // namespace bloomery::memory
