#include "runtime/text/reasoning_budget.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bloomery::text {
namespace {

ReasoningLimit Limit(int32_t tokens, bool starts_inside) {
  return {.tokens = tokens,
          .starts_inside = starts_inside,
          .open = "<think>",
          .closes = {"</think>", "[done]"},
          .ending = {7, 8}};
}

// The pieces as they came, with # for each that was forced.
std::string Taken(ReasoningLimit limit, const std::vector<std::string>& drawn) {
  ReasoningBudget budget(std::move(limit));
  std::string seen;
  for (const std::string& piece : drawn) {
    while (const auto forced = budget.Forced()) {
      seen += "#" + std::to_string(*forced);
      budget.Accept(*forced == 8 ? "</think>" : "enough");
    }
    seen += piece;
    budget.Accept(piece);
  }
  if (budget.Forced()) seen += "#";
  return seen;
}

TEST(ReasoningBudget, ForcesTheEndingAfterSoManyTokensInsideTheSpan) {
  EXPECT_EQ(Taken(Limit(2, true), {"a", "b", "c", "d"}), "ab#7#8cd");
  EXPECT_EQ(Taken(Limit(2, false), {"x", "<think>", "a", "b", "c"}), "x<think>ab#7#8c");
}

TEST(ReasoningBudget, ClosesAtOnceWhenItIsToldTo) {
  ReasoningLimit limit = Limit(1000, true);
  limit.stop = std::make_shared<std::atomic<bool>>(false);
  ReasoningBudget budget(limit);
  budget.Accept("a");
  EXPECT_FALSE(budget.Forced());
  limit.stop->store(true);
  budget.Accept("b");
  EXPECT_EQ(budget.Forced(), 7);
}

TEST(ReasoningBudget, ZeroClosesASpanWhereItOpens) {
  EXPECT_EQ(Taken(Limit(0, true), {"a"}), "#7#8a");
  EXPECT_EQ(Taken(Limit(0, false), {"a", "<think>", "b"}), "a<think>#7#8b");
}

TEST(ReasoningBudget, NoLimitForcesNothing) {
  EXPECT_EQ(Taken(Limit(-1, true), {"a", "b", "c"}), "abc");
  EXPECT_EQ(Taken({.tokens = 1, .starts_inside = true, .closes = {}, .ending = {}}, {"a", "b"}),
            "ab");
}

TEST(ReasoningBudget, ASpanThatClosesByItselfIsLeftAlone) {
  EXPECT_EQ(Taken(Limit(2, true), {"a", "</think>", "b", "c", "d"}), "a</think>bcd");
  EXPECT_EQ(Taken(Limit(2, true), {"a", "[done]", "b", "c", "d"}), "a[done]bcd");
}

TEST(ReasoningBudget, TheNextSpanHasABudgetOfItsOwn) {
  EXPECT_EQ(Taken(Limit(1, true), {"a", "x", "<think>", "b", "y", "z"}), "a#7#8x<think>b#7#8yz");
}

TEST(ReasoningBudget, TagsMayBeSeveralTokens) {
  EXPECT_EQ(Taken(Limit(1, false), {"<th", "ink", ">", "a", "b"}), "<think>a#7#8b");
  // "</th" and "ink" count, for nobody knows yet that they close the span.
  EXPECT_EQ(Taken(Limit(4, true), {"a", "</th", "ink", ">", "b", "c", "d"}), "a</think>bcd");
}

TEST(ReasoningBudget, WaitsForTheEndOfACharacter) {
  EXPECT_EQ(Taken(Limit(1, true), {"\xC3", "\xA9", "b"}), "\xC3\xA9#7#8b");
}

}  // namespace
}  // namespace bloomery::text
