// Models whose slots cannot be cut by position: where they are taken up again.
#include "runtime/engine/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>

#include "tests/support/temp_dir.h"
#include "tests/unit/engine/engine_test_support.h"

namespace bloomery::engine {
namespace {

constexpr exec::SeatLimits kLong{.slots = 1, .slot_context = 6000, .rows_max = 300};

Tokens Text(int count, int own) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((own + i * (own + 1)) % 26);
  return tokens;
}

EngineOptions Cached(uint64_t bytes = 1 << 20) {
  EngineOptions options;
  options.cache.ram_bytes = bytes;
  options.cache.identity = {{"model", "test"}};
  return options;
}

// A rig whose runner keeps a state that rows overwrite.
struct StateRig : Rig {
  explicit StateRig(EngineOptions options) : Rig(kLong, std::move(options)) {
    runner.with_state = true;
  }
};

Timings RunExact(Rig& rig, const Tokens& prompt, int answer = 5) {
  Collected collected = rig.Run(Greedy(prompt, answer));
  EXPECT_EQ(collected.only().tokens, GreedyReference(prompt, answer));
  return collected.finish().timings;
}

TEST(CheckpointsTest, APromptIsTakenUpAgainNearItsEnd) {
  StateRig rig(Cached());
  const Tokens a = Text(700, 1);
  EXPECT_EQ(RunExact(rig, a).cache_n, 0);
  EXPECT_EQ(RunExact(rig, a).cache_n, 700 - Checkpoints::kBack);
}

TEST(CheckpointsTest, AForkIsTakenUpAtTheLastCheckpointBeforeIt) {
  StateRig rig(Cached());
  const Tokens a = Text(1700, 1);
  RunExact(rig, a);
  Tokens fork(a.begin(), a.begin() + 1300);
  fork.insert(fork.end(), 40, 25);
  EXPECT_EQ(RunExact(rig, fork).cache_n, 1024);
}

TEST(CheckpointsTest, AStateSurvivesAnotherConversationInItsSlot) {
  StateRig rig(Cached());
  const Tokens a = Text(900, 1);
  const Tokens b = Text(800, 2);
  RunExact(rig, a);
  RunExact(rig, b);
  const Timings again = RunExact(rig, a);
  EXPECT_EQ(again.cache_n, 900 - Checkpoints::kBack);
  EXPECT_GT(rig.engine->ReadMetrics().reuse.memory, 0U);
  EXPECT_EQ(RunExact(rig, b).cache_n, 800 - Checkpoints::kBack);
}

// The next turn of a conversation continues what the slot holds, answer and all.
TEST(CheckpointsTest, AConversationGoesOnBehindItsAnswer) {
  StateRig rig(Cached());
  Tokens turn = Text(600, 1);
  const Tokens answer = GreedyReference(turn, 5);
  RunExact(rig, turn);
  turn.insert(turn.end(), answer.begin(), answer.end() - 1);  // the last token was never evaluated
  turn.insert(turn.end(), 30, 7);
  EXPECT_EQ(RunExact(rig, turn).cache_n, 604);
}

TEST(CheckpointsTest, WithoutMemoryForThemAForkStartsOver) {
  StateRig rig(Cached(0));
  const Tokens a = Text(700, 1);
  RunExact(rig, a);
  EXPECT_EQ(RunExact(rig, a).cache_n, 0);
}

TEST(CheckpointsTest, ARestoreThatFailsCostsReuseAndNothingElse) {
  StateRig rig(Cached());
  rig.runner.before_restore = [](int32_t) { throw Error(ErrorKind::kDevice, "the card is gone"); };
  const Tokens a = Text(700, 1);
  RunExact(rig, a);
  EXPECT_EQ(RunExact(rig, a).cache_n, 0);
}

TEST(CheckpointsTest, ASlotFileHoldsTheStateBehindItsRows) {
  const test::TempDir folder;
  StateRig rig(Cached(0));
  const Tokens a = Text(300, 1);
  RunExact(rig, a);
  const auto act = [&](SlotAction::Kind kind) {
    std::promise<SlotAction::Result> promise;
    rig.engine->Submit({.kind = kind,
                        .slot = 0,
                        .path = folder.File("a.state"),
                        .done = [&](const SlotAction::Result& r) { promise.set_value(r); }});
    return promise.get_future().get();
  };
  EXPECT_FALSE(act(SlotAction::Kind::kSave).error);
  RunExact(rig, Text(200, 2));
  EXPECT_FALSE(act(SlotAction::Kind::kRestore).error);
  Tokens next = a;
  const Tokens answer = GreedyReference(a, 5);
  next.insert(next.end(), answer.begin(), answer.end() - 1);
  next.insert(next.end(), 20, 3);
  EXPECT_EQ(RunExact(rig, next).cache_n, 304);
}

// Against a runner alone: which checkpoints of a growing conversation stay.
EngineOptions InFolder(const std::string& folder, uint64_t bytes = 1 << 20) {
  EngineOptions options = Cached();
  options.cache.folder = folder;
  options.cache.folder_bytes = bytes;
  return options;
}

std::vector<std::string> Marks(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".mark") names.push_back(entry.path().string());
  }
  std::ranges::sort(names);
  return names;
}

TEST(CheckpointFilesTest, AConversationGoesOnAfterTheServersEndFromItsLastCheckpoint) {
  const test::TempDir folder;
  const Tokens a = Text(1700, 1);
  Tokens grown = a;
  {
    StateRig rig(InFolder(folder.path()));
    Collected collected = rig.Run(Greedy(a, 5));
    const Tokens answer = collected.only().tokens;
    grown.insert(grown.end(), answer.begin(), answer.end());
    grown.insert(grown.end(), 40, 7);
    rig.engine->Stop(std::chrono::seconds(1));
  }
  ASSERT_FALSE(Marks(folder.path()).empty());
  StateRig rig(InFolder(folder.path()));
  // All but the answer's last token had been evaluated.
  EXPECT_EQ(RunExact(rig, grown).cache_n, 1704);
  EXPECT_EQ(rig.runner.states_restored, 1);
  EXPECT_EQ(rig.engine->ReadMetrics().reuse.folder, 1704U);
  // A fork before the end goes on from the longest one before it.
  rig.engine.reset();
  StateRig forked(InFolder(folder.path()));
  Tokens fork(a.begin(), a.begin() + 1300);
  fork.insert(fork.end(), 40, 25);
  EXPECT_EQ(RunExact(forked, fork).cache_n, 1024);
}

TEST(CheckpointFilesTest, DamagedOnesAreNeverTakenUpAndAreRemoved) {
  const test::TempDir folder;
  const Tokens a = Text(700, 1);
  {
    StateRig rig(InFolder(folder.path()));
    RunExact(rig, a);
    rig.engine->Stop(std::chrono::seconds(1));
  }
  const std::vector<std::string> marks = Marks(folder.path());
  ASSERT_EQ(marks.size(), 3U);             // at 512, before the prompt's end, behind the answer
  for (const std::string& path : marks) {  // the last byte of the state, before its checksum
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-9, std::ios::end);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-9, std::ios::end);
    file.put(byte);
  }
  StateRig rig(InFolder(folder.path()));
  EXPECT_EQ(RunExact(rig, a).cache_n, 0);
  EXPECT_EQ(rig.engine->ReadMetrics().cache.refused_files, 1U);
  rig.engine.reset();
  // The one that was wanted is gone, and was written anew; so it is found now.
  StateRig again(InFolder(folder.path()));
  EXPECT_EQ(RunExact(again, a).cache_n, 700 - Checkpoints::kBack);
}

TEST(CheckpointFilesTest, TheFolderKeepsItsLimitAndAnErasedSlotLeavesNone) {
  const test::TempDir folder;
  {
    StateRig rig(InFolder(folder.path(), 40000));
    for (int i = 1; i < 8; ++i) RunExact(rig, Text(900, i));
    rig.engine->Stop(std::chrono::seconds(1));
  }
  uint64_t bytes = 0;
  for (const std::string& path : Marks(folder.path())) bytes += std::filesystem::file_size(path);
  EXPECT_GT(bytes, 0U);
  EXPECT_LE(bytes, 20000U);  // half
  const test::TempDir other;
  StateRig rig(InFolder(other.path()));
  RunExact(rig, Text(900, 1));
  RunExact(rig, Text(900, 2));  // the first one's state leaves the slot
  RunExact(rig, Text(900, 1));
  std::promise<void> erased;
  rig.engine->Submit({.kind = SlotAction::Kind::kErase,
                      .done = [&](const SlotAction::Result&) { erased.set_value(); }});
  erased.get_future().wait();
  EXPECT_EQ(RunExact(rig, Text(900, 1)).cache_n, 0);
}

TEST(CheckpointFilesTest, AnotherModelsAreLeftAlone) {
  const test::TempDir folder;
  {
    StateRig rig(InFolder(folder.path()));
    RunExact(rig, Text(700, 1));
    rig.engine->Stop(std::chrono::seconds(1));
  }
  const std::vector<std::string> before = Marks(folder.path());
  EngineOptions other = InFolder(folder.path());
  other.cache.identity = {{"model", "another"}};
  {
    StateRig rig(std::move(other));
    EXPECT_EQ(RunExact(rig, Text(700, 1)).cache_n, 0);
    rig.engine->Stop(std::chrono::seconds(1));
  }
  const std::vector<std::string> after = Marks(folder.path());
  EXPECT_TRUE(std::ranges::includes(after, before));
  StateRig rig(InFolder(folder.path()));
  EXPECT_EQ(RunExact(rig, Text(700, 1)).cache_n, 700 - Checkpoints::kBack);
}

TEST(CheckpointsTest, TheyThinOutBelowTheEndOfAConversation) {
  FakeRunner runner(
      {.slots = 1, .slot_context = 20000, .rows_max = 512, .vocabulary = kVocabulary});
  runner.with_state = true;
  Checkpoints checkpoints(runner, 1 << 20);
  Tokens tokens;
  for (int32_t row = 0; row < 10240; ++row) {
    const exec::PassRow pass{.slot = 0, .index = row, .token = row % 26};
    runner.Run({&pass, 1});
    tokens.push_back(row % 26);
    if ((row + 1) % Checkpoints::kEvery == 0) checkpoints.Take(0, tokens);
  }
  const auto longest = [&](int32_t rows) {
    const CheckpointPtr found = checkpoints.Longest(std::span(tokens).first(rows));
    return found == nullptr ? 0 : found->length();
  };
  EXPECT_EQ(longest(10240), 10240);
  EXPECT_EQ(longest(10239), 9728);  // 512 back
  // One each between 1,024 and 2,048, 2,048 and 4,096, 4,096 and 8,192 back.
  EXPECT_GE(checkpoints.count(), 5U);
  EXPECT_LE(checkpoints.count(), 7U);
  EXPECT_EQ(longest(6144), 4096);
}

TEST(CheckpointsTest, TheLeastRecentlyUsedMakesRoom) {
  FakeRunner runner({.slots = 1, .slot_context = 400, .rows_max = 64, .vocabulary = kVocabulary});
  runner.with_state = true;
  constexpr uint64_t kBytes = sizeof(uint64_t) + 40 * sizeof(text::TokenId);
  Checkpoints checkpoints(runner, 3 * kBytes - 1);
  std::vector<Tokens> texts;
  for (int own = 1; own <= 3; ++own) {
    const Tokens text = Text(40, own);
    runner.Cut(0, 0);
    std::vector<exec::PassRow> rows;
    for (int32_t i = 0; i < 40; ++i) {
      rows.push_back({.slot = 0, .index = i, .token = text[static_cast<size_t>(i)]});
    }
    runner.Run(rows);
    checkpoints.Take(0, text);
    texts.push_back(text);
    if (own == 2) {
      EXPECT_NE(checkpoints.Longest(texts[0]), nullptr);  // used: the second goes
    }
  }
  EXPECT_NE(checkpoints.Longest(texts[0]), nullptr);
  EXPECT_EQ(checkpoints.Longest(texts[1]), nullptr);
  EXPECT_NE(checkpoints.Longest(texts[2]), nullptr);
  EXPECT_EQ(checkpoints.bytes(), 2 * kBytes);
}

}  // namespace
}  // namespace bloomery::engine
