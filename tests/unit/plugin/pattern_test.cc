#include "runtime/plugin/pattern.h"

#include <gtest/gtest.h>

namespace bloomery::plugin {
namespace {

TEST(Pattern, LayerIsPutInEverywhere) {
  EXPECT_EQ(PutLayer("blk.{l}.q.{l}", 12), "blk.12.q.12");
  EXPECT_EQ(PutLayer("output.weight", 3), "output.weight");
}

TEST(Pattern, MarksMatchWholeDecimalNumbers) {
  EXPECT_TRUE(MatchesPattern("blk.{l}.x", "blk.0.x"));
  EXPECT_TRUE(MatchesPattern("blk.{l}.x", "blk.47.x"));
  EXPECT_TRUE(MatchesPattern("e.{l}.{e}", "e.3.127"));
  EXPECT_FALSE(MatchesPattern("blk.{l}.x", "blk..x"));
  EXPECT_FALSE(MatchesPattern("blk.{l}.x", "blk.07.x"));
  EXPECT_FALSE(MatchesPattern("blk.{l}.x", "blk.1a.x"));
  EXPECT_FALSE(MatchesPattern("blk.{l}.x", "blk.1.xy"));
  EXPECT_FALSE(MatchesPattern("blk.{l}.x", "blk.1"));
  EXPECT_FALSE(MatchesPattern("blk.{l}", "blk.1.x"));
}

TEST(Pattern, MalformedPatternsAreNamed) {
  EXPECT_EQ(PatternProblem("blk.{l}.ffn.{e}.weight"), "");
  EXPECT_EQ(PatternProblem(""), "is empty");
  EXPECT_EQ(PatternProblem("blk.{x}"), "holds a brace that is not part of {l} or {e}");
  EXPECT_EQ(PatternProblem("blk.l}"), "holds a brace that is not part of {l} or {e}");
  EXPECT_EQ(PatternProblem("a\tb"), "holds a control character");
  EXPECT_EQ(PatternProblem("\xff"), "is not UTF-8");
  EXPECT_EQ(PatternProblem(std::string(256, 'a')), "");
  EXPECT_EQ(PatternProblem(std::string(257, 'a')), "is longer than 256 bytes");
}

}  // namespace
}  // namespace bloomery::plugin
