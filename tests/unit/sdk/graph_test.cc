// Each typed call becomes the one generic call that <bloomery/operators.h> describes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bloomery/graph.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace bloomery::sdk {
namespace {

// Writes down what a graph calls; fails every call from `fail_at` on.
class Recorder {
 public:
  Recorder() {
    raw_.size = sizeof(raw_);
    raw_.self = this;
    raw_.layer = [](void* self, int32_t l) { return Of(self).Call("layer " + std::to_string(l)); };
    raw_.input = [](void* self, bl_row_field field, bl_value* out) {
      *out = ++Of(self).values_;
      return Of(self).Call("input " + std::to_string(field));
    };
    raw_.weight = [](void* self, uint32_t index, bl_shape* out) -> bl_status {
      if (index == kAbsent) return BL_UNSUPPORTED;
      out->ne[0] = 10 + index;
      return Of(self).Call("weight " + std::to_string(index));
    };
    raw_.node = [](void* self, const bl_node* node, bl_value* outs, uint32_t n_outs) {
      for (uint32_t i = 0; i < n_outs; ++i) outs[i] = ++Of(self).values_;
      return Of(self).Call(Line(*node, n_outs));
    };
    raw_.shape = [](void* self, bl_value value, bl_shape* out) {
      out->ne[0] = value;
      return Of(self).Call("shape " + std::to_string(value));
    };
    raw_.domain = [](void* self, bl_domain_kind kind, bl_domain* out) -> bl_status {
      if (kind != BL_DOMAIN_PASS_ROWS) return BL_UNSUPPORTED;
      out->capacity = 32;
      return Of(self).Call("domain");
    };
    raw_.export_value = [](void* self, const char* name, bl_value value) {
      return Of(self).Call("export " + std::string(name) + " " + std::to_string(value));
    };
    raw_.tap = [](void* self, uint32_t plane, bl_value value) {
      return Of(self).Call("tap " + std::to_string(plane) + " " + std::to_string(value));
    };
  }

  static constexpr uint32_t kAbsent = 99;
  const bl_builder* raw() const { return &raw_; }
  // The calls since the last time.
  std::vector<std::string> Take() { return std::exchange(calls_, {}); }
  int fail_at = -1;

 private:
  static Recorder& Of(void* self) { return *static_cast<Recorder*>(self); }
  bl_status Call(std::string line) {
    calls_.push_back(std::move(line));
    return fail_at >= 0 && static_cast<int>(calls_.size()) > fail_at ? BL_REFUSED : BL_OK;
  }
  static std::string Line(const bl_node& n, uint32_t n_outs) {
    std::ostringstream out;
    out << n.op << "/" << n.version << " x";
    for (uint32_t i = 0; i < n.n_inputs; ++i) out << " " << n.inputs[i];
    out << " w";
    for (uint32_t i = 0; i < n.n_weights; ++i) out << " " << n.weights[i];
    out << " p";
    for (uint32_t i = 0; i < n.n_planes; ++i) out << " " << n.planes[i];
    const AttrReader attrs(n.attrs, n.n_attrs);
    for (uint32_t i = 0; i < attrs.size(); ++i) {
      out << " " << attrs[i].key << "=";
      if (auto v = attrs.I64(attrs[i].key)) out << *v;
      if (auto v = attrs.F64(attrs[i].key)) out << *v;
      if (auto v = attrs.Str(attrs[i].key)) out << *v;
      if (auto v = attrs.Bool(attrs[i].key)) out << (*v ? "yes" : "no");
    }
    out << " -> " << n_outs;
    return out.str();
  }

  bl_builder raw_{};
  std::vector<std::string> calls_;
  bl_value values_ = 0;
};

using testing::ElementsAre;

class GraphTest : public testing::Test {
 protected:
  Recorder recorder_;
  Graph g_{recorder_.raw()};
  Weight w_[3] = {{5}, {6}, {7}};
};

TEST_F(GraphTest, EveryStandardOperatorIsOneCall) {
  const Value t = g_.Tokens();                                          // 1
  const Value x = g_.Embed(t, w_[0]);                                   // 2
  const auto [q, k, v] = g_.Linear(x, {w_[0], w_[1], w_[2]});           // 3 4 5
  const Value y = g_.Linear(x, w_[1]);                                  // 6
  const auto [b] = g_.LinearBiased(x, {{w_[0], w_[2]}});                // 7
  const Value n = g_.RmsNorm(y, w_[0], 0.5);                            // 8
  const Value r = g_.Reshape(n, {8});                                   // 9
  const Value s = g_.Add(r, b);                                         // 10
  const Value m = g_.Mul(s, v);                                         // 11
  const Value o = g_.Rope(q, {.dims = 4, .base = 1000.0, .scale = 2});  // 12
  g_.Append(k, Plane{1});
  const Value a = g_.Attention(o, Plane{1}, Plane{2}, {.kv_heads = 2, .scale = 0.25});  // 13
  const Routed routed = g_.Router(a, w_[1], {.scoring = "sigmoid", .used = 2});         // 14 15 16
  const Value e = g_.RoutedExperts(a, routed, m, Bank{3});                              // 17
  const Value h = g_.Head(g_.SelectRows(e), w_[2]);                                     // 18 19
  g_.Export("logits", h);
  EXPECT_THAT(
      recorder_.Take(),
      ElementsAre("input 0", "embed/1 x 1 w 5 p -> 1", "linear/1 x 2 w 5 6 7 p -> 3",
                  "linear/1 x 2 w 6 p -> 1", "linear/1 x 2 w 5 7 p biases=yes -> 1",
                  "rms_norm/1 x 6 w 5 p eps=0.5 -> 1", "reshape/1 x 8 w p ne=8 -> 1",
                  "add/1 x 9 7 w p -> 1", "mul/1 x 10 5 w p -> 1",
                  "rope/1 x 3 w p kind=neox base=1000 scale=2 dims=4 -> 1",
                  "append/1 x 4 w p 1 -> 0", "attention/1 x 12 w p 1 2 kv_heads=2 scale=0.25 -> 1",
                  "router/1 x 13 w 6 p scoring=sigmoid used=2 renormalise=yes scale=1 -> 3",
                  "routed_experts/1 x 13 14 15 11 w p bank=3 -> 1", "select_rows/1 x 17 w p -> 1",
                  "head/1 x 18 w 7 p -> 1", "export logits 19"));
}

TEST_F(GraphTest, TheGenericCallTakesAnyOperator) {
  const Value in[] = {Value{}, g_.Tokens()};
  const Value out = g_.Node("toy.scale", 2, in, {}, {}, Attrs().F64("factor", 2));
  EXPECT_TRUE(out);
  EXPECT_THAT(recorder_.Take(), ElementsAre("input 0", "toy.scale/2 x 0 1 w p factor=2 -> 1"));
}

TEST_F(GraphTest, OptionalWeightsAndDomainsAreAskedFor) {
  EXPECT_TRUE(g_.Has(w_[0]));
  EXPECT_FALSE(g_.Has(Weight{Recorder::kAbsent}));
  EXPECT_EQ(g_.Shape(w_[1]).ne[0], 16);
  EXPECT_EQ(g_.Shape(Value{4}).ne[0], 4);
  EXPECT_EQ(g_.Domain(BL_DOMAIN_PASS_ROWS)->capacity, 32);
  EXPECT_EQ(g_.Domain(BL_DOMAIN_PATCHES), std::nullopt);
}

TEST_F(GraphTest, ARefusedCallThrowsAndSaysNothingTwice) {
  recorder_.fail_at = 1;
  const Value t = g_.Tokens();
  EXPECT_THROW(g_.Embed(t, w_[0]), SaidFailure);
  EXPECT_THROW(g_.Layer(1), SaidFailure);
  EXPECT_THROW(g_.Export("x", t), SaidFailure);
  EXPECT_THROW(g_.Tap(Plane{0}, t), SaidFailure);
  EXPECT_THROW(g_.Shape(t), SaidFailure);
}

}  // namespace
}  // namespace bloomery::sdk
