// The steps of a prompt around its linears, against the references: bits at every row count.
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels-common/elementwise/cuda/elementwise.h"
#include "kernels-common/elementwise/reference.h"
#include "kernels-common/linear/cuda/router.h"
#include "kernels-common/linear/reference.h"
#include "kernels-common/moe/cpu/moe.h"
#include "kernels-common/moe/cuda/prompt_experts.h"
#include "kernels-common/moe/reference.h"
#include "kernels-common/norm/cuda/norm.h"
#include "kernels-common/norm/reference.h"
#include "kernels-common/quant/cuda/quantise.h"
#include "kernels-common/quant/reference.h"
#include "tests/gpu/kernels/device.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::DeviceArray;
using testing::Finish;
using testing::Random;
using testing::SameBits;
using testing::SameValues;
using testing::TestLaunch;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A device int that holds `value`.
DeviceArray<std::int32_t> DeviceInt(std::int32_t value) {
  return DeviceArray<std::int32_t>(std::vector<std::int32_t>{value});
}

// Quantised rows as bytes of codes, scales and sums (no padding), to compare.
std::vector<std::int32_t> Parts(std::byte* memory, std::size_t rows, std::size_t k,
                                std::size_t group) {
  const QuantisedRows q = MakeQuantisedRows(memory, k, group);
  std::vector<std::int32_t> parts;
  for (std::size_t row = 0; row < rows; ++row) {
    parts.insert(parts.end(), q.codes(row), q.codes(row) + k);
    parts.insert(parts.end(), q.sums(row), q.sums(row) + k / kSumValues);
    for (std::size_t g = 0; g < (k + group - 1) / group; ++g) {
      const float scale = q.scales(row)[g];
      parts.push_back(scale != scale ? -1 : std::bit_cast<std::int32_t>(scale));
    }
  }
  return parts;
}

std::vector<std::int32_t> ReferenceParts(const std::vector<float>& x, std::size_t rows,
                                         std::size_t k, std::size_t group) {
  testing::AlignedBytes bytes(QuantisedRowBytes(k, group) * rows);
  const QuantisedRows q = MakeQuantisedRows(bytes.data(), k, group);
  for (std::size_t row = 0; row < rows; ++row) {
    reference::QuantiseRow(x.data() + row * k, q, row);
  }
  return Parts(bytes.data(), rows, k, group);
}

std::vector<std::int32_t> DeviceParts(const DeviceArray<std::byte>& memory, std::size_t rows,
                                      std::size_t k, std::size_t group) {
  std::vector<std::byte> bytes = memory.Read();
  return Parts(bytes.data(), rows, k, group);
}

TEST(CardQuantise, RowsHaveTheReferencesBitsWithOddValuesAmongThem) {
  for (const std::size_t group : {std::size_t{32}, std::size_t{256}}) {
    for (const std::size_t k : {std::size_t{32}, std::size_t{96}, std::size_t{768},
                                std::size_t{2048}, std::size_t{2336}}) {
      const std::size_t rows = 33;
      Random random(k + group);
      std::vector<float> x = random.Values(rows * k, 4.0F);
      x[3] = kInfinity;
      x[2 * k + 5] = std::nanf("");
      x[3 * k + 1] = -kInfinity;
      for (std::size_t i = 0; i < k; ++i) {
        x[4 * k + i] = -0.0F;
        x[5 * k + i] *= 0x1p-101F;                              // no group reaches 2^-100 by much
        x[6 * k + i] = std::rint(x[6 * k + i] * 20.0F) * 0.5F;  // ties
        x[7 * k + i] *= 0x1p120F;
        x[8 * k + i] *= 0x1p-140F;
      }
      const DeviceArray<float> device_x(x);
      const DeviceArray<std::byte> out(QuantisedRowBytes(k, group) * rows);
      cuda::QuantiseRowsArgs args;
      args.x = device_x.data();
      args.x_stride = k;
      args.out = MakeQuantisedRows(out.data(), k, group);
      args.rows.max = static_cast<std::int32_t>(rows);
      Finish(cuda::QuantiseRows(TestLaunch(), args));
      EXPECT_TRUE(SameValues(DeviceParts(out, rows, k, group), ReferenceParts(x, rows, k, group)))
          << "k " << k << " group " << group;
    }
  }
}

TEST(CardQuantise, RowsBeyondTheLiveCountAreLeftAlone) {
  const std::size_t k = 256;
  const std::size_t rows = 16;
  const DeviceArray<float> x(Random(1).Values(rows * k));
  const DeviceArray<std::byte> out(QuantisedRowBytes(k, 256) * rows, 0x5A);
  const DeviceArray<std::int32_t> live = DeviceInt(3);
  cuda::QuantiseRowsArgs args;
  args.x = x.data();
  args.x_stride = k;
  args.out = MakeQuantisedRows(out.data(), k, 256);
  args.rows = {static_cast<std::int32_t>(rows), live.data(), 2};
  Finish(cuda::QuantiseRows(TestLaunch(), args));
  const std::vector<std::byte> bytes = out.Read();
  EXPECT_NE(bytes[5 * QuantisedRowBytes(k, 256)], std::byte{0x5A});
  for (std::size_t i = 6 * QuantisedRowBytes(k, 256); i < bytes.size(); ++i) {
    ASSERT_EQ(bytes[i], std::byte{0x5A}) << i;
  }
}

TEST(CardNorm, RowsHaveTheReferencesBitsAndAreQuantisedOnTheWay) {
  for (const std::size_t dim :
       {std::size_t{32}, std::size_t{96}, std::size_t{640}, std::size_t{2048}, std::size_t{2304}}) {
    for (const std::size_t rows : {std::size_t{1}, std::size_t{9}, std::size_t{33}}) {
      Random random(dim + rows);
      const std::vector<float> x = random.Values(rows * dim, 3.0F);
      const std::vector<float> weight = random.Values(dim, 2.0F);
      std::vector<float> expected(rows * dim);
      RmsNormArgs norm;
      norm.x = x.data();
      norm.x_stride = norm.y_stride = norm.dim = dim;
      norm.y = expected.data();
      norm.weight = weight.data();
      norm.eps = 1e-6F;
      reference::RmsNorm(norm, 0, rows);

      const DeviceArray<float> device_x(x);
      const DeviceArray<float> device_weight(weight);
      const DeviceArray<float> y(rows * dim);
      const std::size_t group = dim % 256 == 0 ? 256 : 32;
      const DeviceArray<std::byte> quantised(QuantisedRowBytes(dim, group) * rows);
      cuda::RmsNormRowsArgs args;
      args.norm = norm;
      args.norm.x = device_x.data();
      args.norm.y = y.data();
      args.norm.weight = device_weight.data();
      args.quantised = MakeQuantisedRows(quantised.data(), dim, group);
      args.rows.max = static_cast<std::int32_t>(rows);
      Finish(cuda::RmsNormRows(TestLaunch(), args));
      EXPECT_TRUE(SameBits(y.Read(), expected)) << dim << " x " << rows;
      EXPECT_TRUE(SameValues(DeviceParts(quantised, rows, dim, group),
                             ReferenceParts(expected, rows, dim, group)))
          << dim << " x " << rows;
    }
  }
}

TEST(CardNorm, HeadsAreNormedInPlaceUnderOneWeightAlsoWhereNothingIsAligned) {
  for (const std::size_t dim : {std::size_t{128}, std::size_t{64}, std::size_t{30}}) {
    const std::size_t heads = 5;
    const std::size_t rows = 17;
    const std::size_t stride = heads * dim + 3 * (dim % 8 == 0 ? 4 : 1);
    Random random(dim);
    std::vector<float> expected = random.Values(rows * stride, 3.0F);
    const DeviceArray<float> x(expected);
    const std::vector<float> weight = random.Values(dim, 2.0F);
    const DeviceArray<float> device_weight(weight);
    RmsNormArgs norm;
    norm.x = norm.y = expected.data();
    norm.x_stride = norm.y_stride = stride;
    norm.groups = heads;
    norm.dim = dim;
    norm.weight = weight.data();
    norm.eps = 1e-5F;
    reference::RmsNorm(norm, 0, rows);
    cuda::RmsNormRowsArgs args;
    args.norm = norm;
    args.norm.x = args.norm.y = x.data();
    args.norm.weight = device_weight.data();
    args.rows.max = static_cast<std::int32_t>(rows);
    Finish(cuda::RmsNormRows(TestLaunch(), args));
    EXPECT_TRUE(SameBits(x.Read(), expected)) << dim;
  }
}

TEST(CardElementwise, SumsProductsAndSwiGluHaveTheReferencesBits) {
  for (const std::size_t width : {std::size_t{512}, std::size_t{37}}) {
    const std::size_t rows = 9;
    Random random(width);
    const std::vector<float> a = random.Values(rows * width, 8.0F);
    const std::vector<float> b = random.Values(rows * width, 3.0F);
    const DeviceArray<float> device_a(a);
    const DeviceArray<float> device_b(b);
    const DeviceArray<float> y(rows * width);
    cuda::PairRowsArgs args;
    args.a = device_a.data();
    args.b = device_b.data();
    args.y = y.data();
    args.a_stride = args.b_stride = args.y_stride = width;
    args.width = static_cast<std::int32_t>(width);
    args.rows.max = static_cast<std::int32_t>(rows);
    std::vector<float> expected(rows * width);
    reference::Add(a.data(), b.data(), expected.data(), expected.size());
    Finish(cuda::AddRows(TestLaunch(), args));
    EXPECT_TRUE(SameBits(y.Read(), expected));
    reference::SwiGlu(a.data(), b.data(), expected.data(), expected.size());
    Finish(cuda::SwiGluRows(TestLaunch(), args));
    EXPECT_TRUE(SameBits(y.Read(), expected));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = a[i] * b[i % width];
    }
    args.b_stride = 0;
    Finish(cuda::MulRows(TestLaunch(), args));
    EXPECT_TRUE(SameBits(y.Read(), expected));
  }
}

TEST(CardEmbed, EveryTypeDecodesToTheReferencesBits) {
  std::size_t types = 0;
  for (const FormatTraits& format : Formats()) {
    if (!cuda::CanEmbed(format.ggml_type)) {
      continue;
    }
    ++types;
    const std::size_t k = 768;
    const std::size_t table_rows = 50;
    Random random(static_cast<std::uint64_t>(format.ggml_type));
    const std::vector<std::byte> table = testing::RandomWeights(format, k, table_rows, random);
    const std::vector<std::int32_t> ids = {49, 0, 7, 7, 31, 12, 48, 1, 3};
    std::vector<float> expected(ids.size() * k);
    EmbedArgs embed;
    embed.table = {&format, table.data(), RowBytes(format, k), k};
    embed.ids = ids.data();
    embed.y = expected.data();
    embed.y_stride = k;
    reference::Embed(embed, 0, ids.size());
    const DeviceArray<std::byte> device_table(table);
    const DeviceArray<std::int32_t> device_ids(ids);
    const DeviceArray<float> y(ids.size() * k);
    const DeviceArray<std::int32_t> failed = DeviceInt(INT32_MAX);
    cuda::EmbedRowsArgs args;
    args.ggml_type = format.ggml_type;
    args.table = device_table.data();
    args.row_bytes = RowBytes(format, k);
    args.table_rows = static_cast<std::int32_t>(table_rows);
    args.k = static_cast<std::int32_t>(k);
    args.ids = device_ids.data();
    args.y = y.data();
    args.y_stride = k;
    args.rows.max = static_cast<std::int32_t>(ids.size());
    args.failed_row = failed.data();
    Finish(cuda::EmbedRows(TestLaunch(), args));
    EXPECT_TRUE(SameBits(y.Read(), expected)) << format.name;
    EXPECT_EQ(failed.Read()[0], INT32_MAX) << format.name;
  }
  EXPECT_EQ(types, 17U);
}

TEST(CardEmbed, AnIdOutsideTheTableNamesItsRow) {
  const DeviceArray<float> table(std::vector<float>(64, 1.0F));
  const DeviceArray<std::int32_t> ids(std::vector<std::int32_t>{1, 0, 2, -1});
  const DeviceArray<float> y(4 * 32);
  const DeviceArray<std::int32_t> failed = DeviceInt(INT32_MAX);
  cuda::EmbedRowsArgs args;
  args.table = table.data();
  args.row_bytes = 128;
  args.table_rows = 2;
  args.k = 32;
  args.ids = ids.data();
  args.y = y.data();
  args.y_stride = 32;
  args.rows.max = 4;
  args.failed_row = failed.data();
  Finish(cuda::EmbedRows(TestLaunch(), args));
  EXPECT_EQ(failed.Read()[0], 2);
  EXPECT_EQ(y.Read()[2 * 32], 0.0F);
  EXPECT_EQ(y.Read()[32], 1.0F);
}

TEST(CardSelect, RowsAreGatheredByTheMapUpToTheLiveCount) {
  const std::size_t width = 700;
  const std::vector<float> x = Random(3).Values(20 * width);
  const DeviceArray<float> device_x(x);
  const DeviceArray<std::int32_t> map(std::vector<std::int32_t>{19, 4, 4, 0});
  const DeviceArray<std::int32_t> live = DeviceInt(3);
  const DeviceArray<float> y(4 * width);
  cuda::SelectRowsArgs args;
  args.x = device_x.data();
  args.x_stride = width;
  args.map = map.data();
  args.y = y.data();
  args.y_stride = width;
  args.width = static_cast<std::int32_t>(width);
  args.rows = {4, live.data(), 1};
  Finish(cuda::SelectRows(TestLaunch(), args));
  std::vector<float> expected(4 * width);
  std::copy_n(x.data() + 19 * width, width, expected.data());
  std::copy_n(x.data() + 4 * width, width, expected.data() + width);
  std::copy_n(x.data() + 4 * width, width, expected.data() + 2 * width);
  EXPECT_TRUE(SameBits(y.Read(), expected));
}

void ExpectLogitsBits() {
  const std::size_t shapes[][3] = {{128, 2048, 33}, {128, 2048, 512}, {5, 77, 9},
                                   {60, 1000, 16},  {257, 96, 100},   {1, 2048, 1}};
  const FormatTraits* f32 = FindFormat(0);
  for (const auto& [n, k, rows] : shapes) {
    Random random(n + k + rows);
    const std::vector<float> weight = random.Values(n * k);
    const std::size_t stride = (k + 3) / 4 * 4;
    const std::vector<float> x = random.Values(rows * stride, 3.0F);
    const std::vector<float> bias = random.Values(n);
    std::vector<float> expected(rows * n);
    LinearArgs linear;
    linear.weight = {f32, reinterpret_cast<const std::byte*>(weight.data()), 4 * k, k};
    linear.x = x.data();
    linear.x_stride = stride;
    linear.rows = rows;
    linear.bias = bias.data();
    linear.y = expected.data();
    linear.y_stride = n;
    reference::Linear(linear, 0, n);
    const DeviceArray<float> device_weight(weight);
    const DeviceArray<float> device_x(x);
    const DeviceArray<float> device_bias(bias);
    const DeviceArray<float> y(rows * n);
    cuda::RouterLinearArgs args;
    args.weight = device_weight.data();
    args.n = static_cast<std::int32_t>(n);
    args.k = static_cast<std::int32_t>(k);
    args.bias = device_bias.data();
    args.x = device_x.data();
    args.x_stride = stride;
    args.y = y.data();
    args.y_stride = n;
    args.rows.max = static_cast<std::int32_t>(rows);
    testing::Check(cuda::PrepareRouterLinear());
    Finish(cuda::RouterLinear(TestLaunch(), args));
    EXPECT_TRUE(SameBits(y.Read(), expected)) << n << " x " << k << " x " << rows;
  }
}

TEST(CardRouter, LogitsHaveN8sBitsAtAnyShape) { ExpectLogitsBits(); }

TEST(CardRouter, ACardOfLessSharedMemoryMakesTheSameBits) {
  const testing::LessSharedMemory less;
  ExpectLogitsBits();
}

struct RouteResult {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::int32_t failed;
};

RouteResult RouteOnCard(RouterArgs router, const std::vector<float>& logits, std::size_t rows,
                        std::int32_t live) {
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<std::int32_t> ids(rows * router.top_k, 0xFF);
  const DeviceArray<float> weights(rows * router.top_k);
  const DeviceArray<std::int32_t> failed = DeviceInt(INT32_MAX);
  const DeviceArray<std::int32_t> live_rows = DeviceInt(live);
  router.logits = device_logits.data();
  router.ids = ids.data();
  router.weights = weights.data();
  cuda::RouteRowsArgs args;
  args.router = router;
  args.rows = {static_cast<std::int32_t>(rows), live_rows.data(), 1};
  args.failed_row = failed.data();
  Finish(cuda::RouteRows(TestLaunch(), args));
  return {ids.Read(), weights.Read(), failed.Read()[0]};
}

TEST(CardRoute, IdsAndWeightsHaveTheReferencesBits) {
  const std::size_t shapes[][2] = {{128, 8}, {60, 4}, {256, 8}, {500, 10}, {1024, 32}, {8, 8}};
  for (const auto& [experts, top_k] : shapes) {
    for (const bool renormalise : {true, false}) {
      const std::size_t rows = 100;
      Random random(experts);
      std::vector<float> logits = random.Values(rows * experts, 5.0F);
      for (std::size_t i = 0; i < experts; ++i) {
        logits[experts + i] = 1.0F;                             // a row of ties
        logits[2 * experts + i] = i % 3 == 0 ? 90.0F : -90.0F;  // a clamped exp
      }
      RouterArgs router;
      router.renormalise = renormalise;
      router.weight_scale = 1.25F;
      router.experts = router.logits_stride = experts;
      router.top_k = top_k;
      const RouteResult got = RouteOnCard(router, logits, rows, static_cast<std::int32_t>(rows));
      std::vector<std::int32_t> ids(rows * top_k);
      std::vector<float> weights(rows * top_k);
      router.logits = logits.data();
      router.ids = ids.data();
      router.weights = weights.data();
      for (std::size_t row = 0; row < rows; ++row) {
        ASSERT_TRUE(reference::RouteRow(router, row));
      }
      EXPECT_TRUE(SameValues(got.ids, ids)) << experts;
      EXPECT_TRUE(SameBits(got.weights, weights)) << experts;
      EXPECT_EQ(got.failed, INT32_MAX);
    }
  }
}

// Biases that change the choice, and make what chooses negative; sums below the least.
TEST(CardRoute, OtherRoutersHaveTheReferencesBits) {
  const std::size_t shapes[][2] = {{128, 8}, {60, 4}, {256, 8}, {500, 10}, {1024, 32}, {8, 8}};
  for (const auto& [experts, top_k] : shapes) {
    const std::size_t rows = 100;
    Random random(experts + 1);
    std::vector<float> logits = random.Values(rows * experts, 5.0F);
    for (std::size_t i = 0; i < experts; ++i) {
      logits[experts + i] = 1.0F;  // a row of ties
      logits[2 * experts + i] = -80.0F - static_cast<float>(i % 7);
    }
    std::vector<float> bias = random.Values(experts, 1.0F);
    bias[experts / 2] = bias[0];
    const DeviceArray<float> device_bias(bias);
    for (int variant = 0; variant < 8; ++variant) {
      RouterArgs router;
      router.gate = variant % 2 == 0 ? RouterGate::kSigmoid : RouterGate::kSoftmax;
      router.sum_min = variant % 4 < 2 ? 0x1p-14F : 0.0F;
      router.renormalise = variant < 6;
      router.weight_scale = 1.25F;
      router.experts = router.logits_stride = experts;
      router.top_k = top_k;
      const bool biased = variant != 0 && variant != 5;
      router.bias = biased ? device_bias.data() : nullptr;
      const RouteResult got = RouteOnCard(router, logits, rows, static_cast<std::int32_t>(rows));
      router.bias = biased ? bias.data() : nullptr;
      std::vector<std::int32_t> ids(rows * top_k);
      std::vector<float> weights(rows * top_k);
      router.logits = logits.data();
      router.ids = ids.data();
      router.weights = weights.data();
      for (std::size_t row = 0; row < rows; ++row) {
        ASSERT_TRUE(reference::RouteRow(router, row));
      }
      EXPECT_TRUE(SameValues(got.ids, ids)) << experts << " variant " << variant;
      EXPECT_TRUE(SameBits(got.weights, weights)) << experts << " variant " << variant;
      EXPECT_EQ(got.failed, INT32_MAX);
    }
  }
}

TEST(CardRoute, TheFirstRowWithALogitThatIsNotFiniteIsNamedIfItLives) {
  const std::size_t experts = 128;
  std::vector<float> logits = Random(9).Values(40 * experts);
  logits[11 * experts + 127] = kInfinity;
  logits[7 * experts + 3] = std::nanf("");
  RouterArgs router;
  router.experts = router.logits_stride = experts;
  router.top_k = 8;
  const RouteResult got = RouteOnCard(router, logits, 40, 40);
  EXPECT_EQ(got.failed, 7);
  for (std::int32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(got.ids[static_cast<std::size_t>(7 * 8 + i)], i);
    EXPECT_TRUE(std::isnan(got.weights[static_cast<std::size_t>(7 * 8 + i)]));
  }
  const RouteResult few = RouteOnCard(router, logits, 40, 7);
  EXPECT_EQ(few.failed, INT32_MAX);
  EXPECT_EQ(few.ids[7 * 8], -1);
}

void ExpectGroups(const std::vector<std::int32_t>& ids, std::size_t rows_max, std::size_t live,
                  std::size_t top_k, std::size_t experts) {
  const std::size_t pairs = live * top_k;
  std::vector<std::int32_t> offsets(experts + 1);
  std::vector<std::int32_t> place_rows(pairs + 1);
  std::vector<std::int32_t> pair_places(pairs + 1);
  std::vector<std::int32_t> active(experts);
  ExpertGroups groups;
  groups.offsets = offsets.data();
  groups.place_rows = place_rows.data();
  groups.pair_places = pair_places.data();
  groups.active = active.data();
  cpu::GroupPicks(ids.data(), live, top_k, experts, &groups);

  const auto tiles_max =
      cuda::PickTilesMax(static_cast<std::int32_t>(rows_max), static_cast<std::int32_t>(top_k),
                         static_cast<std::int32_t>(experts));
  const DeviceArray<std::int32_t> device_ids(ids);
  const DeviceArray<std::int32_t> device_offsets(experts + 1);
  const DeviceArray<std::int32_t> device_rows(rows_max * top_k);
  const DeviceArray<std::int32_t> device_places(rows_max * top_k);
  const DeviceArray<cuda::ExpertTile> tiles(static_cast<std::size_t>(tiles_max));
  const DeviceArray<std::int32_t> tile_count(1);
  const DeviceArray<std::int32_t> live_rows = DeviceInt(static_cast<std::int32_t>(live));
  cuda::GroupPicksArgs args;
  args.ids = device_ids.data();
  args.top_k = static_cast<std::int32_t>(top_k);
  args.experts = static_cast<std::int32_t>(experts);
  args.rows = {static_cast<std::int32_t>(rows_max), live_rows.data(), 1};
  args.groups = {device_offsets.data(), device_rows.data(), device_places.data(), tiles.data(),
                 tile_count.data()};
  testing::Check(cuda::PreparePromptExperts());
  Finish(cuda::GroupPicks(TestLaunch(), args));

  EXPECT_TRUE(SameValues(device_offsets.Read(), offsets));
  std::vector<std::int32_t> got_rows = device_rows.Read();
  std::vector<std::int32_t> got_places = device_places.Read();
  got_rows.resize(pairs);
  got_places.resize(pairs);
  place_rows.resize(pairs);
  pair_places.resize(pairs);
  EXPECT_TRUE(SameValues(got_rows, place_rows));
  EXPECT_TRUE(SameValues(got_places, pair_places));

  // Tiles cut every expert's places in order.
  std::vector<std::int32_t> expected_tiles;
  for (std::size_t e = 0; e < experts; ++e) {
    for (std::int32_t first = offsets[e]; first < offsets[e + 1]; first += cuda::kTilePlaces) {
      expected_tiles.insert(expected_tiles.end(),
                            {static_cast<std::int32_t>(e), first,
                             std::min(cuda::kTilePlaces, offsets[e + 1] - first)});
    }
  }
  const auto count = static_cast<std::size_t>(tile_count.Read()[0]);
  EXPECT_LE(count, static_cast<std::size_t>(tiles_max));
  std::vector<std::int32_t> got_tiles;
  const std::vector<cuda::ExpertTile> read = tiles.Read();
  for (std::size_t i = 0; i < count && i < read.size(); ++i) {
    got_tiles.insert(got_tiles.end(), {read[i].expert, read[i].first, read[i].count});
  }
  EXPECT_TRUE(SameValues(got_tiles, expected_tiles));
}

void ExpectGroupsOfManyShapes() {
  const std::size_t shapes[][4] = {{16, 9, 8, 128}, {512, 512, 8, 128},    {4096, 4093, 8, 128},
                                   {64, 33, 1, 5},  {128, 100, 10, 500},   {32, 32, 32, 1024},
                                   {16, 0, 8, 128}, {4096, 4096, 32, 1024}};
  for (const auto& [rows_max, live, top_k, experts] : shapes) {
    Random random(rows_max + live);
    std::vector<std::int32_t> ids(rows_max * top_k);
    std::vector<std::int32_t> order(experts);
    for (std::size_t row = 0; row < rows_max; ++row) {
      std::iota(order.begin(), order.end(), 0);
      for (std::size_t i = 0; i < top_k; ++i) {
        std::swap(order[i], order[i + random.Below(experts - i)]);
        ids[row * top_k + i] = order[i];
      }
    }
    SCOPED_TRACE(rows_max);
    ExpectGroups(ids, rows_max, live, top_k, experts);
  }
}

TEST(CardGroups, PlacesAscendByPairAndTilesCoverThem) { ExpectGroupsOfManyShapes(); }

TEST(CardGroups, ACardOfLessSharedMemoryMakesTheSameGroups) {
  const testing::LessSharedMemory less;
  ExpectGroupsOfManyShapes();
}

TEST(CardGroups, AllRowsMayPickTheSameExperts) {
  for (const std::size_t rows : {std::size_t{16}, std::size_t{512}, std::size_t{4096}}) {
    std::vector<std::int32_t> ids(rows * 8);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>(127 - i % 8);
    }
    SCOPED_TRACE(rows);
    ExpectGroups(ids, rows, rows, 8, 128);
  }
}

TEST(CardPickSum, SumsHaveTheReferencesBitsAndAPickTooLargeNamesItsRow) {
  for (const bool residual : {true, false}) {
    const std::size_t rows = 33;
    const std::size_t top_k = 8;
    const std::size_t dim = 260;
    Random random(5);
    std::vector<float> y = random.Values(rows * top_k * dim, 100.0F);
    const std::vector<float> weights = random.Values(rows * top_k);
    const std::vector<float> base = random.Values(rows * dim, 3.0F);
    std::vector<std::int32_t> places(rows * top_k);
    for (std::size_t i = 0; i < places.size(); ++i) {
      places[i] = static_cast<std::int32_t>((i * 37) % places.size());
    }
    std::vector<float> expected(rows * dim);
    PickSumArgs sum;
    sum.y = y.data();
    sum.y_stride = sum.dim = sum.residual_stride = sum.out_stride = dim;
    sum.pair_places = places.data();
    sum.weights = weights.data();
    sum.top_k = top_k;
    sum.residual = residual ? base.data() : nullptr;
    sum.out = expected.data();
    for (std::size_t row = 0; row < rows; ++row) {
      ASSERT_TRUE(reference::PickSum(sum, row));
    }
    DeviceArray<float> device_y(y);
    const DeviceArray<float> device_weights(weights);
    const DeviceArray<float> out(base);
    const DeviceArray<std::int32_t> device_places(places);
    const DeviceArray<std::int32_t> failed = DeviceInt(INT32_MAX);
    cuda::PickSumRowsArgs args;
    args.sum = sum;
    args.sum.y = device_y.data();
    args.sum.pair_places = device_places.data();
    args.sum.weights = device_weights.data();
    args.sum.residual = residual ? out.data() : nullptr;
    args.sum.out = out.data();
    args.rows.max = static_cast<std::int32_t>(rows);
    args.failed_row = failed.data();
    Finish(cuda::PickSumRows(TestLaunch(), args));
    EXPECT_TRUE(SameBits(out.Read(), expected));
    EXPECT_EQ(failed.Read()[0], INT32_MAX);

    const float huge = 0x1p40F;
    const auto place = static_cast<std::size_t>(places[20 * top_k + 7]);
    testing::Check(
        cudaMemcpy(device_y.data() + place * dim + 259, &huge, 4, cudaMemcpyHostToDevice));
    Finish(cuda::PickSumRows(TestLaunch(), args));
    EXPECT_EQ(failed.Read()[0], 20);
  }
}

}  // namespace
}  // namespace bloomery::kernels
