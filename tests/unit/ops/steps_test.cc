// What steps add to kernels: cutting the work into pieces that together do all of it once, looking
// at live rows only, and naming the row that fails. The kernels' own results are tested beside
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/memory/host_buffer.h"
#include "runtime/ops/elementwise.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/moe.h"
#include "runtime/ops/rows.h"
#include "runtime/ops/step.h"

namespace bloomery::ops {
namespace {

class Steps : public testing::Test {
 protected:
  // Runs all tasks, the last first: order must not matter. The first failing status, if any.
  bl_status Run(const Step& step) {
    bl_status status = BL_OK;
    const int32_t tasks = step.Tasks();
    for (int32_t task = tasks; task-- > 0;) {
      const bl_status of_task = step.Run(task, &worker_);
      if (of_task != BL_OK) status = of_task;
    }
    return status;
  }

  const Backend& backend_ = FindBackend("auto");
  // Rows here are at most this wide; the largest scratch of any step is that of a linear.
  static constexpr size_t kWidest = 512;
  memory::HostBuffer scratch_{backend_.linear_scratch(kWidest), "scratch"};
  Worker worker_{.scratch = {scratch_.data(), backend_.linear_scratch(kWidest)}};
  int32_t live_ = 0;
};

TEST(Split, CoversEverythingOnceInMultiplesOfTheUnit) {
  for (int64_t count : {0, 1, 7, 8, 9, 511, 512, 1000}) {
    for (int64_t least : {0, 1, 64, 5000}) {
      for (int64_t pieces : {1, 3, 8}) {
        const Split split = Split::Of(count, 8, least, pieces);
        int64_t at = 0;
        for (int32_t i = 0; i < split.pieces(); ++i) {
          EXPECT_EQ(split.begin(i), at);
          EXPECT_GT(split.end(i), at);
          EXPECT_EQ(split.begin(i) % 8, 0);
          at = split.end(i);
        }
        EXPECT_EQ(at, count);
        EXPECT_LE(split.pieces(), pieces);
      }
    }
  }
}

TEST_F(Steps, LinearOverSeveralMatricesGivesEachItsOutputForLiveRowsOnly) {
  constexpr size_t kWidth = 64;
  std::vector<float> w(kWidth * 300), x(kWidth * 9);
  for (size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i) * 0.7F);
  const auto matrix = [&](size_t first, size_t n, float* y) {
    Matrix m;
    m.weight.format = kernels::FindFormat(0);
    m.weight.data = reinterpret_cast<const std::byte*>(w.data() + first * kWidth);
    m.weight.row_bytes = kWidth * 4;
    m.weight.k = kWidth;
    m.n = n;
    m.y = y;
    m.y_stride = n;
    return m;
  };
  std::vector<float> a(200 * 9, 7.0F), b(100 * 9, 7.0F);
  Activations in;
  in.f32 = x.data();
  in.stride = kWidth;
  live_ = 8;
  const auto step =
      MakeLinear(backend_, in, {matrix(0, 200, a.data()), matrix(200, 100, b.data())}, {&live_}, 3);
  EXPECT_GT(step->Tasks(), 1);
  EXPECT_EQ(Run(*step), BL_OK);
  for (size_t row = 0; row < 8; ++row) {
    for (size_t n = 0; n < 300; ++n) {
      double sum = 0;
      for (size_t i = 0; i < kWidth; ++i) sum += double{w[n * kWidth + i]} * x[row * kWidth + i];
      const float got = n < 200 ? a[row * 200 + n] : b[row * 100 + n - 200];
      ASSERT_NEAR(got, sum, 1e-5) << "row " << row << ", output " << n;
    }
  }
  EXPECT_EQ(a[8 * 200], 7.0F);  // the padding row
  EXPECT_EQ(worker_.weight_bytes_read, w.size() * 4);
  live_ = 0;
  EXPECT_EQ(step->Tasks(), 0);
}

TEST_F(Steps, EmbedNamesTheRowWhoseIdIsOutsideTheTable) {
  const std::vector<float> table(4 * 8, 1.0F);
  std::vector<int32_t> ids = {0, 3, 4, 1};
  std::vector<float> y(4 * 8);
  kernels::EmbedArgs args;
  args.table.format = kernels::FindFormat(0);
  args.table.data = reinterpret_cast<const std::byte*>(table.data());
  args.table.row_bytes = 32;
  args.table.k = 8;
  args.ids = ids.data();
  args.y = y.data();
  args.y_stride = 8;
  const auto step = MakeEmbed(backend_, args, 4, {&live_}, 1);
  live_ = 2;
  EXPECT_EQ(Run(*step), BL_OK);
  live_ = 4;
  EXPECT_EQ(Run(*step), BL_BAD_DATA);
  EXPECT_EQ(worker_.failed_row, 2);
  ids[2] = -1;
  EXPECT_EQ(Run(*step), BL_BAD_DATA);
}

TEST_F(Steps, RouteNamesTheRowWithALogitThatIsNotFinite) {
  std::vector<float> logits = {1, 2, 3, 4, 5, std::numeric_limits<float>::quiet_NaN(), 1, 0};
  std::vector<int32_t> ids(4);
  std::vector<float> weights(4);
  kernels::RouterArgs args;
  args.experts = 4;
  args.top_k = 2;
  args.logits = logits.data();
  args.logits_stride = 4;
  args.ids = ids.data();
  args.weights = weights.data();
  const auto step = MakeRoute(backend_, args, {&live_}, 1);
  live_ = 1;
  EXPECT_EQ(Run(*step), BL_OK);
  EXPECT_EQ(ids[0], 3);
  EXPECT_EQ(ids[1], 2);
  live_ = 2;
  EXPECT_EQ(Run(*step), BL_BAD_DATA);
  EXPECT_EQ(worker_.failed_row, 1);
}

TEST_F(Steps, AnExpertIdOutsideTheBankFailsItsRowBeforeAnyExpertIsRead) {
  std::vector<int32_t> ids = {0, 1, 2, 7};
  const auto groups = std::make_shared<kernels::ExpertGroups>();
  std::vector<int32_t> space(64);
  groups->offsets = space.data();
  groups->active = space.data() + 8;
  groups->place_rows = space.data() + 16;
  groups->pair_places = space.data() + 32;
  const auto step = MakeGroupPicks(ids.data(), 2, 4, 10, groups, {&live_});
  live_ = 1;
  EXPECT_EQ(Run(*step), BL_OK);
  EXPECT_EQ(groups->active_count, 2);
  EXPECT_EQ(worker_.experts_picked, 2U);
  EXPECT_EQ(worker_.expert_bytes, 20U);
  live_ = 2;
  EXPECT_EQ(Run(*step), BL_BAD_DATA);
  EXPECT_EQ(worker_.failed_row, 1);
}

TEST_F(Steps, SelectRowsGathersByTheMap) {
  const std::vector<float> x = {0, 1, 10, 11, 20, 21, 30, 31};
  const std::vector<int32_t> map = {3, 1, 99};  // beyond the live count: never looked at
  std::vector<float> y(6, -1.0F);
  live_ = 2;
  EXPECT_EQ(Run(*MakeSelectRows(x.data(), y.data(), 2, map.data(), {&live_}, 2)), BL_OK);
  EXPECT_THAT(y, testing::ElementsAre(30, 31, 10, 11, -1, -1));
}

TEST_F(Steps, BinaryStepsAddAndMultiplyLiveRows) {
  const std::vector<float> a = {1, 2, 3, 4};
  const std::vector<float> b = {5, 6, 7, 8};
  std::vector<float> y(4, 0.5F);
  live_ = 1;
  EXPECT_EQ(Run(*MakeBinary(backend_, Binary::kAdd, a.data(), b.data(), y.data(), 2, {&live_}, 2)),
            BL_OK);
  EXPECT_THAT(y, testing::ElementsAre(6, 8, 0.5F, 0.5F));
  live_ = 2;
  EXPECT_EQ(Run(*MakeBinary(backend_, Binary::kMul, a.data(), b.data(), y.data(), 2, {&live_}, 2)),
            BL_OK);
  EXPECT_THAT(y, testing::ElementsAre(5, 12, 21, 32));
}

}  // namespace
}  // namespace bloomery::ops
