#include "runtime/graph/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <bloomery/graph.hpp>

#include <limits>

#include "runtime/graph/abi.h"
#include "runtime/ops/operators.h"
#include "tests/support/refusal.h"

namespace bloomery::graph {
namespace {

using testing::HasSubstr;

Shape Matrix(int64_t k, int64_t n, bl_dtype type = BL_F32) {
  return {.dtype = type, .ndim = 2, .ne = {k, n, 1, 1}};
}
Shape Vector(int64_t n, bl_dtype type = BL_F32) {
  return {.dtype = type, .ndim = 1, .ne = {n, 1, 1, 1}};
}

// A seat of one layer: 8 wide, 12 tokens, 2 heads of 4, 4 experts of which 2 are used.
class Builder : public testing::Test {
 protected:
  Builder() {
    seat_.layers = 2;
    seat_.weights = {{.name = "table", .shape = Matrix(8, 12)},
                     {.name = "norm", .shape = Vector(8)},
                     {.name = "q", .shape = Matrix(8, 8)},
                     {.name = "bias", .shape = Vector(8)},
                     {.name = "router", .shape = Matrix(8, 4)},
                     {.name = "head", .shape = Matrix(8, 12)},
                     {.name = "lost", .shape = Vector(8), .present = false},
                     {.name = "half", .shape = Vector(8, BL_F16)}};
    seat_.planes = {{.name = "k.0", .width = 8},
                    {.name = "v.0", .width = 8},
                    {.name = "ring", .rule = BL_PLANE_RING, .width = 8, .window = 6},
                    {.name = "state", .rule = BL_PLANE_FIXED, .width = 8}};
    seat_.banks = {{.experts = 4, .used = 2, .width = 8, .ff = 16}};
  }

  // What the builder says of a build that must fail.
  std::string Refused(const std::function<void(sdk::Graph&)>& build) {
    GraphBuilder builder(operators_, seat_, {.rows = 5, .logit_rows = 3});
    sdk::Graph g(builder.abi());
    EXPECT_THROW(build(g), sdk::Failure);
    return test::RefusalOf([&] { builder.Take(); }).message;
  }

  Graph Built(const std::function<void(sdk::Graph&)>& build) {
    GraphBuilder builder(operators_, seat_, {.rows = 5, .logit_rows = 3});
    sdk::Graph g(builder.abi());
    build(g);
    return builder.Take();
  }

  const sdk::Weight table_{0}, norm_{1}, q_{2}, bias_{3}, router_{4}, head_{5}, lost_{6}, half_{7};
  const sdk::Plane k_{0}, v_{1}, ring_{2}, state_{3};
  const sdk::Bank bank_{0};
  ops::Operators operators_;
  SeatInfo seat_;
};

TEST_F(Builder, AWholeLayerGetsTheShapesThatTheOperatorsPromise) {
  bl_shape q{}, mixed{}, ids{}, weights{}, logits{}, moe{}, picked{}, out{};
  const Graph graph = Built([&](sdk::Graph& g) {
    g.Layer(0);
    const sdk::Value x = g.Embed(g.Tokens(), table_);
    const auto [a, b] = g.Linear(g.RmsNorm(x, norm_, 1e-6), {q_, q_});
    const sdk::Value heads = g.Rope(g.Reshape(a, {4, 2}), {.base = 1e6});
    g.Append(b, k_);
    g.Append(b, v_);
    const sdk::Value m = g.Attention(heads, k_, v_, {.kv_heads = 2, .scale = 0.5});
    const sdk::Routed routed = g.Router(x, router_, {.used = 2});
    const sdk::Value r = g.RoutedExperts(x, routed, x, bank_);
    const sdk::Value s = g.SelectRows(r);
    const sdk::Value l = g.Head(s, head_);
    q = g.Shape(heads), mixed = g.Shape(m), ids = g.Shape(routed.ids);
    weights = g.Shape(routed.weights), logits = g.Shape(routed.logits), moe = g.Shape(r);
    picked = g.Shape(s), out = g.Shape(l);
    g.Export("logits", l);
  });
  EXPECT_EQ(ToString(FromAbi(q)), "F32 [4, 2, 5 rows]");
  EXPECT_EQ(ToString(FromAbi(mixed)), "F32 [4, 2, 5 rows]");
  EXPECT_EQ(ToString(FromAbi(ids)), "I32 [2, 5 rows]");
  EXPECT_EQ(ToString(FromAbi(weights)), "F32 [2, 5 rows]");
  EXPECT_EQ(ToString(FromAbi(logits)), "F32 [4, 5 rows]");
  EXPECT_EQ(ToString(FromAbi(moe)), "F32 [8, 5 rows]");
  EXPECT_EQ(ToString(FromAbi(picked)), "F32 [8, 3 logit rows]");
  EXPECT_EQ(ToString(FromAbi(out)), "F32 [12, 3 logit rows]");
  EXPECT_EQ(graph.FindExport("logits"), static_cast<ValueId>(graph.values.size()));
  EXPECT_EQ(graph.FindExport("hidden"), 0);
  EXPECT_EQ(graph.nodes.front().layer, 0);
}

TEST_F(Builder, AWrongShapeIsRefusedWithOperatorLayerPortAndShapes) {
  const std::string message = Refused([&](sdk::Graph& g) {
    g.Layer(1);
    const sdk::Value logits = g.Head(g.Embed(g.Tokens(), table_), head_);
    g.Linear(logits, q_);
  });
  EXPECT_EQ(message,
            "operator linear/1, layer 1: weight 'q' F32 [8, 8] does not fit input 'x' F32 [12, 5 "
            "rows]: needs 2 axes and ne[0] = 12");
}

TEST_F(Builder, EachMisuseIsRefusedByName) {
  const auto embedded = [&](sdk::Graph& g) { return g.Embed(g.Tokens(), table_); };
  const auto raw = [&](sdk::Graph& g, const char* op, uint32_t version, sdk::Attrs attrs) {
    const sdk::Value x = embedded(g);
    g.Node(op, version, std::span(&x, 1), std::span(&norm_, 1), {}, std::move(attrs));
  };
  EXPECT_THAT(Refused([&](sdk::Graph& g) { raw(g, "softplus", 1, {}); }),
              HasSubstr("operator softplus/1: this host does not know it"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { raw(g, "rms_norm", 2, {}); }),
              HasSubstr("has version 1 of it only"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { raw(g, "rms_norm", 1, {}); }),
              HasSubstr("attribute 'eps' must be given"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) {
                raw(g, "rms_norm", 1, sdk::Attrs().F64("eps", 1e-6).F64("epsilon", 1.0));
              }),
              HasSubstr("has no attribute 'epsilon'"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { raw(g, "rms_norm", 1, sdk::Attrs().I64("eps", 1)); }),
              HasSubstr("attribute 'eps' is i64, must be f64"));
  EXPECT_THAT(
      Refused([&](sdk::Graph& g) { raw(g, "rms_norm", 1, sdk::Attrs().F64s("eps", {1.0, 2.0})); }),
      HasSubstr("attribute 'eps' has 2 values, must have 1"));
  for (const double bad : {0.0, -1e-6, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(Refused([&](sdk::Graph& g) { g.RmsNorm(embedded(g), norm_, bad); }),
                HasSubstr("attribute 'eps' must be a finite number above 0"))
        << bad;
  }
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.RmsNorm(embedded(g), lost_, 1e-6); }),
              HasSubstr("weight 'lost' is optional and not in the file"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.RmsNorm(embedded(g), half_, 1e-6); }),
              HasSubstr("weight 'half' F16 [8] must be F32"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.RmsNorm(embedded(g), sdk::Weight{99}, 1e-6); }),
              HasSubstr("weight 99 is outside the seat's 8 weights"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Append(embedded(g), state_); }),
              HasSubstr("does not take plane 'state'"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.RmsNorm(sdk::Value{77}, norm_, 1e-6); }),
              HasSubstr("value 77 does not exist"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.RmsNorm(sdk::Value{}, norm_, 1e-6); }),
              HasSubstr("input 'x' is missing"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Reshape(embedded(g), {3, 2}); }),
              HasSubstr("its rows of 8 values do not reshape to [3, 2]"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Add(embedded(g), g.SelectRows(embedded(g))); }),
              HasSubstr("differ in shape"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Layer(2); }),
              HasSubstr("layer 2 is outside the seat's 2 layers"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Layer(1), g.Layer(0); }),
              HasSubstr("layer 0 follows layer 1"));
  EXPECT_THAT(
      Refused([&](sdk::Graph& g) { g.Export("x", embedded(g)), g.Export("x", embedded(g)); }),
      HasSubstr("two values are exported as 'x'"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Tap(k_, embedded(g)); }),
              HasSubstr("taps for draft entries are not offered"));
}

TEST_F(Builder, AttributesOutOfRangeAreRefusedWithTheirBounds) {
  const auto heads = [&](sdk::Graph& g) {
    return g.Reshape(g.Linear(g.Embed(g.Tokens(), table_), q_), {4, 2});
  };
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Rope(heads(g), {.kind = "interleaved"}); }),
              HasSubstr("attribute 'kind' is 'interleaved'"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Rope(heads(g), {.dims = 3}); }),
              HasSubstr("attribute 'dims' is 3, must be even, from 2 to 4"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Rope(heads(g), {.dims = 6}); }),
              HasSubstr("attribute 'dims' is 6"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Rope(heads(g), {.base = 0.5}); }),
              HasSubstr("attribute 'base' must be above 1"));
  EXPECT_THAT(
      Refused([&](sdk::Graph& g) { g.Attention(heads(g), k_, v_, {.kv_heads = 3, .scale = 1}); }),
      HasSubstr("attribute 'kv_heads' is 3, must divide"));
  EXPECT_THAT(
      Refused([&](sdk::Graph& g) { g.Attention(heads(g), k_, v_, {.kv_heads = 1, .scale = 1}); }),
      HasSubstr("plane 'k.0' is 8 wide, input 'q' F32 [4, 2, 5 rows] with 1 kv heads "
                "needs 4"));
  const auto x = [&](sdk::Graph& g) { return g.Embed(g.Tokens(), table_); };
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Router(x(g), router_, {.used = 5}); }),
              HasSubstr("attribute 'used' is 5, must be from 1 to 4"));
  EXPECT_THAT(
      Refused([&](sdk::Graph& g) { g.Router(x(g), router_, {.scoring = "dice", .used = 2}); }),
      HasSubstr("attribute 'scoring' is 'dice'"));
  EXPECT_THAT(
      Refused([&](sdk::Graph& g) { g.Router(x(g), router_, {.used = 2, .sum_min = -1.0}); }),
      HasSubstr("attribute 'sum_min' must be a finite number, 0 or more"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Router(x(g), router_, {.used = 2, .bias = bias_}); }),
              HasSubstr("weight 'bias' F32 [8] does not fit the experts of the router"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { g.Scale(x(g), 1e300); }),
              HasSubstr("attribute 'factor' must be finite in 32 bits"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) {
                g.RoutedExperts(x(g), g.Router(x(g), router_, {.used = 1}), x(g), bank_);
              }),
              HasSubstr("bank 0 uses 2 experts a row"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) {
                g.RoutedExperts(x(g), g.Router(x(g), router_, {.used = 2}), x(g), sdk::Bank{1});
              }),
              HasSubstr("attribute 'bank' is 1, the seat has 1 banks"));
}

TEST_F(Builder, WindowsRingsAndSinksMustFitEachOther) {
  const auto attend = [&](sdk::Graph& g, sdk::Plane k, sdk::Plane v, int64_t window,
                          sdk::Weight sinks) {
    const sdk::Value q = g.Reshape(g.Linear(g.Embed(g.Tokens(), table_), q_), {4, 2});
    g.Attention(q, k, v, {.kv_heads = 2, .scale = 1, .window = window, .sinks = sinks});
  };
  const sdk::Weight none;
  Built([&](sdk::Graph& g) {
    g.Append(g.Embed(g.Tokens(), table_), ring_);
    attend(g, ring_, ring_, 6, none);
    attend(g, k_, v_, 6, none);
    attend(g, k_, ring_, 1, none);
  });
  EXPECT_THAT(Refused([&](sdk::Graph& g) { attend(g, k_, ring_, 0, none); }),
              HasSubstr("attribute 'window' is 0, plane 'ring' is a ring of 6 rows"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { attend(g, ring_, v_, 7, none); }),
              HasSubstr("attribute 'window' is 7, plane 'ring' is a ring of 6 rows"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { attend(g, k_, v_, -1, none); }),
              HasSubstr("attribute 'window' is -1"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { attend(g, k_, state_, 1, none); }),
              HasSubstr("does not take plane 'state'"));
  EXPECT_THAT(Refused([&](sdk::Graph& g) { attend(g, k_, v_, 0, norm_); }),
              HasSubstr("weight 'norm' F32 [8] does not fit the heads of 'q'"));
}

TEST_F(Builder, RowsOfImagesAreRefusedByName) {
  EXPECT_THAT(Refused([](sdk::Graph& g) { g.Input(BL_FIELD_EMBED_ROW); }),
              HasSubstr("row field EMBED_ROW is for image rows, which this host does not offer"));
}

TEST_F(Builder, TheFirstFailureIsKeptAndEveryLaterCallFails) {
  GraphBuilder builder(operators_, seat_, {.rows = 5, .logit_rows = 3});
  const bl_builder* abi = builder.abi();
  EXPECT_NE(abi->layer(abi->self, 9), BL_OK);
  bl_value value = 0;
  EXPECT_NE(abi->input(abi->self, BL_FIELD_TOKEN, &value), BL_OK);
  EXPECT_NE(abi->export_value(abi->self, "x", 1), BL_OK);
  bl_domain domain{};
  EXPECT_NE(abi->domain(abi->self, BL_DOMAIN_PASS_ROWS, &domain), BL_OK);
  EXPECT_THAT(test::RefusalOf([&] { builder.Take(); }).message, HasSubstr("layer 9 is outside"));
}

TEST_F(Builder, WhatThePluginSaysOfItsOwnFailureIsKept) {
  GraphBuilder builder(operators_, seat_, {.rows = 5, .logit_rows = 3});
  builder.abi()->fail(builder.abi()->self, BL_REFUSED, "no such mixer");
  builder.abi()->fail(builder.abi()->self, BL_REFUSED, "later");
  EXPECT_EQ(test::RefusalOf([&] { builder.Take(); }).message, "no such mixer");
}

TEST_F(Builder, DomainsOfTheEntryHaveTheirCapacityAndOthersAreUnsupported) {
  GraphBuilder builder(operators_, seat_, {.rows = 5, .logit_rows = 3});
  sdk::Graph g(builder.abi());
  EXPECT_EQ(g.Domain(BL_DOMAIN_PASS_ROWS)->capacity, 5);
  EXPECT_EQ(g.Domain(BL_DOMAIN_LOGIT_ROWS)->capacity, 3);
  EXPECT_FALSE(g.Domain(BL_DOMAIN_PATCHES));
  EXPECT_FALSE(g.Has(lost_));
  EXPECT_TRUE(g.Has(norm_));
}

TEST_F(Builder, OnlyNodesThatReachAWantedValueOrWriteAPlaneAreLive) {
  const Graph graph = Built([&](sdk::Graph& g) {
    const sdk::Value x = g.Embed(g.Tokens(), table_);    // node 0
    g.Export("unasked", g.RmsNorm(x, norm_, 1e-6));      // node 1
    g.Append(g.Linear(x, q_), k_);                       // nodes 2, 3
    g.Export("logits", g.Head(g.SelectRows(x), head_));  // nodes 4, 5
  });
  EXPECT_THAT(LiveNodes(graph, {graph.FindExport("logits")}),
              testing::ElementsAre(true, false, true, true, true, true));
  EXPECT_THAT(LiveNodes(graph, {graph.FindExport("logits"), graph.FindExport("unasked")}),
              testing::Each(true));
}

bl_port PortX() {
  auto port = MakeAbi<bl_port>();
  port.name = "x";
  return port;
}

// An operator of a plugin with one input and one output, both `port`, which outlives it.
bl_op OneToOne(const char* name, const bl_port& port) {
  auto op = MakeAbi<bl_op>();
  op.version = 1;
  op.name = name;
  op.inputs = op.outputs = &port;
  op.n_inputs = op.n_outputs = 1;
  return op;
}

TEST_F(Builder, AnOperatorOfAPluginIsInferredByItAndMustBearItsName) {
  const bl_port port = PortX();
  bl_op op = OneToOne("toy.double", port);
  op.infer = [](const bl_infer* call) -> bl_status {
    if (call->in[0].ne[0] != 8) {
      call->sink->fail(call->sink->self, BL_REFUSED, "only rows of 8");
      return BL_REFUSED;
    }
    call->out[0] = call->in[0];
    return BL_OK;
  };
  operators_.Add("toy", op);
  const auto apply = [&](sdk::Graph& g, sdk::Value x) {
    return g.Node("toy.double", 1, std::span(&x, 1), {}, {}, {});
  };
  const Graph graph = Built([&](sdk::Graph& g) { apply(g, g.Embed(g.Tokens(), table_)); });
  EXPECT_EQ(ToString(graph.value(2).shape), "F32 [8, 5 rows]");
  EXPECT_EQ(Refused([&](sdk::Graph& g) { apply(g, g.Head(g.Embed(g.Tokens(), table_), head_)); }),
            "operator toy.double/1: only rows of 8");
  EXPECT_THAT(test::RefusalOf([&] { operators_.Add("toy", op); }).message, HasSubstr("twice"));
  EXPECT_THAT(test::RefusalOf([&] { operators_.Add("other", op); }).message,
              HasSubstr("its own operators are named 'other.<something>'"));
}

TEST_F(Builder, AnOperatorWithoutKernelsIsReplacedByItsExpansion) {
  const bl_port port = PortX();
  bl_op op = OneToOne("toy.twice", port);
  op.infer = [](const bl_infer* call) -> bl_status {
    call->out[0] = call->in[0];
    return BL_OK;
  };
  op.expand = [](const bl_builder* builder, const bl_node* node, bl_value* outs,
                 uint32_t) -> bl_status {
    sdk::Graph g(builder);
    const sdk::Value x{node->inputs[0]};
    outs[0] = g.Add(x, x).id;
    return BL_OK;
  };
  operators_.Add("toy", op);
  const Graph graph = Built([&](sdk::Graph& g) {
    const sdk::Value x = g.Embed(g.Tokens(), table_);
    g.Export("y", g.Node("toy.twice", 1, std::span(&x, 1), {}, {}, {}));
  });
  ASSERT_EQ(graph.nodes.size(), 2U);
  EXPECT_EQ(OperatorName(*graph.nodes[1].op), "add/1");
  EXPECT_EQ(graph.FindExport("y"), graph.nodes[1].outputs[0]);
}

}  // namespace
}  // namespace bloomery::graph
