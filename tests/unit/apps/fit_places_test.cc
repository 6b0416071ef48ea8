#include "runtime/apps/fit_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bloomery::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A plan of 10 bytes in a memory of `room`.
memory::MemoryPlan Plan(uint64_t room) {
  memory::MemoryPlan plan(room);
  plan.Add("weights", 10);
  return plan;
}

// On cards, of which each has the room; none: on the host.
memory::Placement PlacedOn(const std::string& device, const std::vector<uint64_t>& rooms) {
  memory::Placement placement;
  placement.place = rooms.empty() ? memory::Place::kHost : memory::Place::kCard;
  placement.device = device;
  for (const uint64_t room : rooms) placement.stages.push_back({.plan = Plan(room)});
  return placement;
}

std::vector<std::string> DevicesOf(const std::vector<memory::Placement>& places) {
  std::vector<std::string> devices;
  for (const memory::Placement& place : places) devices.push_back(place.device);
  return devices;
}

TEST(FitPlaces, TheFirstPlaceThatHoldsTheModelWholeIsAsMeant) {
  EXPECT_TRUE(IsAsMeant(PlacedOn("CUDA0", {10}), false));
  EXPECT_TRUE(IsAsMeant(PlacedOn("host", {}), false));
  EXPECT_FALSE(IsAsMeant(PlacedOn("CUDA0", {9}), false));
  EXPECT_FALSE(IsAsMeant(PlacedOn("CUDA0,CUDA1", {10, 9}), false));
}

TEST(FitPlaces, OtherCardsHoldItAsWellAsOneThatRefusedItAndTheHostDoesNot) {
  EXPECT_TRUE(IsAsMeant(PlacedOn("CUDA1", {10}), true));
  EXPECT_TRUE(IsAsMeant(PlacedOn("CUDA0,CUDA1", {10, 10}), true));
  EXPECT_FALSE(IsAsMeant(PlacedOn("host", {}), true));
}

TEST(FitPlaces, ASplitThatNobodyAskedForIsNotAsMeantOnAnyNumberOfCards) {
  for (memory::Placement split : {PlacedOn("CUDA0", {10}), PlacedOn("CUDA0,CUDA1", {10, 10})}) {
    split.place = memory::Place::kSplit;
    EXPECT_TRUE(IsAsMeant(split, split.stages.size() > 1));
    split.stages.back().whole = Plan(9);
    EXPECT_FALSE(IsAsMeant(split, false)) << split.device;
  }
}

TEST(FitPlaces, ASmallerContextIsTriedOnSeveralCardsFirst) {
  std::vector<memory::Placement> refused{PlacedOn("CUDA0", {9}), PlacedOn("CUDA1", {9}),
                                         PlacedOn("CUDA0,CUDA1", {9, 9}), PlacedOn("host", {})};
  OrderForContext(refused);
  EXPECT_THAT(DevicesOf(refused), ElementsAre("CUDA0,CUDA1", "CUDA0", "CUDA1", "host"));
}

TEST(FitPlaces, DevicesLeftToTheServerBecomeThoseOfThePlacementWithTheirMargins) {
  serve::ServeSettings settings;
  settings.fit_margin_bytes = 7;
  settings.fit_margins_bytes = {100, 200};
  const serve::ServeSettings one = SettingsOn(PlacedOn("CUDA1", {10}), settings);
  EXPECT_EQ(one.device, "CUDA1");
  EXPECT_THAT(one.fit_margins_bytes, ElementsAre(200U));
  const serve::ServeSettings two = SettingsOn(PlacedOn("CUDA2,CUDA0", {10, 10}), settings);
  EXPECT_EQ(two.device, "CUDA2,CUDA0");
  EXPECT_THAT(two.fit_margins_bytes, ElementsAre(7U, 100U));
}

TEST(FitPlaces, NamedCardsAndSharesStayAsTheyWereGivenThoughACardIsNotUsed) {
  serve::ServeSettings settings;
  settings.device = "CUDA2,CUDA0";
  settings.card_shares = {9, 0.01};
  settings.fit_margins_bytes = {1, 2};
  const serve::ServeSettings named = SettingsOn(PlacedOn("CUDA2", {10}), settings);
  EXPECT_EQ(named.device, "CUDA2,CUDA0");
  EXPECT_THAT(named.card_shares, ElementsAre(9, 0.01));
  EXPECT_THAT(named.fit_margins_bytes, ElementsAre(1U, 2U));
  settings.device = "auto";
  const serve::ServeSettings counted = SettingsOn(PlacedOn("CUDA0", {10}), settings);
  EXPECT_EQ(counted.device, "auto");
  EXPECT_THAT(counted.card_shares, ElementsAre(9, 0.01));
}

TEST(FitPlaces, TheHostIsNoCardAndHasNoShares) {
  serve::ServeSettings settings;
  settings.card_shares = {3, 1};
  const serve::ServeSettings host = SettingsOn(PlacedOn("host", {}), settings);
  EXPECT_EQ(host.device, "none");
  EXPECT_THAT(host.card_shares, IsEmpty());
}

}  // namespace
}  // namespace bloomery::apps
