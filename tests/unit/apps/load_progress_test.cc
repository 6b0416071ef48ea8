#include "runtime/apps/load_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "runtime/base/json.h"

namespace bloomery::apps {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(LoadProgress, ElsewhereThanOnATerminalAJsonLineASecondAndOneAtTheEnd) {
  std::ostringstream out;
  double now = 5;
  LoadProgress progress(out, false, [&] { return now; });
  now = 5.9;
  progress.Show(1, 4 * kGiB);
  EXPECT_EQ(out.str(), "");
  now = 6;
  progress.Show(kGiB, 4 * kGiB);
  now = 6.5;
  progress.Show(2 * kGiB, 4 * kGiB);
  progress.Show(4 * kGiB, 4 * kGiB);
  std::istringstream lines(out.str());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const rapidjson::Document first = ParseJson(line, "line");
  EXPECT_EQ(first["load"]["done_bytes"].GetUint64(), kGiB);
  EXPECT_EQ(first["load"]["total_bytes"].GetUint64(), 4 * kGiB);
  EXPECT_DOUBLE_EQ(first["load"]["gb_per_second"].GetDouble(), 1.07);
  EXPECT_DOUBLE_EQ(first["load"]["seconds_left"].GetDouble(), 3);
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(ParseJson(line, "line")["load"]["done_bytes"].GetUint64(), 4 * kGiB);
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(LoadProgress, OnATerminalOneLineIsRewrittenAndEnded) {
  std::ostringstream out;
  double now = 0;
  LoadProgress progress(out, true, [&] { return now; });
  now = 1;
  progress.Show(kGiB, 2 * kGiB);
  EXPECT_EQ(out.str(), "\rloading [" + std::string(15, '#') + std::string(15, ' ') +
                           "] 1.0 GiB of 2.0 GiB, 1.1 GB/s, 1 s left  ");
  now = 1.05;
  progress.Show(kGiB + 1, 2 * kGiB);  // too soon
  now = 2;
  progress.Show(2 * kGiB, 2 * kGiB);
  EXPECT_THAT(out.str(), testing::EndsWith("GiB of 2.0 GiB, 1.1 GB/s, 0 s left  \n"));
  EXPECT_EQ(std::ranges::count(out.str(), '\r'), 2);
}

TEST(LoadProgress, NothingToLoadEndsAtOnce) {
  std::ostringstream out;
  LoadProgress progress(out, false, [] { return 0.0; });
  progress.Show(0, 0);
  EXPECT_THAT(out.str(), testing::HasSubstr("\"total_bytes\":0"));
}

}  // namespace
}  // namespace bloomery::apps
