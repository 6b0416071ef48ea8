// Building a graph with one typed call for each standard operator (<bloomery/operators.h> says what
// each computes). A call that the host refuses throws; the host has the reason already. Lives
// inside one build call, on the [load] thread.
//
//   auto x = g.Embed(g.Tokens(), embedding);
//   auto [q, k, v] = g.Linear(g.RmsNorm(x, norm, eps), {wq, wk, wv});
#pragma once

#include <bloomery/graph.h>
#include <bloomery/operators.h>

#include <array>
#include <bloomery/abi.hpp>
#include <bloomery/attrs.hpp>
#include <bloomery/errors.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace bloomery::sdk {

// Handles of a seat's description (<bloomery/seat.hpp> makes them); kept from describe to build.
struct Weight {
  uint32_t index = UINT32_MAX;
  explicit operator bool() const { return index != UINT32_MAX; }
};
struct Plane {
  uint32_t index = UINT32_MAX;
};
struct Bank {
  int32_t index = -1;
};

// A value of the graph being built; the default one is "absent".
struct Value {
  bl_value id = 0;
  explicit operator bool() const { return id != 0; }
};

struct RopeOptions {
  std::string kind = "neox";
  std::optional<int64_t> dims = {};  // absent: the whole head
  double base = 10000.0;
  double scale = 1.0;
};

struct AttentionOptions {
  int64_t kv_heads = 0;
  double scale = 0.0;
  int64_t window = 0;  // a row's last keys that it sees, its own included; 0: all
  Weight sinks = {};   // [heads]
};

struct RouterOptions {
  std::string scoring = "softmax";
  int64_t used = 0;
  bool renormalise = true;
  double scale = 1.0;
  Weight bias = {};      // [experts]: chooses, and is not in the weights
  double sum_min = 0.0;  // what weights are divided by at least
};

// What the delta rule takes.
struct DeltaInputs {
  Value q, k;  // [key_dim, key_heads, rows]
  Value v;     // [value_dim, value_heads, rows]
  Value a, b;  // [value_heads, rows]
  Weight decay, dt_bias;
  Plane state;
};

struct Routed {
  Value ids;      // i32 [used, rows]
  Value weights;  // [used, rows]
  Value logits;   // [experts, rows]
};

class Graph {
 public:
  explicit Graph(const bl_builder* builder) : builder_(builder) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  const bl_builder& raw() const { return *builder_; }

  // Labels what follows as layer l, ascending; -1 is outside the layers.
  void Layer(int32_t l) { Check(builder_->layer(builder_->self, l)); }
  Value Input(bl_row_field field) {
    Value value;
    Check(builder_->input(builder_->self, field, &value.id));
    return value;
  }
  Value Tokens() { return Input(BL_FIELD_TOKEN); }  // i32 [1, rows]
  // Names an output of the entry ("logits", "hidden") or an observation.
  void Export(const std::string& name, Value value) {
    Check(builder_->export_value(builder_->self, name.c_str(), value.id));
  }
  // Writes `value` into a ring plane that draft entries read.
  void Tap(Plane plane, Value value) {
    Check(builder_->tap(builder_->self, plane.index, value.id));
  }

  // Whether the file holds an optional weight.
  bool Has(Weight weight) {
    auto shape = MakeAbi<bl_shape>();
    const bl_status status = builder_->weight(builder_->self, weight.index, &shape);
    if (status == BL_UNSUPPORTED) return false;
    Check(status);
    return true;
  }
  bl_shape Shape(Weight weight) {
    auto shape = MakeAbi<bl_shape>();
    Check(builder_->weight(builder_->self, weight.index, &shape));
    return shape;
  }
  bl_shape Shape(Value value) {
    auto shape = MakeAbi<bl_shape>();
    Check(builder_->shape(builder_->self, value.id, &shape));
    return shape;
  }
  // A domain of this program, or nullopt where the entry has none of that kind.
  std::optional<bl_domain> Domain(bl_domain_kind kind) {
    auto domain = MakeAbi<bl_domain>();
    const bl_status status = builder_->domain(builder_->self, kind, &domain);
    if (status == BL_UNSUPPORTED) return std::nullopt;
    Check(status);
    return domain;
  }

  // The generic call behind all others, and the way to operators of the plugin's own.
  void Node(const char* op, uint32_t version, std::span<const Value> inputs,
            std::span<const Weight> weights, std::span<const Plane> planes, Attrs attrs,
            std::span<Value> outs) {
    std::vector<bl_value> in;
    for (const Value& v : inputs) in.push_back(v.id);
    std::vector<uint32_t> w;
    for (const Weight& weight : weights) w.push_back(weight.index);
    std::vector<uint32_t> p;
    for (const Plane& plane : planes) p.push_back(plane.index);
    const RawAttrs raw(std::move(attrs));
    auto node = MakeAbi<bl_node>();
    node.version = version;
    node.op = op;
    node.inputs = in.data();
    node.n_inputs = static_cast<uint32_t>(in.size());
    node.n_weights = static_cast<uint32_t>(w.size());
    node.weights = w.data();
    node.planes = p.data();
    node.n_planes = static_cast<uint32_t>(p.size());
    node.n_attrs = raw.size();
    node.attrs = raw.data();
    std::vector<bl_value> made(outs.size(), 0);
    Check(builder_->node(builder_->self, &node, made.data(), static_cast<uint32_t>(made.size())));
    for (size_t i = 0; i < outs.size(); ++i) outs[i].id = made[i];
  }
  // The same for an operator with one output.
  Value Node(const char* op, uint32_t version, std::span<const Value> inputs,
             std::span<const Weight> weights, std::span<const Plane> planes, Attrs attrs) {
    Value out;
    Node(op, version, inputs, weights, planes, std::move(attrs), std::span(&out, 1));
    return out;
  }

  Value Embed(Value ids, Weight table) { return Node1(BL_OP_EMBED, {ids}, {table}, {}, {}); }

  // Several matrices over one input, run as one launch.
  template <size_t N>
  std::array<Value, N> Linear(Value x, const Weight (&matrices)[N]) {
    std::array<Value, N> outs;
    Node(BL_OP_LINEAR, 1, std::span(&x, 1), matrices, {}, {}, outs);
    return outs;
  }
  Value Linear(Value x, Weight matrix) { return Node1(BL_OP_LINEAR, {x}, {matrix}, {}, {}); }
  // The same with a bias [n_i] for each matrix.
  template <size_t N>
  std::array<Value, N> LinearBiased(Value x,
                                    const std::pair<Weight, Weight> (&matrix_and_bias)[N]) {
    std::array<Value, N> outs;
    std::vector<Weight> weights;
    for (const auto& [matrix, bias] : matrix_and_bias)
      weights.insert(weights.end(), {matrix, bias});
    Node(BL_OP_LINEAR, 1, std::span(&x, 1), weights, {}, Attrs().Bool("biases", true), outs);
    return outs;
  }

  Value RmsNorm(Value x, Weight weight, double eps) {
    return Node1(BL_OP_RMS_NORM, {x}, {weight}, {}, Attrs().F64("eps", eps));
  }
  // `ne` without the row axis.
  Value Reshape(Value x, std::vector<int64_t> ne) {
    return Node1(BL_OP_RESHAPE, {x}, {}, {}, Attrs().I64s("ne", std::move(ne)));
  }
  Value Add(Value a, Value b) { return Node1(BL_OP_ADD, {a, b}, {}, {}, {}); }
  Value Mul(Value a, Value b) { return Node1(BL_OP_MUL, {a, b}, {}, {}, {}); }
  Value Scale(Value x, double factor) {
    return Node1(BL_OP_SCALE, {x}, {}, {}, Attrs().F64("factor", factor));
  }

  // Values first … first+count-1 of ne[0].
  Value Slice(Value x, int64_t first, int64_t count) {
    return Node1(BL_OP_SLICE, {x}, {}, {}, Attrs().I64("first", first).I64("count", count));
  }
  // x · f(gate), f "sigmoid" or "silu"; a gate of the shape of x, or one a row.
  Value Gate(Value x, Value gate, const std::string& function) {
    return Node1(BL_OP_GATE, {x, gate}, {}, {}, Attrs().Str("function", function));
  }
  Value L2Norm(Value x, double eps, double scale = 1.0) {
    return Node1(BL_OP_L2_NORM, {x}, {}, {}, Attrs().F64("eps", eps).F64("scale", scale));
  }
  Value ShortConv(Value x, Weight taps, Plane state, const std::string& activation = "silu") {
    return Node1(BL_OP_SHORT_CONV, {x}, {taps}, {state}, Attrs().Str("activation", activation));
  }
  Value DeltaRule(const DeltaInputs& in, const std::string& head_order) {
    return Node1(BL_OP_DELTA_RULE, {in.q, in.k, in.v, in.a, in.b}, {in.decay, in.dt_bias},
                 {in.state}, Attrs().Str("head_order", head_order));
  }

  // The values of `a`, then those of `b`.
  Value Concat(Value a, Value b) { return Node1(BL_OP_CONCAT, {a, b}, {}, {}, {}); }
  // x of the slot's row before, through a fixed plane.
  Value Previous(Value x, Plane plane) { return Node1(BL_OP_PREVIOUS, {x}, {}, {plane}, {}); }
  // What a fixed plane holds of each row's slot.
  Value Recall(Plane plane) { return Node1(BL_OP_RECALL, {Tokens()}, {}, {plane}, {}); }
  void Keep(Value x, Plane plane) {
    Node(BL_OP_KEEP, 1, std::span(&x, 1), {}, std::span(&plane, 1), {}, std::span<Value>());
  }

  Value Rope(Value x, const RopeOptions& options) {
    Attrs attrs;
    attrs.Str("kind", options.kind).F64("base", options.base).F64("scale", options.scale);
    if (options.dims) attrs.I64("dims", *options.dims);
    return Node1(BL_OP_ROPE, {x}, {}, {}, std::move(attrs));
  }

  // Writes each row of the pass to its index in its slot.
  void Append(Value x, Plane plane) {
    Node(BL_OP_APPEND, 1, std::span(&x, 1), {}, std::span(&plane, 1), {}, std::span<Value>());
  }
  Value Attention(Value q, Plane k, Plane v, const AttentionOptions& options) {
    Attrs attrs;
    attrs.I64("kv_heads", options.kv_heads).F64("scale", options.scale);
    if (options.window != 0) attrs.I64("window", options.window);
    std::vector<Weight> sinks;
    if (options.sinks) sinks.push_back(options.sinks);
    return Node1(BL_OP_ATTENTION, {q}, sinks, {k, v}, std::move(attrs));
  }

  Routed Router(Value x, Weight weight, const RouterOptions& options) {
    Attrs attrs;
    attrs.Str("scoring", options.scoring).I64("used", options.used);
    attrs.Bool("renormalise", options.renormalise).F64("scale", options.scale);
    if (options.sum_min != 0.0) attrs.F64("sum_min", options.sum_min);
    std::vector<Weight> weights = {weight};
    if (options.bias) weights.push_back(options.bias);
    std::array<Value, 3> outs;
    Node(BL_OP_ROUTER, 1, std::span(&x, 1), weights, {}, std::move(attrs), outs);
    return {outs[0], outs[1], outs[2]};
  }
  // residual + the weighted sum of the picked experts.
  Value RoutedExperts(Value x, const Routed& routed, Value residual, Bank bank) {
    return Node1(BL_OP_ROUTED_EXPERTS, {x, routed.ids, routed.weights, residual}, {}, {},
                 Attrs().I64("bank", bank.index));
  }

  // The rows whose logits are wanted.
  Value SelectRows(Value x) { return Node1(BL_OP_SELECT_ROWS, {x}, {}, {}, {}); }
  Value Head(Value x, Weight weight) { return Node1(BL_OP_HEAD, {x}, {weight}, {}, {}); }

 private:
  static void Check(bl_status status) {
    if (status != BL_OK) throw SaidFailure(status, "the builder refused a call");
  }
  Value Node1(const char* op, const std::vector<Value>& inputs, const std::vector<Weight>& weights,
              const std::vector<Plane>& planes, Attrs attrs) {
    return Node(op, 1, inputs, weights, planes, std::move(attrs));
  }

  const bl_builder* builder_;
};

}  // namespace bloomery::sdk
