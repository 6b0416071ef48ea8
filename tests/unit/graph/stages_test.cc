#include "runtime/graph/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <bloomery/graph.hpp>

#include <functional>
#include <string>
#include <vector>

#include "runtime/graph/builder.h"
#include "runtime/ops/operators.h"
#include "tests/support/refusal.h"

namespace bloomery::graph {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int32_t kLayers = 4;

Shape Weights(int64_t k, int64_t n) {
  return {.dtype = BL_F32, .ndim = n == 0 ? 1U : 2U, .ne = {k, n == 0 ? 1 : n, 1, 1}};
}

// A seat of four layers, each a norm, a matrix, an append to a plane of its own and a sum.
class Stages : public testing::Test {
 protected:
  Stages() {
    seat_.layers = kLayers;
    seat_.weights = {{.name = "table", .shape = Weights(8, 12)},
                     {.name = "norm", .shape = Weights(8, 0)},
                     {.name = "q", .shape = Weights(8, 8)},
                     {.name = "head", .shape = Weights(8, 12)}};
    for (int i = 0; i < kLayers; ++i) {
      seat_.planes.push_back({.name = "k." + std::to_string(i), .width = 8});
    }
  }

  Graph Built(const std::function<void(sdk::Graph&)>& build) {
    GraphBuilder builder(operators_, seat_, {.rows = 5, .logit_rows = 3});
    sdk::Graph g(builder.abi());
    build(g);
    return builder.Take();
  }

  sdk::Value Layer(sdk::Graph& g, int32_t layer, sdk::Value x, uint32_t plane) const {
    g.Layer(layer);
    const sdk::Value q = g.Linear(g.RmsNorm(x, norm_, 1e-6), q_);
    g.Append(q, sdk::Plane{plane});
    return g.Add(x, q);
  }

  Graph Whole() {
    return Built([&](sdk::Graph& g) {
      sdk::Value x = g.Embed(g.Tokens(), table_);
      for (int32_t i = 0; i < kLayers; ++i) x = Layer(g, i, x, static_cast<uint32_t>(i));
      g.Layer(-1);
      g.Export("hidden", x);
      g.Export("logits", g.Head(g.RmsNorm(g.SelectRows(x), norm_, 1e-6), head_));
    });
  }

  static std::vector<Stage> Cut(const Graph& graph, const std::vector<int32_t>& ends) {
    return CutIntoStages(graph, ends, {graph.FindExport("logits")});
  }

  // "embed linear@0 …": a node and its layer each.
  static std::vector<std::string> Nodes(const Graph& graph) {
    std::vector<std::string> names;
    for (const Node& node : graph.nodes) {
      names.push_back(std::string(node.op->name) +
                      (node.layer < 0 ? "" : "@" + std::to_string(node.layer)));
    }
    return names;
  }

  const sdk::Weight table_{0}, norm_{1}, q_{2}, head_{3};
  ops::Operators operators_;
  SeatInfo seat_;
};

TEST_F(Stages, NodesGoWithTheirLayersTheTableWithTheFirstAndTheHeadWithTheLast) {
  const std::vector<Stage> stages = Cut(Whole(), {1, 4});
  ASSERT_EQ(stages.size(), 2U);
  EXPECT_THAT(Nodes(stages[0].graph),
              ElementsAre("embed", "rms_norm@0", "linear@0", "append@0", "add@0"));
  EXPECT_THAT(Nodes(stages[1].graph),
              ElementsAre("rms_norm@1", "linear@1", "append@1", "add@1", "rms_norm@2", "linear@2",
                          "append@2", "add@2", "rms_norm@3", "linear@3", "append@3", "add@3",
                          "select_rows", "rms_norm", "head"));
}

TEST_F(Stages, OneStageIsTheWholeGraph) {
  const Graph whole = Whole();
  const std::vector<Stage> stages = Cut(whole, {4});
  ASSERT_EQ(stages.size(), 1U);
  EXPECT_EQ(Nodes(stages[0].graph), Nodes(whole));
  EXPECT_THAT(stages[0].crossings, IsEmpty());
  for (size_t i = 0; i < whole.values.size(); ++i) {
    EXPECT_EQ(stages[0].graph.values[i].producer, whole.values[i].producer) << i;
    EXPECT_FALSE(stages[0].graph.values[i].crosses) << i;
  }
}

TEST_F(Stages, WhatALaterStageReadsIsExportedByItsMakerAndMadeByNobodyThere) {
  const Graph whole = Whole();
  const std::vector<Stage> stages = Cut(whole, {2, 4});
  const ValueId residual = stages[0].graph.nodes.back().outputs.front();
  ASSERT_EQ(stages[1].crossings.size(), 1U);
  EXPECT_EQ(stages[1].crossings[0].value, residual);
  EXPECT_EQ(stages[1].crossings[0].from, 0U);
  EXPECT_EQ(stages[0].graph.FindExport(CrossingName(residual)), residual);
  const Value& read = stages[1].graph.value(residual);
  EXPECT_TRUE(read.crosses);
  EXPECT_EQ(read.producer, -1);
  EXPECT_EQ(read.shape, whole.value(residual).shape);
  EXPECT_FALSE(stages[0].graph.value(residual).crosses);
  // A row field is nobody's, and each stage has its own.
  EXPECT_FALSE(stages[1].graph.value(whole.nodes.front().inputs.front()).crosses);
}

TEST_F(Stages, ProducersAreNumbersOfTheStagesOwnNodes) {
  const std::vector<Stage> stages = Cut(Whole(), {2, 4});
  for (const Stage& stage : stages) {
    for (size_t i = 0; i < stage.graph.nodes.size(); ++i) {
      for (const ValueId output : stage.graph.nodes[i].outputs) {
        EXPECT_EQ(stage.graph.value(output).producer, static_cast<NodeId>(i));
      }
    }
  }
}

TEST_F(Stages, ExportsAreWhereTheyAreMade) {
  const std::vector<Stage> stages = Cut(Whole(), {2, 4});
  EXPECT_EQ(stages[0].graph.FindExport("hidden"), 0);
  EXPECT_NE(stages[1].graph.FindExport("hidden"), 0);
  EXPECT_EQ(stages[0].graph.FindExport("logits"), 0);
  EXPECT_NE(stages[1].graph.FindExport("logits"), 0);
}

TEST_F(Stages, AValueMayCrossSeveralStages) {
  const Graph whole = Built([&](sdk::Graph& g) {
    const sdk::Value first = Layer(g, 0, g.Embed(g.Tokens(), table_), 0);
    sdk::Value x = Layer(g, 1, first, 1);
    x = g.Add(Layer(g, 2, x, 2), first);
    g.Layer(-1);
    g.Export("logits", g.Head(g.SelectRows(x), head_));
  });
  const std::vector<Stage> stages = Cut(whole, {1, 2, 4});
  ASSERT_EQ(stages[2].crossings.size(), 2U);
  EXPECT_EQ(stages[2].crossings[0].from, 0U);
  EXPECT_EQ(stages[2].crossings[1].from, 1U);
  EXPECT_EQ(stages[0].graph.exports.size(), 1U) << "one export for both readers";
}

TEST_F(Stages, TheHeadIsInTheLastStageThoughNoLayerIs) {
  const std::vector<Stage> stages = Cut(Whole(), {4, 5});
  EXPECT_THAT(Nodes(stages[1].graph), ElementsAre("select_rows", "rms_norm", "head"));
}

TEST_F(Stages, WhatNothingNeedsIsInNoStage) {
  const Graph whole = Built([&](sdk::Graph& g) {
    const sdk::Value x = Layer(g, 0, g.Embed(g.Tokens(), table_), 0);
    g.Layer(1);
    g.Export("unread", g.RmsNorm(x, norm_, 1e-6));
    g.Layer(-1);
    g.Export("logits", g.Head(g.SelectRows(x), head_));
  });
  const std::vector<Stage> stages = Cut(whole, {1, 2, 4});
  EXPECT_THAT(Nodes(stages[1].graph), IsEmpty());
  EXPECT_THAT(stages[1].crossings, IsEmpty());
  EXPECT_EQ(stages[1].graph.FindExport("unread"), 0);
}

TEST_F(Stages, APlaneOfTwoStagesIsRefusedWithItsLayers) {
  const Graph whole = Built([&](sdk::Graph& g) {
    sdk::Value x = g.Embed(g.Tokens(), table_);
    for (int32_t i = 0; i < kLayers; ++i) x = Layer(g, i, x, i == 3 ? 1 : static_cast<uint32_t>(i));
    g.Layer(-1);
    g.Export("logits", g.Head(g.SelectRows(x), head_));
  });
  const test::Refusal refusal = test::RefusalOf([&] { Cut(whole, {2, 4}); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(refusal.message, HasSubstr("plane 1 is used by layers 1 and 3"));
  EXPECT_EQ(Cut(whole, {1, 4}).size(), 2U);  // both on one side
}

}  // namespace
}  // namespace bloomery::graph
