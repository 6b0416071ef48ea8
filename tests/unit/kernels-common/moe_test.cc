#include "kernels-common/moe/cpu/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels-common/moe/reference.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::AlignedBytes;
using testing::FirstDifference;
using testing::Random;

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

struct RouterCase {
  RouterArgs args;
  Routed out;
  explicit RouterCase(std::size_t rows, std::size_t experts, std::size_t top_k,
                      const std::vector<float>& logits) {
    out.ids.resize(rows * top_k);
    out.weights.resize(rows * top_k);
    args.experts = experts;
    args.top_k = top_k;
    args.logits = logits.data();
    args.logits_stride = experts;
    args.ids = out.ids.data();
    args.weights = out.weights.data();
  }
};

TEST(Route, EqualsTheReferenceWithTiesAndModes) {
  Random random(2);
  for (int round = 0; round < 200; ++round) {
    const std::size_t experts = 1 + random.Below(200);
    const std::size_t top_k = 1 + random.Below(std::min<std::size_t>(experts, 10));
    std::vector<float> logits = random.Values(3 * experts, 8.0F);
    if (random.Below(2) == 0) {  // many ties
      for (float& logit : logits) {
        logit = std::rint(logit * 0.25F);
      }
    }
    std::vector<float> bias = random.Values(experts, 1.0F);
    if (random.Below(2) == 0) {
      for (float& value : bias) value = std::rint(value);
    }
    RouterCase expected(3, experts, top_k, logits);
    expected.args.gate = random.Below(2) == 0 ? RouterGate::kSoftmax : RouterGate::kSigmoid;
    expected.args.bias = random.Below(2) == 0 ? nullptr : bias.data();
    expected.args.renormalise = random.Below(2) == 0;
    expected.args.sum_min = random.Below(2) == 0 ? 0.0F : 0.5F;
    expected.args.weight_scale = random.Below(2) == 0 ? 1.0F : 2.5F;
    for (std::size_t row = 0; row < 3; ++row) {
      EXPECT_TRUE(reference::RouteRow(expected.args, row));
    }
    for (const Isa isa : AvailableIsas()) {
      RouterCase made(3, experts, top_k, logits);
      made.args.gate = expected.args.gate;
      made.args.bias = expected.args.bias;
      made.args.renormalise = expected.args.renormalise;
      made.args.sum_min = expected.args.sum_min;
      made.args.weight_scale = expected.args.weight_scale;
      EXPECT_EQ(cpu::Route(isa, made.args, 0, 3), kNoFailingRow);
      EXPECT_EQ(made.out.ids, expected.out.ids) << experts << " " << IsaName(isa);
      EXPECT_EQ(FirstDifference(made.out.weights, expected.out.weights), 3 * top_k);
    }
  }
}

TEST(Route, PicksByProbabilityAndTheLowerIdOfEqualOnes) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F, 3.0F, -1.0F};
  for (const Isa isa : AvailableIsas()) {
    RouterCase made(1, 5, 3, logits);
    cpu::Route(isa, made.args, 0, 1);
    EXPECT_EQ(made.out.ids, (std::vector<std::int32_t>{1, 3, 2}));
    const double e = std::exp(-1.0);
    EXPECT_NEAR(made.out.weights[0], 1 / (2 + e), 1e-6);
    EXPECT_NEAR(made.out.weights[2], e / (2 + e), 1e-6);
  }
}

// The bias chooses, and the weights know nothing of it.
TEST(Route, SigmoidWithASelectionBiasWeighsByTheUnbiasedGates) {
  const std::vector<float> logits = {0.2F, -1.0F, 1.1F, 0.0F, -0.3F, 0.9F};
  const std::vector<float> bias = {0.0F, 0.9F, -0.6F, 0.05F, 0.3F, -0.1F};
  for (const Isa isa : AvailableIsas()) {
    RouterCase made(1, 6, 2, logits);
    made.args.gate = RouterGate::kSigmoid;
    made.args.bias = bias.data();
    made.args.sum_min = 0x1p-14F;
    EXPECT_EQ(cpu::Route(isa, made.args, 0, 1), kNoFailingRow);
    EXPECT_EQ(made.out.ids, (std::vector<std::int32_t>{1, 4}));
    EXPECT_NEAR(made.out.weights[0], 0.38724528, 1e-6);
    EXPECT_NEAR(made.out.weights[1], 0.61275472, 1e-6);
  }
}

TEST(Route, PicksThatAreAllTinyAreDividedByNoLessThanTheLeastSum) {
  const std::vector<float> logits(4, -60.0F);
  for (const Isa isa : AvailableIsas()) {
    RouterCase made(1, 4, 2, logits);
    made.args.gate = RouterGate::kSigmoid;
    made.args.sum_min = 0x1p-14F;
    cpu::Route(isa, made.args, 0, 1);
    EXPECT_NEAR(made.out.weights[0] / (std::exp(-60.0) * 0x1p14), 1.0, 1e-5);
  }
}

TEST(Route, ALogitThatIsNotFiniteNamesItsRowAndKeepsIdsInRange) {
  std::vector<float> logits(3 * 8, 0.5F);
  logits[8 + 3] = NAN;
  logits[16 + 7] = INFINITY;
  for (const Isa isa : AvailableIsas()) {
    RouterCase made(3, 8, 2, logits);
    EXPECT_EQ(cpu::Route(isa, made.args, 0, 3), 1);
    EXPECT_EQ(made.out.ids, (std::vector<std::int32_t>{0, 1, 0, 1, 0, 1}));
    EXPECT_EQ(made.out.weights[0], 0.5F);
    EXPECT_TRUE(std::isnan(made.out.weights[2]));
    EXPECT_TRUE(std::isnan(made.out.weights[5]));
  }
}

TEST(GroupPicks, PlacesOfOneExpertAreConsecutiveAndInPairOrder) {
  const std::int32_t ids[] = {2, 0, 2, 3, 0, 2};  // 3 rows of 2 picks
  std::int32_t offsets[6];
  std::int32_t place_rows[6];
  std::int32_t pair_places[6];
  std::int32_t active[5];
  ExpertGroups groups{offsets, place_rows, pair_places, active, 0};
  cpu::GroupPicks(ids, 3, 2, 5, &groups);
  EXPECT_EQ(std::vector<std::int32_t>(offsets, offsets + 6),
            (std::vector<std::int32_t>{0, 2, 2, 5, 6, 6}));
  EXPECT_EQ(std::vector<std::int32_t>(pair_places, pair_places + 6),
            (std::vector<std::int32_t>{2, 0, 3, 5, 1, 4}));
  EXPECT_EQ(std::vector<std::int32_t>(place_rows, place_rows + 6),
            (std::vector<std::int32_t>{0, 2, 0, 1, 2, 1}));
  ASSERT_EQ(groups.active_count, 3);
  EXPECT_EQ(std::vector<std::int32_t>(active, active + 3), (std::vector<std::int32_t>{0, 2, 3}));
}

TEST(ExpertGateUp, EqualsTheReferenceForEveryFormatAndSplit) {
  for (const FormatTraits& format : Formats()) {
    const std::size_t k = 512;
    const std::size_t n = 150;
    const std::size_t rows = 9;
    testing::LinearCase gate(format, k, n, rows, 71);
    Random random(72);
    const std::vector<std::byte> up = testing::RandomWeights(format, k, n, random);
    // Some for the kernels of few rows; for a format of 256, more than are gathered at a time.
    const std::size_t places = format.ggml_type == 12 ? 300 : 19;
    std::vector<std::int32_t> place_rows(places);
    for (std::size_t place = 0; place < places; ++place) {
      place_rows[place] = static_cast<std::int32_t>((7 * place + place / 9) % rows);
    }
    std::vector<float> unused;
    const LinearArgs linear = gate.Args(unused);
    ExpertGateUpArgs args;
    args.gate = linear.weight;
    args.up = {&format, up.data(), RowBytes(format, k), k};
    args.x = linear.x;
    args.x_stride = k;
    args.quantised = linear.quantised;
    args.place_rows = place_rows.data();
    args.places = places;
    args.h_stride = n + 5;
    std::vector<float> expected(places * args.h_stride, 1.0F);
    args.h = expected.data();
    for (std::size_t place = 0; place < places; ++place) {
      reference::ExpertGateUp(args, place, 0, n);
    }
    for (const Isa isa : AvailableIsas()) {
      AlignedBytes scratch(cpu::ExpertGateUpScratchBytes(isa, k, places));
      std::vector<float> h(expected.size(), 1.0F);
      args.h = h.data();
      std::size_t bytes = cpu::ExpertGateUp(isa, args, 0, 33, scratch.span());
      bytes += cpu::ExpertGateUp(isa, args, 33, n, scratch.span());
      EXPECT_EQ(FirstDifference(h, expected), h.size()) << format.name << " " << IsaName(isa);
      EXPECT_EQ(bytes, 2 * n * RowBytes(format, k));
    }
  }
}

struct PickCase {
  std::size_t rows;
  std::size_t top_k;
  std::size_t dim;
  std::vector<float> y;
  std::vector<float> weights;
  std::vector<float> residual;
  std::vector<std::int32_t> places;

  PickCase(std::size_t r, std::size_t k, std::size_t d, float magnitude, Random& random)
      : rows(r), top_k(k), dim(d) {
    y = random.Values(rows * top_k * dim, magnitude);
    weights = random.Values(rows * top_k);
    residual = random.Values(rows * dim, magnitude);
    places.resize(rows * top_k);
    std::iota(places.begin(), places.end(), 0);
    for (std::size_t i = 1; i < places.size(); ++i) {
      std::swap(places[i], places[random.Below(i + 1)]);
    }
  }
  PickSumArgs Args(std::vector<float>& out) const {
    out.assign(rows * dim, NAN);
    PickSumArgs args;
    args.y = y.data();
    args.y_stride = dim;
    args.pair_places = places.data();
    args.weights = weights.data();
    args.top_k = top_k;
    args.dim = dim;
    args.residual = residual.data();
    args.residual_stride = dim;
    args.out = out.data();
    args.out_stride = dim;
    return args;
  }
};

TEST(PickSum, EqualsTheReferenceAtEveryMagnitudeAndSplit) {
  Random random(91);
  for (int exponent = -50; exponent < 26; ++exponent) {
    const PickCase picks(3, 1 + random.Below(9), 1 + random.Below(50), std::ldexp(1.0F, exponent),
                         random);
    std::vector<float> expected;
    PickSumArgs reference_args = picks.Args(expected);
    for (std::size_t row = 0; row < 3; ++row) {
      ASSERT_TRUE(reference::PickSum(reference_args, row));
    }
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> out;
      const PickSumArgs args = picks.Args(out);
      const std::size_t cut = random.Below(picks.dim + 1);
      EXPECT_EQ(cpu::PickSum(isa, args, 0, 3, 0, cut), kNoFailingRow);
      EXPECT_EQ(cpu::PickSum(isa, args, 0, 3, cut, picks.dim), kNoFailingRow);
      EXPECT_EQ(FirstDifference(out, expected), out.size()) << exponent << " " << IsaName(isa);
    }
  }
}

// Picks of several places, each summed where it was computed: the sums of Q add up to the whole's.
TEST(PickSum, PartsOfThePicksAddUpExactly) {
  Random random(93);
  for (const std::size_t dim : {5, 16, 21, 64}) {
    PickCase picks(3, 8, dim, 300.0F, random);
    std::vector<float> whole;
    cpu::PickSum(DetectIsa(), picks.Args(whole), 0, 3, 0, dim);
    std::vector<std::int32_t> here = picks.places;
    std::vector<std::int32_t> there = picks.places;
    for (std::size_t pair = 0; pair < here.size(); ++pair) {
      (random.Below(2) == 0 ? here : there)[pair] = -1;
    }
    for (const Isa isa : AvailableIsas()) {
      std::vector<std::int64_t> sums(3 * dim, 0);
      std::vector<std::int64_t> expected(3 * dim, 0);
      std::vector<float> out;
      for (const auto& part : {here, there}) {
        PickSumArgs args = picks.Args(out);
        args.pair_places = part.data();
        std::vector<std::int64_t> of_part(3 * dim, -7);
        args.sums = of_part.data();
        const std::size_t cut = random.Below(dim + 1);
        EXPECT_EQ(cpu::PickSum(isa, args, 0, 3, 0, cut), kNoFailingRow);
        EXPECT_EQ(cpu::PickSum(isa, args, 0, 3, cut, dim), kNoFailingRow);
        EXPECT_TRUE(std::isnan(out[0]));  // not touched
        std::vector<std::int64_t> of_reference(3 * dim, -7);
        args.sums = of_reference.data();
        for (std::size_t row = 0; row < 3; ++row) reference::PickSum(args, row);
        EXPECT_EQ(of_part, of_reference) << IsaName(isa);
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += of_part[i];
      }
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const float moe = static_cast<float>(sums[i]) * 0x1p-32F;
        EXPECT_EQ(picks.residual[i] + moe, whole[i]) << IsaName(isa);
      }
    }
  }
}

TEST(GroupPicks, PicksThatAreLeftOutHaveNoPlace) {
  const std::vector<std::int32_t> ids = {2, -1, 0, 2, -1, -1};
  std::vector<std::int32_t> offsets(4);
  std::vector<std::int32_t> rows(6, -9);
  std::vector<std::int32_t> places(6, -9);
  std::vector<std::int32_t> active(3);
  ExpertGroups groups{.offsets = offsets.data(),
                      .place_rows = rows.data(),
                      .pair_places = places.data(),
                      .active = active.data()};
  cpu::GroupPicks(ids.data(), 3, 2, 3, &groups);
  EXPECT_EQ(offsets, (std::vector<std::int32_t>{0, 1, 1, 3}));
  EXPECT_EQ(places, (std::vector<std::int32_t>{1, -1, 0, 2, -1, -1}));
  EXPECT_EQ(groups.active_count, 2);
  EXPECT_EQ(rows[0], 1);
  EXPECT_EQ(rows[1], 0);
  EXPECT_EQ(rows[2], 1);
}

TEST(PickSum, OrderOfPicksDoesNotMatter) {
  Random random(92);
  PickCase picks(1, 8, 64, 100.0F, random);
  std::vector<float> out;
  cpu::PickSum(DetectIsa(), picks.Args(out), 0, 1, 0, 64);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 1; i < 8; ++i) {
      const std::size_t j = random.Below(i + 1);
      std::swap(picks.places[i], picks.places[j]);
      std::swap(picks.weights[i], picks.weights[j]);
    }
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> again;
      cpu::PickSum(isa, picks.Args(again), 0, 1, 0, 64);
      EXPECT_EQ(FirstDifference(again, out), out.size());
    }
  }
}

TEST(PickSum, TiesOfTheFixedPointRoundToEven) {
  // One pick of weight 1: v = (n + 1/2) * 2^-32.
  for (const Isa isa : AvailableIsas()) {
    for (int n = -6; n < 6; ++n) {
      const std::vector<float> y(16, (static_cast<float>(n) + 0.5F) * 0x1p-32F);
      const float one = 1.0F;
      const std::int32_t place = 0;
      std::vector<float> out(16);
      PickSumArgs args;
      args.y = y.data();
      args.pair_places = &place;
      args.weights = &one;
      args.top_k = 1;
      args.dim = 16;
      args.out = out.data();
      cpu::PickSum(isa, args, 0, 1, 0, 16);
      const float even = n % 2 == 0 ? static_cast<float>(n) : static_cast<float>(n + 1);
      EXPECT_EQ(out[0], even * 0x1p-32F) << n;
      EXPECT_EQ(out[15], even * 0x1p-32F) << n;
    }
  }
}

TEST(PickSum, AtTheLimitOrNotFiniteNamesTheRow) {
  for (const Isa isa : AvailableIsas()) {
    for (const float bad : {0x1p26F, -0x1p26F, INFINITY, NAN}) {
      for (const std::size_t column : {0U, 20U}) {  // in the vector part and in the tail
        Random random(93);
        PickCase picks(4, 2, 21, 1.0F, random);
        std::fill(picks.weights.begin(), picks.weights.end(), 1.0F);
        const auto place = static_cast<std::size_t>(picks.places[2 * 2 + 1]);
        picks.y[place * 21 + column] = bad;
        std::vector<float> out;
        EXPECT_EQ(cpu::PickSum(isa, picks.Args(out), 0, 4, 0, 21), 2) << bad;
        EXPECT_FALSE(reference::PickSum(picks.Args(out), 2));
        picks.y[place * 21 + column] = std::nextafter(0x1p26F, 0.0F);
        EXPECT_EQ(cpu::PickSum(isa, picks.Args(out), 0, 4, 0, 21), kNoFailingRow);
      }
    }
  }
}

TEST(PickSum, ThirtyTwoLargestPicksDoNotOverflow) {
  Random random(94);
  PickCase picks(1, kMaxPicks, 9, 1.0F, random);
  const float most = std::nextafter(0x1p26F, 0.0F);
  std::fill(picks.weights.begin(), picks.weights.end(), 1.0F);
  std::fill(picks.y.begin(), picks.y.end(), most);
  std::fill(picks.residual.begin(), picks.residual.end(), 0.0F);
  for (const Isa isa : AvailableIsas()) {
    std::vector<float> out;
    EXPECT_EQ(cpu::PickSum(isa, picks.Args(out), 0, 1, 0, 9), kNoFailingRow);
    EXPECT_EQ(out[0], 32.0F * most);
    EXPECT_EQ(out[8], 32.0F * most);
  }
}

}  // namespace
}  // namespace bloomery::kernels
