#include "runtime/memory/layer_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>

#include "tests/support/refusal.h"

namespace bloomery::memory {
namespace {

using test::Refusal;
using test::RefusalOf;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Ranges = std::vector<LayerRange>;

// How full the fullest card is; small numbers, which a long double holds exactly enough.
long double Fullest(const CutSizes& sizes, const std::vector<uint64_t>& rooms,
                    const Ranges& ranges) {
  long double fullest = 0;
  for (size_t card = 0; card < ranges.size(); ++card) {
    uint64_t bytes = sizes.each;
    if (card == 0) bytes += sizes.first;
    if (card == ranges.size() - 1) bytes += sizes.last;
    for (uint32_t i = ranges[card].first; i < ranges[card].end; ++i) bytes += sizes.layers[i];
    fullest = std::max(fullest, static_cast<long double>(bytes) / rooms[card]);
  }
  return fullest;
}

// Every cut into runs that are not empty, those that give the earlier cards more first.
void EachCut(uint32_t first, uint32_t layers, size_t cards, Ranges* so_far,
             const std::function<void(const Ranges&)>& see) {
  if (cards == 1) {
    so_far->push_back({first, layers});
    see(*so_far);
    so_far->pop_back();
    return;
  }
  for (uint32_t end = layers; end > first; --end) {
    if (layers - end < cards - 1) continue;
    so_far->push_back({first, end});
    EachCut(end, layers, cards - 1, so_far, see);
    so_far->pop_back();
  }
}

TEST(LayerCut, ByRoomIsTheBestOfAllCutsAndOfSeveralTheOneWithMoreOnEarlierCards) {
  std::mt19937 random(17);
  const auto up_to = [&](uint64_t most) { return random() % (most + 1); };
  int checked = 0;
  for (int i = 0; i < 3000; ++i) {
    CutSizes sizes;
    // Few values: many cuts are equally good.
    const uint64_t most = i % 3 == 0 ? 2 : i % 3 == 1 ? 9 : 1000;
    const auto layers = static_cast<uint32_t>(1 + up_to(7));
    for (uint32_t layer = 0; layer < layers; ++layer) sizes.layers.push_back(up_to(most));
    sizes.first = up_to(most);
    sizes.last = up_to(2 * most);
    sizes.each = up_to(most) / 2;
    std::vector<uint64_t> rooms(1 + up_to(std::min<uint64_t>(3, layers - 1)));
    for (uint64_t& room : rooms) room = 1 + up_to(i % 2 == 0 ? 2 : 40);
    std::optional<long double> least;
    Ranges best;
    Ranges so_far;
    EachCut(0, layers, rooms.size(), &so_far, [&](const Ranges& cut) {
      const long double fullest = Fullest(sizes, rooms, cut);
      if (least && fullest >= *least) return;
      least = fullest;
      best = cut;
    });
    const Ranges cut = CutByRoom(sizes, rooms);
    ASSERT_EQ(cut, best) << i << ": " << Fullest(sizes, rooms, cut) << " of " << *least;
    ++checked;
  }
  EXPECT_EQ(checked, 3000);
}

TEST(LayerCut, ByRoomFollowsRoomsAndWhatLiesBeforeAndBehindTheLayers) {
  CutSizes sizes = {.layers = std::vector<uint64_t>(12, 10)};
  const auto cut = [&](std::vector<uint64_t> rooms) { return CutByRoom(sizes, rooms); };
  EXPECT_THAT(cut({100, 100}), ElementsAre(LayerRange{0, 6}, LayerRange{6, 12}));
  EXPECT_THAT(cut({200, 100}), ElementsAre(LayerRange{0, 8}, LayerRange{8, 12}));
  EXPECT_THAT(cut({7}), ElementsAre(LayerRange{0, 12}));
  sizes.last = 40;  // a head of four layers
  EXPECT_THAT(cut({100, 100}), ElementsAre(LayerRange{0, 8}, LayerRange{8, 12}));
  sizes.first = 40;
  EXPECT_THAT(cut({100, 100}), ElementsAre(LayerRange{0, 6}, LayerRange{6, 12}));
  // What an early card gets must not push a full layer onto a small one behind it.
  EXPECT_THAT(CutByRoom({.layers = {1, 1, 100, 1}}, std::vector<uint64_t>{100, 1, 101}),
              ElementsAre(LayerRange{0, 1}, LayerRange{1, 2}, LayerRange{2, 4}));
}

TEST(LayerCut, ByRoomIsExactWithSizesOfRealModelsAndCardsWithoutRoom) {
  // (2^40 - 1) / 2^40 of the second card is less than 2^40 / (2^40 + 1) of the first, by 2^-80: to
  // doubles both are the same, and the first card would get two layers.
  const uint64_t tera = uint64_t{1} << 40;
  EXPECT_THAT(CutByRoom({.layers = {tera - 2, 2, tera - 3}}, std::vector<uint64_t>{tera + 1, tera}),
              ElementsAre(LayerRange{0, 1}, LayerRange{1, 3}));
  EXPECT_THAT(CutByRoom({.layers = {tera, tera, tera}}, std::vector<uint64_t>{0, tera}),
              ElementsAre(LayerRange{0, 1}, LayerRange{1, 3}));
}

TEST(LayerCut, ByRoomRefusesMoreCardsThanLayers) {
  const Refusal refusal = RefusalOf(
      [] { static_cast<void>(CutByRoom({.layers = {1, 1}}, std::vector<uint64_t>{1, 1, 1})); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("3 cards"), HasSubstr("2 layers")));
  EXPECT_EQ(RefusalOf([] { static_cast<void>(CutByRoom({.layers = {1}}, {})); }).kind,
            ErrorKind::kUsage);
}

Ranges ByShares(uint32_t layers, std::vector<double> shares, size_t cards) {
  return CutByShares(layers, shares, cards);
}

TEST(LayerCut, BySharesPutsEachLayerOnTheFirstCardWhoseSumIsAboveItsPlace) {
  // 9 layers and what is behind them: places 0, 0.1, … 0.8 of ten.
  EXPECT_THAT(ByShares(9, {1, 1}, 2), ElementsAre(LayerRange{0, 5}, LayerRange{5, 9}));
  EXPECT_THAT(ByShares(9, {3, 1}, 2), ElementsAre(LayerRange{0, 8}, LayerRange{8, 9}));
  EXPECT_THAT(ByShares(9, {1, 2, 7}, 3),
              ElementsAre(LayerRange{0, 1}, LayerRange{1, 3}, LayerRange{3, 9}));
  // Sums that are a layer's place to the last bit do not have it, whatever the shares' scale.
  for (const double scale : {1.0, 3.0, 0.1, 1e-3, 7e12}) {
    EXPECT_THAT(ByShares(47, {scale, scale}, 2), ElementsAre(LayerRange{0, 24}, LayerRange{24, 47}))
        << scale;
  }
  EXPECT_THAT(ByShares(47, {1, 2}, 2), ElementsAre(LayerRange{0, 16}, LayerRange{16, 47}));
}

TEST(LayerCut, BySharesOfWholeNumbersIsEachLayersOwnQuestion) {
  // In whole numbers: i / (n + 1) < sum / all is i * all < sum * (n + 1).
  for (uint32_t layers = 1; layers <= 12; ++layers) {
    for (uint32_t code = 1; code < 256; ++code) {
      const std::vector<uint64_t> whole = {code % 4, code / 4 % 4, code / 16 % 4, code / 64};
      const uint64_t all = whole[0] + whole[1] + whole[2] + whole[3];
      std::vector<uint64_t> expected(4, 0);
      for (uint64_t i = 0; i < layers; ++i) {
        uint64_t sum = 0;
        for (size_t card = 0; card < 4; ++card) {
          sum += whole[card];
          if (i * all >= sum * (layers + 1)) continue;
          ++expected[card];
          break;
        }
      }
      const Ranges cut = ByShares(layers, std::vector<double>(whole.begin(), whole.end()), 4);
      uint32_t first = 0;
      for (size_t card = 0; card < 4; ++card) {
        ASSERT_EQ(cut[card].first, first);
        ASSERT_EQ(cut[card].size(), expected[card]) << layers << " layers, shares " << code;
        first = cut[card].end;
      }
      ASSERT_EQ(first, layers);
    }
  }
}

TEST(LayerCut, ACardWithoutAShareIsNotUsed) {
  EXPECT_THAT(ByShares(9, {1}, 3),
              ElementsAre(LayerRange{0, 9}, LayerRange{9, 9}, LayerRange{9, 9}));
  EXPECT_THAT(ByShares(9, {0, 1}, 2), ElementsAre(LayerRange{0, 0}, LayerRange{0, 9}));
  EXPECT_THAT(ByShares(9, {1, 0, 1}, 3),
              ElementsAre(LayerRange{0, 5}, LayerRange{5, 5}, LayerRange{5, 9}));
  // A share smaller than a layer's place.
  EXPECT_THAT(ByShares(9, {50, 1}, 2), ElementsAre(LayerRange{0, 9}, LayerRange{9, 9}));
}

TEST(LayerCut, BySharesRefusesWhatIsNoShare) {
  const auto refused = [](std::vector<double> shares, size_t cards) {
    const Refusal refusal = RefusalOf([&] { ByShares(9, shares, cards); });
    EXPECT_EQ(refusal.kind, ErrorKind::kUsage);
    EXPECT_THAT(refusal.message, HasSubstr("--tensor-split"));
    return refusal.message;
  };
  EXPECT_THAT(refused({1, 1, 1}, 2), AllOf(HasSubstr("3 shares"), HasSubstr("2 cards")));
  EXPECT_THAT(refused({1, -1}, 2), HasSubstr("-1"));
  EXPECT_THAT(refused({std::nan(""), 1}, 2), HasSubstr("nan"));
  EXPECT_THAT(refused({std::numeric_limits<double>::infinity(), 1}, 2), HasSubstr("inf"));
  EXPECT_THAT(refused({1e308, 1e308}, 2), HasSubstr("too large"));
  EXPECT_THAT(refused({0, 0}, 2), HasSubstr("no share is above 0"));
  refused({}, 2);
  refused({1}, 0);
}

}  // namespace
}  // namespace bloomery::memory
