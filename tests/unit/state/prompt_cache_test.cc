#include "runtime/state/prompt_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace bloomery::state {
namespace {

constexpr uint64_t kRowBytes = 8;
constexpr uint64_t kHeldBytes = kRowBytes + sizeof(Token);  // of memory: a row and its token
constexpr std::chrono::milliseconds kLong(20'000);

using Tokens = std::vector<Token>;

// `count` tokens that begin with `front` and go on with values of their own.
Tokens Text(int count, int own, const Tokens& front = {}) {
  Tokens tokens = front;
  for (int i = static_cast<int>(front.size()); i < count; ++i) tokens.push_back(own * 10'000 + i);
  return tokens;
}

struct Cache {
  explicit Cache(uint64_t rows_max, const std::string& folder = "", uint64_t folder_bytes = 1 << 20)
      : worker([] {}) {
    if (!folder.empty()) {
      disk =
          std::make_unique<DiskTier>(RealFileSystem(), folder, Identity{{"model", "m"}}, kRowBytes);
    }
    cache =
        std::make_unique<PromptCache>(PromptCache::Options{.row_bytes = kRowBytes,
                                                           .ram_bytes_max = rows_max * kHeldBytes,
                                                           .disk = disk.get(),
                                                           .worker = &worker,
                                                           .disk_bytes_max = folder_bytes});
  }
  // A row's bytes are its token twice. Returns the rows that were copied.
  int32_t Save(const Tokens& tokens) {
    return cache->Save(tokens, [&](int32_t first, int32_t rows, std::span<std::byte> room) {
      for (int32_t i = 0; i < rows; ++i) {
        const Token token = tokens[static_cast<size_t>(first) + static_cast<size_t>(i)];
        const Token twice[2] = {token, token};
        std::memcpy(room.data() + static_cast<size_t>(i) * kRowBytes, twice, kRowBytes);
      }
    });
  }
  // How many rows are at hand, every one of them checked to be of its token.
  int32_t AtHand(const Tokens& tokens) {
    const PromptCache::Match match = cache->Find(tokens);
    int32_t row = 0;
    for (const PromptCache::Step& step : match.steps) {
      EXPECT_EQ(step.first, row);
      if (step.block == nullptr) break;
      for (int32_t i = 0; i < step.rows; ++i, ++row) {
        Token found = 0;
        std::memcpy(&found, step.block->bytes().data() + static_cast<size_t>(i) * kRowBytes,
                    sizeof(found));
        EXPECT_EQ(found, tokens[static_cast<size_t>(row)]) << row;
      }
    }
    EXPECT_EQ(row, match.at_hand);
    return match.at_hand;
  }
  void Settle() {
    while (!worker.Drain(kLong)) {
    }
    worker.RunCompletions();
  }
  int32_t Load(const Tokens& tokens) {
    cache->Load(cache->Find(tokens), tokens);
    while (cache->loading()) Settle();
    return AtHand(tokens);
  }

  std::unique_ptr<DiskTier> disk;
  IoWorker worker;
  std::unique_ptr<PromptCache> cache;
};

TEST(PromptCacheTest, ASharedFrontIsStoredOnce) {
  Cache cache(100'000);
  const Tokens system = Text(300, 1);
  EXPECT_EQ(cache.Save(Text(500, 2, system)), 500);
  // The third block begins alike and goes on otherwise: it and what follows are copied.
  EXPECT_EQ(cache.Save(Text(500, 3, system)), 500 - 256);
  EXPECT_EQ(cache.cache->counters().ram_bytes, (500 + 500 - 256) * kHeldBytes);
  EXPECT_EQ(cache.AtHand(Text(500, 2, system)), 500);
  EXPECT_EQ(cache.AtHand(Text(500, 3, system)), 500);
  EXPECT_EQ(cache.AtHand(Text(500, 4, system)), 300);
  EXPECT_EQ(cache.AtHand(Text(9, 5)), 0);
}

TEST(PromptCacheTest, AConversationThatGrowsCopiesWhatIsNewAndItsLastBlock) {
  Cache cache(100'000);
  const Tokens first = Text(200, 1);
  cache.Save(first);
  const Tokens second = Text(290, 2, first);
  EXPECT_EQ(cache.Save(second), 290 - 128);
  EXPECT_EQ(cache.cache->counters().ram_bytes, 290 * kHeldBytes);  // the shorter block is gone
  EXPECT_EQ(cache.Save(second), 0);
  EXPECT_EQ(cache.Save(first), 0);  // covered
  EXPECT_EQ(cache.AtHand(second), 290);
}

TEST(PromptCacheTest, TheLimitIsKeptAndTheLeastValuableLeafGoes) {
  Cache cache(128 * 4);
  const Tokens a = Text(256, 1);
  const Tokens b = Text(256, 2);
  cache.Save(a);
  cache.Save(b);
  cache.cache->Use(cache.cache->Find(a));
  cache.Save(Text(128, 3));
  EXPECT_LE(cache.cache->counters().ram_bytes, 128 * 4 * kHeldBytes);
  EXPECT_EQ(cache.AtHand(a), 256);
  EXPECT_EQ(cache.AtHand(b), 128);  // its front is of use without its end
  EXPECT_EQ(cache.AtHand(Text(128, 3)), 128);
  EXPECT_EQ(cache.cache->counters().evicted_blocks, 1U);
}

TEST(PromptCacheTest, AStateAboveTheLimitKeepsItsFront) {
  Cache cache(128 * 2 + 5);
  cache.Save(Text(1000, 1));
  EXPECT_EQ(cache.AtHand(Text(1000, 1)), 256);
}

TEST(PromptCacheTest, RowsThatCannotBeReadCostNothingButThemselves) {
  Cache cache(100'000);
  int calls = 0;
  cache.cache->Save(Text(300, 1), [&](int32_t, int32_t, std::span<std::byte> room) {
    if (++calls == 2) throw Error(ErrorKind::kDevice, "the card is gone");
    std::ranges::fill(room, std::byte{0});
  });
  EXPECT_EQ(cache.cache->Find(Text(300, 1)).at_hand, 128);
}

TEST(PromptCacheTest, ForgottenIsGoneAndWhatOthersShareStays) {
  Cache cache(100'000);
  const Tokens system = Text(128, 1);
  cache.Save(Text(200, 2, system));
  cache.Save(Text(200, 3, system));
  cache.cache->Forget(Text(200, 2, system));
  EXPECT_EQ(cache.AtHand(Text(200, 2, system)), 128);
  EXPECT_EQ(cache.AtHand(Text(200, 3, system)), 200);
  cache.cache->Forget(Text(200, 3, system));
  EXPECT_EQ(cache.AtHand(Text(200, 3, system)), 0);
  EXPECT_EQ(cache.cache->counters().ram_bytes, 0U);
}

TEST(BlockValueTest, DearerRowsMoreUsesAndFewerBytesAreWorthMore) {
  const double base = BlockValue(0, 128, 1000, 0, 5);
  EXPECT_GT(BlockValue(100'000, 128, 1000, 0, 5), base);
  EXPECT_GT(BlockValue(0, 128, 1000, 3, 5), base);
  EXPECT_GT(BlockValue(0, 128, 1000, 0, 1), base);
  EXPECT_LT(BlockValue(0, 128, 4000, 0, 5), base);
}

TEST(PromptCacheFolder, StatesOutliveTheCacheAndItsMemory) {
  const test::TempDir folder;
  const Tokens a = Text(300, 1);
  {
    Cache cache(100'000, folder.path());
    cache.Save(a);
    cache.cache->WriteAll(kLong);
    EXPECT_EQ(cache.cache->counters().disk_blocks, 3U);
  }
  Cache cache(100'000, folder.path());
  EXPECT_EQ(cache.AtHand(a), 0);
  const PromptCache::Match match = cache.cache->Find(a);
  EXPECT_EQ(match.rows, 300);
  EXPECT_EQ(cache.Load(a), 300);
  EXPECT_EQ(cache.cache->counters().read_bytes, 300 * kRowBytes);
}

TEST(PromptCacheFolder, WhatLeftMemoryIsReadAgain) {
  const test::TempDir folder;
  Cache cache(128 * 2, folder.path());
  cache.Save(Text(256, 1));
  cache.Settle();
  cache.Save(Text(256, 2));
  cache.Settle();
  EXPECT_EQ(cache.AtHand(Text(256, 1)), 0);
  EXPECT_EQ(cache.Load(Text(256, 1)), 256);
  EXPECT_LE(cache.cache->counters().ram_bytes, 256 * kHeldBytes);
}

TEST(PromptCacheFolder, TheLimitOfTheFolderIsKept) {
  const test::TempDir folder;
  const uint64_t limit = 6000;
  Cache cache(100'000, folder.path(), limit);
  for (int i = 1; i <= 8; ++i) {
    cache.Save(Text(128, i));
    cache.cache->WriteAll(kLong);
    cache.Settle();
  }
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    bytes += file.file_size();
  }
  EXPECT_LE(bytes, limit);
  EXPECT_GT(bytes, limit / 2);
  EXPECT_EQ(cache.cache->counters().disk_bytes, bytes);
  EXPECT_GT(cache.cache->counters().evicted_files, 0U);
}

TEST(PromptCacheFolder, DamagedFilesAreNeverTakenUpAndAreRemoved) {
  const test::TempDir folder;
  const Tokens a = Text(300, 1);
  {
    Cache cache(100'000, folder.path());
    cache.Save(a);
    cache.cache->WriteAll(kLong);
  }
  // The last byte of a file is of its block's checksum: the header is sound, the rows are not.
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    if (file.file_size() == 0) continue;
    std::fstream stream(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-1, std::ios::end);
    stream.put('?');
  }
  Cache cache(100'000, folder.path());
  EXPECT_EQ(cache.Load(a), 0);
  EXPECT_EQ(cache.cache->counters().refused_files, 3U);
  cache.Settle();
  EXPECT_EQ(cache.disk->Scan().size(), 0U);
}

TEST(PromptCacheFolder, AnotherModelsFilesAreLeftUntilTheirRoomIsNeeded) {
  const test::TempDir folder;
  {
    const DiskTier other(RealFileSystem(), folder.path(), {{"model", "other"}}, kRowBytes);
    const Tokens tokens = Text(128, 1);
    other.Write(other.NameOf(tokens), tokens, 0, std::make_shared<Block>(128, kRowBytes));
  }
  Cache cache(100'000, folder.path(), 3000);
  EXPECT_EQ(cache.cache->Find(Text(128, 1)).rows, 0);
  EXPECT_EQ(cache.disk->Scan().size(), 1U);
  cache.Save(Text(256, 2));
  cache.cache->WriteAll(kLong);
  cache.Settle();
  for (const DiskTier::Found& found : cache.disk->Scan()) EXPECT_FALSE(found.tokens.empty());
}

TEST(PromptCacheFolder, AFolderHasOneServer) {
  const test::TempDir folder;
  const Cache cache(1000, folder.path());
  EXPECT_THAT(test::RefusalOf([&] { const Cache second(1000, folder.path()); }).message,
              ::testing::HasSubstr("another server"));
}

}  // namespace
}  // namespace bloomery::state
