// Routed experts of decode passes against the references: ids, weights and sums of picks by bits.
#include "kernels-common/moe/cuda/rows_experts.h"

#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/linear/reference.h"
#include "kernels-common/moe/reference.h"
#include "kernels-common/quant/reference.h"
#include "tests/gpu/kernels/card_bank.h"
#include "tests/gpu/kernels/device.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::AlignedBytes;
using testing::CardBank;
using testing::CardFormats;
using testing::DeviceArray;
using testing::Finish;
using testing::Random;
using testing::SameBits;
using testing::SameValues;
using testing::TestLaunch;

// A bank of experts in the file's form and on the card.
struct Bank {
  const FormatTraits& format;
  std::size_t n;
  std::size_t k;
  std::vector<std::byte> rows;
  std::optional<CardBank> card;
  std::optional<DeviceArray<std::byte>> floats;

  Bank(int type, std::size_t rows_each, std::size_t values, std::size_t experts, Random& random)
      : format(*FindFormat(type)),
        n(rows_each),
        k(values),
        rows(testing::RandomWeights(format, k, n * experts, random)) {
    if (format.activation_group != 0) {
      card.emplace(format, rows, n, k, experts);
    } else {
      floats.emplace(rows);
    }
  }
  WeightRows Expert(std::size_t expert) const {
    const std::size_t row_bytes = RowBytes(format, k);
    return {&format, rows.data() + expert * n * row_bytes, row_bytes, k};
  }
  cuda::CardWeight OnCard() const {
    if (card) return card->weight();
    const std::size_t row_bytes = RowBytes(format, k);
    return {&format, floats->data(), n, k, row_bytes, row_bytes * n};
  }
};

struct Shape {
  std::size_t rows = 1;
  std::size_t live = 1;
  std::size_t experts = 16;
  std::size_t top_k = 4;
  std::size_t width = 512;
  std::size_t ff = 256;
  bool renormalise = true;
  bool residual = true;
  bool split = false;      // gate and up by a launch each though one could do both
  bool sigmoid = false;    // router: sigmoids, biases that choose, and a least sum
  float magnitude = 2.0F;  // of x
};

// A view of quantised rows; without a group (float formats): of none.
QuantisedRows View(std::byte* data, std::size_t k, std::size_t group) {
  return group == 0 ? QuantisedRows{} : MakeQuantisedRows(data, k, group);
}

// Quantised rows of x; without a group: empty.
AlignedBytes Quantise(const std::vector<float>& x, std::size_t rows, std::size_t k,
                      std::size_t group) {
  AlignedBytes bytes(group == 0 ? 0 : QuantisedRowBytes(k, group) * rows);
  for (std::size_t row = 0; row < rows && group != 0; ++row) {
    reference::QuantiseRow(x.data() + row * k, MakeQuantisedRows(bytes.data(), k, group), row);
  }
  return bytes;
}

class Pass {
 public:
  Pass(const Shape& shape, int gate, int up, int down, std::uint64_t seed)
      : s_(shape),
        random_(seed),
        gate_(gate, s_.ff, s_.width, s_.experts, random_),
        up_(up, s_.ff, s_.width, s_.experts, random_),
        down_(down, s_.width, s_.ff, s_.experts, random_),
        x_(random_.Values(s_.rows * s_.width, s_.magnitude)),
        logits_(random_.Values(s_.rows * s_.experts, 4.0F)),
        residual_(random_.Values(s_.rows * s_.width)),
        bias_(random_.Values(s_.experts, 1.0F)) {}

  std::vector<float>& logits() { return logits_; }
  std::vector<float>& x() { return x_; }

  void RunReference() {
    ids_.assign(s_.rows * s_.top_k, -1);
    weights_.assign(s_.rows * s_.top_k, NAN);
    out_ = residual_;
    RouterArgs router = Router();
    AlignedBytes quantised = Quantise(x_, s_.rows, s_.width, gate_.format.activation_group);
    counts_.assign(s_.experts, 0);
    std::vector<std::int32_t> places(s_.rows * s_.top_k);
    std::vector<std::int32_t> place_rows(places.size());
    std::vector<float> h(places.size() * s_.ff);
    std::vector<float> y(places.size() * s_.width);
    for (std::size_t row = 0; row < s_.live; ++row) {
      reference::RouteRow(router, row);
      for (std::size_t pick = 0; pick < s_.top_k; ++pick) {
        const std::size_t pair = row * s_.top_k + pick;
        places[pair] = static_cast<std::int32_t>(pair);
        place_rows[pair] = static_cast<std::int32_t>(row);
        const auto expert = static_cast<std::size_t>(ids_[pair]);
        ++counts_[expert];
        if (gate_.format.activation_group != up_.format.activation_group) {
          const std::vector<float> g = ReferenceLinear(gate_.Expert(expert), row);
          const std::vector<float> u = ReferenceLinear(up_.Expert(expert), row);
          for (std::size_t i = 0; i < s_.ff; ++i) h[pair * s_.ff + i] = ExactSilu(g[i]) * u[i];
        } else {
          ExpertGateUpArgs args;
          args.gate = gate_.Expert(expert);
          args.up = up_.Expert(expert);
          args.x = x_.data();
          args.x_stride = s_.width;
          args.quantised = View(quantised.data(), s_.width, gate_.format.activation_group);
          args.place_rows = place_rows.data();
          args.h = h.data();
          args.h_stride = s_.ff;
          reference::ExpertGateUp(args, pair, 0, s_.ff);
        }
        const std::vector<float> of_pair(h.begin() + static_cast<long>(pair * s_.ff),
                                         h.begin() + static_cast<long>((pair + 1) * s_.ff));
        AlignedBytes codes = Quantise(of_pair, 1, s_.ff, down_.format.activation_group);
        LinearArgs linear;
        linear.weight = down_.Expert(expert);
        linear.x = of_pair.data();
        linear.x_stride = s_.ff;
        linear.quantised = View(codes.data(), s_.ff, down_.format.activation_group);
        linear.rows = 1;
        linear.y = y.data() + pair * s_.width;
        linear.y_stride = s_.width;
        reference::Linear(linear, 0, s_.width);
      }
      PickSumArgs sum;
      sum.y = y.data();
      sum.y_stride = s_.width;
      sum.pair_places = places.data();
      sum.weights = weights_.data();
      sum.top_k = s_.top_k;
      sum.dim = s_.width;
      sum.residual = s_.residual ? residual_.data() : nullptr;
      sum.residual_stride = s_.width;
      sum.out = out_.data();
      sum.out_stride = s_.width;
      reference::PickSum(sum, row);
    }
  }

  void RunOnCard() {
    testing::Check(cuda::PrepareRowsExperts());
    const DeviceArray<std::byte> codes = CodesFor(gate_.format);
    const DeviceArray<std::byte> up_codes = CodesFor(up_.format);
    const DeviceArray<std::uint32_t> counts(std::vector<std::uint32_t>(s_.experts + 1, 1000U));
    const DeviceArray<float> x(x_);
    const DeviceArray<float> logits(logits_);
    const DeviceArray<float> bias(bias_);
    const DeviceArray<std::int32_t> live(
        std::vector<std::int32_t>{static_cast<std::int32_t>(s_.live)});
    const DeviceArray<std::int32_t> failed(std::vector<std::int32_t>{INT_MAX});
    const std::size_t pairs = s_.rows * s_.top_k;
    const DeviceArray<std::int32_t> ids(pairs, 0xFF);
    const DeviceArray<float> weights(pairs, 0xFF);
    const DeviceArray<float> h(pairs * s_.ff, 0xFF);
    const DeviceArray<float> out(residual_);
    cuda::ExpertGateUpRowsArgs a;
    a.rows = static_cast<std::int32_t>(s_.rows);
    a.live = live.data();
    a.logits = logits.data();
    a.logits_stride = s_.experts;
    a.experts = static_cast<std::int32_t>(s_.experts);
    a.top_k = static_cast<std::int32_t>(s_.top_k);
    a.renormalise = s_.renormalise;
    a.scoring = Scoring(bias.data());
    a.weight_scale = 1.25F;
    a.ids = ids.data();
    a.weights = weights.data();
    a.failed_row = failed.data();
    a.quantised = View(codes.data(), s_.width, gate_.format.activation_group);
    a.x = x.data();
    a.x_stride = s_.width;
    a.gate = gate_.OnCard();
    a.up = up_.OnCard();
    a.h = h.data();
    a.h_stride = s_.ff;
    a.counts = {.experts = counts.data(),
                .distinct = s_.rows == 1 ? nullptr : counts.data() + s_.experts};
    if (s_.split || gate_.format.activation_group != up_.format.activation_group) {
      a.part = cuda::GateUpPart::kGate;
      testing::Check(cuda::ExpertGateUpRows(TestLaunch(), a));
      a.part = cuda::GateUpPart::kUp;
      a.quantised = View(up_codes.data(), s_.width, up_.format.activation_group);
      a.counts = {};
    }
    testing::Check(cuda::ExpertGateUpRows(TestLaunch(), a));
    cuda::ExpertDownRowsArgs b;
    b.rows = a.rows;
    b.live = a.live;
    b.experts = a.experts;
    b.top_k = a.top_k;
    b.ids = ids.data();
    b.weights = weights.data();
    b.h = h.data();
    b.h_stride = s_.ff;
    b.down = down_.OnCard();
    b.residual = s_.residual ? out.data() : nullptr;
    b.residual_stride = s_.width;
    b.out = out.data();
    b.out_stride = s_.width;
    b.failed_row = failed.data();
    Finish(cuda::ExpertDownRows(TestLaunch(), b));
    card_ids_ = ids.Read();
    card_counts_ = counts.Read();
    card_weights_ = weights.Read();
    card_out_ = out.Read();
    failed_row_ = failed.Read()[0];
  }

  // Rows of the pass that must agree.
  void ExpectSame(std::size_t first, std::size_t end) const {
    const auto part = [](const auto& values, std::size_t from, std::size_t to) {
      return std::vector(values.begin() + static_cast<long>(from),
                         values.begin() + static_cast<long>(to));
    };
    const std::size_t k = s_.top_k;
    EXPECT_TRUE(SameValues(part(card_ids_, first * k, end * k), part(ids_, first * k, end * k)));
    EXPECT_TRUE(
        SameBits(part(card_weights_, first * k, end * k), part(weights_, first * k, end * k)));
    EXPECT_TRUE(SameBits(part(card_out_, first * s_.width, end * s_.width),
                         part(out_, first * s_.width, end * s_.width)));
  }
  void ExpectSameCounts() const {
    std::uint32_t distinct = 0;
    for (std::size_t expert = 0; expert < s_.experts; ++expert) {
      EXPECT_EQ(card_counts_[expert] - 1000U, counts_[expert]) << expert;
      distinct += counts_[expert] != 0 ? 1 : 0;
    }
    EXPECT_EQ(card_counts_[s_.experts] - 1000U, s_.rows == 1 ? 0 : distinct);
  }
  std::int32_t failed_row() const { return failed_row_; }

 private:
  std::vector<float> ReferenceLinear(const WeightRows& weight, std::size_t row) const {
    const std::size_t group = weight.format->activation_group;
    const std::vector<float> x(x_.begin() + static_cast<long>(row * s_.width),
                               x_.begin() + static_cast<long>((row + 1) * s_.width));
    AlignedBytes codes = Quantise(x, 1, s_.width, group);
    std::vector<float> y(s_.ff);
    LinearArgs linear;
    linear.weight = weight;
    linear.x = x.data();
    linear.x_stride = s_.width;
    linear.quantised = View(codes.data(), s_.width, group);
    linear.rows = 1;
    linear.y = y.data();
    linear.y_stride = s_.ff;
    reference::Linear(linear, 0, s_.ff);
    return y;
  }
  DeviceArray<std::byte> CodesFor(const FormatTraits& format) const {
    AlignedBytes quantised = Quantise(x_, s_.rows, s_.width, format.activation_group);
    return DeviceArray<std::byte>{std::span<const std::byte>(quantised.span())};
  }

  RouterScoring Scoring(const float* bias) const {
    if (!s_.sigmoid) return {};
    return {RouterGate::kSigmoid, bias, 0x1p-14F};
  }

  RouterArgs Router() {
    RouterArgs router;
    static_cast<RouterScoring&>(router) = Scoring(bias_.data());
    router.renormalise = s_.renormalise;
    router.weight_scale = 1.25F;
    router.experts = s_.experts;
    router.top_k = s_.top_k;
    router.logits = logits_.data();
    router.logits_stride = s_.experts;
    router.ids = ids_.data();
    router.weights = weights_.data();
    return router;
  }

  Shape s_;
  Random random_;
  Bank gate_;
  Bank up_;
  Bank down_;
  std::vector<float> x_;
  std::vector<float> logits_;
  std::vector<float> residual_;
  std::vector<float> bias_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
  std::vector<float> out_;
  std::vector<std::int32_t> card_ids_;
  std::vector<std::uint32_t> counts_;
  std::vector<std::uint32_t> card_counts_;
  std::vector<float> card_weights_;
  std::vector<float> card_out_;
  std::int32_t failed_row_ = 0;
};

void ExpectReferenceBits(const Shape& shape, int gate, int up, int down) {
  SCOPED_TRACE(::testing::Message() << FindFormat(gate)->name << " " << FindFormat(up)->name << " "
                                    << FindFormat(down)->name << " rows " << shape.rows << " ff "
                                    << shape.ff << " width " << shape.width);
  Pass pass(shape, gate, up, down, shape.rows + shape.ff);
  pass.RunReference();
  pass.RunOnCard();
  pass.ExpectSame(0, shape.live);
  pass.ExpectSameCounts();
  EXPECT_EQ(pass.failed_row(), INT_MAX);
}

TEST(CardRowsExperts, EveryFormatHasTheReferencesBits) {
  for (const FormatTraits* format : CardFormats()) {
    for (const std::size_t rows : {1, 3, 8}) {
      Shape shape;
      shape.rows = shape.live = rows;
      shape.ff = 256 + (format->block_values < 256 ? 64 : 0);
      // NVFP4's random scales make weights in the hundreds.
      shape.magnitude = format->ggml_type == 40 ? 1e-5F : 2.0F;
      ExpectReferenceBits(shape, format->ggml_type, format->ggml_type, format->ggml_type);
    }
  }
}

TEST(CardRowsExperts, FormatsMayDifferAndShapesBeOdd) {
  for (const std::size_t rows : {1, 2, 7, 8}) {
    Shape shape;
    shape.rows = shape.live = rows;
    shape.experts = 24;
    shape.top_k = 8;
    shape.width = 768;
    shape.ff = 512;
    ExpectReferenceBits(shape, 12, 12, 14);
    ExpectReferenceBits(shape, 12, 14, 12);
    ExpectReferenceBits(shape, 10, 23, 8);
    ExpectReferenceBits(shape, 0, 1, 30);
    shape.width = 2304;  // nine groups: more than the warps of a block
    shape.renormalise = false;
    shape.residual = false;
    ExpectReferenceBits(shape, 12, 12, 14);
  }
}

TEST(CardRowsExperts, GateAndUpOfDifferentActivationGroupsAreTwoLaunches) {
  for (const std::size_t rows : {1, 3, 8}) {
    Shape shape;
    shape.rows = shape.live = rows;
    shape.experts = 24;
    shape.top_k = 8;
    shape.width = 768;
    ExpectReferenceBits(shape, 12, 8, 14);   // Q4_K, Q8_0
    ExpectReferenceBits(shape, 39, 13, 12);  // MXFP4, Q5_K
    ExpectReferenceBits(shape, 1, 12, 12);   // F16, Q4_K
    ExpectReferenceBits(shape, 14, 30, 12);  // Q6_K, BF16
    ExpectReferenceBits(shape, 12, 13, 12);  // Q4_K, Q5_K: one launch
  }
}

TEST(CardRowsExperts, GateAndUpByALaunchEachHaveTheBitsOfOne) {
  Shape shape;
  shape.split = true;
  shape.top_k = 8;
  shape.width = 2048;
  shape.ff = 768;
  for (const std::size_t rows : {1, 5}) {
    shape.rows = shape.live = rows;
    ExpectReferenceBits(shape, 12, 12, 14);
    ExpectReferenceBits(shape, 30, 1, 12);
  }
}

// The shapes that have kernels of their own.
TEST(CardRowsExperts, OneRowAtTheShapeWhereDecodeIsMeasured) {
  Shape shape;
  shape.top_k = 8;
  shape.width = 2048;
  shape.ff = 768;
  for (const std::size_t experts : {9, 16, 40}) {
    shape.experts = experts;
    shape.renormalise = experts != 40;
    shape.residual = experts != 9;
    ExpectReferenceBits(shape, 12, 12, 14);
    ExpectReferenceBits(shape, 12, 12, 12);
  }
  shape.ff = 512;
  for (const std::size_t experts : {12, 136}) {
    shape.experts = experts;
    ExpectReferenceBits(shape, 12, 12, 14);
    ExpectReferenceBits(shape, 12, 12, 12);
  }
  shape.ff = 768;
  shape.experts = 12;
  Pass nan(shape, 12, 12, 14, 5);
  nan.logits()[3] = std::numeric_limits<float>::quiet_NaN();
  nan.RunReference();
  nan.RunOnCard();
  EXPECT_EQ(nan.failed_row(), 0);
  Pass large(shape, 12, 12, 12, 6);
  for (float& value : large.x()) value *= 1e9F;
  large.RunReference();
  large.RunOnCard();
  EXPECT_EQ(large.failed_row(), 0);
}

// Nine experts: more rows pick one than a turn takes; 40: most are one row's. Of fewer live rows
// than the launch has, what was asked for early is thrown away.
TEST(CardRowsExperts, FewRowsAtTheShapeWhereDecodeIsMeasured) {
  Shape shape;
  shape.top_k = 8;
  shape.width = 2048;
  shape.ff = 768;
  for (const std::size_t rows : {2, 5, 8}) {
    shape.rows = rows;
    for (const std::size_t experts : {9, 40}) {
      shape.live = experts == 9 ? rows : rows - 1;
      shape.experts = experts;
      shape.residual = experts != 9;
      ExpectReferenceBits(shape, 12, 12, 14);
      ExpectReferenceBits(shape, 12, 12, 12);
    }
  }
  shape.live = shape.rows;
  Pass large(shape, 12, 12, 14, 6);
  for (std::size_t i = 0; i < shape.width; ++i) large.x()[3 * shape.width + i] *= 1e9F;
  large.RunReference();
  large.RunOnCard();
  EXPECT_EQ(large.failed_row(), 3);
}

TEST(CardRowsExperts, ACardOfLessSharedMemoryMakesTheSameBits) {
  const testing::LessSharedMemory less;
  for (const std::size_t rows : {1, 8}) {
    Shape shape;
    shape.rows = shape.live = rows;
    shape.experts = 24;
    shape.top_k = 8;
    shape.width = 2048;
    shape.ff = 768;
    ExpectReferenceBits(shape, 12, 12, 14);
    shape.width = 512;
    shape.ff = 4096;
    shape.top_k = 2;
    ExpectReferenceBits(shape, 8, 8, 8);
  }
}

TEST(CardRowsExperts, ManyGroupsOfH) {
  Shape shape;
  shape.experts = 4;
  shape.top_k = 3;
  shape.width = 256;
  shape.ff = 6400;  // 25 groups: more than the warps of a block
  ExpectReferenceBits(shape, 12, 12, 12);
  shape.rows = shape.live = 4;
  ExpectReferenceBits(shape, 14, 14, 14);
}

TEST(CardRowsExperts, ManyExpertsAndPicksAndFewerLiveRows) {
  for (const std::size_t experts : {33, 200, 300, 1024}) {
    Shape shape;
    shape.rows = 8;
    shape.live = 6;
    shape.experts = experts;
    shape.top_k = experts == 200 ? 32 : 6;
    shape.width = 256;
    shape.ff = 256;
    ExpectReferenceBits(shape, 12, 12, 14);
  }
}

// MXFP4 and Q8_0, float experts, and the shapes whose kernels route by themselves.
TEST(CardRowsExperts, SigmoidRoutersWithBiasesHaveTheReferencesBits) {
  for (const std::size_t rows : {1, 2, 5, 8}) {
    Shape shape;
    shape.sigmoid = true;
    shape.rows = rows;
    shape.live = rows == 5 ? 4 : rows;
    for (const std::size_t experts : {8, 40, 256, 300}) {
      shape.experts = experts;
      shape.top_k = 8;
      shape.width = experts > 40 ? 128 : 512;
      shape.ff = experts > 40 ? 64 : 256;
      ExpectReferenceBits(shape, 39, 39, 39);
      if (experts != 8) continue;
      ExpectReferenceBits(shape, 39, 39, 8);
      ExpectReferenceBits(shape, 30, 30, 30);
      ExpectReferenceBits(shape, 39, 13, 12);
      shape.width = 2048;
      shape.ff = 768;
      ExpectReferenceBits(shape, 12, 12, 14);
    }
    if (rows % 8 > 1) continue;
    shape.experts = 3;
    shape.top_k = 2;
    shape.width = 4096;  // as large experts are
    shape.ff = 2048;
    ExpectReferenceBits(shape, 39, 39, 39);
  }
}

// A tie between experts goes to the lower id; so do all of them when every logit is the same.
TEST(CardRowsExperts, TiesGoToTheLowerId) {
  Shape shape;
  shape.rows = shape.live = 2;
  Pass pass(shape, 12, 12, 12, 1);
  for (std::size_t i = 0; i < pass.logits().size(); ++i) {
    pass.logits()[i] = i < shape.experts ? 1.0F : static_cast<float>(i % 3);
  }
  pass.RunReference();
  pass.RunOnCard();
  pass.ExpectSame(0, 2);
}

TEST(CardRowsExperts, TheFirstRowThatFailsIsNamedAndTheOthersAreRight) {
  Shape shape;
  shape.rows = shape.live = 5;
  {
    Pass pass(shape, 12, 12, 12, 2);
    pass.logits()[2 * shape.experts + 3] = std::numeric_limits<float>::quiet_NaN();
    pass.logits()[4 * shape.experts + 1] = std::numeric_limits<float>::infinity();
    pass.RunReference();
    pass.RunOnCard();
    EXPECT_EQ(pass.failed_row(), 2);
    pass.ExpectSame(0, 2);
    pass.ExpectSame(3, 4);
  }
  Pass pass(shape, 12, 12, 12, 3);
  for (std::size_t i = 0; i < shape.width; ++i) {
    pass.x()[3 * shape.width + i] *= 1e9F;  // picks far beyond 2^26
  }
  pass.RunReference();
  pass.RunOnCard();
  EXPECT_EQ(pass.failed_row(), 3);
  pass.ExpectSame(0, 3);
  pass.ExpectSame(4, 5);
}

TEST(CardRowsExperts, WhatTheyCannotDoIsRefused) {
  cuda::ExpertGateUpRowsArgs a;
  a.rows = 1;
  a.experts = 8;
  a.top_k = 9;
  EXPECT_EQ(cuda::ExpertGateUpRows(TestLaunch(), a), cudaErrorInvalidValue);
  cuda::ExpertDownRowsArgs b;
  b.rows = 9;
  b.experts = 8;
  b.top_k = 2;
  EXPECT_EQ(cuda::ExpertDownRows(TestLaunch(), b), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace bloomery::kernels
