// What recurrent layers need on the card, against the references: bits at every row count, for
// stretches of several slots in one launch, with states kept behind any row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels-common/delta/cuda/delta.h"
#include "kernels-common/delta/reference.h"
#include "kernels-common/elementwise/cuda/elementwise.h"
#include "kernels-common/elementwise/reference.h"
#include "kernels-common/norm/cuda/norm.h"
#include "kernels-common/norm/reference.h"
#include "tests/gpu/kernels/device.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::DeviceArray;
using testing::Finish;
using testing::Random;
using testing::SameBits;
using testing::TestLaunch;

constexpr float kUntouched = 7.0F;

TEST(CardSlice, PartsOfEachVectorLieOneAfterAnother) {
  struct Part {
    std::int32_t dim, first, count;
  };
  constexpr std::size_t kRows = 5;
  constexpr std::int32_t kGroups = 3;
  for (const Part& part : {Part{70, 9, 33}, Part{64, 32, 32}, Part{512, 0, 256}, Part{12, 4, 4}}) {
    Random random(static_cast<std::uint64_t>(part.dim));
    const auto dim = static_cast<std::size_t>(part.dim);
    const auto count = static_cast<std::size_t>(part.count);
    const std::vector<float> x = random.Values(kRows * kGroups * dim);
    const DeviceArray<float> device_x(x);
    const DeviceArray<float> y(std::vector<float>(kRows * kGroups * count, kUntouched));
    const DeviceArray<std::int32_t> live(std::vector<std::int32_t>{4});
    cuda::SliceRowsArgs args;
    args.x = device_x.data();
    args.x_stride = kGroups * dim;
    args.y = y.data();
    args.y_stride = kGroups * count;
    args.groups = kGroups;
    args.dim = part.dim;
    args.first = part.first;
    args.count = part.count;
    args.rows = {kRows, live.data(), 1};
    Finish(cuda::SliceRows(TestLaunch(), args));
    const std::vector<float> got = y.Read();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t vector = i / count;
      const std::size_t at = vector * dim + static_cast<std::size_t>(part.first) + i % count;
      ASSERT_EQ(got[i], vector / kGroups < 4 ? x[at] : kUntouched) << part.dim << ' ' << i;
    }
  }
}

TEST(CardGate, BothFunctionsOneGateAValueOrARowWithASumBehind) {
  for (int round = 0; round < 24; ++round) {
    Random random(static_cast<std::uint64_t>(round) + 40);
    const std::size_t rows = 1 + random.Below(9);
    const std::size_t dim = round % 8 < 4 ? 4 * (1 + random.Below(50)) : 1 + random.Below(200);
    const std::size_t groups = 1 + random.Below(3);
    const std::size_t width = dim * groups;
    const bool single = round % 3 == 0;
    const bool sum = round % 2 == 0;
    const bool apart = round % 4 < 2 && !single;  // gates are the second half of longer vectors
    GateArgs args{.width = width, .single = single};
    args.function = round % 5 < 2 ? GateFunction::kSilu : GateFunction::kSigmoid;
    const std::vector<float> x = random.Values(rows * width);
    const std::vector<float> gate = random.Values(rows * (single ? 1 : width), 9.0F);
    const std::vector<float> residual = random.Values(rows * width);
    std::vector<float> expected(rows * width);
    args.x = x.data();
    args.gate = gate.data();
    args.y = expected.data();
    reference::Gate(args, 0, rows);
    if (sum) reference::Add(residual.data(), expected.data(), expected.data(), expected.size());

    std::vector<float> spread = gate;
    if (apart) {
      spread.assign(rows * width * 2, kUntouched);
      for (std::size_t v = 0; v < rows * groups; ++v) {
        std::copy_n(gate.data() + v * dim, dim, spread.data() + (2 * v + 1) * dim);
      }
    }
    const DeviceArray<float> device_x(x);
    const DeviceArray<float> device_gate(spread);
    const DeviceArray<float> y(residual);
    cuda::GateRowsArgs on_card;
    on_card.x = device_x.data();
    on_card.gate = device_gate.data() + (apart ? dim : 0);
    on_card.gate_stride = single ? 1 : width * (apart ? 2 : 1);
    on_card.gate_group_stride = dim * (apart ? 2 : 1);
    on_card.x_stride = on_card.y_stride = on_card.residual_stride = width;
    on_card.single = single;
    on_card.function = args.function;
    if (sum) on_card.residual = y.data();
    on_card.y = y.data();
    on_card.groups = static_cast<std::int32_t>(groups);
    on_card.dim = static_cast<std::int32_t>(dim);
    on_card.rows.max = static_cast<std::int32_t>(rows);
    Finish(cuda::GateRows(TestLaunch(), on_card));
    EXPECT_TRUE(SameBits(y.Read(), expected)) << round;
  }
}

TEST(CardNorm, L2NormsAndNormsWithAGateBehindHaveTheReferencesBits) {
  for (const std::size_t dim : {std::size_t{128}, std::size_t{48}, std::size_t{30}}) {
    for (const std::size_t rows : {std::size_t{1}, std::size_t{9}, std::size_t{70}}) {
      SCOPED_TRACE(std::to_string(dim) + " x " + std::to_string(rows));
      constexpr std::size_t kGroups = 5;
      const std::size_t width = kGroups * dim;
      Random random(dim + rows);
      std::vector<float> x = random.Values(rows * width, 3.0F);
      std::fill_n(x.begin(), dim, 0.0F);
      const std::vector<float> weight = random.Values(dim, 2.0F);
      const std::vector<float> gate = random.Values(rows * width, 6.0F);
      const DeviceArray<float> device_x(x);
      const DeviceArray<float> device_weight(weight);
      const DeviceArray<float> device_gate(gate);
      const DeviceArray<float> y(rows * width);
      std::vector<float> expected(rows * width);
      L2NormArgs l2{.x = x.data(), .y = expected.data(), .groups = kGroups, .dim = dim};
      l2.x_stride = l2.y_stride = width;
      l2.eps = 1e-6F;
      l2.scale = 0.088388346F;
      reference::L2Norm(l2, 0, rows);
      cuda::L2NormRowsArgs on_card;
      on_card.norm = l2;
      on_card.norm.x = device_x.data();
      on_card.norm.y = y.data();
      on_card.rows.max = static_cast<std::int32_t>(rows);
      Finish(cuda::L2NormRows(TestLaunch(), on_card));
      EXPECT_TRUE(SameBits(y.Read(), expected));

      for (const GateFunction function : {GateFunction::kSilu, GateFunction::kSigmoid}) {
        RmsNormArgs norm{.x = x.data(), .y = expected.data(), .groups = kGroups, .dim = dim};
        norm.x_stride = norm.y_stride = width;
        norm.weight = weight.data();
        norm.eps = 1e-6F;
        reference::RmsNorm(norm, 0, rows);
        GateArgs gates{.x = expected.data(), .gate = gate.data(), .y = expected.data()};
        gates.width = width;
        gates.function = function;
        reference::Gate(gates, 0, rows);
        cuda::RmsNormRowsArgs gated;
        gated.norm = norm;
        gated.norm.x = device_x.data();
        gated.norm.y = y.data();
        gated.norm.weight = device_weight.data();
        gated.gate = device_gate.data();
        gated.gate_stride = width;
        gated.function = function;
        gated.rows.max = static_cast<std::int32_t>(rows);
        Finish(cuda::RmsNormRows(TestLaunch(), gated));
        EXPECT_TRUE(SameBits(y.Read(), expected));
      }
    }
  }
}

// A pass of several stretches, each of a slot of its own, some from nothing; states of three lanes
// a slot of which lane_in is never written.
struct Pass {
  static constexpr std::int32_t kLanes = 3;

  Pass(const std::vector<std::int32_t>& stretches, std::int32_t slots, Random& random)
      : count(static_cast<std::int32_t>(stretches.size())) {
    for (std::int32_t i = 0; i < count; ++i) {
      const auto first = static_cast<std::int32_t>(slot.size());
      const std::int32_t of = (i * 2 + 1) % slots;
      const std::int32_t in = random.Below(3) == 0 ? -1 : 0;
      first_row.push_back(first);
      for (std::int32_t row = 0; row < stretches[static_cast<std::size_t>(i)]; ++row) {
        slot.push_back(of);
        lane_in.push_back(row == 0 ? in : -1);
        const std::int32_t end = stretches[static_cast<std::size_t>(i)];
        // One row before the last may be kept, too.
        lane_out.push_back(row + 1 == end ? 1 : row == end / 2 ? 2 : -1);
      }
    }
    rows = static_cast<std::int32_t>(slot.size());
    live.emplace(std::vector<std::int32_t>{rows});
    device_count.emplace(std::vector<std::int32_t>{count});
    device_slot.emplace(slot);
    device_first.emplace(first_row);
    device_in.emplace(lane_in);
    device_out.emplace(lane_out);
  }

  cuda::PassRowsView Rows() const {
    cuda::PassRowsView view;
    view.live = live->data();
    view.slot = device_slot->data();
    view.rows = rows + 2;  // a larger bucket
    return view;
  }
  cuda::PassStatesView States() const {
    return {.segments = device_count->data(),
            .first_row = device_first->data(),
            .lane_in = device_in->data(),
            .lane_out = device_out->data(),
            .most = count + 1};
  }
  // Calls run(first, rows, state before or null, state behind) as the CPU's steps do.
  template <class Run>
  void ForStretches(std::vector<float>& plane, std::size_t lane_floats, const Run& run) const {
    for (std::int32_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int32_t end = i + 1 < count ? first_row[at + 1] : rows;
      std::int32_t first = first_row[at];
      const auto lane = [&](std::int32_t number) {
        return plane.data() +
               static_cast<std::size_t>(slot[static_cast<std::size_t>(first)] * kLanes + number) *
                   lane_floats;
      };
      const std::int32_t in = lane_in[static_cast<std::size_t>(first)];
      const float* before = in < 0 ? nullptr : lane(in);
      std::vector<float> carried;
      for (std::int32_t row = first; row < end; ++row) {
        const std::int32_t out = lane_out[static_cast<std::size_t>(row)];
        if (out < 0) continue;
        float* const behind = lane(out);
        run(static_cast<std::size_t>(first), static_cast<std::size_t>(row + 1 - first), before,
            behind);
        carried.assign(behind, behind + lane_floats);
        before = carried.data();
        first = row + 1;
      }
    }
  }

  std::int32_t count;
  std::int32_t rows = 0;
  std::vector<std::int32_t> slot, first_row, lane_in, lane_out;
  std::optional<DeviceArray<std::int32_t>> live, device_count, device_slot, device_first, device_in,
      device_out;
};

const std::vector<std::vector<std::int32_t>> kStretches = {{1},        {2, 1}, {1, 1, 1, 1}, {7},
                                                           {3, 40, 1}, {16},   {17, 33},     {150}};

TEST(CardShortConv, StretchesOfSlotsHaveTheReferencesBitsAndLeaveTheirStates) {
  for (std::size_t round = 0; round < 3 * kStretches.size(); ++round) {
    SCOPED_TRACE(round);
    Random random(round + 300);
    constexpr std::int32_t kSlots = 9;
    const Pass pass(kStretches[round % kStretches.size()], kSlots, random);
    const auto rows = static_cast<std::size_t>(pass.rows);
    ShortConvArgs args;
    args.channels = 1 + random.Below(300);
    args.taps = 2 + random.Below(kConvTapsMax - 1);
    args.silu = random.Below(2) == 0;
    args.x_stride = args.channels + random.Below(5);
    args.y_stride = args.channels + random.Below(3);
    const std::vector<float> x = random.Values(rows * args.x_stride, 2.0F);
    const std::vector<float> weight = random.Values(args.channels * args.taps);
    const std::size_t lane = (args.taps - 1) * args.channels;
    std::vector<float> plane = random.Values(kSlots * Pass::kLanes * lane);
    std::vector<float> expected(rows * args.y_stride, kUntouched);
    const DeviceArray<float> device_x(x);
    const DeviceArray<float> device_weight(weight);
    const DeviceArray<float> device_plane(plane);
    const DeviceArray<float> y(expected);
    cuda::ShortConvRowsArgs on_card;
    on_card.rows = pass.Rows();
    on_card.states = pass.States();
    on_card.x = device_x.data();
    on_card.x_stride = args.x_stride;
    on_card.y = y.data();
    on_card.y_stride = args.y_stride;
    on_card.channels = static_cast<std::int32_t>(args.channels);
    on_card.taps = static_cast<std::int32_t>(args.taps);
    on_card.weight = device_weight.data();
    on_card.silu = args.silu;
    on_card.state = {device_plane.data(), Pass::kLanes * lane, lane};
    Finish(cuda::ShortConvRows(TestLaunch(), on_card));

    args.weight = weight.data();
    pass.ForStretches(
        plane, lane, [&](std::size_t first, std::size_t count, const float* before, float* behind) {
          ShortConvArgs part = args;
          part.x = x.data() + first * args.x_stride;
          part.y = expected.data() + first * args.y_stride;
          part.state_in = before;
          part.state_out = behind;
          reference::ShortConv(part, count, 0, args.channels);
        });
    EXPECT_TRUE(SameBits(y.Read(), expected));
    EXPECT_TRUE(SameBits(device_plane.Read(), plane));
  }
}

struct DeltaShape {
  std::size_t key_heads, ratio, key_dim, value_dim;
};
constexpr DeltaShape kShapes[] = {{2, 2, 128, 128}, {1, 2, 128, 128}, {3, 1, 32, 48},
                                  {1, 3, 17, 16},   {2, 1, 100, 80},  {1, 1, 256, 64},
                                  {1, 2, 200, 32},  {2, 3, 1, 16}};

TEST(CardDelta, StretchesOfSlotsHaveTheReferencesBitsAndLeaveTheirStates) {
  for (std::size_t round = 0; round < 2 * std::size(kShapes) * kStretches.size(); ++round) {
    const DeltaShape& shape = kShapes[round % std::size(kShapes)];
    const std::size_t stretches = round / std::size(kShapes) % kStretches.size();
    SCOPED_TRACE("keys " + std::to_string(shape.key_dim) + ", stretches " +
                 std::to_string(stretches));
    Random random(round + 900);
    constexpr std::int32_t kSlots = 9;
    const Pass pass(kStretches[stretches], kSlots, random);
    const auto rows = static_cast<std::size_t>(pass.rows);
    const bool normed = round % 3 != 0;
    DeltaArgs args;
    args.key_heads = shape.key_heads;
    args.value_heads = shape.key_heads * shape.ratio;
    args.key_dim = shape.key_dim;
    args.value_dim = shape.value_dim;
    args.tiled = round % 2 == 0;
    const std::size_t keys = args.key_heads * args.key_dim;
    const std::size_t values = args.value_heads * args.value_dim;
    // Queries, keys and values are parts of one row.
    const std::size_t stride = 2 * keys + values + 3;
    std::vector<float> mixed = random.Values(rows * stride, normed ? 2.0F : 0.1F);
    const std::vector<float> a = random.Values(rows * args.value_heads, 6.0F);
    const std::vector<float> b = random.Values(rows * args.value_heads, 3.0F);
    std::vector<float> decay = random.Values(args.value_heads, 2.0F);
    for (float& d : decay) d = d > 0 ? -d : d;
    const std::vector<float> dt_bias = random.Values(args.value_heads, 3.0F);
    const std::size_t lane = args.value_heads * args.key_dim * args.value_dim;
    std::vector<float> plane = random.Values(kSlots * Pass::kLanes * lane);
    std::vector<float> expected(rows * values, kUntouched);
    const DeviceArray<float> device_mixed(mixed);
    const DeviceArray<float> device_a(a);
    const DeviceArray<float> device_b(b);
    const DeviceArray<float> device_decay(decay);
    const DeviceArray<float> device_bias(dt_bias);
    const DeviceArray<float> device_plane(plane);
    const DeviceArray<float> out(expected);
    cuda::DeltaRowsArgs on_card;
    on_card.rows = pass.Rows();
    on_card.states = pass.States();
    on_card.q = {.x = device_mixed.data(), .stride = stride};
    on_card.k = {.x = device_mixed.data() + keys, .stride = stride};
    if (normed) {
      on_card.q.eps = on_card.k.eps = 1e-6F;
      on_card.q.scale = 0.088388346F;
    }
    on_card.v = device_mixed.data() + 2 * keys;
    on_card.v_stride = stride;
    on_card.a = device_a.data();
    on_card.b = device_b.data();
    on_card.out = out.data();
    on_card.key_heads = static_cast<std::int32_t>(args.key_heads);
    on_card.value_heads = static_cast<std::int32_t>(args.value_heads);
    on_card.key_dim = static_cast<std::int32_t>(args.key_dim);
    on_card.value_dim = static_cast<std::int32_t>(args.value_dim);
    on_card.decay = device_decay.data();
    on_card.dt_bias = device_bias.data();
    on_card.tiled = args.tiled;
    on_card.state = {device_plane.data(), Pass::kLanes * lane, lane};
    Finish(cuda::DeltaRows(TestLaunch(), on_card));

    std::vector<float> q(rows * keys), k(rows * keys), v(rows * values);
    for (std::size_t row = 0; row < rows; ++row) {
      const float* from = mixed.data() + row * stride;
      std::copy_n(from, keys, q.data() + row * keys);
      std::copy_n(from + keys, keys, k.data() + row * keys);
      std::copy_n(from + 2 * keys, values, v.data() + row * values);
    }
    if (normed) {
      L2NormArgs norm{.groups = args.key_heads, .dim = args.key_dim, .eps = 1e-6F};
      norm.x_stride = norm.y_stride = keys;
      norm.x = norm.y = k.data();
      reference::L2Norm(norm, 0, rows);
      norm.x = norm.y = q.data();
      norm.scale = 0.088388346F;
      reference::L2Norm(norm, 0, rows);
    }
    args.decay = decay.data();
    args.dt_bias = dt_bias.data();
    pass.ForStretches(
        plane, lane, [&](std::size_t first, std::size_t count, const float* before, float* behind) {
          DeltaArgs part = args;
          part.q = q.data() + first * keys;
          part.k = k.data() + first * keys;
          part.v = v.data() + first * values;
          part.a = a.data() + first * args.value_heads;
          part.b = b.data() + first * args.value_heads;
          part.out = expected.data() + first * values;
          part.state_in = before;
          part.state_out = behind;
          for (std::size_t head = 0; head < args.value_heads; ++head) {
            reference::Delta(part, count, head);
          }
        });
    EXPECT_TRUE(SameBits(out.Read(), expected));
    EXPECT_TRUE(SameBits(device_plane.Read(), plane));
  }
}

}  // namespace
}  // namespace bloomery::kernels
