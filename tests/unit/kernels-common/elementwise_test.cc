#include "kernels-common/elementwise/cpu/elementwise.h"

#include <gtest/gtest.h>

#include "kernels-common/elementwise/reference.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::FirstDifference;
using testing::Random;

TEST(Elementwise, AddAndSwiGluEqualTheReferenceAtEveryLength) {
  Random random(1);
  for (std::size_t count = 0; count < 70; ++count) {
    const std::vector<float> a = random.Values(count, 30.0F);
    const std::vector<float> b = random.Values(count, 30.0F);
    std::vector<float> sum(count);
    std::vector<float> gated(count);
    reference::Add(a.data(), b.data(), sum.data(), count);
    reference::SwiGlu(a.data(), b.data(), gated.data(), count);
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> y = a;
      cpu::Add(isa, y.data(), b.data(), y.data(), count);
      EXPECT_EQ(FirstDifference(y, sum), count);
      y = b;
      cpu::SwiGlu(isa, a.data(), y.data(), y.data(), count);
      EXPECT_EQ(FirstDifference(y, gated), count);
    }
  }
}

TEST(Elementwise, EmbedDecodesTheRowOfEachIdForEveryFormat) {
  for (const FormatTraits& format : Formats()) {
    Random random(2);
    const std::size_t k = 512;
    const std::vector<std::byte> table = testing::RandomWeights(format, k, 9, random);
    const std::int32_t ids[] = {8, 0, 3, 3};
    std::vector<float> expected(4 * k);
    std::vector<float> row(k);
    for (std::size_t r = 0; r < 4; ++r) {
      format.decode_row(table.data() + static_cast<std::size_t>(ids[r]) * RowBytes(format, k),
                        expected.data() + r * k, k);
    }
    EmbedArgs args;
    args.table = {&format, table.data(), RowBytes(format, k), k};
    args.ids = ids;
    args.y_stride = k;
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> y(4 * k);
      args.y = y.data();
      cpu::Embed(isa, args, 0, 2);
      cpu::Embed(isa, args, 2, 4);
      EXPECT_EQ(FirstDifference(y, expected), y.size()) << format.name;
    }
  }
}

TEST(Elementwise, GatherRowsCopiesWholeRows) {
  const float x[] = {1, 2, 9, 3, 4, 9, 5, 6, 9};
  const std::int32_t ids[] = {2, 0, 2};
  float y[6] = {};
  cpu::GatherRows(x, 3, ids, y, 2, 2, 0, 3);
  EXPECT_EQ((std::vector<float>(y, y + 6)), (std::vector<float>{5, 6, 1, 2, 5, 6}));
}

}  // namespace
}  // namespace bloomery::kernels
