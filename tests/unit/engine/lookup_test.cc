// Drafts by looking up, against a search over all places by hand.
#include "runtime/engine/lookup.h"

#include <gtest/gtest.h>

#include <random>

namespace bloomery::engine {
namespace {

using Tokens = std::vector<text::TokenId>;

Tokens DraftOf(Lookup& lookup, int32_t count) {
  Tokens draft;
  lookup.Draft(count, &draft);
  return draft;
}

TEST(Lookup, WhatFollowedTheLastTokensBeforeIsTheDraft) {
  Lookup lookup(64);
  lookup.Set(Tokens{1, 2, 3, 4, 5, 9, 2, 3});
  EXPECT_EQ(DraftOf(lookup, 3), (Tokens{4, 5, 9}));
  EXPECT_EQ(DraftOf(lookup, 1), (Tokens{4}));
}

TEST(Lookup, ATokenAloneIsNoMatch) {
  Lookup lookup(64);
  lookup.Set(Tokens{1, 2, 3, 4, 2});
  EXPECT_TRUE(DraftOf(lookup, 3).empty());
  lookup.Set(Tokens{7});
  EXPECT_TRUE(DraftOf(lookup, 3).empty());
  lookup.Set({});
  EXPECT_TRUE(DraftOf(lookup, 3).empty());
}

TEST(Lookup, TheLongerMatchWinsAndThenTheLater) {
  Lookup lookup(64);
  // "1 2 3" → 10 is longer than the later "2 3" → 20.
  lookup.Set(Tokens{1, 2, 3, 10, 8, 2, 3, 20, 1, 2, 3});
  EXPECT_EQ(DraftOf(lookup, 1), (Tokens{10}));
  lookup.Set(Tokens{2, 3, 10, 8, 2, 3, 20, 5, 2, 3});
  EXPECT_EQ(DraftOf(lookup, 1), (Tokens{20}));
}

TEST(Lookup, WhatRepeatsGoesOnBeyondTheEnd) {
  Lookup lookup(64);
  lookup.Set(Tokens{5, 6, 5, 6});
  EXPECT_EQ(DraftOf(lookup, 5), (Tokens{5, 6, 5, 6, 5}));
}

TEST(Lookup, ACutAndGrownIndexDraftsAsOneThatIsNew) {
  std::mt19937 random(5);
  Lookup kept(256);
  Tokens tokens;
  for (int round = 0; round < 400; ++round) {
    const size_t keep = tokens.empty() ? 0 : random() % (tokens.size() + 1);
    if (random() % 3 == 0) tokens.resize(keep);
    for (size_t n = random() % 6; n > 0 && tokens.size() < 256; --n) {
      tokens.push_back(static_cast<text::TokenId>(random() % 3));
    }
    if (random() % 2 == 0) {
      kept.Set(tokens);
    } else {
      if (kept.size() > static_cast<int32_t>(tokens.size())) continue;
      Tokens front(tokens.begin(), tokens.begin() + kept.size());
      kept.Set(front);
      while (kept.size() < static_cast<int32_t>(tokens.size())) {
        kept.Push(tokens[static_cast<size_t>(kept.size())]);
      }
    }
    Lookup fresh(256);
    fresh.Set(tokens);
    ASSERT_EQ(DraftOf(kept, 4), DraftOf(fresh, 4)) << "round " << round;
  }
}

}  // namespace
}  // namespace bloomery::engine
