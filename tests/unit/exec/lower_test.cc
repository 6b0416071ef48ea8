#include "runtime/exec/lower/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/refusal.h"
#include "tests/unit/exec/toy_seat.h"

namespace bloomery::exec {
namespace {

using model::TensorType;
using test::ToySeat;

// Names of the steps' operators in order; a quantisation step bears the name of its first reader.
std::vector<std::string> StepNames(const LoweredGraph& lowered) {
  std::vector<std::string> names;
  names.reserve(lowered.steps.size());
  for (const PendingStep& step : lowered.steps) {
    names.emplace_back(lowered.graph.nodes[static_cast<size_t>(step.node)].op->name);
  }
  return names;
}

// The standard operators, with another promise of bits for one of them.
class OtherPromise : public graph::OperatorSet {
 public:
  OtherPromise(std::string_view name, bl_numeric_class numeric_class)
      : other_(*standard_.Find(name, 1, nullptr)) {
    other_.numeric_class = numeric_class;
  }
  const graph::OperatorSchema* Find(std::string_view name, uint32_t version,
                                    uint32_t* other_version) const override {
    return name == other_.name ? &other_ : standard_.Find(name, version, other_version);
  }

 private:
  ops::Operators standard_;
  graph::OperatorSchema other_;
};

TEST(Lower, AnOperatorOfTheHostIsNamedAsInexactByItsOwnPromiseAndOnlyWhereItRuns) {
  ToySeat toy;
  const sdk::Weight norm = toy.Add("norm", {256});
  const auto build = [&](sdk::Graph& g) {
    const sdk::Value x = g.Embed(g.Tokens(), toy.table);
    g.Export("normed", g.RmsNorm(x, norm, 1e-6));
    g.Export("y", g.Add(x, x));
  };
  EXPECT_THAT(toy.Lower(4, build, {"y", "normed"}).inexact, testing::IsEmpty());
  const OtherPromise band("rms_norm", BL_BAND);
  toy.operators = &band;
  EXPECT_THAT(toy.Lower(4, build, {"y", "normed"}).inexact,
              testing::ElementsAre("rms_norm/1 (band)"));
  EXPECT_THAT(toy.Lower(4, build, {"y"}).inexact, testing::IsEmpty());
  const OtherPromise rows("add", BL_ROW_STABLE);
  toy.operators = &rows;
  EXPECT_THAT(toy.Lower(4, build, {"y"}).inexact, testing::ElementsAre("add/1 (row-stable)"));
}

TEST(Lower, OneQuantisationStepServesEveryMatrixOfItsGroup) {
  ToySeat toy;
  const sdk::Weight a = toy.Add("a", {256, 32}, TensorType::kQ4_K);
  const sdk::Weight b = toy.Add("b", {256, 32}, TensorType::kQ6_K);
  const LoweredGraph lowered = toy.Lower(4,
                                         [&](sdk::Graph& g) {
                                           const sdk::Value x = g.Embed(g.Tokens(), toy.table);
                                           const auto [p, q] = g.Linear(x, {a, b});
                                           const sdk::Value r = g.Linear(x, a);
                                           g.Export("y", g.Add(p, g.Add(q, r)));
                                         },
                                         {"y"});
  EXPECT_THAT(StepNames(lowered),
              testing::ElementsAre("embed", "linear", "linear", "linear", "add", "add"));
}

TEST(Lower, EachGroupHasAStepOfItsOwnAndFloatWeightsNone) {
  ToySeat toy;
  const sdk::Weight k = toy.Add("k", {256, 32}, TensorType::kQ4_K);
  const sdk::Weight eight = toy.Add("eight", {256, 32}, TensorType::kQ8_0);
  const sdk::Weight f = toy.Add("f", {256, 32}, TensorType::kBF16);
  const auto count = [&](auto&&... weights) {
    const sdk::Weight list[] = {weights...};
    const LoweredGraph lowered = toy.Lower(4,
                                           [&](sdk::Graph& g) {
                                             const auto outs =
                                                 g.Linear(g.Embed(g.Tokens(), toy.table), list);
                                             for (size_t i = 0; i < outs.size(); ++i)
                                               g.Export("y" + std::to_string(i), outs[i]);
                                           },
                                           {"y0"});
    return lowered.steps.size();
  };
  EXPECT_EQ(count(f), 2U);
  EXPECT_EQ(count(k), 3U);
  EXPECT_EQ(count(k, f), 3U);
  EXPECT_EQ(count(k, eight, f), 4U);
}

TEST(Lower, WhatNobodyAsksForIsNotComputed) {
  ToySeat toy;
  const sdk::Weight norm = toy.Add("norm", {256});
  const auto build = [&](sdk::Graph& g) {
    const sdk::Value x = g.Embed(g.Tokens(), toy.table);
    g.Export("seen", g.RmsNorm(x, norm, 1e-6));
    g.Export("y", g.Add(x, x));
  };
  EXPECT_EQ(toy.Lower(4, build, {"y"}).steps.size(), 2U);
  EXPECT_EQ(toy.Lower(4, build, {"y", "seen"}).steps.size(), 3U);
  EXPECT_THAT(test::RefusalOf([&] { toy.Lower(4, build, {"z"}); }).message,
              testing::HasSubstr("exports no 'z'"));
}

TEST(Lower, RoutedExpertsBecomeStepsOverGroupedPicks) {
  for (const auto& [type, steps] : {std::pair{TensorType::kF32, 4U}, {TensorType::kQ4_K, 6U}}) {
    ToySeat toy;
    const sdk::Weight router = toy.Add("router", {256, 4});
    const sdk::Bank bank = toy.AddBank(4, 2, 256, type, type, type);
    const LoweredGraph lowered =
        toy.Lower(4,
                  [&](sdk::Graph& g) {
                    const sdk::Value x = g.Embed(g.Tokens(), toy.table);
                    g.Export("y", g.RoutedExperts(x, g.Router(x, router, {.used = 2}), x, bank));
                  },
                  {"y"});
    const std::vector<std::string> names = StepNames(lowered);
    EXPECT_EQ(std::count(names.begin(), names.end(), "routed_experts"), steps);
    EXPECT_EQ(std::count(names.begin(), names.end(), "router"), 2);  // its linear, and the picks
    // The linear is foreseen always, of the experts the last ones once the picks are grouped.
    const auto group = std::find(names.begin(), names.end(), "routed_experts") - names.begin();
    std::vector<int32_t> foreseen;
    for (const PendingStep& step : lowered.steps) {
      if (step.foreseen_after != PendingStep::kForeseenNever) {
        foreseen.push_back(step.foreseen_after);
      }
    }
    EXPECT_THAT(foreseen,
                testing::ElementsAre(PendingStep::kForeseenAlways, static_cast<int32_t>(group)));
    EXPECT_EQ(lowered.steps[lowered.steps.size() - 2].foreseen_after, group);
  }
}

TEST(Lower, ATypeWithoutKernelsIsRefusedNamingOperatorLayerWeightAndTypes) {
  ToySeat toy;
  const sdk::Weight w = toy.Add("blk.2.w", {256, 32}, TensorType::kI16);
  const test::Refusal refusal = test::RefusalOf([&] {
    toy.Lower(4,
              [&](sdk::Graph& g) {
                g.Layer(2);
                g.Export("y", g.Linear(g.Embed(g.Tokens(), toy.table), w));
              },
              {"y"});
  });
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(refusal.message,
              testing::HasSubstr("operator linear/1, layer 2: weight 'blk.2.w' is I16"));
  EXPECT_THAT(refusal.message, testing::HasSubstr("Q4_K"));
}

TEST(Lower, GateAndUpOfDifferentGroupsAreRefusedByName) {
  ToySeat toy;
  const sdk::Weight router = toy.Add("router", {256, 4});
  const sdk::Bank bank =
      toy.AddBank(4, 2, 256, TensorType::kQ4_K, TensorType::kQ8_0, TensorType::kQ4_K);
  EXPECT_THAT(test::RefusalOf([&] {
                toy.Lower(4,
                          [&](sdk::Graph& g) {
                            const sdk::Value x = g.Embed(g.Tokens(), toy.table);
                            g.Export("y",
                                     g.RoutedExperts(x, g.Router(x, router, {.used = 2}), x, bank));
                          },
                          {"y"});
              }).message,
              testing::HasSubstr("'gate.0' (Q4_K) and 'up.0' (Q8_0)"));
}

TEST(Lower, HeadsThatAreNotWholeBlocksOfTheCacheTypeAreRefusedByPlane) {
  for (const auto& [heads, fits] : {std::pair{8, true}, {16, false}}) {
    ToySeat toy;
    const sdk::Plane k = toy.AddPlane("k.0", 256, BL_Q8_0);
    const sdk::Plane v = toy.AddPlane("v.0", 256, BL_F16);
    const auto lower = [&, count = heads] {
      return toy.Lower(4,
                       [&](sdk::Graph& g) {
                         const sdk::Value q =
                             g.Reshape(g.Embed(g.Tokens(), toy.table), {256 / count, count});
                         g.Export("y", g.Attention(q, k, v, {.kv_heads = count, .scale = 1.0}));
                       },
                       {"y"});
    };
    if (fits) {
      EXPECT_EQ(lower().steps.size(), 2U);
      continue;
    }
    EXPECT_THAT(test::RefusalOf(lower).message,
                testing::HasSubstr("heads of 16 values are not whole blocks of Q8_0, the type of "
                                   "plane 'k.0'"));
  }
}

TEST(Lower, BuffersOfAWholeProgramNeverOverlapWhileAliveAndExportsLiveToTheEnd) {
  ToySeat toy;
  const sdk::Weight router = toy.Add("router", {256, 4});
  const sdk::Weight w = toy.Add("w", {256, 256}, TensorType::kQ8_0);
  const sdk::Bank bank =
      toy.AddBank(4, 2, 256, TensorType::kQ4_K, TensorType::kQ6_K, TensorType::kQ8_0);
  const LoweredGraph lowered =
      toy.Lower(8,
                [&](sdk::Graph& g) {
                  sdk::Value x = g.Embed(g.Tokens(), toy.table);
                  for (int32_t l = 0; l < 4; ++l) {
                    g.Layer(l);
                    g.Export("in." + std::to_string(l), x);
                    x = g.Add(x, g.Linear(x, w));
                    x = g.RoutedExperts(x, g.Router(x, router, {.used = 2}), x, bank);
                  }
                  g.Export("y", x);
                },
                {"y", "in.1"});
  const auto last_step = static_cast<int32_t>(lowered.steps.size()) - 1;
  size_t pairs = 0;
  uint64_t all = 0;
  for (size_t a = 0; a < lowered.buffers.size(); ++a) {
    const Buffer& p = lowered.buffers[a];
    if (p.home != BufferHome::kArena) continue;
    all += p.life.bytes;
    EXPECT_LE(p.offset + p.life.bytes, lowered.arena_bytes);
    for (size_t b = a + 1; b < lowered.buffers.size(); ++b) {
      const Buffer& q = lowered.buffers[b];
      if (q.home != BufferHome::kArena) continue;
      if (p.life.last < q.life.first || q.life.last < p.life.first) continue;
      ++pairs;
      EXPECT_TRUE(p.offset + p.life.bytes <= q.offset || q.offset + q.life.bytes <= p.offset)
          << "buffers " << a << " and " << b;
    }
  }
  EXPECT_GT(pairs, 20U);
  EXPECT_LT(lowered.arena_bytes, all / 2);
  for (const ExportedBuffer& exported : lowered.exports) {
    EXPECT_GE(lowered.buffers[static_cast<size_t>(exported.buffer)].life.last, last_step);
  }
}

// Kernels of every back end count on it: the card's takes even widths only.
TEST(Lower, ADeltaRuleOverHeadsOfAnOddNumberOfValuesIsNoGraph) {
  const auto made_with = [](uint64_t values) {
    ToySeat toy;
    const sdk::Weight qkv = toy.Add("qkv", {256, 64 + values});
    const sdk::Weight a = toy.Add("a", {256, 1});
    const sdk::Weight decay = toy.Add("decay", {1});
    const sdk::Weight dt_bias = toy.Add("dt_bias", {1});
    const sdk::Plane state = toy.AddPlane("delta", 32 * values);
    toy.description.planes.back().rule = BL_PLANE_FIXED;
    return toy.MakeGraph(1, [&](sdk::Graph& g) {
      const auto [mixed, strength] = g.Linear(g.Embed(g.Tokens(), toy.table), {qkv, a});
      const auto head = [&](int64_t first, int64_t n) {
        return g.Reshape(g.Slice(mixed, first, n), {n, 1});
      };
      g.Export("read", g.DeltaRule({.q = head(0, 32),
                                    .k = head(32, 32),
                                    .v = head(64, static_cast<int64_t>(values)),
                                    .a = strength,
                                    .b = strength,
                                    .decay = decay,
                                    .dt_bias = dt_bias,
                                    .state = state},
                                   "tiled"));
    });
  };
  EXPECT_NO_THROW(made_with(32));
  EXPECT_NO_THROW(made_with(48));
  for (const uint64_t values : {1U, 33U, 34U}) EXPECT_ANY_THROW(made_with(values)) << values;
}

}  // namespace
}  // namespace bloomery::exec
