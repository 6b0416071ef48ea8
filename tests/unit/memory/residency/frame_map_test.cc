#include "runtime/memory/residency/frame_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/error.h"

namespace bloomery::memory {
namespace {

using testing::ElementsAre;

std::vector<BankFrames> TwoBanks() {
  return {{.experts = 4, .used = 1, .frames = 2}, {.experts = 3, .used = 1, .frames = 3}};
}

TEST(FrameMapTest, FirstExpertsOfEachBankAreSeated) {
  const FrameMap map(TwoBanks());
  EXPECT_THAT(map.FramesOf(0), ElementsAre(0, 1, kOnHost, kOnHost));
  EXPECT_THAT(map.FramesOf(1), ElementsAre(0, 1, 2));
  EXPECT_THAT(map.ExpertsOf(0), ElementsAre(0, 1));
  EXPECT_EQ(map.FreeFrame(0), -1);
}

TEST(FrameMapTest, FrameIsFreeThenKeptThenAnothers) {
  FrameMap map(TwoBanks());
  EXPECT_EQ(map.Unseat(0, 0), 0);
  EXPECT_FALSE(map.Seated(0, 0));
  EXPECT_EQ(map.FreeFrame(0), 0);
  map.Reserve(0, 0);
  EXPECT_EQ(map.FreeFrame(0), -1);
  EXPECT_THROW(map.Seat(0, 3, 0), Error);  // its bytes are not there
  map.Release(0, 0);
  map.Seat(0, 3, 0);
  EXPECT_THAT(map.FramesOf(0), ElementsAre(kOnHost, 1, kOnHost, 0));
  EXPECT_THAT(map.ExpertsOf(0), ElementsAre(3, 1));
}

TEST(FrameMapTest, WhatCannotBeIsRefused) {
  FrameMap map(TwoBanks());
  EXPECT_THROW(map.Unseat(0, 2), Error);   // the host's
  EXPECT_THROW(map.Unseat(0, 4), Error);   // not there
  EXPECT_THROW(map.Seat(0, 2, 0), Error);  // taken
  EXPECT_THROW(map.Seat(0, 2, 2), Error);  // no such frame
  EXPECT_THROW(map.Reserve(0, 1), Error);
  EXPECT_THROW(map.Release(0, 1), Error);
  EXPECT_THROW(FrameMap(std::vector<BankFrames>{{.experts = 2, .used = 1, .frames = 3}}), Error);
  EXPECT_THROW(FrameMap(std::vector<BankFrames>{{.experts = 0, .used = 0, .frames = 0}}), Error);
}

}  // namespace
}  // namespace bloomery::memory
