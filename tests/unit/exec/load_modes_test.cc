#include "runtime/exec/load_modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/support/refusal.h"

namespace bloomery::exec {
namespace {

TEST(LoadModes, EveryChoiceThatIsOfferedIsTakenAndAnotherRefusedWithTheChoices) {
  std::istringstream choices{std::string(kLoadModeChoices)};
  int count = 0;
  for (std::string name; std::getline(choices, name, '|'); ++count) {
    const bool reads = name == "none" || name == "dio";
    const LoadMode expected = name == "auto" ? LoadMode::kAuto
                              : reads        ? LoadMode::kRead
                                             : LoadMode::kMap;
    EXPECT_EQ(LoadModeOf(name), expected) << name;
  }
  EXPECT_EQ(count, 6);
  const test::Refusal refusal = test::RefusalOf([] { LoadModeOf("map"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  EXPECT_THAT(refusal.message, testing::AllOf(testing::HasSubstr("--load-mode map"),
                                              testing::HasSubstr(std::string(kLoadModeChoices))));
}

}  // namespace
}  // namespace bloomery::exec
