// A graph cut into stages as it becomes launches and memory of cards: what crosses, what each stage
// keeps, which weights, planes and banks it has. No card is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/exec/cuda/card_lower.h"
#include "runtime/exec/cuda/card_seat.h"
#include "runtime/exec/cuda/card_stage.h"
#include "runtime/graph/stages.h"
#include "tests/support/refusal.h"
#include "tests/unit/exec/toy_seat.h"

namespace bloomery::exec {
namespace {

using model::TensorType;
using test::Refusal;
using test::RefusalOf;
using test::ToySeat;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int32_t kLayers = 3;

// Three layers over width 256 and a norm that all of them share: attention over planes of their
// own, and routed experts. The table is the head, too. What the table gives is added once more
// behind the last layer: it crosses into the last stage from the first.
struct ToyLayers {
  ToyLayers() {
    toy.description.layers = kLayers;
    norm = toy.Add("norm", {256});
    for (size_t i = 0; i < kLayers; ++i) {
      const auto name = [&](const char* of) { return of + std::to_string(i); };
      Layer& layer = layers.at(i);
      layer.q = toy.Add(name("q."), {256, 128}, TensorType::kQ4_K);
      layer.k = toy.Add(name("k."), {256, 64}, TensorType::kQ4_K);
      layer.v = toy.Add(name("v."), {256, 64}, TensorType::kQ4_K);
      layer.out = toy.Add(name("out."), {128, 256}, TensorType::kF16);
      layer.router = toy.Add(name("router."), {256, 4});
      layer.bank = toy.AddBank(4, 2, 256, TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kQ6_K);
      toy.description.banks.back().layer = static_cast<int32_t>(i);
      layer.k_plane = toy.AddPlane(name("k."), 64, BL_F16);
      layer.v_plane = toy.AddPlane(name("v."), 64, BL_F16);
    }
  }

  struct Layer {
    sdk::Weight q, k, v, out, router;
    sdk::Bank bank;
    sdk::Plane k_plane, v_plane;
  };

  sdk::Value Experts(sdk::Graph& g, sdk::Value x, const Layer& layer) const {
    const sdk::Value inner = g.RmsNorm(x, norm, 1e-6);
    const sdk::Routed routed = g.Router(inner, layer.router, {.scoring = "softmax", .used = 2});
    return g.RoutedExperts(inner, routed, x, layer.bank);
  }
  sdk::Value Through(sdk::Graph& g, sdk::Value x, const Layer& layer, bool experts) const {
    const auto [q, k, v] = g.Linear(g.RmsNorm(x, norm, 1e-6), {layer.q, layer.k, layer.v});
    g.Append(g.Rope(g.Reshape(k, {64, 1}), {.base = 1e6}), layer.k_plane);
    g.Append(v, layer.v_plane);
    const sdk::Value mixed =
        g.Attention(g.Rope(g.Reshape(q, {64, 2}), {.base = 1e6}), layer.k_plane, layer.v_plane,
                    {.kv_heads = 1, .scale = 0.125});
    x = g.Add(x, g.Linear(g.Reshape(mixed, {128}), layer.out));
    return experts ? Experts(g, x, layer) : x;
  }
  void Build(sdk::Graph& g) const {
    const sdk::Value first = g.Embed(g.Tokens(), toy.table);
    sdk::Value x = first;
    for (int32_t i = 0; i < kLayers; ++i) {
      g.Layer(i);
      x = Through(g, x, layers.at(static_cast<size_t>(i)), i != without_bank);
    }
    g.Layer(-1);
    x = g.SelectRows(g.Add(x, first));
    if (without_bank >= 0 && selected_bank) {
      x = Experts(g, x, layers.at(static_cast<size_t>(without_bank)));
    }
    g.Export("logits", g.Head(g.RmsNorm(x, norm, 1e-6), toy.table));
  }
  graph::Graph Built(int32_t rows) {
    return toy.MakeGraph(rows, [&](sdk::Graph& g) { Build(g); });
  }

  // As a seat does it: the stages of a graph, what each takes, and what it is lowered to.
  struct Lowered {
    CardStagePlan plan;
    graph::Stage stage;
    CardLoweredGraph graph;
  };
  std::vector<Lowered> Lower(const std::vector<int32_t>& ends, int32_t rows, bool picks = false,
                             bool split = false) {
    whole = Built(rows);
    const CardWeightLayout layout(toy.Model(), toy.description);
    std::vector<Lowered> lowered;
    for (graph::Stage& stage : graph::CutIntoStages(whole, ends, {whole.FindExport("logits")})) {
      Lowered made = {.plan = {}, .stage = std::move(stage), .graph = {}};
      made.plan.Take(toy.description, made.stage.graph);
      CardLowerOptions options{.rows = rows,
                               .top_rows = 1,
                               .weights = &layout,
                               .slot_context = 64,
                               .split = split,
                               .picks = picks,
                               .banks = made.plan.banks,
                               .crossings = made.stage.crossings};
      if (ends.size() == 1) options.banks = {0, 1, 2};
      for (const graph::Export& exported : made.stage.graph.exports) {
        options.wanted.push_back(exported.name);
      }
      made.graph = LowerForCard(made.stage.graph, toy.description, options);
      lowered.push_back(std::move(made));
    }
    return lowered;
  }

  std::vector<std::string> WeightsOf(const CardStagePlan& plan) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < plan.weights.size(); ++i) {
      if (plan.weights[i]) names.push_back(toy.description.weights[i].name);
    }
    return names;
  }
  std::vector<std::string> PlanesOfPlan(const CardStagePlan& plan) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < plan.planes.size(); ++i) {
      if (plan.planes[i]) names.push_back(toy.description.planes[i].name);
    }
    return names;
  }

  ToySeat toy;
  sdk::Weight norm;
  std::array<Layer, kLayers> layers;
  int32_t without_bank = -1;   // a layer whose experts no row of a pass goes through
  bool selected_bank = false;  // they get the rows whose logits are wanted
  graph::Graph whole;          // of the last Lower
};

std::vector<std::string> OpsOf(const CardLoweredGraph& lowered) {
  std::vector<std::string> ops;
  for (const auto& launch : lowered.launches) {
    ops.push_back(std::string(launch.op) + "@" + std::to_string(launch.layer));
  }
  return ops;
}

const Buffer& At(const CardLoweredGraph& lowered, BufferId buffer) {
  return lowered.buffers.at(static_cast<size_t>(buffer));
}

// Of the arena, alive at some time together with `buffer`, and in the same bytes.
std::vector<BufferId> SharedWith(const CardLoweredGraph& lowered, BufferId buffer) {
  const Buffer& of = At(lowered, buffer);
  std::vector<BufferId> shared;
  for (BufferId i = 0; i < static_cast<BufferId>(lowered.buffers.size()); ++i) {
    const Buffer& other = At(lowered, i);
    if (i == buffer || other.home != BufferHome::kArena) continue;
    const bool together = other.life.first <= of.life.last && of.life.first <= other.life.last;
    const bool overlap =
        other.offset < of.offset + of.life.bytes && of.offset < other.offset + other.life.bytes;
    if (together && overlap) shared.push_back(i);
  }
  return shared;
}

// Few rows, and a prompt's.
constexpr std::array<int32_t, 3> kRows = {1, 8, 16};

TEST(CardStageLowering, StagesTogetherHaveTheLaunchesOfTheWholeGraph) {
  for (const int32_t rows : kRows) {
    SCOPED_TRACE(rows);
    ToyLayers layers;
    const CardLoweredGraph whole = std::move(layers.Lower({3}, rows).front().graph);
    for (const std::vector<int32_t>& ends : {std::vector<int32_t>{1, 3}, {2, 3}, {1, 2, 3}}) {
      std::vector<std::string> ops;
      std::set<std::string> inexact;
      for (const ToyLayers::Lowered& stage : layers.Lower(ends, rows)) {
        const std::vector<std::string> of = OpsOf(stage.graph);
        ops.insert(ops.end(), of.begin(), of.end());
        inexact.insert(stage.graph.inexact.begin(), stage.graph.inexact.end());
      }
      EXPECT_EQ(ops, OpsOf(whole));
      EXPECT_EQ(inexact, whole.inexact);
    }
  }
}

// The residual is read by the first launch, the table's rows by one of the last.
TEST(CardStageLowering, WhatCrossesInIsThereFromTheFirstLaunchAndSharesBytesWithNothingBesideIt) {
  for (const int32_t rows : kRows) {
    SCOPED_TRACE(rows);
    ToyLayers layers;
    const std::vector<ToyLayers::Lowered> stages = layers.Lower({1, 2, 3}, rows);
    EXPECT_THAT(stages[0].graph.imports, IsEmpty());
    EXPECT_EQ(stages[1].graph.imports.size(), 1U);
    ASSERT_EQ(stages[2].graph.imports.size(), 2U);
    EXPECT_EQ(stages[2].graph.imports[0].crossing.from, 0U);
    EXPECT_EQ(stages[2].graph.imports[1].crossing.from, 1U);
    for (const ToyLayers::Lowered& stage : stages) {
      for (const CardImport& import : stage.graph.imports) {
        const Buffer& buffer = At(stage.graph, import.buffer);
        EXPECT_EQ(buffer.home, BufferHome::kArena);
        EXPECT_EQ(buffer.life.first, 0);
        EXPECT_EQ(buffer.life.bytes, 256U * 4 * static_cast<uint64_t>(rows));
        EXPECT_EQ(import.shape.width(), 256);
        EXPECT_EQ(import.shape.domain, BL_DOMAIN_PASS_ROWS);
        EXPECT_THAT(SharedWith(stage.graph, import.buffer), IsEmpty());
      }
    }
    const CardLoweredGraph& last = stages[2].graph;
    EXPECT_GT(At(last, last.imports[0].buffer).life.last,
              At(last, last.imports[1].buffer).life.last);
  }
}

TEST(CardStageLowering, WhatCrossesOutIsKeptToTheEndUnderItsName) {
  for (const int32_t rows : kRows) {
    SCOPED_TRACE(rows);
    ToyLayers layers;
    const std::vector<ToyLayers::Lowered> stages = layers.Lower({1, 2, 3}, rows);
    ASSERT_EQ(stages[0].graph.exports.size(), 2U);
    ASSERT_EQ(stages[1].graph.exports.size(), 1U);
    for (const ToyLayers::Lowered& stage : std::span(stages).first(2)) {
      for (const CardExport& exported : stage.graph.exports) {
        EXPECT_EQ(At(stage.graph, exported.buffer).life.last, INT32_MAX);
        EXPECT_THAT(SharedWith(stage.graph, exported.buffer), IsEmpty());
      }
    }
    for (const ToyLayers::Lowered& stage : std::span(stages).subspan(1)) {
      for (const CardImport& import : stage.graph.imports) {
        const std::vector<CardExport>& exports = stages[import.crossing.from].graph.exports;
        const std::string name = graph::CrossingName(import.crossing.value);
        EXPECT_EQ(std::ranges::count(exports, name, &CardExport::name), 1) << name;
      }
    }
    ASSERT_EQ(stages[2].graph.exports.size(), 1U);
    EXPECT_EQ(At(stages[2].graph, stages[2].graph.exports[0].buffer).home, BufferHome::kLogits);
  }
}

TEST(CardStageLowering, PicksOfABankAreKeptInItsStageAndMissingInOthers) {
  for (const int32_t rows : kRows) {
    SCOPED_TRACE(rows);
    ToyLayers layers;
    const std::vector<ToyLayers::Lowered> stages = layers.Lower({1, 3}, rows, true);
    for (const ToyLayers::Lowered& stage : stages) {
      const bool first = &stage == &stages.front();
      ASSERT_EQ(stage.graph.picks.size(), 3U);
      for (size_t bank = 0; bank < 3; ++bank) {
        const BufferId picks = stage.graph.picks[bank];
        if ((bank == 0) != first) {
          EXPECT_EQ(picks, -1) << bank;
          continue;
        }
        ASSERT_GE(picks, 0) << bank;
        EXPECT_EQ(At(stage.graph, picks).life.last, INT32_MAX) << bank;
        EXPECT_THAT(SharedWith(stage.graph, picks), IsEmpty()) << bank;
      }
    }
  }
}

TEST(CardStageLowering, ABankThatTheOnlyStageHasNotIsRefusedByNumber) {
  ToyLayers layers;
  layers.without_bank = 1;
  EXPECT_EQ(layers.Lower({3}, 8).size(), 1U);  // nobody asks for picks
  const Refusal refusal = RefusalOf([&] { layers.Lower({3}, 8, true); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(refusal.message, HasSubstr("bank 1: not all rows of a pass go through it"));
}

// A seat is only planned: that asks no driver for anything.
Refusal SeatRefusalOf(ToyLayers& layers, size_t cards) {
  const SeatSource source = {.plugin = "toy",
                             .description = &layers.toy.description,
                             .build = [&](const bl_builder& builder, const bl_build&) {
                               sdk::Graph g(&builder);
                               layers.Build(g);
                             }};
  SeatOptions options;
  options.rows_max = 8;
  options.slot_context = 64;
  options.card_budget = 1;  // where nothing else refuses it
  options.residency.trace = "picks are asked for";
  std::vector<CardInfo> infos(cards);
  for (size_t i = 0; i < cards; ++i) infos[i].ordinal = static_cast<int32_t>(i);
  return RefusalOf([&] { CardSeat(layers.toy.Model(), source, options, infos); });
}

TEST(CardStageLowering, ABankThatNoStageHasIsRefusedByNumberOnAnyNumberOfCards) {
  for (const size_t cards : {1U, 2U, 3U}) {
    SCOPED_TRACE(cards);
    ToyLayers layers;
    EXPECT_EQ(SeatRefusalOf(layers, cards).kind, ErrorKind::kNoMemory);
    for (const int32_t bank : {0, 2}) {
      ToyLayers without;
      without.without_bank = bank;
      const Refusal refusal = SeatRefusalOf(without, cards);
      EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
      EXPECT_THAT(refusal.message, HasSubstr("bank " + std::to_string(bank) +
                                             ": not all rows of a pass go through it"));
    }
  }
}

// Of several stages each is asked for the banks that it took: one of few rows is found there, too.
TEST(CardStageLowering, ABankOfSelectedRowsIsRefusedInTheStageThatHasIt) {
  ToyLayers layers;
  layers.without_bank = 0;
  layers.selected_bank = true;
  EXPECT_THAT(layers.Lower({2, 3}, 8)[1].plan.banks, ElementsAre(0U, 2U));
  const Refusal refusal = RefusalOf([&] { layers.Lower({2, 3}, 8, true); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(refusal.message, HasSubstr("bank 0: not all rows of a pass go through it"));
}

TEST(CardStageLowering, SplitBanksAreHandedOverByTheirStageAlone) {
  ToyLayers layers;
  const auto rings = [](const CardLoweredGraph& lowered) {
    std::vector<int32_t> banks;
    for (const auto& launch : lowered.launches) {
      if (launch.split.rings >= 0) banks.push_back(launch.split.rings);
    }
    return banks;
  };
  const auto shares = [](const CardLoweredGraph& lowered) {
    std::vector<int32_t> numbers;
    for (const auto& launch : lowered.launches) {
      if (launch.split.shares >= 0) numbers.push_back(launch.split.shares);
    }
    return numbers;
  };
  const std::vector<ToyLayers::Lowered> few = layers.Lower({1, 3}, 8, true, true);
  EXPECT_THAT(rings(few[0].graph), ElementsAre(0));
  EXPECT_THAT(rings(few[1].graph), ElementsAre(1, 2));
  // A prompt's banks are numbered by the program.
  const std::vector<ToyLayers::Lowered> prompt = layers.Lower({1, 3}, 16, true, true);
  EXPECT_THAT(prompt[0].graph.streams, ElementsAre(0U));
  EXPECT_THAT(shares(prompt[0].graph), ElementsAre(0));
  EXPECT_THAT(prompt[1].graph.streams, ElementsAre(1U, 2U));
  EXPECT_THAT(shares(prompt[1].graph), ElementsAre(0, 1));
}

// The table is the head: it lies on both cards, as does the norm that layers share.
TEST(CardStagePlan, AStageHasTheWeightsPlanesAndBanksOfItsLayers) {
  ToyLayers layers;
  const std::vector<ToyLayers::Lowered> stages = layers.Lower({1, 3}, 1);
  EXPECT_THAT(layers.WeightsOf(stages[0].plan),
              ElementsAre("table", "norm", "q.0", "k.0", "v.0", "out.0", "router.0", "gate.0",
                          "up.0", "down.0"));
  EXPECT_THAT(layers.PlanesOfPlan(stages[0].plan), ElementsAre("k.0", "v.0"));
  EXPECT_THAT(stages[0].plan.banks, ElementsAre(0U));
  EXPECT_THAT(
      layers.WeightsOf(stages[1].plan),
      ElementsAre("table", "norm", "q.1", "k.1", "v.1", "out.1", "router.1", "gate.1", "up.1",
                  "down.1", "q.2", "k.2", "v.2", "out.2", "router.2", "gate.2", "up.2", "down.2"));
  EXPECT_THAT(layers.PlanesOfPlan(stages[1].plan), ElementsAre("k.1", "v.1", "k.2", "v.2"));
  EXPECT_THAT(stages[1].plan.banks, ElementsAre(1U, 2U));
}

// Of each row bucket, of drafts; in any order.
TEST(CardStagePlan, WhatSeveralGraphsHaveIsTakenOnce) {
  ToyLayers layers;
  const std::vector<ToyLayers::Lowered> stages = layers.Lower({1, 2, 3}, 1);
  CardStagePlan plan;
  for (const size_t stage : {2U, 1U, 2U}) {
    plan.Take(layers.toy.description, stages[stage].stage.graph);
  }
  EXPECT_THAT(plan.banks, ElementsAre(1U, 2U));
  EXPECT_EQ(layers.WeightsOf(plan), layers.WeightsOf(layers.Lower({1, 3}, 1)[1].plan));
  EXPECT_THAT(layers.PlanesOfPlan(plan), ElementsAre("k.1", "v.1", "k.2", "v.2"));
}

TEST(CardStagePlan, ItsDescriptionIsTheSeatsWithoutWeightsOfOtherStages) {
  ToyLayers layers;
  CardStagePlan first;
  CardStagePlan second;
  const graph::Graph whole = layers.Built(1);
  const std::vector<graph::Stage> stages =
      graph::CutIntoStages(whole, std::array{1, 3}, {whole.FindExport("logits")});
  first.Take(layers.toy.description, stages[0].graph);
  second.Take(layers.toy.description, stages[1].graph);
  plugin::Description seat = layers.toy.description;
  seat.weights[layers.layers[0].out.index].present = false;  // as one that is not in the file
  const plugin::Description of_first = first.Describe(seat);
  const plugin::Description of_second = second.Describe(seat);
  for (size_t i = 0; i < seat.weights.size(); ++i) {
    const std::string& name = seat.weights[i].name;
    const bool shared = name == "table" || name == "norm";
    const bool of_layer_0 = name.ends_with(".0");
    EXPECT_EQ(of_first.weights[i].present, name != "out.0" && (shared || of_layer_0)) << name;
    EXPECT_EQ(of_second.weights[i].present, shared || !of_layer_0) << name;
    EXPECT_EQ(of_first.weights[i].name, name);
    EXPECT_EQ(of_first.weights[i].bytes, seat.weights[i].bytes) << name;
  }
  EXPECT_EQ(of_first.banks.size(), 3U);  // numbers of banks and planes are the seat's
  EXPECT_EQ(of_first.planes.size(), 6U);
}

TEST(CardStagePlan, CardsTogetherHoldTheSeatsWeightsAndWhatTwoStagesReadTwice) {
  ToyLayers layers;
  const std::vector<ToyLayers::Lowered> stages = layers.Lower({1, 3}, 1);
  const plugin::Description& seat = layers.toy.description;
  const model::ModelFile& model = layers.toy.Model();
  uint64_t bytes = 0;
  for (const ToyLayers::Lowered& stage : stages) {
    bytes += CardWeightLayout(model, stage.plan.Describe(seat)).bytes();
  }
  // The table of 24 rows and the norm, 256 floats each: multiples of every alignment.
  const uint64_t twice = uint64_t{25} * 256 * 4;
  EXPECT_EQ(bytes, CardWeightLayout(model, seat).bytes() + twice);
}

CardLoweredGraph OfSizes(int32_t rows, int32_t top_rows, uint64_t arena, uint64_t workspace,
                         size_t constants, uint64_t state) {
  CardLoweredGraph lowered;
  lowered.rows = rows;
  lowered.top_rows = top_rows;
  lowered.arena_bytes = arena;
  lowered.workspace_bytes = workspace;
  lowered.state_bytes = state;
  lowered.constants.resize(constants);
  return lowered;
}

// Programs run one at a time: one arena, one workspace and the words of the largest; constants and
// states are each program's own. Everything but arena and logits in parts of 256 bytes.
TEST(CardStagePlan, ItsSizesAreThoseOfItsLargestProgramAndOfAllConstants) {
  ToyLayers layers;
  CardStagePlan plan;
  plan.logits_bytes = 96;
  plan.passes.push_back(OfSizes(1, 1, 1000, 10, 16, 300));
  plan.passes.push_back(OfSizes(8, 2, 5000, 700, 0, 0));
  const CardStageSizes passes = plan.Sizes(layers.toy.description);
  EXPECT_EQ(passes.arena, 5000U);
  EXPECT_EQ(passes.workspace, 768U);
  EXPECT_EQ(passes.constants, 256U + 512);
  // Eight words and eight arrays of eight rows, and two rows of 64 best logits, ids and values.
  EXPECT_EQ(passes.words, 1536U);  // 4 · (8 + 64) + 2 · 64 · 8 = 1312
  // Four experts in each of three banks and a word a bank: 60 bytes.
  EXPECT_EQ(passes.picks, 256U);
  EXPECT_EQ(passes.logits, 96U);
  EXPECT_EQ(passes.Small(), 768U + 768 + 1536 + 256);
  // The last stage's drafts: they count as passes do.
  plan.drafts.push_back(OfSizes(2, 2, 6000, 800, 257, 1));
  const CardStageSizes both = plan.Sizes(layers.toy.description);
  EXPECT_EQ(both.arena, 6000U);
  EXPECT_EQ(both.workspace, 1024U);
  EXPECT_EQ(both.constants, 768U + 512 + 256);
  EXPECT_EQ(both.words, 1536U);
}

}  // namespace
}  // namespace bloomery::exec
