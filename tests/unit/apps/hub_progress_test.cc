#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "runtime/apps/hub_models.h"

namespace bloomery::apps {
namespace {

using hub::HubEvent;
using ::testing::HasSubstr;

class HubProgressTest : public testing::Test {
 protected:
  void Bytes(HubProgress& progress, double at, uint64_t have) {
    now_ = at;
    progress.Show({.kind = HubEvent::Kind::kProgress, .bytes = 1'000'000'000, .have = have});
  }
  double now_ = 0;
  std::ostringstream out_;
  std::ostringstream json_;
};

TEST_F(HubProgressTest, ALogGetsALineEveryFiveSecondsAndOneAtTheEnd) {
  EventLines lines(json_, false);
  HubProgress progress(out_, false, lines, [this] { return now_; });
  Bytes(progress, 0, 0);
  Bytes(progress, 4.9, 400'000'000);
  EXPECT_EQ(out_.str(), "");
  Bytes(progress, 5, 500'000'000);
  EXPECT_EQ(out_.str(), "fetching: 500.0 MB of 1.00 GB, 100.0 MB/s, 5 s left\n");
  Bytes(progress, 6, 1'000'000'000);
  EXPECT_THAT(out_.str(), HasSubstr("1.00 GB of 1.00 GB"));
  EXPECT_EQ(json_.str(), "");
}

TEST_F(HubProgressTest, ATerminalsBarIsRewrittenAndEndedBeforeOtherWords) {
  EventLines lines(json_, false);
  HubProgress progress(out_, true, lines, [this] { return now_; });
  Bytes(progress, 0, 0);
  Bytes(progress, 0.2, 500'000'000);
  EXPECT_THAT(out_.str(), HasSubstr("\rfetching [###############               ] 500.0 MB"));
  progress.Show({.kind = HubEvent::Kind::kRetry, .name = "f", .have = 5, .text = "cut"});
  EXPECT_THAT(out_.str(), HasSubstr("left   \nf: cut; trying again at 0.0 MB\n"));
}

TEST_F(HubProgressTest, EventsAreLinesOfTheirOwnWithTheDigest) {
  EventLines lines(json_, true);
  HubProgress progress(out_, true, lines, [this] { return now_; });
  progress.Show({.kind = HubEvent::Kind::kDone, .name = "f", .bytes = 5, .text = "sha256:aa"});
  EXPECT_THAT(json_.str(), HasSubstr(R"("file":"f","bytes":5,"digest":"sha256:aa"})"
                                     "\n"));
  EXPECT_THAT(json_.str(), HasSubstr(R"({"event":"hf_done","t_ms":)"));
}

}  // namespace
}  // namespace bloomery::apps
