#include "runtime/base/file_name.h"

#include <gtest/gtest.h>

#include <string>

namespace bloomery {
namespace {

TEST(PlainFileName, TakesWhatIsOnlyAName) {
  for (const char* name :
       {"a", "slot-0.bin", "größe.state", "with blank inside", ".hidden", "a.b.c"}) {
    EXPECT_TRUE(IsPlainFileName(name)) << name;
  }
  EXPECT_TRUE(IsPlainFileName(std::string(255, 'x')));
}

TEST(PlainFileName, RefusesPathsAndTheirLookAlikes) {
  for (const char* name : {"",
                           "..",
                           ".",
                           "../a",
                           "a/b",
                           "a\\b",
                           "/etc/passwd",
                           "a..b",
                           "c:x",
                           "a*",
                           "a?",
                           "a\"",
                           "a<",
                           "a>",
                           "a|",
                           " a",
                           "a ",
                           "a.",
                           "a\nb",
                           "a\x7f",
                           "\xc2\x80",
                           "\xEF\xBC\x8F",
                           "\xEF\xBC\x8E",
                           "\xE2\x88\x95",
                           "\xEF\xBB\xBF",
                           "\xEF\xBF\xBD",
                           "\xE2\x80\xAE",  // turns what follows round
                           "a\xE2\x81\xA6",
                           "a\xE2\x80\x8B",
                           "\xff",
                           ".partial-1-0"}) {
    EXPECT_FALSE(IsPlainFileName(name)) << name;
  }
  EXPECT_FALSE(IsPlainFileName(std::string(256, 'x')));
  EXPECT_FALSE(IsPlainFileName(std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace bloomery
