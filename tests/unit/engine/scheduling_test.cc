// Which slot a request gets, what it reuses, and which rows share a pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/utf8.h"
#include "tests/unit/engine/engine_test_support.h"

namespace bloomery::engine {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

std::vector<size_t> PassSizes(const FakeRunner& runner) {
  std::vector<size_t> sizes;
  sizes.reserve(runner.passes.size());
  for (const auto& pass : runner.passes) sizes.push_back(pass.size());
  return sizes;
}

// Slot of each row of a pass.
std::vector<int32_t> SlotsOf(const std::vector<exec::PassRow>& pass) {
  std::vector<int32_t> slots;
  slots.reserve(pass.size());
  for (const exec::PassRow& row : pass) slots.push_back(row.slot);
  return slots;
}

std::vector<int32_t> Processed(const Collected& collected) {
  std::vector<int32_t> values;
  values.reserve(collected.progress.size());
  for (const Progress& progress : collected.progress) values.push_back(progress.processed);
  return values;
}

TEST(Scheduling, GreedyTextIsWhatTheModelSays) {
  Rig rig;
  const Tokens prompt = Ids("once upon a time");
  Collected collected = rig.Run(Greedy(prompt, 40));
  const Tokens expected = GreedyReference(prompt, 40);
  EXPECT_EQ(collected.only().tokens, expected);
  const std::string text = ReplaceInvalidUtf8(rig.tokenizer.Detokenise(expected));
  EXPECT_EQ(collected.only().text, text);
}

TEST(Scheduling, SecondRunOfAPromptEvaluatesOneTokenAndSaysTheSame) {
  Rig rig;
  const Tokens prompt = Ids("the same prompt");
  Collected first = rig.Run(Greedy(prompt, 10));
  Collected second = rig.Run(Greedy(prompt, 10));
  GenerateRequest whole = Greedy(prompt, 10);
  whole.cache_prompt = false;
  Collected third = rig.Run(whole);
  const auto n = static_cast<int32_t>(prompt.size());
  EXPECT_EQ(first.finish().timings.prompt_n, n);
  EXPECT_EQ(first.finish().timings.cache_n, 0);
  EXPECT_EQ(second.finish().timings.prompt_n, 1);
  EXPECT_EQ(second.finish().timings.cache_n, n - 1);
  EXPECT_EQ(third.finish().timings.prompt_n, n);
  EXPECT_EQ(third.finish().timings.cache_n, 0);
  EXPECT_EQ(first.only().text, second.only().text);
  EXPECT_EQ(first.only().text, third.only().text);
}

TEST(Scheduling, GeneratedTokensAreReusedByTheNextTurn) {
  Rig rig;
  const Tokens prompt = Ids("user says hi");
  rig.runner.next = Script(prompt, Ids("hello there"));
  Collected first = rig.Run(Greedy(prompt, 5));
  Tokens turn = prompt;
  turn.insert(turn.end(), first.only().tokens.begin(), first.only().tokens.end());
  for (const int32_t id : Ids(" and then")) turn.push_back(id);
  Collected second = rig.Run(Greedy(turn, 1));
  // The last generated token was never evaluated.
  EXPECT_EQ(first.finish().tokens_cached, static_cast<int32_t>(prompt.size()) + 4);
  EXPECT_EQ(second.finish().timings.cache_n, static_cast<int32_t>(prompt.size()) + 4);
}

TEST(Scheduling, ReuseEndsWhereTheRunnerCanStand) {
  Rig rig;
  rig.runner.keepable = [](int32_t, int32_t length) { return length / 4 * 4; };
  const Tokens prompt = Ids("abcdefghijk");
  rig.Run(Greedy(prompt, 1));
  EXPECT_EQ(rig.Run(Greedy(prompt, 1)).finish().timings.cache_n, 8);
  EXPECT_EQ(rig.Run(Greedy(Ids("abcxyz"), 1)).finish().timings.cache_n, 0);
}

TEST(Scheduling, LongestPrefixPicksTheSlotThenTheLeastRecentlyUsedThenTheLowest) {
  Rig rig({.slots = 3});
  rig.Start();
  const auto slot_of = [&](std::string_view prompt) {
    return rig.Run(Greedy(Ids(prompt), 1)).begin->id_slot;
  };
  EXPECT_EQ(slot_of("abcdef"), 0);  // all empty: the lowest
  EXPECT_EQ(slot_of("zzz"), 1);     // never used before used
  EXPECT_EQ(slot_of("yyy"), 2);
  EXPECT_EQ(slot_of("abcxxx"), 0);  // three in common
  EXPECT_EQ(slot_of("zq"), 1);
  EXPECT_EQ(slot_of("mmm"), 2);  // nothing in common: 2 was used longest ago
  EXPECT_EQ(slot_of("zqr"), 1);
}

TEST(Scheduling, NamedSlotIsTakenAndAnUnknownOneMeansAny) {
  Rig rig({.slots = 3});
  rig.Start();
  GenerateRequest request = Greedy(Ids("abc"), 1);
  EXPECT_EQ(rig.Run(request).begin->id_slot, 0);
  request.id_slot = 2;
  EXPECT_EQ(rig.Run(request).begin->id_slot, 2);
  for (const int32_t unknown : {3, 1000, -5}) {
    request.id_slot = unknown;
    EXPECT_EQ(rig.Run(request).finish().tokens_predicted, 1);
  }
}

TEST(Scheduling, RequestForABusySlotLetsOthersPassAndGetsItNext) {
  Rig rig({.slots = 2});
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  rig.runner.next = [](const Tokens&) { return 0; };
  Engine& engine = rig.Start();
  GenerateRequest named = Greedy(Ids("a"), 3);
  named.id_slot = 0;
  auto holder = engine.Submit(named);
  gate.AwaitEntered(1);
  named.prompt = Ids("b");
  auto waiter = engine.Submit(named);
  auto later = engine.Submit(named);
  auto other = engine.Submit(Greedy(Ids("c"), 1));
  gate.Open();
  EXPECT_EQ(Await(*other).begin->id_slot, 1);
  EXPECT_EQ(Await(*holder).begin->id_slot, 0);
  EXPECT_EQ(Await(*waiter).begin->id_slot, 0);
  EXPECT_EQ(Await(*later).begin->id_slot, 0);
  engine.Stop(milliseconds(0));
  // The other one ran while the holder still held its slot.
  EXPECT_THAT(SlotsOf(rig.runner.passes[1]), ElementsAre(0, 1));
}

TEST(Scheduling, WaitingRequestsStartInOrderOfArrival) {
  Rig rig;
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  Engine& engine = rig.Start();
  std::vector<std::shared_ptr<Generation>> generations{engine.Submit(Greedy(Ids("z"), 1))};
  gate.AwaitEntered(1);
  Tokens order{Ids("z")[0]};
  for (const char c : std::string("qazwsxedc")) {
    const Tokens prompt = Ids(std::string_view(&c, 1));
    order.push_back(prompt[0]);
    generations.push_back(engine.Submit(Greedy(prompt, 1)));
  }
  gate.Open();
  for (auto& generation : generations) Await(*generation);
  engine.Stop(milliseconds(0));
  Tokens seen;
  for (const auto& pass : rig.runner.passes) seen.push_back(pass[0].token);
  EXPECT_EQ(seen, order);
}

TEST(Scheduling, PromptsRunInUbatchesAndOnlyTheLastRowAsksForLogits) {
  Rig rig({.rows_max = 16}, {.batch_rows = 64, .ubatch_rows = 8});
  rig.Run(Greedy(Ids("abcdefghijklmnopqrst"), 1));
  rig.engine->Stop(milliseconds(0));
  EXPECT_THAT(PassSizes(rig.runner), ElementsAre(8u, 8u, 4u));
  for (const auto& pass : rig.runner.passes) {
    for (const exec::PassRow& row : pass) EXPECT_EQ(row.logits, row.index == 19);
  }
}

TEST(Scheduling, BatchAndRunnerBoundThePassToo) {
  Rig by_batch({.rows_max = 16}, {.batch_rows = 5, .ubatch_rows = 8});
  by_batch.Run(Greedy(Ids("abcdefghijkl"), 1));
  by_batch.engine->Stop(milliseconds(0));
  EXPECT_THAT(PassSizes(by_batch.runner), ElementsAre(5u, 5u, 2u));
  Rig by_runner({.rows_max = 7}, {});
  by_runner.Run(Greedy(Ids("abcdefghijkl"), 1));
  by_runner.engine->Stop(milliseconds(0));
  EXPECT_THAT(PassSizes(by_runner.runner), ElementsAre(7u, 5u));
}

TEST(Scheduling, DecodeRowsJoinEveryPassOfALongPrompt) {
  Rig rig({.slots = 2, .rows_max = 4});
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  rig.runner.next = [](const Tokens&) { return 0; };
  Engine& engine = rig.Start();
  auto stream = engine.Submit(Greedy(Ids("a"), 6));
  gate.AwaitEntered(1);
  auto prompt = engine.Submit(Greedy(Ids("bcdefghij"), 1));  // nine rows: three beside the other's
  gate.Open();
  Await(*stream);
  Await(*prompt);
  engine.Stop(milliseconds(0));
  ASSERT_GE(rig.runner.passes.size(), 4u);
  for (size_t i = 1; i <= 3; ++i) {
    EXPECT_THAT(SlotsOf(rig.runner.passes[i]), ElementsAre(0, 1, 1, 1));
  }
}

// Ten milliseconds a row: 25 rows are the gap's, and 16 the largest pass below.
TEST(Scheduling, PromptsBesideAStreamAreCutToItsGap) {
  for (const int32_t gap_ms : {250, 0}) {
    Rig rig({.slots = 2, .slot_context = 512, .rows_max = 64}, {.decode_gap_ms = gap_ms});
    Gate gate;
    rig.runner.before_run = [&](std::span<const exec::PassRow> rows) {
      gate.Enter();
      rig.clock.Advance(milliseconds(10) * rows.size());
    };
    rig.runner.next = [](const Tokens&) { return 0; };
    Engine& engine = rig.Start();
    auto stream = engine.Submit(Greedy(Ids("a"), 40));
    gate.AwaitEntered(1);
    auto prompt = engine.Submit(Greedy(Tokens(300, 1), 1));
    gate.Open();
    Await(*prompt);
    Await(*stream);
    engine.Stop(milliseconds(0));
    EXPECT_EQ(rig.runner.passes[1].size(), gap_ms == 0 ? 64u : 16u);
    EXPECT_EQ(rig.runner.passes[2].size(), gap_ms == 0 ? 64u : 16u);
    // Nothing waits for the prompt alone.
    rig.engine.reset();
    rig.runner.passes.clear();
    Rig alone({.slots = 2, .slot_context = 512, .rows_max = 64}, {.decode_gap_ms = gap_ms});
    alone.Run(Greedy(Tokens(300, 1), 1));
    alone.engine->Stop(milliseconds(0));
    EXPECT_EQ(alone.runner.passes[0].size(), 64u);
  }
}

TEST(Scheduling, APaceThatFallsCutsPassesAndOneThatRisesLetsThemGrow) {
  Rig rig({.slots = 2, .slot_context = 4096, .rows_max = 256}, {.decode_gap_ms = 100});
  std::atomic<int> us_a_row{100};
  Gate gate;
  rig.runner.before_run = [&](std::span<const exec::PassRow> rows) {
    if (rig.runner.passes.size() == 6) us_a_row = 4000;  // somebody else takes the cores
    if (rig.runner.passes.size() == 16) us_a_row = 100;
    gate.Enter();
    rig.clock.Advance(milliseconds(us_a_row * static_cast<int>(rows.size()) / 1000));
  };
  rig.runner.next = [](const Tokens&) { return 0; };
  Engine& engine = rig.Start();
  auto stream = engine.Submit(Greedy(Ids("a"), 60));
  gate.AwaitEntered(1);
  auto prompt = engine.Submit(Greedy(Tokens(4000, 1), 1));
  gate.Open();
  Await(*stream);
  Await(*prompt);
  engine.Stop(milliseconds(0));
  EXPECT_EQ(rig.runner.passes[5].size(), 256u);
  EXPECT_EQ(rig.runner.passes[15].size(), 16u);  // the prompt must go on
  EXPECT_EQ(rig.runner.passes[20].size(), 256u);
}

// A pass costs something however few rows it has: short prompts tell nothing of a large pass.
TEST(Scheduling, ShortPromptsDoNotMakeThePassesOfLongOnesSmall) {
  Rig rig({.slots = 2, .slot_context = 4096, .rows_max = 256}, {.decode_gap_ms = 200});
  std::vector<size_t> large;
  rig.runner.before_run = [&](std::span<const exec::PassRow> rows) {
    if (rows.size() > 8) large.push_back(rows.size());
    rig.clock.Advance(milliseconds(40 + static_cast<int>(rows.size()) / 10));
  };
  rig.runner.next = [](const Tokens&) { return 0; };
  Engine& engine = rig.Start();
  auto stream = engine.Submit(Greedy(Ids("a"), 4000));
  stream->Pop();
  Await(*engine.Submit(Greedy(Tokens(1000, 1), 1)));
  for (int i = 2; i < 8; ++i) Await(*engine.Submit(Greedy(Tokens(3, i), 1)));
  Await(*engine.Submit(Greedy(Tokens(255, 9), 1)));
  engine.Stop(milliseconds(0));
  EXPECT_EQ(large.back(), 256U);
}

TEST(Scheduling, AShortPromptDoesNotWaitForALongOne) {
  Rig rig({.slots = 3, .rows_max = 16});
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  Engine& engine = rig.Start();
  auto first = engine.Submit(Greedy(Ids("a"), 0));
  gate.AwaitEntered(1);
  auto longest = engine.Submit(Greedy(Tokens(100, 1), 0));
  auto brief = engine.Submit(Greedy(Ids("cde"), 0));  // three of the quarter of sixteen
  auto waits = engine.Submit(Greedy(Ids("fg"), 0));   // two do not fit the rest of it
  gate.Open();
  for (auto& generation : {first, longest, brief, waits}) Await(*generation);
  engine.Stop(milliseconds(0));
  const std::vector<int32_t> slots = SlotsOf(rig.runner.passes[1]);
  EXPECT_EQ(std::ranges::count(slots, slots.front()), 3);
  EXPECT_EQ(std::ranges::count(slots, slots.back()), 13);
  EXPECT_EQ(rig.runner.passes[2].size(), 16u);
  EXPECT_EQ(rig.runner.passes[2].front().token, Ids("f")[0]);
}

TEST(Scheduling, OlderPromptsGoFirstAndSeveralShareAPass) {
  Rig rig({.slots = 3, .rows_max = 8});
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  Engine& engine = rig.Start();
  std::vector<std::shared_ptr<Generation>> generations;
  GenerateRequest request = Greedy(Ids("a"), 0);
  generations.push_back(engine.Submit(request));
  gate.AwaitEntered(1);
  for (const int32_t slot : {2, 1, 0}) {
    request.prompt = Ids(std::string(5, static_cast<char>('d' + slot)));
    request.id_slot = slot;
    generations.push_back(engine.Submit(request));
  }
  gate.Open();
  for (auto& generation : generations) Await(*generation);
  engine.Stop(milliseconds(0));
  ASSERT_EQ(rig.runner.passes.size(), 3u);
  EXPECT_THAT(SlotsOf(rig.runner.passes[1]), ElementsAre(2, 2, 2, 2, 2, 1, 1, 1));
  EXPECT_THAT(SlotsOf(rig.runner.passes[2]), ElementsAre(1, 1, 0, 0, 0, 0, 0));
}

TEST(Scheduling, MoreGeneratingSlotsThanRowsTakeTurns) {
  for (const int32_t rows_max : {1, 2, 3}) {
    Rig rig({.slots = 4, .rows_max = rows_max});
    Gate gate;
    rig.runner.before_run = [&](auto) { gate.Enter(); };
    Engine& engine = rig.Start();
    std::vector<std::shared_ptr<Generation>> generations;
    std::vector<Tokens> prompts{Ids("abc"), Ids("defgh"), Ids("i"), Ids("jk")};
    generations.reserve(prompts.size());
    for (const Tokens& prompt : prompts) generations.push_back(engine.Submit(Greedy(prompt, 20)));
    gate.Open();
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(Await(*generations[i]).only().tokens, GreedyReference(prompts[i], 20));
    }
  }
}

TEST(Scheduling, TurnsAreEvenWhenNotAllDecodeRowsFit) {
  Rig rig({.slots = 4, .rows_max = 3});
  rig.runner.next = [](const Tokens&) { return 0; };
  GenerateRequest request = Greedy(Ids("a"), 60);
  request.choices = 4;
  rig.Run(request);
  rig.engine->Stop(milliseconds(0));
  std::map<int32_t, int> rows;
  for (size_t i = 1; i <= 40; ++i) {
    ASSERT_EQ(rig.runner.passes[i].size(), 3u);
    for (const exec::PassRow& row : rig.runner.passes[i]) ++rows[row.slot];
  }
  for (int32_t slot = 0; slot < 4; ++slot) EXPECT_EQ(rows[slot], 30) << slot;
}

TEST(Scheduling, APromptIsFedThoughDecodeRowsFillEveryPass) {
  for (const int32_t rows_max : {1, 2}) {
    Rig rig({.slots = 3, .rows_max = rows_max});
    rig.runner.next = [](const Tokens&) { return 0; };
    Gate gate;
    rig.runner.before_run = [&](auto) { gate.Enter(); };
    Engine& engine = rig.Start();
    auto one = engine.Submit(Greedy(Ids("a"), 100));
    auto two = engine.Submit(Greedy(Ids("b"), 100));
    auto prompt = engine.Submit(Greedy(Ids("cccc"), 1));
    gate.Open();
    Await(*prompt);
    Await(*one);
    Await(*two);
    engine.Stop(milliseconds(0));
    size_t last_prompt_pass = 0;
    for (size_t i = 0; i < rig.runner.passes.size(); ++i) {
      for (const exec::PassRow& row : rig.runner.passes[i]) {
        if (row.token == Ids("c")[0]) last_prompt_pass = i;
      }
    }
    EXPECT_LE(last_prompt_pass, 20u) << "of " << rig.runner.passes.size() << " passes";
  }
}

TEST(Scheduling, ProgressBeginsAtTheCachedPartAndEndsAtTheTotal) {
  Rig rig({.rows_max = 4}, {.batch_rows = 4});
  GenerateRequest request = Greedy(Ids("abcdefghij"), 1);
  request.return_progress = true;
  Collected first = rig.Run(request);
  EXPECT_THAT(Processed(first), ElementsAre(0, 4, 8, 10));
  EXPECT_EQ(first.progress[0].cache, 0);
  EXPECT_EQ(first.progress[0].total, 10);
  Collected second = rig.Run(request);
  EXPECT_THAT(Processed(second), ElementsAre(9, 10));
  EXPECT_EQ(second.progress[0].cache, 9);
  request.return_progress = false;
  EXPECT_TRUE(rig.Run(request).progress.empty());
}

TEST(Scheduling, ProgressComesOncePerBatchOfSeveralUbatches) {
  Rig rig({.rows_max = 2}, {.batch_rows = 6, .ubatch_rows = 2});
  GenerateRequest request = Greedy(Ids("abcdefghijklmn"), 1);  // 14
  request.return_progress = true;
  EXPECT_THAT(Processed(rig.Run(request)), ElementsAre(0, 6, 12, 14));
}

TEST(Scheduling, TimingsFollowTheClock) {
  Rig rig({.rows_max = 4});
  rig.runner.before_run = [&](auto) { rig.clock.Advance(milliseconds(10)); };
  rig.runner.next = [](const Tokens&) { return 0; };
  const Timings timings = rig.Run(Greedy(Ids("abcdefghij"), 5)).finish().timings;
  EXPECT_DOUBLE_EQ(timings.prompt_ms, 30);  // three passes
  EXPECT_DOUBLE_EQ(timings.prompt_per_token_ms, 3);
  EXPECT_DOUBLE_EQ(timings.predicted_ms, 40);  // four more
  EXPECT_DOUBLE_EQ(timings.predicted_per_token_ms, 10);
  EXPECT_DOUBLE_EQ(timings.predicted_per_second, 100);
}

TEST(Scheduling, SlotsShowTheRunningAndThenTheFinishedTask) {
  Rig rig({.slots = 2});
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  rig.runner.next = [](const Tokens&) { return kNewline; };
  Engine& engine = rig.Start();
  SlotInfo slot = engine.SlotsSnapshot()[0];
  EXPECT_EQ(slot.request, nullptr);
  EXPECT_EQ(slot.id_task, -1);
  EXPECT_EQ(slot.n_ctx, 128);
  EXPECT_FALSE(slot.is_processing);

  auto generation = engine.Submit(Greedy(Ids("abc"), 5));
  gate.Permit(2);
  gate.AwaitEntered(3);  // the prompt's pass and one more are done
  slot = engine.SlotsSnapshot()[0];
  EXPECT_TRUE(slot.is_processing);
  EXPECT_EQ(slot.id_task, generation->id_task());
  EXPECT_EQ(slot.request->prompt, Ids("abc"));
  EXPECT_EQ(slot.n_prompt_tokens, 3);
  EXPECT_EQ(slot.n_prompt_tokens_processed, 3);
  EXPECT_EQ(slot.n_prompt_tokens_cache, 0);
  EXPECT_TRUE(slot.has_next_token);
  EXPECT_TRUE(slot.has_new_line);
  EXPECT_EQ(slot.n_decoded, 2);
  EXPECT_EQ(slot.n_remain, 3);
  EXPECT_FALSE(engine.SlotsSnapshot()[1].is_processing);
  EXPECT_EQ(engine.ReadMetrics().slots_busy, 1);

  gate.Open();
  Await(*generation);
  slot = engine.SlotsSnapshot()[0];  // at once: published before the last event
  EXPECT_FALSE(slot.is_processing);
  EXPECT_FALSE(slot.has_next_token);
  EXPECT_EQ(slot.n_remain, -1);
  EXPECT_EQ(slot.n_decoded, 0);
  EXPECT_EQ(slot.id_task, generation->id_task());
  EXPECT_EQ(slot.n_tokens, 3 + 4);
  EXPECT_EQ(engine.ReadMetrics().slots_busy, 0);
}

TEST(Scheduling, CountersAreTheSumsOfTheTimings) {
  Rig rig({.slots = 2, .rows_max = 4});
  rig.runner.before_run = [&](auto) { rig.clock.Advance(milliseconds(1)); };
  Metrics sum;
  for (const char* prompt : {"abcdef", "abcxyz", "abcdef", "q"}) {
    const Timings timings = rig.Run(Greedy(Ids(prompt), 6)).finish().timings;
    sum.prompt_tokens += static_cast<uint64_t>(timings.prompt_n);
    sum.prompt_tokens_cached += static_cast<uint64_t>(timings.cache_n);
    sum.predicted_tokens += static_cast<uint64_t>(timings.predicted_n);
    sum.prompt_seconds += timings.prompt_ms / 1000;
    sum.predicted_seconds += timings.predicted_ms / 1000;
  }
  const Metrics metrics = rig.engine->ReadMetrics();
  EXPECT_EQ(metrics.prompt_tokens, sum.prompt_tokens);
  EXPECT_EQ(metrics.prompt_tokens_cached, sum.prompt_tokens_cached);
  EXPECT_GT(metrics.prompt_tokens_cached, 0u);
  EXPECT_EQ(metrics.predicted_tokens, sum.predicted_tokens);
  EXPECT_DOUBLE_EQ(metrics.prompt_seconds, sum.prompt_seconds);
  EXPECT_DOUBLE_EQ(metrics.predicted_seconds, sum.predicted_seconds);
  EXPECT_EQ(metrics.requests_finished, 4u);
  rig.engine->Stop(milliseconds(0));
  EXPECT_EQ(metrics.passes, rig.runner.passes.size());
  EXPECT_EQ(metrics.rows, static_cast<uint64_t>(rig.runner.rows_run));
}

TEST(Cancel, DuringAPromptFreesTheSlotWithinOnePassAndKeepsItsTokens) {
  Rig rig({.rows_max = 4});
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  Engine& engine = rig.Start();
  const Tokens prompt = Ids("abcdefghijklmnopqrst");
  auto generation = engine.Submit(Greedy(prompt, 5));
  gate.Permit(1);
  gate.AwaitEntered(2);
  generation->Cancel();
  gate.Open();
  Collected collected = Await(*generation);
  ASSERT_TRUE(collected.failed.has_value());
  EXPECT_EQ(collected.failed->kind, ErrorKind::kCancelled);
  EXPECT_FALSE(engine.SlotsSnapshot()[0].is_processing);
  EXPECT_EQ(engine.SlotsSnapshot()[0].n_tokens, 8);  // the pass in flight, and no other
  EXPECT_EQ(engine.ReadMetrics().requests_cancelled, 1u);
  EXPECT_EQ(engine.ReadMetrics().prompt_tokens, 8u);
  Collected again = rig.Run(Greedy(prompt, 5));
  EXPECT_EQ(again.finish().timings.cache_n, 8);
  EXPECT_EQ(again.only().tokens, GreedyReference(prompt, 5));
}

TEST(Cancel, DuringAStreamFreesTheSlotForTheNextRequest) {
  Rig rig;
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  rig.runner.next = [](const Tokens&) { return 0; };
  Engine& engine = rig.Start();
  auto endless = engine.Submit(Greedy(Ids("abc"), -1));
  auto waiting = engine.Submit(Greedy(Ids("abcaax"), 2));
  gate.Permit(2);
  gate.AwaitEntered(3);
  endless->Cancel();
  gate.Open();
  EXPECT_EQ(Await(*waiting).finish().timings.cache_n, 5);  // the prompt and two generated tokens
  EXPECT_EQ(Await(*endless).only().tokens.size(), 3u);     // the pass in flight was the last
}

TEST(Cancel, OfAWaitingRequestTakesItOutOfTheQueue) {
  Rig rig;
  Gate gate;
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  Engine& engine = rig.Start();
  auto running = engine.Submit(Greedy(Ids("a"), 2));
  gate.AwaitEntered(1);
  auto waiting = engine.Submit(Greedy(Ids("b"), 2));
  waiting->Cancel();
  gate.Permit(1);
  Collected collected = Await(*waiting);
  EXPECT_EQ(collected.failed->kind, ErrorKind::kCancelled);
  EXPECT_FALSE(collected.begin.has_value());
  EXPECT_EQ(engine.ReadMetrics().requests_waiting, 0);
  gate.Open();
  Await(*running);
  rig.engine->Stop(milliseconds(0));
  for (const auto& pass : rig.runner.passes) EXPECT_NE(pass[0].token, 1);
}

TEST(Cancel, AfterTheEndDoesNothing) {
  Rig rig;
  Engine& engine = rig.Start();
  auto generation = engine.Submit(Greedy(Ids("a"), 2));
  Await(*generation);
  generation->Cancel();
  EXPECT_EQ(rig.Run(Greedy(Ids("a"), 2)).finish().tokens_predicted, 2);
  EXPECT_EQ(engine.ReadMetrics().requests_cancelled, 0u);
}

}  // namespace
}  // namespace bloomery::engine
