#include "runtime/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/refusal.h"

namespace bloomery {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Log, LevelsHaveNamesAndOthersAreRefused) {
  EXPECT_EQ(ParseLogLevel("info"), LogLevel::kInfo);
  EXPECT_EQ(ParseLogLevel("warning"), LogLevel::kWarning);
  EXPECT_EQ(ParseLogLevel("error"), LogLevel::kError);
  const test::Refusal refusal = test::RefusalOf([] { ParseLogLevel("loud"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("loud"), HasSubstr("warning")));
}

// The only test that sets logging up: a process does it once.
TEST(Log, LinesGoToStderrFromTheGivenLevelUp) {
  InitLogging("test_base", LogLevel::kWarning);
  testing::internal::CaptureStderr();
  LOG(INFO) << "too quiet";
  LOG(WARNING) << "[req 7] loud enough";
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, AllOf(HasSubstr("log_test.cc:"), HasSubstr("] [req 7] loud enough"),
                          Not(HasSubstr("too quiet"))));
}

}  // namespace
}  // namespace bloomery
