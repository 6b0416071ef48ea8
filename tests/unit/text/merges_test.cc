#include "runtime/text/merges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace bloomery::text {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<TokenId>;
using PlainTable = std::map<std::pair<TokenId, TokenId>, Merge>;

// The definition: look at all adjacent pairs, merge the leftmost of lowest rank, start again.
Ids MergeByDefinition(const PlainTable& table, Ids word) {
  while (true) {
    size_t best = word.size();
    uint32_t best_rank = UINT32_MAX;
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      const auto found = table.find({word[i], word[i + 1]});
      if (found != table.end() && found->second.rank < best_rank) {
        best = i;
        best_rank = found->second.rank;
      }
    }
    if (best == word.size()) return word;
    word[best] = table.at({word[best], word[best + 1]}).result;
    word.erase(word.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(MergesTest, RandomTablesAndWordsMergeAsByDefinition) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    PlainTable plain;
    const auto merges = static_cast<uint32_t>(1 + random() % 60);
    MergeTable table(merges);
    TokenId next = 4;
    for (uint32_t rank = 0; rank < merges; ++rank) {
      const auto pair = std::pair(static_cast<TokenId>(random() % static_cast<uint64_t>(next)),
                                  static_cast<TokenId>(random() % static_cast<uint64_t>(next)));
      const Merge merge{rank, next++};
      plain.emplace(pair, merge);
      table.Add(pair.first, pair.second, merge);
    }
    Merger merger(table);
    for (int w = 0; w < 20; ++w) {
      Ids word(random() % 40);
      for (TokenId& id : word) id = static_cast<TokenId>(random() % 4);
      Ids merged;
      merger.Run(word, merged);
      EXPECT_EQ(merged, MergeByDefinition(plain, word));
    }
  }
}

TEST(MergesTest, TheFirstOfTwoMergesOfAPairCounts) {
  MergeTable table(2);
  table.Add(1, 2, {0, 10});
  table.Add(1, 2, {1, 11});
  EXPECT_EQ(table.Find(1, 2)->result, 10);
  EXPECT_EQ(table.Find(2, 1), nullptr);
}

TEST(MergesTest, RunAppends) {
  MergeTable table(1);
  table.Add(1, 1, {0, 2});
  Merger merger(table);
  Ids out = {9};
  merger.Run(Ids{1, 1, 1}, out);
  merger.Run(Ids{}, out);
  EXPECT_THAT(out, ElementsAre(9, 2, 1));
}

TEST(MergesTest, AMillionLettersQueueAtMostThreePairsEach) {
  // a a → 2, 2 2 → 3, … and pairs that invite a new merge at both ends of each.
  MergeTable table(24);
  for (TokenId id = 1; id <= 20; ++id) table.Add(id, id, {static_cast<uint32_t>(id), id + 1});
  Merger merger(table);
  Ids out;
  constexpr size_t kLetters = 1u << 20;
  merger.Run(Ids(kLetters, 1), out);
  EXPECT_THAT(out, ElementsAre(21));
  EXPECT_LE(merger.pairs_queued(), 3 * kLetters);
}

}  // namespace
}  // namespace bloomery::text
