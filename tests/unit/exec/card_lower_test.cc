// What a graph becomes on a card: which launches, in which order. No card is needed: lowering
// touches none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "runtime/exec/card_loading.h"
#include "runtime/exec/cuda/card_load.h"
#include "runtime/exec/cuda/card_lower.h"
#include "runtime/exec/cuda/card_split.h"
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

// One layer of the usual kind over width 256: two heads of 64, one kv head, four experts of 256.
struct Layer {
  explicit Layer(TensorType dense = TensorType::kQ4_K, TensorType gate = TensorType::kQ4_K,
                 TensorType up = TensorType::kQ4_K, TensorType down = TensorType::kQ6_K) {
    attn_norm = toy.Add("attn_norm", {256});
    q = toy.Add("q", {256, 128}, dense);
    k = toy.Add("k", {256, 64}, dense);
    v = toy.Add("v", {256, 64}, dense == TensorType::kQ4_K ? TensorType::kQ6_K : dense);
    head_norm = toy.Add("head_norm", {64});
    out = toy.Add("out", {128, 256}, TensorType::kF16);
    ffn_norm = toy.Add("ffn_norm", {256});
    router = toy.Add("router", {256, 4});
    row_gate = toy.Add("row_gate", {256, 1});
    bank = toy.AddBank(4, 2, 256, gate, up, down);
    k_plane = toy.AddPlane("k", 64, BL_F16);
    v_plane = toy.AddPlane("v", 64, BL_F16);
    output_norm = toy.Add("output_norm", {256});
    head = toy.Add("head", {256, ToySeat::kVocabulary}, dense);
  }

  void Build(sdk::Graph& g) const {
    sdk::Value x = g.Embed(g.Tokens(), toy.table);
    const sdk::Value normed = g.RmsNorm(x, attn_norm, 1e-6);
    const auto [qv, kv, vv] = g.Linear(normed, {q, k, v});
    const auto turn = [&](sdk::Value value, int64_t heads) {
      return g.Rope(g.RmsNorm(g.Reshape(value, {64, heads}), head_norm, 1e-6), {.base = 1e6});
    };
    const sdk::Value queries = turn(qv, 2);
    const sdk::Value keys = turn(kv, 1);
    if (export_keys) g.Export("keys", keys);
    g.Append(keys, k_plane);
    const sdk::Value values = v_scale == 1.0 ? vv : g.Scale(vv, v_scale);
    if (export_values) g.Export("values", values);
    g.Append(values, v_plane);
    const sdk::Value mixed =
        g.Attention(queries, k_plane, v_plane,
                    {.kv_heads = 1, .scale = 0.125, .window = window, .sinks = sinks});
    x = g.Add(x, g.Linear(g.Reshape(mixed, {128}), out));
    const sdk::Value inner = g.RmsNorm(x, ffn_norm, 1e-6);
    sdk::Value residual = x;
    if (gated_sum) residual = g.Add(x, g.Gate(x, g.Linear(inner, row_gate), "sigmoid"));
    const sdk::Routed routed =
        g.Router(inner, router, {.scoring = scoring, .used = 2, .bias = bias});
    g.Export("ids", routed.ids);
    x = g.RoutedExperts(inner, routed, residual, bank);
    g.Export("logits", g.Head(g.RmsNorm(g.SelectRows(x), output_norm, 1e-6), head));
  }

  CardLoweredGraph Lower(int32_t rows, std::vector<std::string> wanted = {"logits"},
                         bool split = false) {
    const graph::Graph graph = toy.MakeGraph(rows, [&](sdk::Graph& g) { Build(g); });
    const CardWeightLayout layout(toy.Model(), toy.description);
    return LowerForCard(graph, toy.description,
                        {.rows = rows,
                         .top_rows = 1,
                         .weights = &layout,
                         .slot_context = 64,
                         .split = split,
                         .wanted = std::move(wanted)});
  }

  std::vector<std::string> Launches(int32_t rows, std::vector<std::string> wanted = {"logits"}) {
    std::vector<std::string> names;
    for (const auto& launch : Lower(rows, std::move(wanted)).launches) {
      names.emplace_back(launch.op);
    }
    return names;
  }

  ToySeat toy;
  bool export_keys = false;
  bool export_values = false;
  double v_scale = 1.0;
  bool gated_sum = false;  // a sum behind a gate of one value a row, before the router
  int64_t window = 0;
  std::string scoring = "softmax";
  sdk::Weight sinks, bias;
  sdk::Weight row_gate, attn_norm, q, k, v, head_norm, out, ffn_norm, router, output_norm, head;
  sdk::Bank bank;
  sdk::Plane k_plane, v_plane;
};

TEST(CardLower, APassOfFewRowsIsSixLaunchesALayer) {
  for (const int32_t rows : {1, 8}) {
    // Norms lie in front of their readers, the sum behind the projection, the selection of rows in
    // front of the head; a vocabulary of 24 is too short for a list of best logits.
    EXPECT_THAT(Layer().Launches(rows),
                ElementsAre("embed", "linear", "attention", "linear", "router", "routed_experts",
                            "routed_experts", "head"))
        << rows;
  }
}

TEST(CardLower, ARouterOfFewRowsRunsInTheLaunchOfALinearOverTheSameRows) {
  Layer layer;
  layer.gated_sum = true;
  EXPECT_THAT(layer.Launches(2), ElementsAre("embed", "linear", "attention", "linear", "linear",
                                             "gate", "routed_experts", "routed_experts", "head"));
  EXPECT_THAT(layer.Launches(16), testing::Contains("router"));
}

TEST(CardLower, APromptRunsTheStepsOfItsOwnKernels) {
  EXPECT_THAT(
      Layer().Launches(16),
      ElementsAre("embed", "rms_norm", "linear", "attention", "attention", "linear", "rms_norm",
                  "router", "router", "routed_experts", "routed_experts", "routed_experts",
                  "routed_experts", "routed_experts", "select_rows", "rms_norm", "head"));
}

TEST(CardLower, ASplitBankIsHandedOverInsideAPassOfFewRowsAndBetweenThePromptsLaunches) {
  const auto steps = [](const CardLoweredGraph& lowered) {
    std::vector<std::string> text;
    for (const auto& launch : lowered.launches) {
      text.emplace_back(std::string(launch.op) + (launch.split.rings >= 0 ? " rings" : "") +
                        (launch.split.shares >= 0 ? " shares" : "") +
                        (launch.split.arrives >= 0 ? " arrives" : "") +
                        (launch.split.needs >= 0 ? " needs" : "") +
                        (launch.split.streamed >= 0 ? " streamed" : ""));
    }
    return text;
  };
  // No launch more than over a whole bank: gate/up hands over, down waits on the card.
  EXPECT_THAT(steps(Layer().Lower(8, {"logits"}, true)),
              ElementsAre("embed", "linear", "attention", "linear", "router",
                          "routed_experts rings", "routed_experts", "head"));
  EXPECT_EQ(Layer().Lower(8, {"logits"}, true).state_bytes, 0U);
  // Two launches more that copy picks and then rows to the page: in between it is decided who takes
  // what. Grouping waits for experts that come, the sum of picks for the host.
  EXPECT_THAT(steps(Layer().Lower(16, {"logits"}, true)),
              ElementsAre("embed", "rms_norm", "linear", "attention", "attention", "linear",
                          "rms_norm", "router", "router", "routed_experts", "routed_experts shares",
                          "routed_experts arrives", "routed_experts", "routed_experts",
                          "routed_experts streamed", "routed_experts needs", "select_rows",
                          "rms_norm", "head"));
}

// A gated delta-net layer of one key head and two value heads of 32, and a gated attention layer of
// two heads of 32, each with a gated sum behind.
struct HybridLayers {
  explicit HybridLayers(uint64_t key_dim = 32) : keys(static_cast<int64_t>(key_dim)) {
    const uint64_t channels = 2 * key_dim + 64;
    norm = toy.Add("norm", {256});
    qkv = toy.Add("qkv", {256, channels}, TensorType::kQ4_K);
    z = toy.Add("z", {256, 64}, TensorType::kQ4_K);
    a = toy.Add("a", {256, 2}, TensorType::kBF16);
    b = toy.Add("b", {256, 2}, TensorType::kBF16);
    conv = toy.Add("conv", {4, channels});
    decay = toy.Add("decay", {2});
    dt_bias = toy.Add("dt_bias", {2});
    head_norm = toy.Add("head_norm", {32});
    out = toy.Add("out", {64, 256}, TensorType::kF16);
    gate = toy.Add("gate", {256, 1});
    q = toy.Add("q", {256, 128}, TensorType::kQ4_K);
    k = toy.Add("k", {256, 32}, TensorType::kQ4_K);
    head = toy.Add("head", {256, ToySeat::kVocabulary});
    k_plane = toy.AddPlane("k", 32, BL_F16);
    v_plane = toy.AddPlane("v", 32, BL_F16);
    conv_state = Fixed("conv", 3 * channels);
    state = Fixed("delta", 2 * key_dim * 32);
  }
  sdk::Plane Fixed(const std::string& name, uint64_t width) {
    const sdk::Plane plane = toy.AddPlane(name, width);
    toy.description.planes.back().rule = BL_PLANE_FIXED;
    return plane;
  }

  sdk::Value Delta(sdk::Graph& g, sdk::Value x) const {
    const auto [mixed_in, zv, av, bv] = g.Linear(g.RmsNorm(x, norm, 1e-6), {qkv, z, a, b});
    const sdk::Value mixed = g.ShortConv(mixed_in, conv, conv_state);
    const auto heads = [&](int64_t first, int64_t count, int64_t n) {
      return g.Reshape(g.Slice(mixed, first, count), {count / n, n});
    };
    const sdk::Value read = g.DeltaRule({.q = g.L2Norm(heads(0, keys, 1), 1e-6, 0.125),
                                         .k = g.L2Norm(heads(keys, keys, 1), 1e-6),
                                         .v = heads(2 * keys, 64, 2),
                                         .a = av,
                                         .b = bv,
                                         .decay = decay,
                                         .dt_bias = dt_bias,
                                         .state = state},
                                        "tiled");
    if (export_read) g.Export("read", read);
    const sdk::Value gated =
        g.Gate(g.RmsNorm(read, head_norm, 1e-6), g.Reshape(zv, {32, 2}), "silu");
    return g.Add(x, g.Linear(g.Reshape(gated, {64}), out));
  }
  sdk::Value Attention(sdk::Graph& g, sdk::Value x) const {
    const sdk::Value normed = g.RmsNorm(x, norm, 1e-6);
    const auto [both, kv] = g.Linear(normed, {q, k});
    const sdk::Value pairs = g.Reshape(both, {64, 2});
    g.Append(kv, k_plane);
    g.Append(kv, v_plane);
    const sdk::Value mixed =
        g.Attention(g.Slice(pairs, 0, 32), k_plane, v_plane, {.kv_heads = 1, .scale = 0.125});
    const sdk::Value gated = g.Gate(mixed, g.Slice(pairs, 32, 32), "sigmoid");
    return g.Add(x,
                 g.Gate(g.Linear(g.Reshape(gated, {64}), out), g.Linear(normed, gate), "sigmoid"));
  }

  CardLoweredGraph Lower(int32_t rows, std::vector<std::string> wanted = {"logits"}) {
    const graph::Graph graph = toy.MakeGraph(rows, [&](sdk::Graph& g) {
      const sdk::Value x = Attention(g, Delta(g, g.Embed(g.Tokens(), toy.table)));
      g.Export("logits", g.Head(g.SelectRows(x), head));
    });
    const CardWeightLayout layout(toy.Model(), toy.description);
    return LowerForCard(graph, toy.description,
                        {.rows = rows,
                         .top_rows = 1,
                         .weights = &layout,
                         .slot_context = 64,
                         .wanted = std::move(wanted)});
  }
  std::vector<std::string> Launches(int32_t rows, std::vector<std::string> wanted = {"logits"}) {
    std::vector<std::string> names;
    for (const auto& launch : Lower(rows, std::move(wanted)).launches) {
      names.emplace_back(launch.op);
    }
    return names;
  }

  ToySeat toy;
  int64_t keys;
  bool export_read = false;
  sdk::Weight norm, qkv, z, a, b, conv, decay, dt_bias, head_norm, out, gate, q, k, head;
  sdk::Plane k_plane, v_plane, conv_state, state;
};

TEST(CardLower, ADeltaLayerTakesSlicesAndNormsIntoItsOwnLaunches) {
  // Projections of two kinds of weights, convolution, delta rule with slices and L2 norms, norm and
  // gate, output and sum. Gated attention: the slice of queries, attention with its appends, gate,
  // output, the gate of the row, gate and sum.
  EXPECT_THAT(
      HybridLayers().Launches(1),
      ElementsAre("embed", "linear", "linear", "short_conv", "delta_rule", "gate", "linear",
                  "linear", "slice", "attention", "gate", "linear", "linear", "gate", "head"));
  // What is read from elsewhere, too, is made by a launch of its own.
  HybridLayers observed;
  observed.export_read = true;
  EXPECT_THAT(observed.Launches(1, {"logits", "read"}), testing::Contains("delta_rule"));
  EXPECT_THAT(HybridLayers().Lower(16).inexact,
              ElementsAre("attention/1 on the card, prompts (band)",
                          "linear/1 on the card, prompts (band)"));
}

// A draft head of one layer: rows joined with the state before them, handed on by a tap.
TEST(CardLower, TapsAndTheirJoinAreALaunchEach) {
  ToySeat toy;
  const sdk::Weight norm = toy.Add("norm", {ToySeat::kWidth});
  const sdk::Weight join = toy.Add("join", {2 * ToySeat::kWidth, ToySeat::kWidth});
  const sdk::Plane tap = toy.AddPlane("tap", ToySeat::kWidth);
  toy.description.planes.back().rule = BL_PLANE_FIXED;
  toy.description.planes.back().plane_class = BL_CLASS_TAP;
  const auto launches = [&](int32_t rows, const std::function<void(sdk::Graph&)>& build) {
    const graph::Graph graph = toy.MakeGraph(rows, build);
    const CardWeightLayout layout(toy.Model(), toy.description);
    std::vector<std::string> names;
    for (const auto& launch :
         LowerForCard(graph, toy.description,
                      {.rows = rows, .weights = &layout, .slots = 2, .wanted = {"logits"}})
             .launches) {
      names.emplace_back(launch.op);
    }
    return names;
  };
  const auto joined = [&](sdk::Graph& g, sdk::Value before) {
    const sdk::Value tokens = g.RmsNorm(g.Embed(g.Tokens(), toy.table), norm, 1e-6);
    return g.Linear(g.Concat(tokens, before), join);
  };
  for (const int32_t rows : {1, 8, 32}) {
    EXPECT_THAT(launches(rows,
                         [&](sdk::Graph& g) {
                           const sdk::Value x = joined(g, g.Recall(tap));
                           g.Keep(x, tap);
                           g.Export("logits", g.Head(g.SelectRows(x), toy.table));
                         }),
                testing::IsSupersetOf({"recall", "concat", "linear", "keep"}));
    EXPECT_THAT(launches(rows,
                         [&](sdk::Graph& g) {
                           const sdk::Value x = g.Embed(g.Tokens(), toy.table);
                           g.Keep(joined(g, g.Previous(x, tap)), tap);
                           g.Export("logits", g.Head(g.SelectRows(x), toy.table));
                         }),
                testing::IsSupersetOf({"previous", "concat", "linear", "keep"}));
  }
}

// Slices are read where they lie only if their reader finds its vectors there.
TEST(CardLower, SlicesThatDoNotLieAsTheirReaderWantsThemAreMade) {
  HybridLayers layers;
  const auto launches = [&](const std::function<sdk::Value(sdk::Graph&, sdk::Value)>& build) {
    const graph::Graph graph = layers.toy.MakeGraph(1, [&](sdk::Graph& g) {
      const sdk::Value x = g.Embed(g.Tokens(), layers.toy.table);
      const sdk::Value y = g.Linear(g.Reshape(build(g, x), {64}), layers.out);
      g.Export("logits", g.Head(g.SelectRows(y), layers.head));
    });
    const CardWeightLayout layout(layers.toy.Model(), layers.toy.description);
    const CardLoweredGraph lowered = LowerForCard(
        graph, layers.toy.description,
        {.rows = 1, .top_rows = 1, .weights = &layout, .slot_context = 64, .wanted = {"logits"}});
    std::vector<std::string> names;
    for (const auto& launch : lowered.launches) names.emplace_back(launch.op);
    return names;
  };
  // Gates that are one stretch, read as two vectors; the values that they meet are always made.
  EXPECT_THAT(launches([&](sdk::Graph& g, sdk::Value x) {
                const sdk::Value both = g.Linear(x, layers.q);
                return g.Gate(g.Reshape(g.Slice(both, 0, 64), {32, 2}),
                              g.Reshape(g.Slice(both, 64, 64), {32, 2}), "sigmoid");
              }),
              ElementsAre("embed", "linear", "slice", "slice", "gate", "linear", "head"));
  // Values that are the first half of each of two vectors; keys and queries are one stretch.
  EXPECT_THAT(launches([&](sdk::Graph& g, sdk::Value x) {
                const auto [mixed, a, b] = g.Linear(x, {layers.qkv, layers.a, layers.b});
                const auto key = [&](int64_t first) {
                  return g.Reshape(g.Slice(mixed, first, 32), {32, 1});
                };
                return g.DeltaRule({.q = key(0),
                                    .k = key(32),
                                    .v = g.Slice(g.Reshape(mixed, {64, 2}), 0, 32),
                                    .a = a,
                                    .b = b,
                                    .decay = layers.decay,
                                    .dt_bias = layers.dt_bias,
                                    .state = layers.state},
                                   "tiled");
              }),
              ElementsAre("embed", "linear", "linear", "slice", "delta_rule", "linear", "head"));
}

TEST(CardLower, HeadsOfMoreKeysThanTheDeltaKernelTakesAreRefusedByName) {
  const Refusal refusal = RefusalOf([] { HybridLayers(272).Lower(1); });
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(refusal.message, testing::AllOf(HasSubstr("delta_rule"), HasSubstr("272 keys"),
                                              HasSubstr("up to 256")));
}

TEST(CardWeightLayout, ABankOfFramesTakesTheBytesOfItsFrames) {
  Layer layer;
  const CardWeightLayout whole(layer.toy.Model(), layer.toy.description);
  const uint32_t gate = layer.toy.description.banks[0].gate;
  for (const uint32_t frames : {0U, 1U, 3U, 4U}) {
    const plugin::Description of = OfFrames(layer.toy.description, std::array{frames});
    const CardWeightLayout some(layer.toy.Model(), of);
    EXPECT_EQ(4 * some.place(gate).bytes, uint64_t{frames} * whole.place(gate).bytes);
    EXPECT_EQ(some.place(gate).layout, CardLayout::kCardForm);
  }
}

TEST(CardLower, WhatIsObservedIsMadeByALaunchOfItsOwn) {
  Layer layer;
  layer.export_keys = true;
  // The keys' norm and rope no longer belong to the attention alone.
  EXPECT_THAT(
      layer.Launches(1, {"logits", "keys"}),
      ElementsAre("embed", "linear", "rms_norm", "rope", "rms_norm", "rope", "append", "append",
                  "attention", "linear", "router", "routed_experts", "routed_experts", "head"));
  // The router's choice is written by the experts' launch.
  EXPECT_EQ(Layer().Launches(1, {"logits", "ids"}).size(), 8U);
}

TEST(CardLower, ANormOverTheWholeWidthIsNotTakenForOneOfHeads) {
  // Norms of all heads together, then rope of each: the attention's launch knows norms of heads.
  Layer layer;
  const sdk::Weight wide = layer.toy.Add("wide_norm", {128});
  const graph::Graph graph = layer.toy.MakeGraph(1, [&](sdk::Graph& g) {
    const sdk::Value x = g.Embed(g.Tokens(), layer.toy.table);
    const auto [qv, kv, vv] = g.Linear(x, {layer.q, layer.k, layer.v});
    const sdk::Value queries = g.Rope(g.Reshape(g.RmsNorm(qv, wide, 1e-6), {64, 2}), {.base = 1e6});
    g.Append(g.Rope(g.Reshape(kv, {64, 1}), {.base = 1e6}), layer.k_plane);
    g.Append(vv, layer.v_plane);
    const sdk::Value mixed =
        g.Attention(queries, layer.k_plane, layer.v_plane, {.kv_heads = 1, .scale = 0.125});
    g.Export("logits",
             g.Head(g.SelectRows(g.Linear(g.Reshape(mixed, {128}), layer.out)), layer.head));
  });
  const CardWeightLayout layout(layer.toy.Model(), layer.toy.description);
  const CardLoweredGraph lowered = LowerForCard(
      graph, layer.toy.description,
      {.rows = 1, .top_rows = 1, .weights = &layout, .slot_context = 64, .wanted = {"logits"}});
  std::vector<std::string> names;
  for (const auto& launch : lowered.launches) names.emplace_back(launch.op);
  EXPECT_THAT(names, ElementsAre("embed", "linear", "rms_norm", "attention", "linear", "head"));
}

TEST(CardLower, LogitsLieWhereTheyAreFetchedAlsoWhereAReshapeOfThemIsExported) {
  ToySeat toy;
  const graph::Graph graph = toy.MakeGraph(1, [&](sdk::Graph& g) {
    const sdk::Value logits = g.Head(g.SelectRows(g.Embed(g.Tokens(), toy.table)), toy.table);
    g.Export("logits", g.Reshape(logits, {ToySeat::kVocabulary}));
  });
  const CardWeightLayout layout(toy.Model(), toy.description);
  const CardLoweredGraph lowered =
      LowerForCard(graph, toy.description,
                   {.rows = 1, .weights = &layout, .slot_context = 64, .wanted = {"logits"}});
  const auto buffer = static_cast<size_t>(lowered.exports.at(0).buffer);
  EXPECT_EQ(lowered.buffers.at(buffer).home, BufferHome::kLogits);
}

TEST(CardLower, BestLogitsArePromisedOnlyWhereALaunchMakesThem) {
  EXPECT_FALSE(Layer().Lower(1).best_logits);  // 24 logits: fewer than the best
}

// Windows, sinks, a factor on values, sigmoids and biases are no launches of their own.
TEST(CardLower, SlidingLayersAndSigmoidRoutersAreAsManyLaunchesAsOthers) {
  for (const int32_t rows : {1, 8, 64}) {
    Layer layer;
    layer.window = 32;
    layer.sinks = layer.toy.Add("sinks", {2});
    layer.scoring = "sigmoid";
    layer.bias = layer.toy.Add("bias", {4});
    layer.v_scale = 0.5;
    for (plugin::Plane& plane : layer.toy.description.planes) {
      plane.rule = BL_PLANE_RING;
      plane.window = 32;
    }
    EXPECT_EQ(layer.Launches(rows), Layer().Launches(rows)) << rows;
  }
}

TEST(CardLower, AFactorOnValuesThatAreObservedIsALaunchOfItsOwn) {
  Layer layer;
  layer.v_scale = 0.5;
  layer.export_values = true;
  EXPECT_THAT(layer.Launches(1, {"logits", "values"}),
              ElementsAre("embed", "linear", "scale", "attention", "linear", "router",
                          "routed_experts", "routed_experts", "head"));
}

TEST(CardLower, ATableThatIsNotDescribedAsOneIsRefused) {
  ToySeat toy;
  const sdk::Weight table = toy.Add("embeddings", {256, ToySeat::kVocabulary}, TensorType::kQ4_K);
  const graph::Graph graph = toy.MakeGraph(1, [&](sdk::Graph& g) {
    g.Export("logits", g.Head(g.SelectRows(g.Embed(g.Tokens(), table)), toy.table));
  });
  const CardWeightLayout layout(toy.Model(), toy.description);
  const test::Refusal refusal = test::RefusalOf([&] {
    LowerForCard(graph, toy.description,
                 {.rows = 1, .weights = &layout, .slot_context = 64, .wanted = {"logits"}});
  });
  EXPECT_EQ(refusal.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(refusal.message, HasSubstr("'embeddings' is not described as a table"));
}

TEST(CardLower, MatricesOfDifferentActivationGroupsGoApart) {
  // q and k in blocks of 32, the head too; v like them: one launch. Q8_0 beside Q4_K: two.
  EXPECT_EQ(Layer(TensorType::kQ8_0).Launches(1).size(), 8U);
  Layer mixed;
  mixed.v = mixed.toy.Add("v8", {256, 64}, TensorType::kQ8_0);
  EXPECT_EQ(mixed.Launches(1).size(), 9U);
}

TEST(CardLower, PromptsNameWhatIsABandAndFewRowsNothing) {
  EXPECT_THAT(Layer().Lower(8).inexact, testing::IsEmpty());
  // The output projection here is F16; all else is integers.
  EXPECT_THAT(Layer().Lower(16).inexact, ElementsAre("attention/1 on the card, prompts (band)",
                                                     "linear/1 on the card, prompts (band)"));
}

TEST(CardLower, GateAndUpOfDifferentFormatsAreOneLaunchForFewRowsAndTwoForPrompts) {
  Layer mixed(TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kQ5_K);
  EXPECT_EQ(mixed.Launches(1), Layer().Launches(1));
  EXPECT_EQ(mixed.Launches(16).size(), Layer().Launches(16).size() + 1);
}

TEST(CardLower, GateAndUpOfDifferentActivationGroupsHaveRowsOfBothKinds) {
  Layer mixed(TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kQ8_0);
  // Gate and up apart, each behind a launch that quantises its rows.
  EXPECT_THAT(mixed.Launches(8), ElementsAre("embed", "linear", "attention", "linear", "router",
                                             "routed_experts", "routed_experts", "routed_experts",
                                             "routed_experts", "routed_experts", "head"));
  // The norm in front quantises for one of them, a launch more for the other; up has its own, too.
  EXPECT_EQ(mixed.Launches(16).size(), Layer().Launches(16).size() + 2);
  // Exact for few rows, with float weights, too.
  Layer floats(TensorType::kQ4_K, TensorType::kF16, TensorType::kQ4_K);
  EXPECT_EQ(floats.Launches(1).size(), Layer().Launches(1).size() + 2);
  EXPECT_THAT(floats.Lower(1).inexact, testing::IsEmpty());
  EXPECT_THAT(floats.Lower(16).inexact,
              testing::Contains("routed_experts/1 on the card, prompts (band)"));
}

TEST(CardLower, AMissingExportIsRefusedByName) {
  const test::Refusal refusal = test::RefusalOf([&] { Layer().Lower(1, {"nothing"}); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("'nothing'"));
}

TEST(CardWeightLayout, TypesWithoutKernelsOfTheCardAreDecodedAndNamed) {
  ToySeat toy;
  toy.Add("a", {256, 32}, TensorType::kQ4_K);
  toy.Add("b", {256, 32}, TensorType::kIQ1_S);
  const CardWeightLayout layout(toy.Model(), toy.description);
  EXPECT_EQ(layout.place(0).layout, CardLayout::kFileRows);  // the table, F32
  EXPECT_EQ(layout.place(1).layout, CardLayout::kCardForm);
  EXPECT_EQ(layout.place(2).layout, CardLayout::kDecoded);
  EXPECT_EQ(layout.place(2).bytes, 256U * 32 * 2);
  EXPECT_THAT(layout.decoded(), ElementsAre("b (IQ1_S) as F16"));
  EXPECT_EQ(layout.staging_bytes(), kLoadRooms * LoadRoomBytes(32U * 144));
}

// Batches of a [512, n] matrix of Q4_K, or of `experts` such, one after the other from nothing to
// all, none larger than `most`.
std::vector<CardBatch> Batches(uint64_t n, uint64_t experts, uint64_t most) {
  const kernels::FormatTraits& format = *kernels::FindFormat(static_cast<int>(TensorType::kQ4_K));
  plugin::Weight weight;
  weight.ne = {512, n, experts, 1};
  const std::vector<CardBatch> batches = CutBatches(format, weight, most);
  uint64_t at = 0;
  for (const CardBatch& batch : batches) {
    EXPECT_EQ(batch.begin, at);
    EXPECT_EQ(batch.bytes, batch.rows * batch.experts * 288);
    at += batch.bytes;
  }
  EXPECT_EQ(at, n * experts * 288);
  return batches;
}

TEST(CardLoad, BatchesAreWholeExpertsWhereThoseFit) {
  // Five experts of 20 rows (two tiles of 16 a group of 256 values), two a batch.
  const std::vector<CardBatch> batches = Batches(20, 5, 50 * 288);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[1].rows, 20U);
  EXPECT_EQ(batches[1].experts, 2U);
  EXPECT_EQ(batches[1].to, 2U * 2 * 2 * 2304);
  EXPECT_EQ(batches[2].experts, 1U);
}

TEST(CardLoad, LargeMatricesAreCutBetweenTiles) {
  const std::vector<CardBatch> batches = Batches(70, 2, 40 * 288);
  ASSERT_EQ(batches.size(), 6U);  // 32, 32 and 6 rows of each
  EXPECT_EQ(batches[1].rows, 32U);
  EXPECT_EQ(batches[1].to, 2U * 2 * 2304);
  EXPECT_EQ(batches[2].rows, 6U);
  EXPECT_EQ(batches[3].to, 5U * 2 * 2304);
  // Less than a tile's rows is not to be had.
  EXPECT_EQ(Batches(70, 1, 1)[0].rows, 16U);
}

// Where there is a card this says nothing; the machines that run these tests have none.
TEST(Cards, AMachineWithoutADriverIsToldSoAndTheProgramGoesOn) {
  try {
    const std::vector<std::string> lines = CardLines();
    EXPECT_THAT(lines, testing::Each(HasSubstr("CUDA")));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    EXPECT_THAT(error.what(), HasSubstr("driver"));
    EXPECT_THAT(error.what(), HasSubstr("--device none"));
  }
}

}  // namespace
}  // namespace bloomery::exec
