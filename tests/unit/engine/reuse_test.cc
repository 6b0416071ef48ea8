// What a request takes over, and from where: slots, the prompt cache in memory, its folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/engine/engine_test_support.h"

namespace bloomery::engine {
namespace {

using ::testing::HasSubstr;

// `count` tokens that no text of another `own` begins with.
Tokens Text(int count, int own) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((own + i * (own + 1)) % 26);
  return tokens;
}

EngineOptions Cached(uint64_t bytes = 1 << 20, const std::string& folder = "") {
  EngineOptions options;
  options.cache.ram_bytes = bytes;
  options.cache.folder = folder;
  options.cache.folder_bytes = 1 << 20;
  options.cache.identity = {{"model", "test"}};
  return options;
}

constexpr exec::SeatLimits kLong{.slots = 1, .slot_context = 400, .rows_max = 64};
constexpr exec::SeatLimits kTwo{.slots = 2, .slot_context = 400, .rows_max = 64};

// Runs greedily and expects the text of a cold run.
Timings RunExact(Rig& rig, const Tokens& prompt, int32_t id_slot = -1) {
  GenerateRequest request = Greedy(prompt, 5);
  request.id_slot = id_slot;
  Collected collected = rig.Run(request);
  EXPECT_EQ(collected.only().tokens, GreedyReference(prompt, 5));
  return collected.finish().timings;
}

TEST(ReuseTest, AStateSurvivesAnotherConversationInItsSlot) {
  Rig rig(kLong, Cached());
  const Tokens a = Text(300, 1);
  const Tokens b = Text(290, 2);
  EXPECT_EQ(RunExact(rig, a).cache_n, 0);
  EXPECT_EQ(RunExact(rig, b).cache_n, 0);
  EXPECT_EQ(RunExact(rig, a).cache_n, 299);
  EXPECT_EQ(RunExact(rig, b).cache_n, 289);
  const Metrics metrics = rig.engine->ReadMetrics();
  EXPECT_EQ(metrics.reuse.memory, 299U + 289U);
  EXPECT_EQ(metrics.reuse.requests_reusing, 2U);
  EXPECT_EQ(metrics.prompt_tokens_cached, 299U + 289U);
}

TEST(ReuseTest, WithoutACacheNothingSurvives) {
  Rig rig(kLong);
  RunExact(rig, Text(100, 1));
  RunExact(rig, Text(100, 2));
  EXPECT_EQ(RunExact(rig, Text(100, 1)).cache_n, 0);
}

TEST(ReuseTest, APrefixMayEndInsideABlockOnTopOfWhatTheSlotHolds) {
  Rig rig(kLong, Cached());
  const Tokens a = Text(300, 1);
  Tokens fork(a.begin(), a.begin() + 200);
  fork.insert(fork.end(), 30, 25);
  Tokens shorter(a.begin(), a.begin() + 150);
  shorter.insert(shorter.end(), 30, 24);
  RunExact(rig, a);
  EXPECT_EQ(RunExact(rig, shorter).cache_n, 150);  // the slot's own
  EXPECT_EQ(RunExact(rig, fork).cache_n, 200);     // 150 of its own and 50 from memory
  EXPECT_EQ(rig.engine->ReadMetrics().reuse.memory, 50U);
}

TEST(ReuseTest, AnotherSlotsPrefixIsCopiedAlsoIntoANamedSlot) {
  Rig rig(kTwo);
  const Tokens a = Text(120, 1);
  RunExact(rig, a, 0);
  EXPECT_EQ(RunExact(rig, a, 1).cache_n, 119);
  EXPECT_EQ(rig.engine->ReadMetrics().reuse.other_slots, 119U);
}

TEST(ReuseTest, CachePromptOffEvaluatesEverythingAndStillSavesWhatWasThere) {
  Rig rig(kLong, Cached());
  const Tokens a = Text(200, 1);
  RunExact(rig, a);
  GenerateRequest off = Greedy(Text(100, 2), 2);
  off.cache_prompt = false;
  EXPECT_EQ(rig.Run(off).finish().timings.cache_n, 0);
  EXPECT_EQ(RunExact(rig, a).cache_n, 199);
}

TEST(ReuseTest, AFreeSlotIsChosenBySimilarityElseTheOldest) {
  Rig rig(kTwo);
  const Tokens a = Text(100, 1);
  RunExact(rig, a, 1);
  RunExact(rig, Text(100, 2), 0);
  Collected similar = rig.Run(Greedy(a, 1));
  EXPECT_EQ(similar.begin->id_slot, 1);
  // A tenth of the prompt is no reason: slot 0 is the oldest now, whatever slot 1 holds.
  Tokens barely(a.begin(), a.begin() + 9);
  barely.insert(barely.end(), 91, 25);
  EXPECT_EQ(rig.Run(Greedy(barely, 1)).begin->id_slot, 0);
}

TEST(ReuseTest, RowsThatCannotBeReadOrTakenUpCostReuseOnly) {
  Rig rig(kLong, Cached());
  bool broken = true;
  rig.runner.before_append = [&](int32_t) {
    if (broken) throw Error(ErrorKind::kDevice, "no");
  };
  RunExact(rig, Text(200, 1));
  RunExact(rig, Text(200, 2));
  EXPECT_EQ(RunExact(rig, Text(200, 1)).cache_n, 0);
  rig.runner.before_read = [](int32_t) { throw Error(ErrorKind::kDevice, "no"); };
  broken = false;
  RunExact(rig, Text(200, 3));
  EXPECT_EQ(RunExact(rig, Text(200, 3)).cache_n, 199);
}

TEST(ReuseTest, TheFolderOutlivesTheEngine) {
  const test::TempDir folder;
  const Tokens a = Text(300, 1);
  {
    Rig rig(kLong, Cached(1 << 20, folder.path()));
    RunExact(rig, a);
  }
  Rig rig(kLong, Cached(1 << 20, folder.path()));
  EXPECT_EQ(RunExact(rig, a).cache_n, 299);
  EXPECT_EQ(rig.engine->ReadMetrics().reuse.folder, 299U);
}

SlotAction::Result Act(Engine& engine, SlotAction::Kind kind, const std::string& path = "") {
  std::promise<SlotAction::Result> promise;
  engine.Submit({.kind = kind, .slot = 0, .path = path, .done = [&](const SlotAction::Result& r) {
                   promise.set_value(r);
                 }});
  return promise.get_future().get();
}

TEST(SlotActionTest, SavedErasedAndRestoredASlotGoesOnWithItsTokens) {
  const test::TempDir folder;
  Rig rig(kLong, Cached());
  const Tokens a = Text(200, 1);
  RunExact(rig, a);
  const SlotAction::Result saved = Act(*rig.engine, SlotAction::Kind::kSave, folder.File("s"));
  EXPECT_FALSE(saved.error.has_value());
  EXPECT_EQ(saved.tokens, 204);
  EXPECT_EQ(Act(*rig.engine, SlotAction::Kind::kErase).tokens, 204);
  EXPECT_EQ(RunExact(rig, a).cache_n, 0);
  Act(*rig.engine, SlotAction::Kind::kErase);
  const SlotAction::Result read = Act(*rig.engine, SlotAction::Kind::kRestore, folder.File("s"));
  EXPECT_EQ(read.tokens, 204);
  EXPECT_EQ(read.bytes, saved.bytes);
  EXPECT_EQ(RunExact(rig, a).cache_n, 199);
}

TEST(SlotActionTest, AFailedRestoreLeavesTheSlotEmptyAndUsable) {
  const test::TempDir folder;
  Rig rig(kLong);
  RunExact(rig, Text(50, 1));
  const SlotAction::Result refused =
      Act(*rig.engine, SlotAction::Kind::kRestore, folder.File("no"));
  ASSERT_TRUE(refused.error.has_value());
  EXPECT_THAT(refused.error->what(), HasSubstr("'no'"));
  EXPECT_EQ(std::string(refused.error->what()).find(folder.path()), std::string::npos);
  EXPECT_EQ(rig.engine->SlotsSnapshot()[0].n_tokens, 0);
  RunExact(rig, Text(50, 1));
}

TEST(SlotActionTest, ASlotThatDoesNotExistIsRefusedAndABusyOneIsWaitedFor) {
  const test::TempDir folder;
  Gate gate;
  Rig rig(kLong);
  rig.runner.before_run = [&](auto) { gate.Enter(); };
  Engine& engine = rig.Start();
  EXPECT_EQ(test::RefusalOf([&] { engine.Submit(SlotAction{.slot = 1}); }).kind,
            ErrorKind::kBadRequest);
  const auto running = engine.Submit(Greedy(Text(20, 1), 4));
  gate.AwaitEntered(1);
  std::promise<SlotAction::Result> promise;
  engine.Submit({.kind = SlotAction::Kind::kErase,
                 .done = [&](const SlotAction::Result& r) { promise.set_value(r); }});
  gate.Open();
  // All but the last token it drew, which was not evaluated.
  const size_t drawn = GreedyReference(Text(20, 1), 4).size();
  EXPECT_EQ(promise.get_future().get().tokens, static_cast<int32_t>(20 + drawn - 1));
  Await(*running);
}

}  // namespace
}  // namespace bloomery::engine
