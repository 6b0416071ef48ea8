#include "kernels-common/norm/cpu/norm.h"

#include <gtest/gtest.h>

#include "kernels-common/norm/reference.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::FirstDifference;
using testing::Random;

TEST(RmsNorm, EqualsTheReferenceOverOddShapesInPlaceAndNot) {
  Random random(4);
  for (int round = 0; round < 150; ++round) {
    const std::size_t dim = 1 + random.Below(300);
    const std::size_t groups = 1 + random.Below(4);
    const std::size_t rows = 1 + random.Below(5);
    const std::size_t stride = dim * groups + random.Below(9);
    const std::vector<float> x = random.Values(rows * stride, 20.0F);
    const std::vector<float> weight = random.Values(dim);
    std::vector<float> expected(x.size(), 3.0F);
    RmsNormArgs args;
    args.x = x.data();
    args.x_stride = args.y_stride = stride;
    args.groups = groups;
    args.dim = dim;
    args.weight = random.Below(4) == 0 ? nullptr : weight.data();
    args.eps = random.Below(2) == 0 ? 1e-6F : 30.0F;
    args.y = expected.data();
    reference::RmsNorm(args, 0, rows);
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> y(x.size(), 3.0F);
      args.x = x.data();
      args.y = y.data();
      cpu::RmsNorm(isa, args, 0, rows);
      EXPECT_EQ(FirstDifference(y, expected), y.size()) << dim << " " << IsaName(isa);
      std::vector<float> in_place = x;
      args.x = args.y = in_place.data();
      for (std::size_t row = 0; row < rows; ++row) {
        cpu::RmsNorm(isa, args, row, row + 1);
        const std::span<const float> made(in_place.data() + row * stride, dim * groups);
        const std::span<const float> want(expected.data() + row * stride, dim * groups);
        EXPECT_EQ(FirstDifference(made, want), made.size());
      }
    }
  }
}

TEST(RmsNorm, IsTheFormulaInF64) {
  Random random(6);
  const std::vector<float> x = random.Values(2048, 1e-3F);  // small, so that eps counts
  const std::vector<float> weight = random.Values(2048);
  std::vector<float> y(2048);
  RmsNormArgs args;
  args.x = x.data();
  args.y = y.data();
  args.dim = 2048;
  args.weight = weight.data();
  args.eps = 1e-6F;
  cpu::RmsNorm(DetectIsa(), args, 0, 1);
  double squares = 0.0;
  for (const float value : x) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = static_cast<double>(x[i]) / std::sqrt(squares / 2048 + 1e-6) *
                         static_cast<double>(weight[i]);
    EXPECT_NEAR(y[i], exact, 1e-6 * std::fabs(exact) + 1e-12);
  }
}

}  // namespace
}  // namespace bloomery::kernels
