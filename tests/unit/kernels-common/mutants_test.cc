// Wrong orders that look right: each is written out here and must give other bits than the kernels
// on the inputs of the bit tests. If one of these ever passes as equal, the bit tests see nothing.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels-common/linear/cpu/linear.h"
#include "kernels-common/moe/cpu/moe.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::HashBits;
using testing::LinearCase;
using testing::Random;

// One dot by N3-N5 with a choice of wrong ways.
enum class Way { kRight, kContracted, kDescending, kOneSum };

float Dot(LinearCase& any, std::size_t n, std::size_t row, Way way) {
  const FormatTraits& format = any.format;
  const std::size_t blocks = any.k / format.block_values;
  const std::size_t per_step = kStepValues / format.block_values;
  std::vector<float> u(blocks);
  for (std::size_t b = 0; b < blocks; ++b) {
    IntegerBlock block;
    format.unpack_block(any.weights.data() + n * RowBytes(format, any.k) + b * format.block_bytes,
                        &block);
    std::int64_t products = 0;
    std::int64_t sums = 0;
    for (std::size_t i = 0; i < format.block_values; ++i) {
      const int q = any.Quantised().codes(row)[b * format.block_values + i];
      products += block.scales[i / 16] * block.codes[i] * q;
      sums += block.mins[i / 16] * q;
    }
    const auto product = static_cast<float>(products);
    const float min = block.m * static_cast<float>(sums);
    u[b] =
        format.form == BlockForm::kScaleMin ? std::fma(block.d, product, min) : block.d * product;
  }
  const float* a = any.Quantised().scales(row);
  float y = 0.0F;
  if (way == Way::kOneSum) {  // partial sums of y carried through the steps
    for (std::size_t b = 0; b < blocks; ++b) {
      y = std::fma(a[b], u[b], y);
    }
    return y;
  }
  const std::size_t steps = (blocks + per_step - 1) / per_step;
  for (std::size_t i = 0; i < steps; ++i) {
    const std::size_t step = way == Way::kDescending ? steps - 1 - i : i;
    float t = 0.0F;
    for (std::size_t b = step * per_step; b < std::min(blocks, (step + 1) * per_step); ++b) {
      t = way == Way::kContracted ? t + a[b] * u[b] : std::fma(a[b], u[b], t);
    }
    y += t;
  }
  return y;
}

std::uint64_t HashOf(LinearCase& any, Way way) {
  std::vector<float> y;
  for (std::size_t row = 0; row < any.rows; ++row) {
    for (std::size_t n = 0; n < any.n; ++n) {
      y.push_back(Dot(any, n, row, way));
    }
  }
  return HashBits(y);
}

std::uint64_t KernelHash(LinearCase& any) {
  std::vector<float> y;
  cpu::Linear(DetectIsa(), any.Args(y), 0, any.n, any.scratch.span());
  return HashBits(y);
}

TEST(Mutants, BlockOrderAndPartialSumsOfYAreSeen) {
  for (const int type : {8, 12, 14}) {
    LinearCase any(*FindFormat(type), 2048, 11, 9, 13);
    const std::uint64_t right = KernelHash(any);
    EXPECT_EQ(HashOf(any, Way::kRight), right);
    EXPECT_NE(HashOf(any, Way::kDescending), right) << any.format.name;
    EXPECT_NE(HashOf(any, Way::kOneSum), right) << any.format.name;
  }
}

TEST(Mutants, AProductRoundedBeforeItsSumIsSeen) {
  // K types have one block a step, where fma(a, u, 0) is the product: only formats of 32 can tell.
  LinearCase any(*FindFormat(8), 2048, 11, 9, 13);
  EXPECT_NE(HashOf(any, Way::kContracted), KernelHash(any));
}

TEST(Mutants, MinsSubtractedWithoutTheFmaAreSeen) {
  LinearCase any(*FindFormat(12), 2048, 11, 9, 13);
  std::vector<float> y;
  for (std::size_t row = 0; row < any.rows; ++row) {
    for (std::size_t n = 0; n < any.n; ++n) {
      float sum = 0.0F;
      for (std::size_t b = 0; b < any.k / 256; ++b) {
        IntegerBlock block;
        any.format.unpack_block(any.weights.data() + (n * (any.k / 256) + b) * 144, &block);
        int products = 0;
        int mins = 0;
        for (std::size_t i = 0; i < 256; ++i) {
          const int q = any.Quantised().codes(row)[256 * b + i];
          products += block.scales[i / 16] * block.codes[i] * q;
          mins += block.mins[i / 16] * q;
        }
        const float u = block.d * static_cast<float>(products) + block.m * static_cast<float>(mins);
        sum += any.Quantised().scales(row)[b] * u;
      }
      y.push_back(sum);
    }
  }
  EXPECT_NE(HashBits(y), KernelHash(any));
}

TEST(Mutants, FloatDotsWithoutFmaOrWithOtherLanesAreSeen) {
  for (const int type : {0, 1, 30}) {
    LinearCase any(*FindFormat(type), 768, 11, 9, 17);
    const std::uint64_t right = KernelHash(any);
    std::vector<float> w(any.k);
    std::vector<float> rounded;
    std::vector<float> eight_lanes;
    std::vector<float> neighbours;
    for (std::size_t row = 0; row < any.rows; ++row) {
      const float* x = any.x.data() + row * any.k;
      for (std::size_t n = 0; n < any.n; ++n) {
        any.format.decode_row(any.weights.data() + n * RowBytes(any.format, any.k), w.data(),
                              any.k);
        float plain[32] = {};
        float fused[32] = {};
        float eight[8] = {};
        for (std::size_t i = 0; i < any.k; ++i) {
          plain[i % 32] += w[i] * x[i];
          fused[i % 32] = std::fma(w[i], x[i], fused[i % 32]);
          eight[i % 8] = std::fma(w[i], x[i], eight[i % 8]);
        }
        for (std::size_t step = 16; step > 0; step /= 2) {
          for (std::size_t i = 0; i < step; ++i) {
            plain[i] += plain[i + step];
            if (i + step < 8) {
              eight[i] += eight[i + step];
            }
          }
        }
        for (std::size_t width = 16; width > 0; width /= 2) {  // the tree of horizontal adds
          for (std::size_t i = 0; i < width; ++i) {
            fused[i] = fused[2 * i] + fused[2 * i + 1];
          }
        }
        rounded.push_back(plain[0]);
        eight_lanes.push_back(eight[0]);
        neighbours.push_back(fused[0]);
      }
    }
    EXPECT_NE(HashBits(rounded), right) << any.format.name;
    EXPECT_NE(HashBits(eight_lanes), right) << any.format.name;
    EXPECT_NE(HashBits(neighbours), right) << any.format.name;
  }
}

TEST(Mutants, APickPartialSumInF32IsSeen) {
  Random random(19);
  const std::size_t dim = 256;
  const std::vector<float> y = random.Values(8 * dim, 4.0F);
  const std::vector<float> weights = random.Values(8);
  const std::vector<float> residual = random.Values(dim);
  const std::int32_t places[] = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<float> out(dim);
  PickSumArgs args;
  args.y = y.data();
  args.y_stride = dim;
  args.pair_places = places;
  args.weights = weights.data();
  args.top_k = 8;
  args.dim = dim;
  args.residual = residual.data();
  args.out = out.data();
  ASSERT_EQ(cpu::PickSum(DetectIsa(), args, 0, 1, 0, dim), kNoFailingRow);
  std::vector<float> host_partial(dim);  // picks 0-4 of one tier summed in f32, then fixed point
  for (std::size_t i = 0; i < dim; ++i) {
    float partial = 0.0F;
    for (std::size_t pick = 0; pick < 5; ++pick) {
      partial += weights[pick] * y[pick * dim + i];
    }
    auto sum = static_cast<std::int64_t>(std::rint(static_cast<double>(partial) * 0x1p32));
    for (std::size_t pick = 5; pick < 8; ++pick) {
      const float v = weights[pick] * y[pick * dim + i];
      sum += static_cast<std::int64_t>(std::rint(static_cast<double>(v) * 0x1p32));
    }
    host_partial[i] = residual[i] + static_cast<float>(sum) * 0x1p-32F;
  }
  EXPECT_NE(HashBits(host_partial), HashBits(out));
}

}  // namespace
}  // namespace bloomery::kernels
