#include "kernels-common/delta/cpu/delta.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include "kernels-common/delta/reference.h"
#include "kernels-common/elementwise/cpu/elementwise.h"
#include "kernels-common/elementwise/reference.h"
#include "kernels-common/exact_math/trig.h"
#include "kernels-common/norm/cpu/norm.h"
#include "kernels-common/norm/reference.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::FirstDifference;
using testing::Random;

// One value head's worth of everything, and the arguments that point into it.
struct DeltaCase {
  DeltaCase(std::size_t rows, std::size_t key_heads, std::size_t ratio, std::size_t key_dim,
            std::size_t value_dim, std::uint64_t seed) {
    Random random(seed);
    args.key_heads = key_heads;
    args.value_heads = key_heads * ratio;
    args.key_dim = key_dim;
    args.value_dim = value_dim;
    q = random.Values(rows * key_heads * key_dim, 0.1F);
    k = random.Values(rows * key_heads * key_dim, 0.1F);
    v = random.Values(rows * args.value_heads * value_dim);
    a = random.Values(rows * args.value_heads, 6.0F);
    b = random.Values(rows * args.value_heads, 3.0F);
    decay = random.Values(args.value_heads, 2.0F);
    for (float& d : decay) d = d > 0 ? -d : d;
    dt_bias = random.Values(args.value_heads, 3.0F);
    state = random.Values(args.value_heads * key_dim * value_dim);
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.a = a.data();
    args.b = b.data();
    args.decay = decay.data();
    args.dt_bias = dt_bias.data();
    args.state_in = state.data();
  }
  std::vector<float> q, k, v, a, b, decay, dt_bias, state;
  DeltaArgs args;
};

// Rows [first, first + count) of a call.
DeltaArgs RowsOf(DeltaArgs args, std::size_t first) {
  args.q += first * args.key_heads * args.key_dim;
  args.k += first * args.key_heads * args.key_dim;
  args.v += first * args.value_heads * args.value_dim;
  args.a += first * args.value_heads;
  args.b += first * args.value_heads;
  args.out += first * args.value_heads * args.value_dim;
  return args;
}

TEST(Delta, EqualsTheReferenceWholeAndRowByRow) {
  Random random(11);
  for (int round = 0; round < 12; ++round) {
    const std::size_t rows = 1 + random.Below(6);
    DeltaCase c(rows, 1 + random.Below(3), 1 + random.Below(3), 1 + random.Below(40),
                16 * (1 + random.Below(9)), 100 + static_cast<std::uint64_t>(round));
    c.args.tiled = random.Below(2) == 0;
    if (random.Below(3) == 0) c.args.state_in = nullptr;
    std::vector<float> expected(c.v.size());
    std::vector<float> expected_state(c.state.size());
    c.args.out = expected.data();
    c.args.state_out = expected_state.data();
    for (std::size_t h = 0; h < c.args.value_heads; ++h) reference::Delta(c.args, rows, h);
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> out(c.v.size(), 7.0F);
      std::vector<float> state(c.state.size(), 7.0F);
      DeltaArgs args = c.args;
      args.out = out.data();
      args.state_out = state.data();
      for (std::size_t h = 0; h < args.value_heads; ++h) cpu::Delta(isa, args, rows, h);
      EXPECT_EQ(FirstDifference(out, expected), out.size()) << IsaName(isa);
      EXPECT_EQ(FirstDifference(state, expected_state), state.size()) << IsaName(isa);

      std::fill(out.begin(), out.end(), 7.0F);
      for (std::size_t row = 0; row < rows; ++row) {
        DeltaArgs one = RowsOf(args, row);
        if (row > 0) one.state_in = state.data();
        for (std::size_t h = 0; h < args.value_heads; ++h) cpu::Delta(isa, one, 1, h);
      }
      EXPECT_EQ(FirstDifference(out, expected), out.size()) << IsaName(isa);
      EXPECT_EQ(FirstDifference(state, expected_state), state.size()) << IsaName(isa);
    }
  }
}

// The delta rule in f64 as published: decay, correct, read.
TEST(Delta, IsTheFormulaInF64) {
  constexpr std::size_t kRows = 9;
  DeltaCase c(kRows, 2, 2, 24, 32, 5);
  std::vector<float> out(c.v.size());
  std::vector<float> state(c.state.size());
  c.args.out = out.data();
  c.args.state_out = state.data();
  for (const bool tiled : {true, false}) {
    c.args.tiled = tiled;
    for (std::size_t h = 0; h < 4; ++h) {
      reference::Delta(c.args, kRows, h);
      const std::size_t g = tiled ? h % 2 : h / 2;
      std::vector<double> s(c.state.begin() + static_cast<std::ptrdiff_t>(h * 24 * 32),
                            c.state.begin() + static_cast<std::ptrdiff_t>((h + 1) * 24 * 32));
      for (std::size_t r = 0; r < kRows; ++r) {
        const double x = static_cast<double>(c.a[r * 4 + h]) + static_cast<double>(c.dt_bias[h]);
        const double d = std::exp(static_cast<double>(c.decay[h]) * std::log1p(std::exp(x)));
        const double strength = 1.0 / (1.0 + std::exp(-static_cast<double>(c.b[r * 4 + h])));
        for (std::size_t j = 0; j < 32; ++j) {
          double m = 0;
          for (std::size_t i = 0; i < 24; ++i) {
            s[i * 32 + j] *= d;
            m += s[i * 32 + j] * static_cast<double>(c.k[(r * 2 + g) * 24 + i]);
          }
          const double u = strength * (static_cast<double>(c.v[(r * 4 + h) * 32 + j]) - m);
          double o = 0;
          for (std::size_t i = 0; i < 24; ++i) {
            s[i * 32 + j] += static_cast<double>(c.k[(r * 2 + g) * 24 + i]) * u;
            o += s[i * 32 + j] * static_cast<double>(c.q[(r * 2 + g) * 24 + i]);
          }
          EXPECT_NEAR(static_cast<double>(out[(r * 4 + h) * 32 + j]), o, 2e-6);
        }
      }
    }
  }
}

// The rule in f64 from the f32 inputs, and how far outputs and states are from it.
class ExactDelta {
 public:
  ExactDelta(const DeltaCase& c, std::size_t rows) : c_(c), out_(c.v.size()) {
    state_.assign(c.state.begin(), c.state.end());
    if (c.args.state_in == nullptr) std::fill(state_.begin(), state_.end(), 0.0);
    for (std::size_t h = 0; h < c.args.value_heads; ++h) {
      for (std::size_t r = 0; r < rows; ++r) Row(r, h);
    }
  }
  // The largest difference as a share of the largest value.
  static double Off(std::span<const float> got, const std::vector<double>& want) {
    double off = 0;
    double most = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      off = std::max(off, std::abs(static_cast<double>(got[i]) - want[i]));
      most = std::max(most, std::abs(want[i]));
    }
    return off / most;
  }
  const std::vector<double>& out() const { return out_; }
  const std::vector<double>& state() const { return state_; }

 private:
  void Row(std::size_t r, std::size_t h) {
    const DeltaArgs& args = c_.args;
    const std::size_t n_k = args.key_dim;
    const std::size_t n_v = args.value_dim;
    const std::size_t at = r * args.value_heads + h;
    const float* k = &c_.k[(r * args.key_heads + args.KeyHead(h)) * n_k];
    const float* q = &c_.q[(r * args.key_heads + args.KeyHead(h)) * n_k];
    const double x = static_cast<double>(c_.a[at]) + static_cast<double>(c_.dt_bias[h]);
    const double d = std::exp(static_cast<double>(c_.decay[h]) * std::log1p(std::exp(x)));
    const double strength = 1.0 / (1.0 + std::exp(-static_cast<double>(c_.b[at])));
    double* s = &state_[h * n_k * n_v];
    for (std::size_t j = 0; j < n_v; ++j) {
      double m = 0;
      for (std::size_t i = 0; i < n_k; ++i) m += d * s[i * n_v + j] * static_cast<double>(k[i]);
      const double u = strength * (static_cast<double>(c_.v[at * n_v + j]) - m);
      double o = 0;
      for (std::size_t i = 0; i < n_k; ++i) {
        s[i * n_v + j] = d * s[i * n_v + j] + static_cast<double>(k[i]) * u;
        o += s[i * n_v + j] * static_cast<double>(q[i]);
      }
      out_[at * n_v + j] = o;
    }
  }

  const DeltaCase& c_;
  std::vector<double> out_, state_;
};

// Keys and queries of length one, as the model's; decays from almost none to all at once.
DeltaCase ChunkCase(std::size_t rows, std::uint64_t seed) {
  Random random(seed);
  DeltaCase c(rows, 1 + random.Below(2), 1 + random.Below(3),
              8 * (1 + random.Below(16)) + random.Below(4), 16 * (1 + random.Below(9)), seed);
  for (std::vector<float>* x : {&c.q, &c.k}) {
    for (std::size_t i = 0; i < x->size(); i += c.args.key_dim) {
      double squares = 0;
      for (std::size_t d = 0; d < c.args.key_dim; ++d) {
        squares += static_cast<double>((*x)[i + d]) * static_cast<double>((*x)[i + d]);
      }
      for (std::size_t d = 0; d < c.args.key_dim; ++d) {
        (*x)[i + d] =
            static_cast<float>(static_cast<double>((*x)[i + d]) / std::sqrt(squares + 1e-6));
      }
    }
  }
  c.args.tiled = random.Below(2) == 0;
  if (random.Below(3) == 0) c.args.state_in = nullptr;
  return c;
}

struct DeltaResult {
  std::vector<float> out, state;
};

// In calls of these many rows, the state handed from each to the next.
DeltaResult InChunks(const DeltaCase& c, Isa isa, const std::vector<std::size_t>& calls) {
  DeltaResult result{std::vector<float>(c.v.size(), 7.0F),
                     std::vector<float>(c.state.size(), 7.0F)};
  DeltaArgs args = c.args;
  args.out = result.out.data();
  args.state_out = result.state.data();
  testing::AlignedBytes scratch(cpu::DeltaChunksScratchBytes(args));
  std::ranges::fill(scratch.span(), std::byte{0xFF});  // NaN: what was not written shows
  std::size_t first = 0;
  for (const std::size_t rows : calls) {
    DeltaArgs call = RowsOf(args, first);
    if (first > 0) call.state_in = result.state.data();
    for (std::size_t h = 0; h < args.value_heads; ++h) {
      cpu::DeltaChunks(isa, call, rows, h, scratch.span());
    }
    first += rows;
  }
  return result;
}

// The stated band: both forms are this near to the f64 rule, by the largest value of the case.
constexpr double kDeltaBand = 2e-6;

TEST(DeltaChunks, AreTheRuleWithinTheBandInEveryLength) {
  double chunks = 0;
  double steps = 0;
  for (const std::size_t rows : {1, 2, 3, 5, 63, 64, 65, 66, 127, 128, 130, 200, 257}) {
    const DeltaCase c = ChunkCase(rows, 900 + rows);
    const ExactDelta exact(c, rows);
    DeltaResult step{std::vector<float>(c.v.size()), std::vector<float>(c.state.size())};
    DeltaArgs args = c.args;
    args.out = step.out.data();
    args.state_out = step.state.data();
    for (std::size_t h = 0; h < args.value_heads; ++h) reference::Delta(args, rows, h);
    steps = std::max({steps, ExactDelta::Off(step.out, exact.out()),
                      ExactDelta::Off(step.state, exact.state())});
    const DeltaResult scalar = InChunks(c, Isa::kScalar, {rows});
    for (const Isa isa : AvailableIsas()) {
      const DeltaResult got = InChunks(c, isa, {rows});
      chunks = std::max({chunks, ExactDelta::Off(got.out, exact.out()),
                         ExactDelta::Off(got.state, exact.state())});
      EXPECT_EQ(FirstDifference(got.out, scalar.out), got.out.size()) << IsaName(isa);
      EXPECT_EQ(FirstDifference(got.state, scalar.state), got.state.size()) << IsaName(isa);
    }
  }
  EXPECT_LT(chunks, kDeltaBand);
  EXPECT_LT(steps, kDeltaBand);
  RecordProperty("chunks", std::to_string(chunks));
  std::printf("off the f64 rule: chunks %.2e, steps %.2e\n", chunks, steps);
}

TEST(DeltaChunks, HandTheirStateOnInCallsOfAnyLength) {
  constexpr std::size_t kRows = 200;
  const DeltaCase c = ChunkCase(kRows, 77);
  const ExactDelta exact(c, kRows);
  for (const std::vector<std::size_t>& calls :
       std::vector<std::vector<std::size_t>>{{1, 2, 64, 133}, {64, 64, 72}, {100, 100}, {199, 1}}) {
    for (const Isa isa : AvailableIsas()) {
      const DeltaResult got = InChunks(c, isa, calls);
      EXPECT_LT(ExactDelta::Off(got.out, exact.out()), kDeltaBand);
      EXPECT_LT(ExactDelta::Off(got.state, exact.state()), kDeltaBand);
    }
  }
  // Whole chunks are the same wherever calls end between them.
  const DeltaResult whole = InChunks(c, AvailableIsas().back(), {kRows});
  const DeltaResult parts = InChunks(c, AvailableIsas().back(), {64, 128, 8});
  EXPECT_EQ(FirstDifference(parts.out, whole.out), whole.out.size());
  EXPECT_EQ(FirstDifference(parts.state, whole.state), whole.state.size());
}

// A state that decays at once, and one that never does over a thousand rows.
TEST(DeltaChunks, StayFiniteAndNearAtBothEndsOfDecay) {
  for (const float decay : {-80.0F, -1e-6F}) {
    constexpr std::size_t kRows = 1000;
    DeltaCase c = ChunkCase(kRows, 5);
    std::fill(c.decay.begin(), c.decay.end(), decay);
    const ExactDelta exact(c, kRows);
    const DeltaResult got = InChunks(c, AvailableIsas().back(), {kRows});
    EXPECT_LT(ExactDelta::Off(got.out, exact.out()), 2 * kDeltaBand) << decay;
    EXPECT_LT(ExactDelta::Off(got.state, exact.state()), 2 * kDeltaBand) << decay;
  }
}

TEST(ShortConv, EqualsTheReferenceAndContinuesAcrossCalls) {
  Random random(12);
  for (int round = 0; round < 30; ++round) {
    const std::size_t rows = 1 + random.Below(7);
    ShortConvArgs args;
    args.channels = 1 + random.Below(40);
    args.taps = 1 + random.Below(5);
    args.silu = random.Below(2) == 0;
    args.x_stride = args.channels + random.Below(5);
    args.y_stride = args.channels;
    const std::vector<float> x = random.Values(rows * args.x_stride, 2.0F);
    const std::vector<float> weight = random.Values(args.channels * args.taps);
    const std::vector<float> before = random.Values((args.taps - 1) * args.channels);
    args.x = x.data();
    args.weight = weight.data();
    args.state_in = random.Below(3) == 0 ? nullptr : before.data();
    std::vector<float> expected(rows * args.channels);
    std::vector<float> expected_state(before.size());
    args.y = expected.data();
    args.state_out = expected_state.data();
    reference::ShortConv(args, rows, 0, args.channels);
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> y(expected.size(), 7.0F);
      std::vector<float> state(before.size(), 7.0F);
      args.y = y.data();
      args.state_out = state.data();
      cpu::ShortConv(isa, args, rows, 0, args.channels);
      EXPECT_EQ(FirstDifference(y, expected), y.size()) << IsaName(isa);
      EXPECT_EQ(FirstDifference(state, expected_state), state.size()) << IsaName(isa);
      std::fill(y.begin(), y.end(), 7.0F);
      for (std::size_t row = 0; row < rows; ++row) {
        ShortConvArgs one = args;
        one.x += row * args.x_stride;
        one.y += row * args.y_stride;
        if (row > 0) one.state_in = state.data();
        cpu::ShortConv(isa, one, 1, 0, args.channels);
      }
      EXPECT_EQ(FirstDifference(y, expected), y.size()) << IsaName(isa);
      EXPECT_EQ(FirstDifference(state, expected_state), state.size()) << IsaName(isa);
    }
  }
}

// By hand: taps are oldest first, and rows before the first are zeros.
TEST(ShortConv, TapsAreOldestFirst) {
  const std::vector<float> x = {1.0F, 10.0F, 100.0F};
  const std::vector<float> weight = {2.0F, 3.0F, 5.0F};
  std::vector<float> y(3);
  std::vector<float> state(2);
  ShortConvArgs args;
  args.x = x.data();
  args.y = y.data();
  args.x_stride = args.y_stride = args.channels = 1;
  args.taps = 3;
  args.weight = weight.data();
  args.state_out = state.data();
  args.silu = false;
  reference::ShortConv(args, 3, 0, 1);
  EXPECT_EQ(y, (std::vector<float>{5.0F, 53.0F, 532.0F}));
  EXPECT_EQ(state, (std::vector<float>{10.0F, 100.0F}));
}

TEST(L2Norm, EqualsTheReferenceAndMapsZeroToZero) {
  Random random(13);
  for (int round = 0; round < 40; ++round) {
    L2NormArgs args;
    args.dim = 1 + random.Below(140);
    args.groups = 1 + random.Below(3);
    args.x_stride = args.y_stride = args.dim * args.groups;
    args.eps = 1e-6F;
    args.scale = random.Below(2) == 0 ? 1.0F : 0.088388346F;
    std::vector<float> x = random.Values(2 * args.x_stride, round % 4 == 0 ? 1e-4F : 3.0F);
    if (round % 5 == 0) std::fill(x.begin(), x.end(), 0.0F);
    std::vector<float> expected(x.size());
    args.x = x.data();
    args.y = expected.data();
    reference::L2Norm(args, 0, 2);
    double squares = 0;
    for (std::size_t i = 0; i < args.dim; ++i) {
      squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    EXPECT_NEAR(
        static_cast<double>(expected[0]),
        static_cast<double>(x[0]) * static_cast<double>(args.scale) / std::sqrt(squares + 1e-6),
        3e-7);
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> y(x.size(), 7.0F);
      args.y = y.data();
      cpu::L2Norm(isa, args, 0, 2);
      EXPECT_EQ(FirstDifference(y, expected), y.size()) << IsaName(isa);
    }
  }
}

TEST(Gate, EqualsTheReferenceForBothFunctionsAndOneGateARow) {
  Random random(14);
  for (int round = 0; round < 40; ++round) {
    GateArgs args;
    args.width = 1 + random.Below(50);
    args.single = random.Below(2) == 0;
    args.function = random.Below(2) == 0 ? GateFunction::kSigmoid : GateFunction::kSilu;
    const std::vector<float> x = random.Values(3 * args.width);
    const std::vector<float> gate = random.Values(3 * (args.single ? 1 : args.width), 9.0F);
    std::vector<float> expected(x.size());
    args.x = x.data();
    args.gate = gate.data();
    args.y = expected.data();
    reference::Gate(args, 0, 3);
    const auto g = static_cast<double>(gate[0]);
    const double sigmoid = 1.0 / (1.0 + std::exp(-g));
    const double factor = args.function == GateFunction::kSilu ? g * sigmoid : sigmoid;
    EXPECT_NEAR(static_cast<double>(expected[0]), static_cast<double>(x[0]) * factor, 2e-6);
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> y(x.size(), 7.0F);
      args.y = y.data();
      cpu::Gate(isa, args, 0, 3);
      EXPECT_EQ(FirstDifference(y, expected), y.size()) << IsaName(isa);
    }
  }
}

TEST(ExactSoftplus, IsLogOfOnePlusExpWithinAnUlp) {
  for (float x = -86.5F; x < 40.0F; x += 0.0137F) {
    const double want = std::log1p(std::exp(static_cast<double>(x)));
    const float made = ExactSoftplus(x);
    const float ulp = std::nextafterf(static_cast<float>(want), 1e9F) - static_cast<float>(want);
    EXPECT_NEAR(static_cast<double>(made), want, static_cast<double>(ulp)) << x;
  }
  EXPECT_EQ(ExactSoftplus(50.0F), 50.0F);
  EXPECT_GT(ExactSoftplus(-1000.0F), 0.0F);
  const float nan = std::nanf("");
  EXPECT_NE(ExactSoftplus(nan), ExactSoftplus(nan));
}

}  // namespace
}  // namespace bloomery::kernels
