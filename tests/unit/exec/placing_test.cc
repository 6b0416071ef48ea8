// A described seat on a card that is not there: which place it takes, and with which frames.
#include "runtime/exec/placing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

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

// The same model, a layer on each of two cards: 10 MiB of dense weights and 3 a frame on each.
class CardsTest : public PlacingTest {
 protected:
  memory::Placement On(uint64_t first, uint64_t second, bool auto_splits = false) {
    options_.auto_splits = auto_splits;
    const std::array<memory::CardRoom, 2> cards = {
        {{.id = "CUDA0", .free = first * kMiB}, {.id = "CUDA1", .free = second * kMiB}}};
    const std::array<memory::LayerRange, 2> layers = {{{0, 1}, {1, 2}}};
    return ChooseOnCards(options_, toy_.description, cards, layers, [&](memory::Place place) {
      memory::SeatSizes sizes;
      sizes.banks.resize(2, {.experts = 8, .used = 2, .card_parts = {kMiB, kMiB, kMiB}});
      for (uint32_t i = 0; i < 2; ++i) {
        sizes.stages.push_back({.layers = layers.at(i), .banks = {i}, .dense = 10 * kMiB});
        if (place == memory::Place::kSplit) sizes.stages[i].beside.push_back({"maps", kMiB});
      }
      return sizes;
    });
  }
};

TEST_F(CardsTest, AModelIsWholeWhereEveryCardHasRoomAndElseSplitOnAll) {
  const memory::Placement whole = On(34, 34, true);
  EXPECT_EQ(whole.place, Place::kCard);
  EXPECT_EQ(whole.device, "CUDA0,CUDA1");
  EXPECT_TRUE(whole.Fits());
  EXPECT_FALSE(On(34, 33).Fits());
  const memory::Placement split = On(100, 23, true);  // 11 + 3 n
  EXPECT_EQ(split.place, Place::kSplit);
  EXPECT_THAT(split.frames, ElementsAre(8, 4));
  EXPECT_TRUE(split.SplitUnasked());
  EXPECT_THAT(split.Choice(), AllOf(HasSubstr("takes 34.0 MiB of CUDA0, which has 100.0 MiB"),
                                    HasSubstr("and 34.0 MiB of CUDA1, which has 23.0 MiB"),
                                    HasSubstr("12 of 16 experts lie there")));
  // Sizing a context goes by the whole model on the card that lacks most.
  EXPECT_EQ(split.Need().need, 34 * kMiB);
  EXPECT_EQ(split.Need().room, 23 * kMiB);
  options_.card_frames = 5;
  EXPECT_THAT(On(100, 100).frames, ElementsAre(5, 5));
}

TEST_F(CardsTest, RulesAreHeldAgainstTheCardOfTheLayer) {
  options_.placing.rules = memory::ParseTensorRules(R"(\.0$=CUDA0,\.1$=CPU)");
  EXPECT_THAT(On(100, 100).frames, ElementsAre(8, 0));
  options_.placing.rules = memory::ParseTensorRules(R"(\.1$=CUDA0)");
  EXPECT_THAT(RefusalOf([&] { On(100, 100); }).message,
              AllOf(HasSubstr("layer 1 lie on CUDA1"), HasSubstr("not on CUDA0")));
  // The table is no layer's: it is the first card's, what else is none's the last one's.
  toy_.description.weights[toy_.table.index].role = BL_ROLE_TABLE;
  toy_.Add("head", {256, 24});
  options_.placing.rules = memory::ParseTensorRules("^table$=CUDA0,head=CUDA1");
  EXPECT_EQ(On(100, 100).place, Place::kCard);
  options_.placing.rules = memory::ParseTensorRules("^table$=CUDA1");
  EXPECT_THAT(RefusalOf([&] { On(100, 100); }).message, HasSubstr("'table' lies on CUDA0"));
}

// Four layers; a weight's bytes and a plane's are what the test says.
class CutLayersTest : public testing::Test {
 protected:
  CutLayersTest() {
    toy_.description.layers = 4;
    toy_.description.weights.clear();
  }

  plugin::Weight& Add(int32_t layer, uint64_t bytes) {
    plugin::Weight weight;
    weight.present = true;
    weight.layer = layer;
    weight.tensor = toy_.description.weights.size();
    toy_.description.weights.push_back(weight);
    bytes_.push_back(bytes);
    return toy_.description.weights.back();
  }

  // Where the second card's layers begin, with so much room on both.
  uint32_t Border(uint64_t first, uint64_t second) {
    const std::array<memory::CardRoom, 2> cards = {
        {{.id = "CUDA0", .free = first}, {.id = "CUDA1", .free = second}}};
    const std::vector<memory::LayerRange> ranges = CutLayers(
        options_, toy_.description, cards, [&](uint32_t weight) { return bytes_.at(weight); },
        [&](uint32_t plane) { return planes_.at(plane); });
    EXPECT_EQ(ranges.size(), 2U);
    EXPECT_EQ(ranges[0].first, 0U);
    EXPECT_EQ(ranges[0].end, ranges[1].first);
    EXPECT_EQ(ranges[1].end, 4U);
    return ranges[0].end;
  }

  ToySeat toy_;
  SeatOptions options_;
  std::vector<uint64_t> bytes_;
  std::vector<uint64_t> planes_;
};

TEST_F(CutLayersTest, WeightsAndPlanesOfALayerCountForIt) {
  for (int32_t layer = 0; layer < 4; ++layer) Add(layer, 10);
  EXPECT_EQ(Border(100, 100), 2U);
  EXPECT_EQ(Border(300, 100), 3U);
  // A plane of 20 bytes makes layer 3 as much as three others.
  toy_.description.planes.push_back({.name = "k", .layer = 3});
  planes_ = {20};
  EXPECT_EQ(Border(100, 100), 3U);
  Add(3, 20).present = false;  // not there: nobody asks for it
  bytes_.back() = 1000;
  EXPECT_EQ(Border(100, 100), 3U);
}

TEST_F(CutLayersTest, TablesAreBeforeTheLayersAndTheRestAndTheDraftHeadBehindThem) {
  for (int32_t layer = 0; layer < 4; ++layer) Add(layer, 10);
  Add(-1, 20).role = BL_ROLE_TABLE;
  EXPECT_EQ(Border(100, 100), 1U);  // 30 and 30
  plugin::Weight& head = Add(-1, 20);
  EXPECT_EQ(Border(100, 100), 2U);
  // A tied head is the table's bytes: on the last card they lie once more.
  head.alias = true;
  head.tensor = 4;
  EXPECT_EQ(Border(100, 100), 2U);
  // The draft head's table and projection: the table's bytes are there already.
  plugin::Weight& draft_table = Add(-1, 20);
  draft_table.owner = BL_OWNER_DRAFT;
  draft_table.role = BL_ROLE_TABLE;
  draft_table.alias = true;
  draft_table.tensor = 4;
  EXPECT_EQ(Border(100, 100), 2U);
  // One of its own.
  draft_table.alias = false;
  draft_table.tensor = 6;
  EXPECT_EQ(Border(100, 100), 3U);  // 20 + 30, and 10 + 40
  Add(4, 20).owner = BL_OWNER_DRAFT;
  Add(-1, 40).role = BL_ROLE_TABLE;
  EXPECT_EQ(Border(100, 100), 2U);  // 60 + 20, and 20 + 60; without the draft's layer 1
}

TEST_F(CutLayersTest, ExpertsThatStayWithTheHostDoNotCount) {
  for (int32_t layer = 0; layer < 4; ++layer) {
    Add(layer, 10);
    const std::string name = "bank." + std::to_string(layer);
    plugin::Bank bank = {.layer = layer, .experts = 6, .used = 2};
    for (uint32_t* part : {&bank.gate, &bank.up, &bank.down}) {
      *part = static_cast<uint32_t>(toy_.description.weights.size());
      Add(layer, layer == 0 ? 20 : 10).name = name;
    }
    toy_.description.banks.push_back(bank);
  }
  EXPECT_EQ(Border(100, 100), 2U);  // 70 + 40, and 40 + 40
  options_.placing.host_expert_layers = 2;
  EXPECT_EQ(Border(100, 100), 3U);  // 10 + 10 + 40, and 40
  options_.placing.host_expert_layers = 0;
  // Which card a rule names is checked once it is known what lies there.
  options_.placing.rules = memory::ParseTensorRules(R"(bank\.[123]=CPU,bank=CUDA7)");
  EXPECT_EQ(Border(100, 100), 1U);  // 70, and 10 + 10 + 10
  options_.placing.rules.clear();
  for (uint32_t i = 4; i < bytes_.size(); ++i) {
    if (i % 4 != 0) bytes_[i] = 0;
  }
  EXPECT_EQ(Border(100, 100), 1U);  // 70, and 10 + 10 + 10
  options_.card_frames = 1;
  EXPECT_EQ(Border(100, 100), 2U);  // of 60 bytes a sixth: 20 + 10, and 10 + 10
}

TEST_F(CutLayersTest, SharesGoBeforeRooms) {
  for (int32_t layer = 0; layer < 4; ++layer) Add(layer, 10);
  options_.shares = {4, 1};
  EXPECT_EQ(Border(1, 1000), 4U);
  options_.shares = {1, 4};
  EXPECT_EQ(Border(1000, 1), 1U);
}

TEST_F(PlacingTest, WorkSaysWhatIsOfEachLayer) {
  const auto add = [&](const std::string& name, int32_t layer, uint64_t rows) {
    toy_.Add(name, {256, rows}, TensorType::kQ8_0);
    toy_.description.weights.back().layer = layer;
  };
  add("a", 0, 128);
  add("b", 1, 64);
  add("behind", -1, 32);
  add("draft", 1, 16);
  toy_.description.weights.back().owner = BL_OWNER_DRAFT;
  toy_.AddPlane("k", 64, BL_F16);
  toy_.description.planes.back().layer = 1;
  toy_.description.weights[toy_.table.index].role = BL_ROLE_TABLE;
  const memory::SeatWork work = WorkOf(toy_.description);
  const auto bytes = [](uint64_t rows) { return 256 * rows / 32 * 34; };
  ASSERT_EQ(work.of_layers.size(), 2U);
  EXPECT_EQ(work.of_layers[0],
            (memory::DenseWork{.dense_bytes = bytes(128), .dense_macs = 256 * 128}));
  EXPECT_EQ(work.of_layers[1],
            (memory::DenseWork{
                .dense_bytes = bytes(64), .dense_macs = 256 * 64, .context_row_bytes = 128}));
  EXPECT_EQ(work.dense_bytes, bytes(128 + 64 + 32 + 16));
  EXPECT_EQ(work.dense_macs, 256U * (128 + 64 + 32 + 16));
  EXPECT_EQ(work.context_row_bytes, 128U);
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
