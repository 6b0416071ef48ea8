// Cards that cannot be used, with a driver that is none: what is said, and that the next card or
// the CPU gets its turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/exec/cuda/card_seat.h"
#include "tests/support/refusal.h"
#include "tests/unit/exec/toy_seat.h"

namespace bloomery::exec {
namespace {

using test::Refusal;
using test::RefusalOf;
using test::ToySeat;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kGiB = uint64_t{1} << 30;

struct FakeCard {
  int capability = 90;
  uint64_t total = 80 * kGiB;
  uint64_t free = 79 * kGiB;
  cudaError_t open = cudaSuccess;
};

// A driver with these cards; 13.0 where 13.0 is needed.
CardDriver Driver(const std::vector<FakeCard>& cards) {
  const auto count = static_cast<int>(cards.size());
  return {.driver_version = [](int* version) { return *version = 13000, cudaSuccess; },
          .runtime_version = [](int* version) { return *version = 13000, cudaSuccess; },
          .count = [count](int* to) { return *to = count, cudaSuccess; },
          .properties =
              [cards](cudaDeviceProp* properties, int ordinal) {
                const FakeCard& card = cards.at(static_cast<size_t>(ordinal));
                const std::string name = "Fake " + std::to_string(ordinal);
                name.copy(properties->name, name.size());
                properties->major = card.capability / 10;
                properties->minor = card.capability % 10;
                properties->totalGlobalMem = card.total;
                properties->pciBusID = 0x65 + ordinal;
                return cudaSuccess;
              },
          .open =
              [cards](int ordinal, size_t* free_bytes) {
                const FakeCard& card = cards.at(static_cast<size_t>(ordinal));
                *free_bytes = card.free;
                return card.open;
              },
          .holders =
              [](const CardInfo& card) {
                return FindCardHolders(card.pci_bus_id, BLOOMERY_FAKE_NVML);
              }};
}

// "CUDA0+CUDA1".
std::string Ids(std::span<const CardInfo> cards) {
  std::string ids;
  for (const CardInfo& card : cards) ids += (ids.empty() ? "" : "+") + card.Id();
  return ids;
}

std::string LoadName(const CardDriver& driver, const std::string& device) {
  return LoadOnCards<std::string>(driver, {.device = device},
                                  [](std::span<const CardInfo> cards, bool) { return Ids(cards); });
}

TEST(CardRefusals, NoDriverNamesTheOneThatIsNeeded) {
  CardDriver driver = Driver({});
  driver.driver_version = [](int* version) { return *version = 0, cudaSuccess; };
  driver.count = [](int*) { return cudaErrorInsufficientDriver; };
  const Refusal refusal = RefusalOf([&] { ListCards(driver); });
  EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("no NVIDIA driver is loaded here"),
                                     HasSubstr("CUDA 13.0"), HasSubstr("--device none")));
}

TEST(CardRefusals, AnOldDriverIsNamedBesideTheOneThatIsNeeded) {
  CardDriver driver = Driver({});
  driver.driver_version = [](int* version) { return *version = 12040, cudaSuccess; };
  driver.count = [](int*) { return cudaErrorInsufficientDriver; };
  const Refusal refusal = RefusalOf([&] { LoadName(driver, "auto"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("offers CUDA 12.4"), HasSubstr("needs CUDA 13.0"),
                                     HasSubstr("--device none")));
}

TEST(CardRefusals, ADriverWithoutCardsSaysWhatItAnswers) {
  const Refusal refusal = RefusalOf([] { LoadName(Driver({}), "auto"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
  EXPECT_THAT(refusal.message, HasSubstr("no card can be used: the driver answers '"));
}

TEST(CardRefusals, AnOldCardIsNamedWithItsCapabilityAndTheOneThatIsNeeded) {
  const Refusal refusal = RefusalOf([] { LoadName(Driver({{.capability = 75}}), "CUDA0"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("CUDA0: Fake 0, compute capability 7.5, 80.0 GiB"),
                                     HasSubstr("need compute capability 8.0 or newer")));
  // Another card is looked at before.
  EXPECT_EQ(LoadName(Driver({{.capability = 75}, {}}), "auto"), "CUDA1");
}

TEST(CardRefusals, ACardThatIsNotThereIsAnsweredWithThoseThatAre) {
  const Refusal refusal = RefusalOf([] { LoadName(Driver({{}, {}}), "CUDA7"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("no card CUDA7 here"), HasSubstr("CUDA0: Fake 0"),
                                     HasSubstr("CUDA1: Fake 1")));
}

// A whole seat on a card of `free` bytes: no further than its plan, which needs no driver.
Refusal PlanOn(uint64_t free, uint64_t budget = 0) {
  ToySeat toy;
  const sdk::Weight head = toy.Add("head", {256, ToySeat::kVocabulary}, model::TensorType::kQ4_K);
  const model::ModelFile& model = toy.Model();
  const SeatSource source = {.plugin = "toy",
                             .description = &toy.description,
                             .build = [&](const bl_builder& builder, const bl_build&) {
                               sdk::Graph g(&builder);
                               g.Export("logits",
                                        g.Head(g.SelectRows(g.Embed(g.Tokens(), toy.table)), head));
                             }};
  SeatOptions options;
  options.rows_max = 16;
  options.slot_context = 64;
  options.card_budget = budget;
  return RefusalOf([&] {
    LoadOnCards<std::unique_ptr<Seat>>(
        Driver({{.free = free}}), {.device = "CUDA0"}, [&](std::span<const CardInfo> cards, bool) {
          return std::make_unique<CardSeat>(model, source, options, cards);
        });
  });
}

TEST(CardRefusals, ATooSmallCardIsRefusedWithEveryTermAndALineForEachHolder) {
  const Refusal refusal = PlanOn(100 << 20);
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message,
              AllOf(HasSubstr("card plan: weights "), HasSubstr("logits "), HasSubstr("workspace "),
                    HasSubstr("of 0 B available (CUDA0 free"), HasSubstr("it does not fit"),
                    HasSubstr("\n  held by pid 22 (python3): 12,345 MiB\n  held by pid 44 (tool44)"
                              ": 100 MiB\n  held by pid 11 (tool11): 3 MiB\n  held by pid 33 (?): "
                              "the driver does not say how much")));
}

TEST(CardRefusals, ABudgetThatIsTooSmallIsNobodyElsesFault) {
  const Refusal refusal = PlanOn(79 * kGiB, 4096);
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("of a budget of 4.0 KiB"), Not(HasSubstr("pid"))));
}

// What taking memory throws where the plan had fitted.
std::string TakenOn(std::span<const CardInfo> cards, bool /*may_split*/) {
  if (cards.front().ordinal == 0) CheckCardMemory(cudaErrorMemoryAllocation, "taking 17.3 GiB");
  return Ids(cards);
}

TEST(CardRefusals, MemoryTakenBetweenPlanAndLoadIsRefusedNamingTheHolders) {
  const Refusal refusal =
      RefusalOf([] { LoadOnCards<std::string>(Driver({{}}), {.device = "CUDA0"}, TakenOn); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message,
              AllOf(HasSubstr("taking 17.3 GiB: the card has not that much"),
                    HasSubstr("taken it since the plan\n  held by pid 22 (python3)")));
  EXPECT_EQ(LoadOnCards<std::string>(Driver({{}, {}}), {.device = "auto"}, TakenOn), "CUDA1");
}

// What is taken where the whole needs 40 GiB free, a split 10, and every card of several 3.
std::string WholeOrSplit(const std::vector<FakeCard>& cards, bool may_split,
                         const std::string& device = "auto", bool together = false) {
  return LoadOnCards<std::string>(Driver(cards),
                                  {.device = device, .together = together, .may_split = may_split},
                                  [](std::span<const CardInfo> on, bool splits) {
                                    uint64_t free = 0;
                                    uint64_t least = UINT64_MAX;
                                    for (const CardInfo& card : on) {
                                      free += card.free_bytes.value_or(0);
                                      least = std::min(least, card.free_bytes.value_or(0));
                                    }
                                    if (on.size() > 1 && least < 3 * kGiB)
                                      throw CardMemoryError("its part does not fit");
                                    if (free >= 40 * kGiB) return "whole on " + Ids(on);
                                    if (splits && free >= 10 * kGiB) return "split on " + Ids(on);
                                    throw CardMemoryError("it does not fit");
                                  });
}

TEST(CardRefusals, OneCardThatHoldsTheWholeGoesBeforeSeveral) {
  const std::vector<FakeCard> cards = {{.free = 20 * kGiB}, {.free = 50 * kGiB}};
  EXPECT_EQ(WholeOrSplit(cards, true), "whole on CUDA1");
  EXPECT_EQ(WholeOrSplit(cards, true, "CUDA0"), "split on CUDA0");
  EXPECT_EQ(WholeOrSplit({{.free = 20 * kGiB}}, true), "split on CUDA0");
}

TEST(CardRefusals, SeveralCardsTogetherGoBeforeASplitWithTheHost) {
  const std::vector<FakeCard> cards = {{.free = 25 * kGiB}, {.free = 25 * kGiB}};
  EXPECT_EQ(WholeOrSplit(cards, true), "whole on CUDA0+CUDA1");
  EXPECT_EQ(WholeOrSplit(cards, false), "whole on CUDA0+CUDA1");
  const std::vector<FakeCard> small = {{.free = 5 * kGiB}, {.free = 20 * kGiB}};
  EXPECT_EQ(WholeOrSplit(small, true), "split on CUDA0+CUDA1");
  EXPECT_EQ(RefusalOf([&] { WholeOrSplit(small, false); }).kind, ErrorKind::kNoMemory);
  // A card that is too small for any part does not keep the others from being used.
  EXPECT_EQ(WholeOrSplit({{.free = kGiB}, {.free = 20 * kGiB}}, true), "split on CUDA1");
  // The whole on those that are left goes before a split, on as many as can be.
  EXPECT_EQ(WholeOrSplit({{.free = 25 * kGiB}, {.free = kGiB}, {.free = 25 * kGiB}}, true),
            "whole on CUDA0+CUDA2");
  EXPECT_EQ(WholeOrSplit({{.free = kGiB}, {.free = 9 * kGiB}, {.free = 9 * kGiB}}, true),
            "split on CUDA1+CUDA2");
}

TEST(CardRefusals, CardsThatCannotBeUsedAreLeftOutOfThoseThatAreTakenTogether) {
  const std::vector<FakeCard> cards = {
      {.free = 25 * kGiB}, {.capability = 75}, {.free = 25 * kGiB}};
  EXPECT_EQ(WholeOrSplit(cards, true), "whole on CUDA0+CUDA2");
  const Refusal refusal =
      RefusalOf([] { WholeOrSplit({{.capability = 75}, {.capability = 60}}, true); });
  EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
  EXPECT_THAT(refusal.message, HasSubstr("CUDA1: Fake 1, compute capability 6.0"));
}

TEST(CardRefusals, CardsAskedForTogetherAreNotTriedAlone) {
  const std::vector<FakeCard> cards = {{.free = 50 * kGiB}, {.free = 50 * kGiB}};
  EXPECT_EQ(WholeOrSplit(cards, true), "whole on CUDA0");
  EXPECT_EQ(WholeOrSplit(cards, true, "auto", true), "whole on CUDA0+CUDA1");
}

TEST(CardRefusals, WhereSeveralCardsCannotHaveTheModelCutOneHasItSplit) {
  for (const ErrorKind kind : {ErrorKind::kUnsupported, ErrorKind::kDevice}) {
    const auto load = [&](std::span<const CardInfo> cards, bool may_split) {
      if (cards.size() > 1) throw Error(kind, "not on several");
      if (!may_split) throw CardMemoryError("it does not fit");
      return Ids(cards);
    };
    const auto on = [&](const CardChoice& choice) {
      return LoadOnCards<std::string>(Driver({{}, {}}), choice, load);
    };
    EXPECT_EQ(on({.device = "auto", .may_split = true}), "CUDA0");
    EXPECT_EQ(RefusalOf([&] { on({.device = "auto"}); }).kind, kind);
    EXPECT_EQ(RefusalOf([&] { on({.device = "auto", .together = true, .may_split = true}); }).kind,
              kind);
    EXPECT_EQ(RefusalOf([&] { on({.device = "CUDA0,CUDA1", .may_split = true}); }).kind, kind);
  }
}

// "CUDA0+CUDA1 CUDA1": the cards that are loaded on, and of these the ones that were opened.
std::string ByShares(const std::vector<FakeCard>& cards, const std::vector<double>& shares,
                     const std::string& device = "auto") {
  return LoadOnCards<std::string>(
      Driver(cards), {.device = device, .shares = shares}, [](std::span<const CardInfo> on, bool) {
        std::vector<CardInfo> opened(on.begin(), on.end());
        std::erase_if(opened, [](const CardInfo& card) { return !card.free_bytes.has_value(); });
        return Ids(on) + " " + Ids(opened);
      });
}

TEST(CardRefusals, SharesCountEveryCardOfTheMachineAndOpenThoseThatHaveOne) {
  EXPECT_EQ(ByShares({{}, {}, {}}, {3, 0, 1}), "CUDA0+CUDA1+CUDA2 CUDA0+CUDA2");
  EXPECT_EQ(ByShares({{}, {}, {}}, {0, 1}), "CUDA0+CUDA1+CUDA2 CUDA1");
  EXPECT_EQ(ByShares({{}, {}, {}}, {1}, "CUDA2,CUDA0"), "CUDA2+CUDA0 CUDA2");
  // One that cannot be used may go without a share, but does not hand its own to the next.
  EXPECT_EQ(ByShares({{.capability = 75}, {}}, {0, 1}), "CUDA0+CUDA1 CUDA1");
  const Refusal refusal = RefusalOf([] { ByShares({{.capability = 75}, {}, {}}, {3, 1}); });
  EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
  EXPECT_THAT(refusal.message, HasSubstr("CUDA0: Fake 0, compute capability 7.5"));
}

TEST(CardRefusals, OfSeveralCardsEachIsNamedBeforeItsHolders) {
  const Refusal refusal = RefusalOf([] {
    LoadOnCards<std::string>(Driver({{}, {}}), {.device = "CUDA0,CUDA1"},
                             [](std::span<const CardInfo>, bool) -> std::string {
                               throw CardMemoryError("it does not fit");
                             });
  });
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("it does not fit\nCUDA0:\n  held by pid 22"),
                                     HasSubstr("\nCUDA1:\n  no other process")));
}

TEST(CardRefusals, NamedCardsAreTakenInTheOrderNamed) {
  const std::vector<FakeCard> cards = {{.free = 50 * kGiB}, {.free = 50 * kGiB}, {}};
  EXPECT_EQ(WholeOrSplit(cards, true, "CUDA2,CUDA0"), "whole on CUDA2+CUDA0");
  const Refusal refusal = RefusalOf([&] { WholeOrSplit(cards, true, "CUDA0,CUDA5"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kDevice);
  EXPECT_THAT(refusal.message, HasSubstr("no card CUDA5 here"));
}

TEST(CardRefusals, ACardWithoutRoomToOpenItIsRefusedForItsMemory) {
  const Refusal refusal = RefusalOf(
      [] { LoadName(Driver({{.free = 0, .open = cudaErrorMemoryAllocation}}), "CUDA0"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("opening CUDA0"), HasSubstr("held by pid 22")));
}

TEST(CardRefusals, WhatIsWrongWithTheModelIsNotTriedOnEveryCard) {
  int tried = 0;
  const Refusal refusal = RefusalOf([&] {
    LoadOnCards<int>(Driver({{}, {}}), {.device = "auto"},
                     [&](std::span<const CardInfo>, bool) -> int {
                       ++tried;
                       throw Error(ErrorKind::kUnsupported, "no kernel");
                     });
  });
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_EQ(tried, 1);
}

TEST(CardHolders, EachProcessOnceMostFirstWithoutThisOne) {
  const CardHolders holders = FindCardHolders("00000000:65:00.0", BLOOMERY_FAKE_NVML);
  EXPECT_EQ(holders.untold, "");
  std::vector<uint32_t> pids;
  for (const CardHolder& holder : holders.list) pids.push_back(holder.pid);
  EXPECT_THAT(pids, ElementsAre(22, 44, 11, 33));
}

TEST(CardHolders, WhereNothingIsToldTheLineSaysWhy) {
  EXPECT_THAT(FindCardHolders("00000000:66:00.0", BLOOMERY_FAKE_NVML).Lines(),
              HasSubstr("no other process that this one may see"));
  EXPECT_THAT(FindCardHolders("00000000:67:00.0", BLOOMERY_FAKE_NVML).Lines(),
              HasSubstr("is not known: "));
  EXPECT_THAT(FindCardHolders("00000000:68:00.0", BLOOMERY_FAKE_NVML).Lines(),
              HasSubstr("does not know the card at 00000000:68:00.0"));
  EXPECT_THAT(FindCardHolders("00000000:65:00.0", "libno-such.so.1").Lines(),
              HasSubstr("there is no libno-such.so.1 here"));
}

TEST(CardHolders, CardsAreToldWithoutOpeningThem) {
  const std::vector<VideoCard> cards = LookAtCards(BLOOMERY_FAKE_NVML);
  ASSERT_EQ(cards.size(), 2U);
  EXPECT_EQ(cards[0].index, 0U);
  EXPECT_EQ(cards[0].name, "Example 9000");
  EXPECT_EQ(cards[0].sm, "8.6");
  EXPECT_EQ(cards[0].total_bytes, 24ULL << 30U);
  EXPECT_EQ(cards[0].free_bytes, 9ULL << 30U);
  EXPECT_EQ(cards[0].driver_cuda, "13.1");
  EXPECT_EQ(cards[0].holders.list.size(), 4U);
  EXPECT_EQ(cards[1].index, 1U);
  EXPECT_EQ(cards[1].total_bytes, 0U);  // one that is not told
  EXPECT_NE(cards[1].holders.untold, "");
  EXPECT_TRUE(LookAtCards("libno-such.so.1").empty());
}

TEST(CardHolders, TheListOfCardsHasThem) {
  EXPECT_THAT(DescribeCards(Driver({{}, {}})),
              ElementsAre(AllOf(HasSubstr("CUDA0: Fake 0, compute capability 9.0, 80.0 GiB, 79.0 "
                                          "GiB free\n  held by pid 22"),
                                HasSubstr("pid 33")),
                          HasSubstr("CUDA1: Fake 1, compute capability 9.0, 80.0 GiB, 79.0 GiB "
                                    "free\n  no other process")));
}

TEST(CardHolders, TheViewOfACardIsWhatTheDriverTold) {
  CardInfo card;
  card.ordinal = 1;
  card.name = "Fake";
  card.compute_capability = 86;
  card.total_bytes = 24ULL << 30U;
  card.free_bytes = 9ULL << 30U;
  const VideoCard view = card.View({.list = {{22, "other", 5}}, .untold = ""});
  EXPECT_EQ(view.index, 1U);
  EXPECT_EQ(view.name, "Fake");
  EXPECT_EQ(view.sm, "8.6");
  EXPECT_EQ(view.total_bytes, 24ULL << 30U);
  EXPECT_EQ(view.free_bytes, 9ULL << 30U);
  ASSERT_EQ(view.holders.list.size(), 1U);
  EXPECT_EQ(view.holders.list[0].pid, 22U);
}

}  // namespace
}  // namespace bloomery::exec
