#include "runtime/memory/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/support/refusal.h"

namespace bloomery::memory {
namespace {

using test::Refusal;
using test::RefusalOf;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

// Four layers of 16 experts: 1 + 1 + 2 MiB of each on the card, 5 with the host; 100 MiB dense.
SeatSizes Toy() {
  SeatSizes sizes;
  sizes.slots = 2;
  sizes.slot_context = 1024;
  sizes.rows_max = 512;
  for (int32_t layer = 0; layer < 4; ++layer) {
    sizes.banks.push_back({.layer = layer,
                           .experts = 16,
                           .used = 2,
                           .card_parts = {kMiB, kMiB, 2 * kMiB},
                           .host_bytes = 5 * kMiB});
  }
  sizes.stages = {{.layers = {0, 4},
                   .banks = {0, 1, 2, 3},
                   .dense = 100 * kMiB,
                   .beside = {{"planes k", 30 * kMiB}, {"logits", 10 * kMiB}}}};
  sizes.host_beside = {{"pinned", 3 * kMiB}};
  return sizes;
}

CardRoom Card(uint64_t free) {
  return {.id = "CUDA0", .total = 8 * kGiB, .free = free, .reserve = 0, .granule = 2 * kMiB};
}

// Of one stage.
Placement On(Place place, const SeatSizes& sizes, const CardRoom& card, const HostRoom& host,
             const SplitWishes& wishes = {}) {
  return PlaceOnCards(place, sizes, {&card, 1}, host, wishes);
}

HostRoom Host(uint64_t bytes) {
  return {.budget = 0, .available = HostLimit{bytes, "MemAvailable"}};
}

uint64_t Term(const MemoryPlan& plan, const std::string& name) {
  for (const PlanTerm& term : plan.terms()) {
    if (term.name == name) return term.bytes;
  }
  ADD_FAILURE() << "no term " << name << " in " << plan.Line();
  return 0;
}

TEST(Placement, TheLineNamesPlaceExpertsSlotsAndEveryTermOfBothMemories) {
  // Dense and beside take 140 MiB; a frame in each of 4 banks takes 16. 10 frames: 300 MiB.
  const Placement split = On(Place::kSplit, Toy(), Card(300 * kMiB), Host(kGiB));
  EXPECT_EQ(split.Line(),
            "plan: split on CUDA0; experts on the card: 10 of 16 in 4 banks (40 of 64); 2 slots of "
            "1024 rows, ubatch 512; card plan: weights 100.0 MiB + experts 160.0 MiB + planes k "
            "30.0 MiB + logits 10.0 MiB = 300.0 MiB of 300.0 MiB available (CUDA0 free but a "
            "reserve for the driver); host plan: experts 120.0 MiB + pinned 3.0 MiB = 123.0 MiB of "
            "1.0 GiB available (MemAvailable)");
  split.Check();
}

TEST(Placement, FramesAreAsManyAsFitAndTheSameInEveryBank) {
  for (const auto& [free, frames] : {std::pair<uint64_t, uint32_t>{140 * kMiB, 0},
                                     {155 * kMiB, 0},
                                     {156 * kMiB, 1},
                                     {379 * kMiB, 14},
                                     {380 * kMiB, 15},
                                     {396 * kMiB, 16},
                                     {8 * kGiB, 16}}) {
    const Placement split = On(Place::kSplit, Toy(), Card(free), Host(kGiB));
    EXPECT_THAT(split.frames, ElementsAre(frames, frames, frames, frames)) << free;
    EXPECT_TRUE(split.Fits());
    EXPECT_LE(split.stages[0].plan.total(), free);
    // What the card lacks the host has: 64 experts in all.
    if (frames < 16) {
      EXPECT_EQ(Term(split.host, "experts"), (64 - uint64_t{4} * frames) * 5 * kMiB);
    }
  }
}

TEST(Placement, RoomsForExpertsThatComeTakeWhatFramesCouldHave) {
  SeatSizes sizes = Toy();
  // Two rooms for what the first bank lacks: 8 MiB an expert that has no frame.
  sizes.stages[0].moving = [](std::span<const uint32_t> frames) {
    return (16 - frames[0]) * 8 * kMiB;
  };
  // 140 + 16 n + 8 (16 - n) MiB: 4 frames fit 300, where 10 did without rooms.
  const Placement split = On(Place::kSplit, sizes, Card(300 * kMiB), Host(kGiB));
  EXPECT_EQ(split.frames.front(), 4U);
  EXPECT_EQ(Term(split.stages[0].plan, "maps and rooms of experts"), 96 * kMiB);
  EXPECT_EQ(split.stages[0].plan.total(), 300 * kMiB);
  // Where rooms shrink faster than frames grow, more frames may fit where fewer do not.
  sizes.stages[0].moving = [](std::span<const uint32_t> frames) {
    return (16 - frames[0]) * 32 * kMiB;
  };
  EXPECT_EQ(On(Place::kSplit, sizes, Card(412 * kMiB), Host(kGiB)).frames.front(), 16U);
}

TEST(Placement, AHostThatKeepsAllExpertsHoldsThoseOfTheCardToo) {
  SeatSizes sizes = Toy();
  sizes.host_experts = 64 * 5 * kMiB;
  const Placement split = On(Place::kSplit, sizes, Card(300 * kMiB), Host(kGiB));
  EXPECT_EQ(split.ExpertsOnCard(), 40U);
  EXPECT_EQ(Term(split.host, "experts"), 64 * 5 * kMiB);
}

TEST(Placement, PartsOfABankAreAlignedOnceForAllItsFrames) {
  const BankShape bank = {.experts = 8, .card_parts = {100, 100, 300}};
  EXPECT_EQ(bank.CardBytes(0), 0U);
  EXPECT_EQ(bank.CardBytes(1), 256U + 256U + 512U);
  EXPECT_EQ(bank.CardBytes(5), 512U + 512U + 1536U);
}

TEST(Placement, FramesLeaveTheMarginAndAWholeModelOnlyTheReserve) {
  CardRoom card = Card(400 * kMiB);
  card.reserve = 4 * kMiB;
  card.margin = 100 * kMiB;
  EXPECT_EQ(On(Place::kSplit, Toy(), card, Host(kGiB)).frames.front(), 10U);
  EXPECT_TRUE(On(Place::kCard, Toy(), card, Host(kGiB)).Fits());  // 396 MiB
  card.free -= 1;
  EXPECT_FALSE(On(Place::kCard, Toy(), card, Host(kGiB)).Fits());
}

TEST(Placement, ABudgetLowersWhatTheCardShowsAndNeverRaisesIt) {
  CardRoom card = Card(8 * kGiB);
  card.reserve = kGiB;
  card.budget = 220 * kMiB;
  const Placement small = On(Place::kSplit, Toy(), card, Host(kGiB));
  EXPECT_EQ(small.frames.front(), 5U);  // 140 + 5 * 16
  EXPECT_THAT(small.stages[0].plan.Line(), HasSubstr("of a budget of 220.0 MiB"));
  card.free = kGiB + 150 * kMiB;
  const Placement less = On(Place::kSplit, Toy(), card, Host(kGiB));
  EXPECT_EQ(less.frames.front(), 0U);
  EXPECT_THAT(less.stages[0].plan.Line(), HasSubstr("of 150.0 MiB available (CUDA0 free"));
}

TEST(Placement, BanksMayBeKeptFromTheCardOrOnIt) {
  using enum BankWish;
  SplitWishes wishes = {.banks = {kHost, kFree, kCard, kFree}, .frames = std::nullopt};
  // 140 MiB and bank 2's 64: 96 are left, for 12 frames of two banks.
  const Placement split = On(Place::kSplit, Toy(), Card(300 * kMiB), Host(kGiB), wishes);
  EXPECT_THAT(split.frames, ElementsAre(0, 12, 16, 12));
  EXPECT_THAT(split.Line(), HasSubstr("0 of 16 in 1 bank, 12 of 16 in 2 banks, 16 of 16 in 1 bank "
                                      "(40 of 64)"));
  wishes.frames = 3;
  EXPECT_THAT(On(Place::kSplit, Toy(), Card(300 * kMiB), Host(kGiB), wishes).frames,
              ElementsAre(0, 3, 16, 3));
}

TEST(Placement, LoadingCountsOnlyWhereItsRoomsPassWhatComesAfter) {
  SeatSizes sizes = Toy();
  sizes.stages[0].loading = 39 * kMiB;  // beside: 40
  EXPECT_EQ(On(Place::kCard, sizes, Card(kGiB), Host(kGiB)).stages[0].plan.total(), 396 * kMiB);
  sizes.stages[0].loading = 49 * kMiB;  // 50 in granules
  EXPECT_EQ(Term(On(Place::kCard, sizes, Card(kGiB), Host(kGiB)).stages[0].plan, "loading"),
            10 * kMiB);
  sizes.host_loading = 64 * kMiB;
  EXPECT_EQ(Term(On(Place::kCard, sizes, Card(kGiB), Host(kGiB)).host, "pinned while loading"),
            61 * kMiB);
}

TEST(Placement, ADensePartTooLargeForTheCardIsRefusedWithEveryTermAndNoFrames) {
  const Placement split = On(Place::kSplit, Toy(), Card(139 * kMiB), Host(kGiB));
  EXPECT_THAT(split.frames, Each(0U));
  const Refusal refusal = RefusalOf([&] { split.Check(); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message,
              AllOf(HasSubstr("weights 100.0 MiB + planes k 30.0 MiB + logits 10.0 MiB = 140.0 MiB "
                              "of 139.0 MiB"),
                    HasSubstr("does not fit the card, with no expert there")));
}

TEST(Placement, WhatTheHostCannotHoldIsRefusedNamingWhatWouldBePaged) {
  // 64 - 40 experts of 5 MiB and 3 MiB pinned: 123.
  const Placement split = On(Place::kSplit, Toy(), Card(300 * kMiB), Host(122 * kMiB));
  const Refusal refusal = RefusalOf([&] { split.Check(); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message,
              AllOf(HasSubstr("planes k 30.0 MiB"), HasSubstr("experts 120.0 MiB + pinned 3.0 MiB"),
                    HasSubstr("1.0 MiB would have to be paged from disk, which is not offered")));
  On(Place::kSplit, Toy(), Card(300 * kMiB), Host(123 * kMiB)).Check();
}

TEST(Placement, AWholeModelIsRefusedWithTheCardsTerms) {
  const Placement whole = On(Place::kCard, Toy(), Card(395 * kMiB), Host(kGiB));
  EXPECT_THAT(RefusalOf([&] { whole.Check(); }).message,
              AllOf(HasSubstr("card plan: weights 100.0 MiB + experts 256.0 MiB"),
                    HasSubstr("it does not fit"), HasSubstr("--device none")));
  EXPECT_THAT(On(Place::kCard, Toy(), Card(396 * kMiB), Host(kGiB)).Line(),
              HasSubstr("plan: card on CUDA0; all 64 experts on the card; 2 slots of 1024 rows"));
}

TEST(Placement, TheHostReadsWeightsWhereTheyFitAndElseMapsThem) {
  SeatSizes sizes = Toy();
  using enum WeightSource;
  const auto on = [&](uint64_t bytes, WeightSource source) {
    return PlaceOnHost(sizes, 50 * kMiB, source, Host(bytes));
  };
  EXPECT_EQ(on(53 * kMiB, kAuto).host_weights, kRead);
  EXPECT_EQ(on(53 * kMiB - 1, kAuto).host_weights, kMap);
  EXPECT_TRUE(on(53 * kMiB - 1, kAuto).Fits());
  EXPECT_FALSE(on(53 * kMiB - 1, kRead).Fits());
  EXPECT_FALSE(on(3 * kMiB - 1, kMap).Fits());
  EXPECT_EQ(on(kGiB, kMap).Line(),
            "plan: host; 2 slots of 1024 rows, ubatch 512; host plan: pinned 3.0 MiB = 3.0 MiB of "
            "1.0 GiB available (MemAvailable); beside it weights 50.0 MiB mapped, held as page "
            "cache");
  EXPECT_THAT(RefusalOf([&] { on(53 * kMiB - 1, kRead).Check(); }).message,
              AllOf(HasSubstr("weights 50.0 MiB + pinned 3.0 MiB"), Not(HasSubstr("paged"))));
}

TEST(Placement, NamesOfPlacesAreReadBack) {
  for (const Place place : {Place::kAuto, Place::kCard, Place::kSplit, Place::kHost}) {
    EXPECT_EQ(PlaceOf(NameOf(place)), place);
  }
  EXPECT_EQ(RefusalOf([] { PlaceOf("gpu"); }).kind, ErrorKind::kUsage);
}

// The toy on two cards: layers 0 to 2 take 100 + 40 MiB beside their experts, layer 3 50 + 20.
SeatSizes Cut() {
  SeatSizes sizes = Toy();
  sizes.stages[0].layers = {0, 3};
  sizes.stages[0].banks = {0, 1, 2};
  sizes.stages.push_back({.layers = {3, 4},
                          .banks = {3},
                          .dense = 50 * kMiB,
                          .beside = {{"planes k", 15 * kMiB}, {"logits", 5 * kMiB}}});
  return sizes;
}

std::array<CardRoom, 2> Cards(uint64_t first, uint64_t second) {
  std::array<CardRoom, 2> cards = {Card(first), Card(second)};
  cards[1].id = "CUDA1";
  return cards;
}

TEST(PlacementOnCards, EachStageHasAsManyFramesAsFitItsOwnCard) {
  // A frame in each of 3 banks takes 12 MiB, of the one bank 4.
  const Placement split = PlaceOnCards(
      Place::kSplit, Cut(), Cards(140 * kMiB + 60 * kMiB, 70 * kMiB + 36 * kMiB), Host(kGiB));
  EXPECT_THAT(split.frames, ElementsAre(5, 5, 5, 9));
  EXPECT_EQ(split.stages[0].plan.total(), 200 * kMiB);
  EXPECT_EQ(split.stages[1].plan.total(), 106 * kMiB);
  EXPECT_EQ(split.device, "CUDA0,CUDA1");
  EXPECT_EQ(split.ExpertsOnCard(), 24U);
  // What no card has the host has, once: 40 experts of 5 MiB.
  EXPECT_EQ(Term(split.host, "experts"), 200 * kMiB);
  EXPECT_EQ(Term(split.host, "pinned"), 3 * kMiB);
  EXPECT_EQ(split.host.terms().size(), 2U);
  ASSERT_EQ(split.Plans().size(), 3U);
  EXPECT_THAT(split.Plans()[1].Line(), HasSubstr("CUDA1 plan: weights "));
  EXPECT_EQ(split.StageOf(2)->device, "CUDA0");
  EXPECT_EQ(split.StageOf(3)->device, "CUDA1");
  EXPECT_EQ(split.StageOf(4), nullptr);
  split.Check();
  // Either card's last byte is one stage's frame, and nothing of the other.
  EXPECT_THAT(
      PlaceOnCards(Place::kSplit, Cut(), Cards(200 * kMiB - 1, 106 * kMiB), Host(kGiB)).frames,
      ElementsAre(4, 4, 4, 9));
  EXPECT_THAT(
      PlaceOnCards(Place::kSplit, Cut(), Cards(200 * kMiB, 106 * kMiB - 1), Host(kGiB)).frames,
      ElementsAre(5, 5, 5, 8));
}

TEST(PlacementOnCards, TheLineNamesCardsLayersAndThePlanOfEach) {
  EXPECT_EQ(PlaceOnCards(Place::kSplit, Cut(), Cards(200 * kMiB, 106 * kMiB), Host(kGiB)).Line(),
            "plan: split on CUDA0, CUDA1 (layers 0 to 2, 3); experts on the cards: 5 of 16 in 3 "
            "banks, 9 of 16 in 1 bank (24 of 64); 2 slots of 1024 rows, ubatch 512; CUDA0 plan: "
            "weights 100.0 MiB + experts 60.0 MiB + planes k 30.0 MiB + logits 10.0 MiB = 200.0 "
            "MiB of 200.0 MiB available (CUDA0 free but a reserve for the driver); CUDA1 plan: "
            "weights 50.0 MiB + experts 36.0 MiB + planes k 15.0 MiB + logits 5.0 MiB = 106.0 MiB "
            "of 106.0 MiB available (CUDA1 free but a reserve for the driver); host plan: experts "
            "200.0 MiB + pinned 3.0 MiB = 203.0 MiB of 1.0 GiB available (MemAvailable)");
  EXPECT_THAT(PlaceOnCards(Place::kCard, Cut(), Cards(kGiB, kGiB), Host(kGiB)).Line(),
              HasSubstr("plan: card on CUDA0, CUDA1 (layers 0 to 2, 3); all 64 experts on the "
                        "cards; 2 slots"));
}

TEST(PlacementOnCards, WishesHoldOnEveryCard) {
  using enum BankWish;
  SplitWishes wishes = {.banks = {kHost, kFree, kCard, kFree}, .frames = std::nullopt};
  // 140 MiB and bank 2's 64 leave 60 of 264 for bank 1 alone.
  const auto on = [&] {
    return PlaceOnCards(Place::kSplit, Cut(), Cards(264 * kMiB, 106 * kMiB), Host(kGiB), wishes)
        .frames;
  };
  EXPECT_THAT(on(), ElementsAre(0, 15, 16, 9));
  wishes.frames = 3;
  EXPECT_THAT(on(), ElementsAre(0, 3, 16, 3));
}

TEST(PlacementOnCards, RoomsForExpertsThatComeAreEachStagesOwn) {
  SeatSizes sizes = Cut();
  sizes.stages[1].moving = [](std::span<const uint32_t> frames) {
    EXPECT_EQ(frames.size(), 4U);
    return (16 - frames[3]) * 2 * kMiB;
  };
  // 70 + 4 n + 2 (16 - n): 2 frames of 106; the first card as without.
  const Placement split =
      PlaceOnCards(Place::kSplit, sizes, Cards(200 * kMiB, 106 * kMiB), Host(kGiB));
  EXPECT_THAT(split.frames, ElementsAre(5, 5, 5, 2));
  EXPECT_EQ(Term(split.stages[1].plan, "maps and rooms of experts"), 28 * kMiB);
}

TEST(PlacementOnCards, ARefusalNamesTheCardThatLacksMostAndEveryTerm) {
  // Whole: 140 + 192 = 332 MiB and 70 + 64 = 134.
  EXPECT_TRUE(PlaceOnCards(Place::kCard, Cut(), Cards(332 * kMiB, 134 * kMiB), Host(kGiB)).Fits());
  const auto refusal = [&](Place place, uint64_t first, uint64_t second) {
    const Placement placement = PlaceOnCards(place, Cut(), Cards(first, second), Host(kGiB));
    EXPECT_FALSE(placement.CardFits());
    const Refusal refused = RefusalOf([&] { placement.Check(); });
    EXPECT_EQ(refused.kind, ErrorKind::kNoMemory);
    EXPECT_THAT(refused.message, HasSubstr("CUDA0 plan: weights 100.0 MiB"));
    EXPECT_THAT(refused.message, HasSubstr("CUDA1 plan: weights 50.0 MiB"));
    EXPECT_THAT(refused.message, HasSubstr("--tensor-split"));
    return refused.message;
  };
  EXPECT_THAT(refusal(Place::kCard, 332 * kMiB, 134 * kMiB - 1),
              HasSubstr("does not fit CUDA1, with layers 3 and 16 experts there"));
  EXPECT_THAT(refusal(Place::kCard, 331 * kMiB, 134 * kMiB - 1),
              HasSubstr("does not fit CUDA0, with layers 0 to 2 and 48 experts there"));
  EXPECT_THAT(refusal(Place::kSplit, kGiB, 69 * kMiB),
              HasSubstr("does not fit CUDA1, with layers 3 and no expert there"));
  std::array<CardRoom, 2> cards = Cards(kGiB, kGiB);
  cards[1].budget = 133 * kMiB;
  const Placement budget = PlaceOnCards(Place::kCard, Cut(), cards, Host(kGiB));
  EXPECT_THAT(RefusalOf([&] { budget.Check(); }).message,
              AllOf(HasSubstr("of a budget of 133.0 MiB"), HasSubstr("raise the budget")));
}

TEST(PlacementOnCards, TheHostOfAWholeModelIsChecked) {
  const Placement whole = PlaceOnCards(Place::kCard, Cut(), Cards(kGiB, kGiB), Host(3 * kMiB - 1));
  EXPECT_TRUE(whole.CardFits());
  EXPECT_THAT(RefusalOf([&] { whole.Check(); }).message, HasSubstr("host plan: pinned 3.0 MiB"));
}

TEST(PlacementOnCards, NeedIsOfTheMemoryThatLacksMostOrHasLeastLeft) {
  const auto need = [](uint64_t first, uint64_t second, uint64_t host) {
    const Placement whole = PlaceOnCards(Place::kCard, Cut(), Cards(first, second), Host(host));
    return std::pair(whole.Need().need, whole.Need().room);
  };
  const auto of = [](uint64_t needed, uint64_t room) { return std::pair(needed, room); };
  // Of 332, 134 and 3 MiB. All fit: the least left.
  EXPECT_EQ(need(342 * kMiB, 139 * kMiB, kGiB), of(134 * kMiB, 139 * kMiB));
  EXPECT_EQ(need(336 * kMiB, 139 * kMiB, kGiB), of(332 * kMiB, 336 * kMiB));
  EXPECT_EQ(need(336 * kMiB, 139 * kMiB, 4 * kMiB), of(3 * kMiB, 4 * kMiB));
  // One lacks, whatever the others have left; several: the one that lacks most.
  EXPECT_EQ(need(kGiB, 133 * kMiB, kGiB), of(134 * kMiB, 133 * kMiB));
  EXPECT_EQ(need(330 * kMiB, 133 * kMiB, kGiB), of(332 * kMiB, 330 * kMiB));
  EXPECT_EQ(need(kGiB, 133 * kMiB, kMiB), of(3 * kMiB, kMiB));
}

TEST(PlacementOnCards, AContextIsSizedToFitEveryCard) {
  // A row takes 10 KiB of the first card and 16 of the second, beside 332 and 134 MiB.
  const auto placed = [](int32_t context) {
    SeatSizes sizes = Cut();
    const auto rows = static_cast<uint64_t>(context);
    sizes.stages[0].beside.push_back({"planes v", rows * 10 * 1024});
    sizes.stages[1].beside.push_back({"planes v", rows * 16 * 1024});
    return PlaceOnCards(Place::kCard, sizes,
                        Cards(332 * kMiB + 100 * kMiB, 134 * kMiB + 150 * kMiB), Host(kGiB));
  };
  const auto need = [&](int32_t context) { return placed(context).Need(); };
  // 150 MiB / 16 KiB = 9600 rows, 100 / 10 = 10240.
  EXPECT_EQ(LargestContext(256, 65536, need), 9472);
  EXPECT_TRUE(placed(9472).Fits());
  EXPECT_FALSE(placed(9728).Fits());
}

// A context that costs `row` bytes each and a base, in a room.
std::optional<int32_t> Largest(int32_t least, int32_t most, uint64_t row, uint64_t base,
                               uint64_t room, int* asked) {
  return LargestContext(least, most, [=](int32_t context) {
    ++*asked;
    return ContextNeed{base + row * static_cast<uint64_t>(context), room};
  });
}

TEST(LargestContext, IsTheLastStepThatFits) {
  int asked = 0;
  EXPECT_EQ(Largest(4096, 262144, 1000, 500, 262144500, &asked), 262144);
  EXPECT_EQ(asked, 1);
  // (100,000,500 - 500) / 1000 = 100,000 rows: 390 steps of 256 are 99,840.
  asked = 0;
  EXPECT_EQ(Largest(4096, 262144, 1000, 500, 100000500, &asked), 99840);
  EXPECT_LE(asked, 6);
  EXPECT_EQ(Largest(4096, 262144, 1000, 500, 99840500, &asked), 99840);
  EXPECT_EQ(Largest(4096, 262144, 1000, 500, 99840499, &asked), 99584);
  EXPECT_EQ(Largest(4096, 262144, 1000, 500, 4096500, &asked), 4096);
  EXPECT_EQ(Largest(4096, 262144, 1000, 500, 4096499, &asked), std::nullopt);
  EXPECT_EQ(Largest(512, 512, 1000, 500, 4096499, &asked), 512);
  EXPECT_EQ(Largest(4096, 100, 1000, 500, 0, &asked), std::nullopt);
}

TEST(LargestContext, IsFoundWhereTheNeedIsFarFromLinear) {
  // Steps: 1 MiB more from 50,000 rows on; the square below.
  int asked = 0;
  const auto need = [&](int32_t context) {
    ++asked;
    const auto rows = static_cast<uint64_t>(context);
    return ContextNeed{rows * rows + (context >= 50000 ? kGiB : 0), uint64_t{49000} * 49000};
  };
  EXPECT_EQ(LargestContext(256, 1 << 20, need), 48896);  // 191 * 256
  EXPECT_LE(asked, 24);
}

}  // namespace
}  // namespace bloomery::memory
