// A described seat on a card that is not there: which place it takes, and with which frames.
#include "runtime/exec/placing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/refusal.h"
#include "tests/unit/exec/toy_seat.h"

namespace bloomery::exec {
namespace {

using memory::Place;
using model::TensorType;
using test::RefusalOf;
using test::ToySeat;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Two layers of 8 experts; whatever they weigh in the file, 1 MiB a part of each on the card.
class PlacingTest : public testing::Test {
 protected:
  PlacingTest() {
    for (int32_t i = 0; i < 2; ++i) {
      toy_.AddBank(8, 2, 64, TensorType::kQ8_0, TensorType::kQ8_0, TensorType::kQ8_0);
      toy_.description.banks.back().layer = i;
    }
    toy_.description.layers = 2;
    options_.available = [] { return memory::HostLimit{1 << 30, "MemAvailable"}; };
  }

  // On a card with so many MiB for 10 of dense weights, and 6 for each frame of both banks.
  memory::Placement Place(uint64_t mib, bool auto_splits = false) {
    asked_.clear();
    options_.auto_splits = auto_splits;
    const memory::CardRoom card = {.id = "CUDA0", .total = mib * kMiB, .free = mib * kMiB};
    const memory::LayerRange layers = {0, 2};
    const auto sizes_of = [&](memory::Place place) {
      asked_.push_back(place);
      if (place == memory::Place::kSplit && unsplittable_) {
        throw Error(ErrorKind::kUnsupported, "weight 'x' cannot be split");
      }
      memory::SeatSizes sizes;
      sizes.stages = {{.layers = layers, .banks = {0, 1}, .dense = 10 * kMiB}};
      sizes.banks.resize(2, {.experts = 8, .used = 2, .card_parts = {kMiB, kMiB, kMiB}});
      if (place == memory::Place::kSplit) sizes.stages[0].beside.push_back({"maps", kMiB});
      return sizes;
    };
    return ChooseOnCards(options_, toy_.description, {&card, 1}, {&layers, 1}, sizes_of);
  }

  ToySeat toy_;
  SeatOptions options_;
  std::vector<memory::Place> asked_;
  bool unsplittable_ = false;
};

TEST_F(PlacingTest, AWholeModelIsTakenWhereItFits) {
  const memory::Placement whole = Place(58);  // 10 + 8 * 6
  EXPECT_EQ(whole.place, Place::kCard);
  EXPECT_TRUE(whole.Fits());
  EXPECT_THAT(asked_, ElementsAre(Place::kCard));
}

TEST_F(PlacingTest, OneThatDoesNotFitIsSplitOnlyWhereThatIsAskedForOrAutomatic) {
  EXPECT_EQ(Place(57).place, Place::kCard);
  EXPECT_FALSE(Place(57).Fits());
  const memory::Placement automatic = Place(57, true);
  EXPECT_EQ(automatic.place, Place::kSplit);
  EXPECT_THAT(automatic.frames, ElementsAre(7, 7));  // (57 - 11) / 6
  EXPECT_THAT(asked_, ElementsAre(Place::kCard, Place::kSplit));
  ASSERT_TRUE(automatic.SplitUnasked());
  EXPECT_EQ(automatic.Need().need, 58 * kMiB);  // sizing a context goes by the whole model
  options_.placing.place = Place::kSplit;
  EXPECT_THAT(Place(35).frames, ElementsAre(4, 4));
  EXPECT_FALSE(Place(35).SplitUnasked());
  EXPECT_EQ(Place(35).Need().need, 35 * kMiB);
  // Nothing is left for the host: it is whole.
  EXPECT_EQ(Place(58).place, Place::kCard);
  options_.placing.place = Place::kCard;
  EXPECT_EQ(Place(57, true).place, Place::kCard);
}

TEST_F(PlacingTest, ASplitThatNobodyAskedForSaysWhyItWasTaken) {
  EXPECT_THAT(Place(35, true).Choice(),
              AllOf(HasSubstr("takes 58.0 MiB of CUDA0, which has 35.0 MiB"),
                    HasSubstr("8 of 16 experts lie there")));
  EXPECT_EQ(Place(58, true).Choice(), "");
  options_.placing.place = Place::kSplit;
  EXPECT_EQ(Place(35, true).Choice(), "");
}

TEST_F(PlacingTest, AModelThatCannotBeSplitIsRefusedAsAWholeOneWithTheReason) {
  unsplittable_ = true;
  const memory::Placement whole = Place(35, true);
  EXPECT_EQ(whole.place, Place::kCard);
  const test::Refusal refusal = RefusalOf([&] { whole.Check(); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("58.0 MiB"), HasSubstr("weight 'x' cannot be")));
  options_.placing.place = Place::kSplit;
  EXPECT_EQ(RefusalOf([&] { Place(35); }).kind, ErrorKind::kUnsupported);
}

TEST_F(PlacingTest, ExpertsKeptFromTheCardMakeASplitOfAnyModel) {
  options_.placing.host_expert_layers = 1;
  const memory::Placement split = Place(1000);
  EXPECT_EQ(split.place, Place::kSplit);
  EXPECT_THAT(split.frames, ElementsAre(0, 8));
  EXPECT_THAT(asked_, ElementsAre(Place::kSplit));
  options_.placing.host_expert_layers = UINT32_MAX;
  EXPECT_THAT(Place(1000).frames, ElementsAre(0, 0));
}

TEST_F(PlacingTest, ANumberOfFramesIsTakenAsItIs) {
  options_.card_frames = 3;
  EXPECT_THAT(Place(1000).frames, ElementsAre(3, 3));
  options_.card_frames = 8;
  EXPECT_EQ(Place(1000).place, Place::kCard);
  options_.card_frames = 9;
  EXPECT_THAT(RefusalOf([&] { Place(1000); }).message,
              AllOf(HasSubstr("are 9"), HasSubstr("from 0 to 8")));
}

TEST_F(PlacingTest, RulesAreHeldAgainstTheNamesInTheFile) {
  options_.placing.rules = memory::ParseTensorRules(R"(\.0$=CPU)");
  const std::string gate = toy_.description.weights[toy_.description.banks[0].gate].name;
  ASSERT_TRUE(gate.ends_with(".0")) << gate;
  EXPECT_THAT(Place(1000).frames, ElementsAre(0, 8));
  options_.placing.rules = memory::ParseTensorRules("table=CPU");
  EXPECT_THAT(RefusalOf([&] { Place(1000); }).message, HasSubstr("'table'"));
}

TEST_F(PlacingTest, WorkCountsEveryWeightOnceAndTheBanksByExpert) {
  toy_.Add("projection", {256, 128}, TensorType::kQ8_0);
  toy_.AddPlane("k", 64, BL_F16);
  const memory::SeatWork work = WorkOf(toy_.description);
  EXPECT_EQ(work.layers, 2U);
  EXPECT_EQ(work.dense_macs, 256U * 128U);
  ASSERT_EQ(work.banks.size(), 2U);
  EXPECT_EQ(work.banks[0].experts, 8U);
  EXPECT_EQ(work.banks[0].used, 2U);
  EXPECT_EQ(work.banks[0].macs, 3U * 256U * 64U);
  EXPECT_EQ(work.banks[0].bytes, 3U * 256U * 64U / 32 * 34);
  EXPECT_EQ(work.context_row_bytes, 128U);
}

}  // namespace
}  // namespace bloomery::exec
