// How many handlers run at once: the timer's pool is run by the test, one look at a time.
#include "runtime/serve/http_lane.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

namespace bloomery::serve::internal {
namespace {

class LaneTest : public ::testing::Test {
 protected:
  ~LaneTest() override { End(); }
  void End() {
    if (!std::exchange(ended_, true)) release_.set_value();
    lane_.Stop();
  }
  // Work that lasts until `released`.
  void PostHeld(const std::shared_future<void>& released) {
    lane_.Post([this, released] {
      ++begun_;
      begun_.notify_all();
      released.wait();
    });
  }
  void PostHeld() { PostHeld(released_); }
  void AwaitBegun(int count) {
    for (int now = begun_; now < count; now = begun_) begun_.wait(now);
  }
  int BegunAfterAWhile() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // what begins too early can
    return begun_;
  }
  void Look() { ASSERT_EQ(pool_.run_one(), 1U); }

  boost::asio::io_context pool_;
  Lane lane_{pool_};
  std::atomic<int> begun_{0};

 private:
  std::promise<void> release_;
  std::shared_future<void> released_{release_.get_future()};
  bool ended_ = false;
};

TEST_F(LaneTest, WhereNoneMakesHeadwayOneMoreJoinsUpToTheMost) {
  lane_.Start(1, 3);
  for (int i = 0; i < 5; ++i) PostHeld();
  AwaitBegun(1);
  EXPECT_EQ(BegunAfterAWhile(), 1);
  Look();
  AwaitBegun(2);
  EXPECT_EQ(BegunAfterAWhile(), 2);
  Look();
  AwaitBegun(3);
  Look();
  Look();
  EXPECT_EQ(BegunAfterAWhile(), 3);
  End();
  EXPECT_EQ(begun_, 5);
}

TEST_F(LaneTest, WhereOneHasEndedNoneJoins) {
  std::promise<void> first_ends;
  lane_.Start(1, 2);
  PostHeld(first_ends.get_future().share());
  AwaitBegun(1);
  PostHeld();
  PostHeld();
  first_ends.set_value();
  AwaitBegun(2);
  Look();  // it ended meanwhile
  EXPECT_EQ(BegunAfterAWhile(), 2);
  Look();
  AwaitBegun(3);
}

TEST_F(LaneTest, OnceAllIsDoneThoseThatJoinedRest) {
  std::promise<void> all_end;
  const std::shared_future<void> all = all_end.get_future().share();
  lane_.Start(1, 2);
  for (int i = 0; i < 2; ++i) PostHeld(all);
  Look();
  AwaitBegun(2);
  EXPECT_EQ(lane_.allowed(), 2U);
  all_end.set_value();
  while (lane_.allowed() != 1) std::this_thread::yield();
  Look();  // nothing waits: the last
  EXPECT_EQ(pool_.run_one(), 0U);
  pool_.restart();
  for (int i = 0; i < 2; ++i) PostHeld();
  AwaitBegun(3);
  EXPECT_EQ(BegunAfterAWhile(), 3);
  Look();
  AwaitBegun(4);
}

TEST_F(LaneTest, WhatIsPostedBeforeTheStartAndAfterTheStopIsDropped) {
  PostHeld();
  lane_.Start(1, 1);
  End();
  PostHeld();
  EXPECT_EQ(begun_, 0);
}

}  // namespace
}  // namespace bloomery::serve::internal
