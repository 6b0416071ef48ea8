#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plugin/library.h"

namespace bloomery::plugin {
namespace {

TEST(VersionGate, BeforeOneBothNumbersMustBeEqual) {
  EXPECT_TRUE(AbiFits({0, 1}, {0, 1}));
  EXPECT_FALSE(AbiFits({0, 2}, {0, 1}));
  EXPECT_FALSE(AbiFits({0, 1}, {0, 2}));
  EXPECT_FALSE(AbiFits({0, 1}, {1, 1}));
}

TEST(VersionGate, FromOneAnyOlderMinorFits) {
  EXPECT_TRUE(AbiFits({1, 3}, {1, 0}));
  EXPECT_TRUE(AbiFits({1, 3}, {1, 3}));
  EXPECT_FALSE(AbiFits({1, 3}, {1, 4}));
  EXPECT_FALSE(AbiFits({2, 0}, {1, 0}));
}

TEST(VersionGate, RefusalPrintsBothVersionsThePathAndWhatToDo) {
  const std::string text = AbiRefusal("/p/libtoy.so", {0, 9});
  EXPECT_THAT(text, testing::HasSubstr("/p/libtoy.so"));
  EXPECT_THAT(text, testing::HasSubstr("ABI 0.9"));
  EXPECT_THAT(text, testing::HasSubstr("this host has 0.1"));
  EXPECT_THAT(text, testing::HasSubstr("rebuild the plugin with SDK 0.1"));
}

}  // namespace
}  // namespace bloomery::plugin
