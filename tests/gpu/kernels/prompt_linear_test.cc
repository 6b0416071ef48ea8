// Prompt linears on the card against the CPU's kernels, whose bits are the reference's (their own
// tests say so): every format, odd shapes, groups of any size.
#include "kernels-common/linear/cuda/prompt_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels-common/cpu/isa.h"
#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/linear/cpu/linear.h"
#include "kernels-common/linear/reference.h"
#include "kernels-common/moe/cpu/moe.h"
#include "kernels-common/moe/reference.h"
#include "kernels-common/quant/reference.h"
#include "tests/gpu/kernels/card_bank.h"
#include "tests/gpu/kernels/device.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::CardBank;
using testing::CardFormats;
using testing::Check;
using testing::DeviceArray;
using testing::Finish;
using testing::LinearCase;
using testing::Random;
using testing::SameBits;
using testing::TestLaunch;

// Fast enough for the shapes here, and without a state to ask for.
constexpr Isa kIsa = Isa::kAvx2;

DeviceArray<std::byte> OnCard(testing::AlignedBytes& bytes) {
  return DeviceArray<std::byte>(std::span<const std::byte>(bytes.span()));
}

void ExpectEveryFormatsBits() {
  const std::size_t shapes[][3] = {// rows, n, k in units of 256 values
                                   {9, 133, 3},
                                   {16, 40, 9},
                                   {33, 16, 1},
                                   {100, 256, 8},
                                   {512, 130, 2}};
  EXPECT_EQ(CardFormats().size(), 15U);
  for (const FormatTraits* format : CardFormats()) {
    for (const auto& [rows, n, units] : shapes) {
      const std::size_t ragged = format->block_values < 256 && rows % 2 == 1 ? 64 : 0;
      LinearCase c(*format, units * 256 + ragged, n, rows, rows + n);
      std::vector<float> expected;
      const LinearArgs linear = c.Args(expected);
      cpu::Linear(kIsa, linear, 0, n, c.scratch.span());
      const CardBank bank(*format, c.weights, n, c.k, 1);
      const DeviceArray<std::byte> x = OnCard(c.quantised_bytes);
      const DeviceArray<float> y(rows * n, 0xFF);
      cuda::PromptLinearArgs args;
      args.input.quantised = MakeQuantisedRows(x.data(), c.k, format->activation_group);
      args.count = 1;
      args.matrices[0].weight = bank.weight();
      args.matrices[0].y = y.data();
      args.matrices[0].y_stride = n;
      args.rows.max = static_cast<std::int32_t>(rows);
      Check(cuda::PreparePromptLinear());
      Finish(cuda::PromptLinear(TestLaunch(), args));
      EXPECT_TRUE(SameBits(y.Read(), expected))
          << format->name << " rows " << rows << " n " << n << " k " << c.k;
    }
  }
}

TEST(CardPromptLinear, EveryFormatHasTheReferencesBitsAtAnyShape) { ExpectEveryFormatsBits(); }

TEST(CardPromptLinear, ACardOfLessSharedMemoryMakesTheSameBits) {
  const testing::LessSharedMemory less;
  ExpectEveryFormatsBits();
}

// Passes from this many rows on have kernels of their own for some formats (prompt_linear.cu); a
// test makes room for them and has fewer.
constexpr std::size_t kManyRows = 1024;

TEST(CardPromptLinear, PassesOfManyRowsHaveTheReferencesBits) {
  const std::size_t shapes[][3] = {
      // rows, n, k in units of 256 values
      {1, 16, 1}, {31, 48, 2}, {65, 130, 8}, {96, 40, 3}, {200, 133, 5}, {129, 64, 16}};
  for (const int type : {12, 14, 8}) {  // Q4_K has one, Q6_K and Q8_0 have not
    const FormatTraits& format = *FindFormat(type);
    for (const auto& [rows, n, units] : shapes) {
      LinearCase c(format, units * 256, n, rows, rows + n);
      std::vector<float> expected;
      const LinearArgs linear = c.Args(expected);
      cpu::Linear(kIsa, linear, 0, n, c.scratch.span());
      const CardBank bank(format, c.weights, n, c.k, 1);
      const DeviceArray<std::byte> x = OnCard(c.quantised_bytes);
      const DeviceArray<float> y(kManyRows * n, 0xFF);
      const DeviceArray<std::int32_t> live(
          std::vector<std::int32_t>{static_cast<std::int32_t>(rows)});
      cuda::PromptLinearArgs args;
      args.input.quantised = MakeQuantisedRows(x.data(), c.k, format.activation_group);
      args.count = 1;
      args.matrices[0].weight = bank.weight();
      args.matrices[0].y = y.data();
      args.matrices[0].y_stride = n;
      args.rows = {static_cast<std::int32_t>(kManyRows), live.data(), 1};
      Check(cuda::PreparePromptLinear());
      Finish(cuda::PromptLinear(TestLaunch(), args));
      std::vector<float> got = y.Read();
      for (std::size_t i = rows * n; i < got.size(); ++i) ASSERT_TRUE(std::isnan(got[i])) << i;
      got.resize(rows * n);
      EXPECT_TRUE(SameBits(got, expected))
          << format.name << " rows " << rows << " n " << n << " k " << c.k;
    }
  }
}

TEST(CardPromptLinear, LargestCodesAndScalesStayExact) {
  for (const std::int32_t rows_max : {17, static_cast<int>(kManyRows)}) {
    for (const FormatTraits* format : CardFormats()) {
      const std::size_t rows = 17;
      LinearCase c(*format, 512, 32, rows, 3);
      // Every code, scale and min at its largest or lowest, activations too.
      for (std::size_t at = 0; at < c.weights.size(); ++at) {
        c.weights[at] = at / format->block_bytes % 2 == 0 ? std::byte{0xFF} : std::byte{0x00};
      }
      Random random(9);
      for (std::size_t at = 0; at < c.weights.size(); at += format->block_bytes) {
        testing::SetBlockScale(*format, c.weights.data() + at, random);
      }
      for (std::size_t i = 0; i < c.x.size(); ++i) {
        c.x[i] = i / 512 % 3 == 0 ? 1.0F : i / 512 % 3 == 1 ? -1.0F : (i % 2 == 0 ? 1.0F : -1.0F);
      }
      cpu::QuantiseRows(Isa::kScalar, c.x.data(), c.k, c.Quantised(), 0, rows);
      std::vector<float> expected;
      const LinearArgs linear = c.Args(expected);
      cpu::Linear(kIsa, linear, 0, c.n, c.scratch.span());
      const CardBank bank(*format, c.weights, c.n, c.k, 1);
      const DeviceArray<std::byte> x = OnCard(c.quantised_bytes);
      const DeviceArray<float> y(static_cast<std::size_t>(rows_max) * c.n, 0xFF);
      const DeviceArray<std::int32_t> live(std::vector<std::int32_t>{17});
      cuda::PromptLinearArgs args;
      args.input.quantised = MakeQuantisedRows(x.data(), c.k, format->activation_group);
      args.count = 1;
      args.matrices[0].weight = bank.weight();
      args.matrices[0].y = y.data();
      args.matrices[0].y_stride = c.n;
      args.rows = {rows_max, live.data(), 1};
      Check(cuda::PreparePromptLinear());
      Finish(cuda::PromptLinear(TestLaunch(), args));
      std::vector<float> got = y.Read();
      got.resize(rows * c.n);
      EXPECT_TRUE(SameBits(got, expected)) << format->name << " of at most " << rows_max;
    }
  }
}

TEST(CardPromptLinear, MatricesOfOneInputMayDifferInFormatScaleBiasAndResidual) {
  const std::size_t rows = 64;
  const std::size_t live = 50;
  const std::size_t k = 1024;
  const std::size_t n[3] = {300, 128, 64};
  const int types[3] = {12, 14, 12};
  Random random(77);
  const std::vector<float> x = random.Values(rows * k, 2.0F);
  testing::AlignedBytes quantised(QuantisedRowBytes(k, 256) * rows);
  cpu::QuantiseRows(Isa::kScalar, x.data(), k, MakeQuantisedRows(quantised.data(), k, 256), 0,
                    rows);
  const DeviceArray<std::byte> device_x = OnCard(quantised);
  const std::vector<float> bias = random.Values(300);
  const DeviceArray<float> device_bias(bias);
  const DeviceArray<float> scale(std::vector<float>{0.37F});
  const float host_scale = 0.37F;
  const DeviceArray<std::int32_t> live_rows(
      std::vector<std::int32_t>{static_cast<std::int32_t>(live)});
  cuda::PromptLinearArgs args;
  args.input.quantised = MakeQuantisedRows(device_x.data(), k, 256);
  args.count = 3;
  args.rows = {static_cast<std::int32_t>(rows), live_rows.data(), 1};
  std::vector<CardBank> banks;
  banks.reserve(3);
  std::vector<DeviceArray<float>> outputs;
  outputs.reserve(3);
  std::vector<std::vector<float>> expected(3);
  testing::AlignedBytes scratch(cpu::LinearScratchBytes(k));
  for (std::size_t i = 0; i < 3; ++i) {
    const FormatTraits& format = *FindFormat(types[i]);
    const std::vector<std::byte> weights = testing::RandomWeights(format, k, n[i], random);
    banks.emplace_back(format, weights, n[i], k, 1);
    const std::vector<float> residual = random.Values(rows * n[i]);
    expected[i] = residual;
    outputs.emplace_back(residual);
    LinearArgs linear;
    linear.weight = {&format, weights.data(), RowBytes(format, k), k};
    linear.quantised = MakeQuantisedRows(quantised.data(), k, 256);
    linear.rows = live;
    linear.scale = i == 0 ? &host_scale : nullptr;
    linear.bias = i == 0 ? bias.data() : nullptr;
    std::vector<float> y(rows * n[i]);
    linear.y = y.data();
    linear.y_stride = n[i];
    cpu::Linear(kIsa, linear, 0, n[i], scratch.span());
    for (std::size_t at = 0; at < live * n[i]; ++at) {
      expected[i][at] = i == 1 ? residual[at] + y[at] : y[at];
    }
    cuda::CardMatrix& m = args.matrices[i];
    m.weight = banks[i].weight();
    m.scale = i == 0 ? scale.data() : nullptr;
    m.bias = i == 0 ? device_bias.data() : nullptr;
    m.residual = i == 1 ? outputs[i].data() : nullptr;
    m.residual_stride = n[i];
    m.y = outputs[i].data();
    m.y_stride = n[i];
  }
  Check(cuda::PreparePromptLinear());
  Finish(cuda::PromptLinear(TestLaunch(), args));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(SameBits(outputs[i].Read(), expected[i])) << i;
  }
}

// A bank's prompt: ids as given, gate/up then down on the card against the CPU, place by place.
void ExpectExperts(const FormatTraits& gate_format, const FormatTraits& down_format,
                   std::size_t width, std::size_t ff, std::size_t experts, std::size_t top_k,
                   std::size_t rows_max, std::size_t rows, const std::vector<std::int32_t>& ids) {
  Random random(width + rows);
  const std::vector<std::byte> gate =
      testing::RandomWeights(gate_format, width, ff * experts, random);
  const std::vector<std::byte> up =
      testing::RandomWeights(gate_format, width, ff * experts, random);
  const std::vector<std::byte> down =
      testing::RandomWeights(down_format, ff, width * experts, random);
  const std::size_t group = gate_format.activation_group;
  const std::size_t down_group = down_format.activation_group;
  const std::vector<float> x = random.Values(rows_max * width, 2.0F);
  testing::AlignedBytes quantised(QuantisedRowBytes(width, group) * rows_max);
  const QuantisedRows qx = MakeQuantisedRows(quantised.data(), width, group);
  cpu::QuantiseRows(Isa::kScalar, x.data(), width, qx, 0, rows_max);

  const std::size_t pairs = rows * top_k;
  std::vector<std::int32_t> offsets(experts + 1);
  std::vector<std::int32_t> place_rows(pairs);
  std::vector<std::int32_t> pair_places(pairs);
  std::vector<std::int32_t> active(experts);
  ExpertGroups host;
  host.offsets = offsets.data();
  host.place_rows = place_rows.data();
  host.pair_places = pair_places.data();
  host.active = active.data();
  cpu::GroupPicks(ids.data(), rows, top_k, experts, &host);

  // The CPU's h, its quantised rows and y.
  std::vector<float> h(pairs * ff);
  std::vector<float> y(pairs * width);
  testing::AlignedBytes quantised_h(QuantisedRowBytes(ff, down_group) * pairs);
  const QuantisedRows qh = MakeQuantisedRows(quantised_h.data(), ff, down_group);
  testing::AlignedBytes scratch(
      std::max(cpu::ExpertGateUpScratchBytes(kIsa, width, pairs), cpu::LinearScratchBytes(ff)));
  const auto each_expert = [&](const auto& step) {
    for (std::size_t e = 0; e < experts; ++e) {
      if (offsets[e + 1] > offsets[e]) {
        step(e, static_cast<std::size_t>(offsets[e]),
             static_cast<std::size_t>(offsets[e + 1] - offsets[e]));
      }
    }
  };
  each_expert([&](std::size_t e, std::size_t first, std::size_t places) {
    ExpertGateUpArgs args;
    const std::size_t row_bytes = RowBytes(gate_format, width);
    args.gate = {&gate_format, gate.data() + e * ff * row_bytes, row_bytes, width};
    args.up = {&gate_format, up.data() + e * ff * row_bytes, row_bytes, width};
    args.quantised = qx;
    args.place_rows = place_rows.data() + first;
    args.places = places;
    args.h = h.data() + first * ff;
    args.h_stride = ff;
    cpu::ExpertGateUp(kIsa, args, 0, ff, scratch.span());
  });
  cpu::QuantiseRows(Isa::kScalar, h.data(), ff, qh, 0, pairs);
  each_expert([&](std::size_t e, std::size_t first, std::size_t places) {
    LinearArgs args;
    const std::size_t row_bytes = RowBytes(down_format, ff);
    args.weight = {&down_format, down.data() + e * width * row_bytes, row_bytes, ff};
    args.quantised = qh;
    args.quantised.data += first * qh.row_bytes;
    args.rows = places;
    args.y = y.data() + first * width;
    args.y_stride = width;
    cpu::Linear(kIsa, args, 0, width, scratch.span());
  });

  const CardBank gates(gate_format, gate, ff, width, experts);
  const CardBank ups(gate_format, up, ff, width, experts);
  const CardBank downs(down_format, down, width, ff, experts);
  const auto count = [](std::size_t value) { return static_cast<std::int32_t>(value); };
  const std::int32_t tiles_max = cuda::PickTilesMax(count(rows_max), count(top_k), count(experts));
  const DeviceArray<std::int32_t> device_ids(ids);
  const DeviceArray<std::int32_t> live(std::vector<std::int32_t>{count(rows)});
  const DeviceArray<std::int32_t> device_offsets(experts + 1);
  const DeviceArray<std::int32_t> device_rows(rows_max * top_k);
  const DeviceArray<std::int32_t> device_places(rows_max * top_k);
  const DeviceArray<cuda::ExpertTile> tiles(static_cast<std::size_t>(tiles_max));
  const DeviceArray<std::int32_t> tile_count(1);
  cuda::GroupPicksArgs group_args;
  group_args.ids = device_ids.data();
  group_args.top_k = count(top_k);
  group_args.experts = count(experts);
  group_args.rows = {count(rows_max), live.data(), 1};
  group_args.groups = {device_offsets.data(), device_rows.data(), device_places.data(),
                       tiles.data(), tile_count.data()};
  const DeviceArray<std::byte> device_x = OnCard(quantised);
  const DeviceArray<float> device_h(rows_max * top_k * ff, 0xFF);
  const DeviceArray<float> device_y(rows_max * top_k * width, 0xFF);
  const DeviceArray<std::byte> device_qh = OnCard(quantised_h);
  cuda::PromptGateUpArgs gate_up;
  gate_up.gate = gates.weight();
  gate_up.up = ups.weight();
  gate_up.input.quantised = MakeQuantisedRows(device_x.data(), width, group);
  gate_up.groups = group_args.groups;
  gate_up.tiles_max = tiles_max;
  gate_up.rows = count(rows_max);
  gate_up.h = device_h.data();
  gate_up.h_stride = ff;
  cuda::PromptDownArgs down_args;
  down_args.down = downs.weight();
  down_args.input.quantised = MakeQuantisedRows(device_qh.data(), ff, down_group);
  down_args.groups = group_args.groups;
  down_args.tiles_max = tiles_max;
  down_args.rows = count(rows_max);
  down_args.y = device_y.data();
  down_args.y_stride = width;
  Check(cuda::PreparePromptExperts());
  Check(cuda::PreparePromptLinear());
  const cuda::Launch launch = TestLaunch();
  Check(cuda::GroupPicks(launch, group_args));
  Check(cuda::PromptGateUp(launch, gate_up));
  Finish(cuda::PromptDown(launch, down_args));
  std::vector<float> got_h = device_h.Read();
  std::vector<float> got_y = device_y.Read();
  // Places that no row has are left alone.
  for (std::size_t i = pairs * ff; i < got_h.size(); ++i) {
    ASSERT_TRUE(std::isnan(got_h[i])) << i;
  }
  for (std::size_t i = pairs * width; i < got_y.size(); ++i) {
    ASSERT_TRUE(std::isnan(got_y[i])) << i;
  }
  got_h.resize(h.size());
  got_y.resize(y.size());
  EXPECT_TRUE(SameBits(got_h, h)) << gate_format.name << " gate/up, width " << width;
  EXPECT_TRUE(SameBits(got_y, y)) << down_format.name << " down, ff " << ff;
}

// Picks of which expert 0 has about half.
std::vector<std::int32_t> SkewedIds(std::size_t rows, std::size_t top_k, std::size_t experts) {
  Random random(rows);
  std::vector<std::int32_t> ids(rows * top_k);
  std::vector<std::int32_t> order(experts);
  for (std::size_t row = 0; row < rows; ++row) {
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = 0; i < top_k; ++i) {
      const bool stay = i == 0 && row % 2 == 0;
      std::swap(order[i], order[stay ? 0 : i + random.Below(experts - i)]);
      ids[row * top_k + i] = order[i];
    }
  }
  return ids;
}

TEST(CardPromptExperts, EveryFormatHasTheReferencesBits) {
  for (const FormatTraits* format : CardFormats()) {
    ExpectExperts(*format, *format, 512, 256, 12, 3, 64, 61, SkewedIds(64, 3, 12));
  }
}

TEST(CardPromptExperts, PassesOfManyRowsHaveTheReferencesBits) {
  const FormatTraits& q4 = *FindFormat(12);
  ExpectExperts(q4, *FindFormat(14), 512, 256, 12, 3, kManyRows, 70, SkewedIds(kManyRows, 3, 12));
  ExpectExperts(q4, q4, 256, 768, 5, 2, kManyRows, 300, SkewedIds(kManyRows, 2, 5));
  ExpectExperts(*FindFormat(8), q4, 256, 256, 40, 4, kManyRows, 33, SkewedIds(kManyRows, 4, 40));
}

TEST(CardPromptExperts, ACardOfLessSharedMemoryMakesTheSameBits) {
  const testing::LessSharedMemory less;
  ExpectExperts(*FindFormat(12), *FindFormat(14), 2048, 256, 10, 4, 128, 128,
                SkewedIds(128, 4, 10));
  ExpectExperts(*FindFormat(8), *FindFormat(8), 256, 4096, 4, 2, 128, 120, SkewedIds(128, 2, 4));
}

TEST(CardPromptExperts, SkewedLoadsAndExpertsWithoutRows) {
  const FormatTraits& q4 = *FindFormat(12);
  const FormatTraits& q6 = *FindFormat(14);
  ExpectExperts(q4, q6, 768, 256, 40, 4, 512, 512, SkewedIds(512, 4, 40));
  ExpectExperts(q4, q4, 256, 512, 64, 2, 16, 9, SkewedIds(16, 2, 64));
  // All rows on the same two experts.
  std::vector<std::int32_t> same(2 * 300);
  for (std::size_t i = 0; i < same.size(); ++i) {
    same[i] = i % 2 == 0 ? 7 : 2;
  }
  ExpectExperts(q4, q6, 256, 256, 8, 2, 300, 300, same);
}

// y = W x of one quantised row.
std::vector<float> ReferenceRow(const FormatTraits& format, const std::byte* rows, std::size_t n,
                                std::size_t k, const float* x) {
  const std::size_t group = format.activation_group;
  testing::AlignedBytes codes(QuantisedRowBytes(k, group));
  std::vector<float> y(n);
  LinearArgs args;
  args.weight = {&format, rows, RowBytes(format, k), k};
  args.quantised = MakeQuantisedRows(codes.data(), k, group);
  reference::QuantiseRow(x, args.quantised, 0);
  args.rows = 1;
  args.y = y.data();
  args.y_stride = n;
  reference::Linear(args, 0, n);
  return y;
}

TEST(CardPromptExperts, GateAndUpOfDifferentFormatsAreTwoLaunchesAndPicksAreCounted) {
  constexpr std::size_t kExperts = 6;
  constexpr std::size_t kTopK = 2;
  constexpr std::size_t kRows = 75;
  constexpr std::size_t kLive = 70;
  constexpr std::size_t kWidth = 512;
  constexpr std::size_t kFf = 112;
  const auto count = [](std::size_t value) { return static_cast<std::int32_t>(value); };
  const int pairs[][2] = {{12, 13}, {14, 12}, {12, 8}, {39, 14}};
  for (const auto& [gate_type, up_type] : pairs) {
    const FormatTraits& gate_format = *FindFormat(gate_type);
    const FormatTraits& up_format = *FindFormat(up_type);
    SCOPED_TRACE(std::string(gate_format.name) + " and " + up_format.name);
    Random random(gate_type + up_type);
    const auto gate = testing::RandomWeights(gate_format, kWidth, kFf * kExperts, random);
    const auto up = testing::RandomWeights(up_format, kWidth, kFf * kExperts, random);
    const std::vector<float> x = random.Values(kRows * kWidth, 2.0F);
    const std::vector<std::int32_t> ids = SkewedIds(kRows, kTopK, kExperts);
    const CardBank gates(gate_format, gate, kFf, kWidth, kExperts);
    const CardBank ups(up_format, up, kFf, kWidth, kExperts);
    const auto quantised = [&](const FormatTraits& format) {
      testing::AlignedBytes bytes(QuantisedRowBytes(kWidth, format.activation_group) * kRows);
      cpu::QuantiseRows(Isa::kScalar, x.data(), kWidth,
                        MakeQuantisedRows(bytes.data(), kWidth, format.activation_group), 0, kRows);
      return OnCard(bytes);
    };
    const DeviceArray<std::byte> gate_x = quantised(gate_format);
    const DeviceArray<std::byte> up_x = quantised(up_format);
    const DeviceArray<std::int32_t> device_ids(ids);
    const DeviceArray<std::int32_t> live(std::vector<std::int32_t>{count(kLive)});
    const DeviceArray<std::int32_t> words(kExperts + 2 + 2 * kRows * kTopK);
    const std::int32_t tiles_max = cuda::PickTilesMax(count(kRows), count(kTopK), count(kExperts));
    const DeviceArray<cuda::ExpertTile> tiles(static_cast<std::size_t>(tiles_max));
    const DeviceArray<std::uint32_t> counts(std::vector<std::uint32_t>(kExperts + 1, 7U));
    const DeviceArray<float> h(kRows * kTopK * kFf, 0xFF);
    cuda::GroupPicksArgs group;
    group.ids = device_ids.data();
    group.top_k = count(kTopK);
    group.experts = count(kExperts);
    group.rows = {count(kRows), live.data(), 1};
    group.groups.offsets = words.data();
    group.groups.tile_count = words.data() + kExperts + 1;
    group.groups.place_rows = words.data() + kExperts + 2;
    group.groups.pair_places = group.groups.place_rows + kRows * kTopK;
    group.groups.tiles = tiles.data();
    group.counts = {.experts = counts.data(), .distinct = counts.data() + kExperts};
    cuda::PromptGateUpArgs args;
    args.part = cuda::GateUpPart::kGate;
    args.gate = gates.weight();
    args.up = ups.weight();
    args.input.quantised = MakeQuantisedRows(gate_x.data(), kWidth, gate_format.activation_group);
    args.groups = group.groups;
    args.tiles_max = tiles_max;
    args.h = h.data();
    args.h_stride = kFf;
    Check(cuda::PreparePromptExperts());
    Check(cuda::PreparePromptLinear());
    const cuda::Launch launch = TestLaunch();
    Check(cuda::GroupPicks(launch, group));
    Check(cuda::PromptGateUp(launch, args));
    args.part = cuda::GateUpPart::kUp;
    args.input.quantised = MakeQuantisedRows(up_x.data(), kWidth, up_format.activation_group);
    Finish(cuda::PromptGateUp(launch, args));
    const std::vector<float> got = h.Read();
    const std::vector<std::int32_t> all = words.Read();
    std::vector<std::uint32_t> picked(kExperts, 7U);
    for (std::size_t pair = 0; pair < kLive * kTopK; ++pair) {
      const auto expert = static_cast<std::size_t>(ids[pair]);
      const float* row = x.data() + pair / kTopK * kWidth;
      ++picked[expert];
      const std::vector<float> g =
          ReferenceRow(gate_format, gate.data() + expert * kFf * RowBytes(gate_format, kWidth), kFf,
                       kWidth, row);
      std::vector<float> u = ReferenceRow(
          up_format, up.data() + expert * kFf * RowBytes(up_format, kWidth), kFf, kWidth, row);
      for (std::size_t i = 0; i < kFf; ++i) u[i] *= ExactSilu(g[i]);
      const auto place = static_cast<std::size_t>(all[kExperts + 2 + kRows * kTopK + pair]);
      const std::vector<float> of_place(got.begin() + static_cast<long>(place * kFf),
                                        got.begin() + static_cast<long>((place + 1) * kFf));
      ASSERT_TRUE(SameBits(of_place, u)) << "pair " << pair;
    }
    picked.push_back(7 + kExperts);
    EXPECT_EQ(counts.Read(), picked);
  }
}

TEST(CardPromptExperts, WidthsThatDoNotDivideByATile) {
  const FormatTraits& q8 = *FindFormat(8);
  ExpectExperts(q8, q8, 96, 224, 5, 2, 32, 27, SkewedIds(32, 2, 5));
  ExpectExperts(q8, q8, 224, 32, 5, 2, 32, 27, SkewedIds(32, 2, 5));
}

// Largest |got - exact| as a share of the sum of |w * x|.
double WorstError(const LinearCase& c, const std::vector<float>& got) {
  std::vector<float> weight(c.k);
  double worst = 0.0;
  for (std::size_t n = 0; n < c.n; ++n) {
    c.format.decode_row(c.weights.data() + n * RowBytes(c.format, c.k), weight.data(), c.k);
    for (std::size_t row = 0; row < c.rows; ++row) {
      double sum = 0.0;
      double size = 0.0;
      for (std::size_t i = 0; i < c.k; ++i) {
        const double product = static_cast<double>(weight[i]) * c.x[row * c.k + i];
        sum += product;
        size += std::fabs(product);
      }
      const double error = std::fabs(got[row * c.n + n] - sum) / size;
      worst = std::isfinite(error) ? std::max(worst, error) : 1.0;
    }
  }
  return worst;
}

TEST(CardPromptLinear, FloatWeightsCountSixteenBitsOfTheActivations) {
  for (const int type : {1, 30}) {
    const std::size_t shapes[][3] = {{9, 133, 256}, {100, 64, 1000}, {512, 40, 72}, {33, 256, 32}};
    for (const auto& [rows, n, k] : shapes) {
      const FormatTraits& format = *FindFormat(type);
      LinearCase c(format, k, n, rows, rows + n);
      for (std::size_t i = 0; i < c.x.size(); i += 7) {
        c.x[i] *= 1e5F;  // more than f16 holds
      }
      const DeviceArray<std::byte> weights(c.weights);
      const DeviceArray<float> x(c.x);
      const DeviceArray<float> y(rows * n, 0xFF);
      cuda::PromptLinearArgs args;
      args.input.x = x.data();
      args.input.x_stride = k;
      args.count = 1;
      args.matrices[0].weight = {&format, weights.data(), n, k, RowBytes(format, k), 0};
      args.matrices[0].y = y.data();
      args.matrices[0].y_stride = n;
      args.rows.max = static_cast<std::int32_t>(rows);
      Check(cuda::PreparePromptLinear());
      Finish(cuda::PromptLinear(TestLaunch(), args));
      EXPECT_LT(WorstError(c, y.Read()), 0x1p-16)
          << format.name << " rows " << rows << " n " << n << " k " << k;
    }
  }
}

// One expert a row, in turn; gate and up alike, so that h = silu(v) * v of v = gate . x.
TEST(CardPromptExperts, FloatExpertsAreTheirRowsExperts) {
  for (const int type : {1, 30}) {
    const FormatTraits& format = *FindFormat(type);
    const std::size_t experts = 3;
    const std::size_t rows = 50;
    const std::size_t n = 72;
    const std::size_t k = 96;
    LinearCase c(format, k, n * experts, rows, 5);
    std::vector<float> all;
    const LinearArgs linear = c.Args(all);
    cpu::Linear(kIsa, linear, 0, n * experts, c.scratch.span());
    std::vector<std::int32_t> ids(rows);
    for (std::size_t i = 0; i < rows; ++i) {
      ids[i] = static_cast<std::int32_t>(i % experts);
    }
    const DeviceArray<std::byte> weights(c.weights);
    const DeviceArray<float> x(c.x);
    const DeviceArray<std::int32_t> device_ids(ids);
    const DeviceArray<std::int32_t> offsets(experts + 1);
    const DeviceArray<std::int32_t> place_rows(rows);
    const DeviceArray<std::int32_t> pair_places(rows);
    const std::int32_t tiles_max = cuda::PickTilesMax(50, 1, 3);
    const DeviceArray<cuda::ExpertTile> tiles(static_cast<std::size_t>(tiles_max));
    const DeviceArray<std::int32_t> tile_count(1);
    const DeviceArray<float> h(rows * n);
    cuda::GroupPicksArgs group;
    group.ids = device_ids.data();
    group.top_k = 1;
    group.experts = 3;
    group.rows.max = 50;
    group.groups = {offsets.data(), place_rows.data(), pair_places.data(), tiles.data(),
                    tile_count.data()};
    cuda::PromptGateUpArgs args;
    args.gate = {&format, weights.data(), n, k, RowBytes(format, k), RowBytes(format, k) * n};
    args.up = args.gate;
    args.input.x = x.data();
    args.input.x_stride = k;
    args.groups = group.groups;
    args.tiles_max = tiles_max;
    args.h = h.data();
    args.h_stride = n;
    Check(cuda::PreparePromptExperts());
    Check(cuda::GroupPicks(TestLaunch(), group));
    Finish(cuda::PromptGateUp(TestLaunch(), args));
    const std::vector<float> got = h.Read();
    const std::vector<std::int32_t> places = pair_places.Read();
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t i = 0; i < n; ++i) {
        const float v = all[row * n * experts + (row % experts) * n + i];
        const float expected = ExactSilu(v) * v;
        ASSERT_NEAR(got[static_cast<std::size_t>(places[row]) * n + i], expected,
                    1e-3 + 1e-4 * std::fabs(expected))
            << format.name << " row " << row << " n " << i;
      }
    }
  }
}

}  // namespace
}  // namespace bloomery::kernels
