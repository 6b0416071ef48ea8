#include "kernels-common/linear/cpu/linear.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels-common/linear/reference.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::FirstDifference;
using testing::HashBits;
using testing::LinearCase;
using testing::PutHalf;

constexpr std::size_t kLengths[] = {32, 96, 256, 640, 768, 2048, 2304, 5120};
constexpr std::size_t kRows[] = {1, 2, 7, 8, 9, 33, 512};
constexpr std::size_t kWeightRows = 11;

// The bits of y for every format, length and instruction set. The same with gcc and clang, -O0 and
// -O3, on every machine; a change of it changes the answers of every model.
constexpr std::uint64_t kCommittedHash = 0xB641C596A120153CULL;

TEST(Linear, BitsAreTheCommittedOnesForEveryLengthRowCountAndIsa) {
  std::uint64_t hash = HashBits({});
  for (const FormatTraits& format : Formats()) {
    for (const std::size_t k : kLengths) {
      if (k % format.block_values != 0) {
        continue;
      }
      LinearCase all(format, k, kWeightRows, 512, 7 * k + format.ggml_type);
      std::vector<float> expected;
      reference::Linear(all.Args(expected), 0, kWeightRows);
      hash = HashBits(expected, hash);
      for (const Isa isa : AvailableIsas()) {
        for (const std::size_t rows : kRows) {
          std::vector<float> y;
          LinearArgs args = all.Args(y);
          args.rows = rows;
          cpu::Linear(isa, args, 0, kWeightRows, all.scratch.span());
          const std::span<const float> made(y.data(), rows * kWeightRows);
          ASSERT_EQ(FirstDifference(made, expected), made.size())
              << format.name << " k " << k << " rows " << rows << " " << IsaName(isa);
        }
      }
    }
  }
  EXPECT_EQ(hash, kCommittedHash) << std::hex << hash;
}

TEST(Linear, EachRowAloneHasTheBitsItHasAmongOthers) {
  for (const FormatTraits& format : Formats()) {
    for (const std::size_t k : {256U, 768U}) {
      LinearCase all(format, k, kWeightRows, 33, k);
      for (const Isa isa : AvailableIsas()) {
        std::vector<float> together;
        cpu::Linear(isa, all.Args(together), 0, kWeightRows, all.scratch.span());
        std::vector<float> alone;
        LinearArgs args = all.Args(alone);
        for (std::int32_t row = 0; row < 33; ++row) {
          args.row_ids = &row;
          args.rows = 1;
          args.y = alone.data() + static_cast<std::size_t>(row) * kWeightRows;
          cpu::Linear(isa, args, 0, kWeightRows, all.scratch.span());
        }
        EXPECT_EQ(FirstDifference(alone, together), alone.size()) << format.name;
      }
    }
  }
}

// Odd shapes: any split of n, gathered rows, scale and bias, strides beyond the row.
TEST(Linear, OddShapesAndSplitsEqualTheReference) {
  testing::Random random(11);
  for (int round = 0; round < 120; ++round) {
    const auto formats = Formats();
    const FormatTraits& format = formats[random.Below(formats.size())];
    const std::size_t k = (1 + random.Below(5)) * std::max<std::size_t>(format.block_values, 1) +
                          (format.block_values == 1 ? random.Below(70) : 0);
    const std::size_t n = 1 + random.Below(21);
    const std::size_t rows = 1 + random.Below(14);
    LinearCase odd(format, k, n, rows, random.Next());
    const std::size_t used = 1 + random.Below(19);
    std::vector<std::int32_t> ids(used);
    for (auto& id : ids) {
      id = static_cast<std::int32_t>(random.Below(rows));
    }
    const std::vector<float> bias = random.Values(n);
    const float scale = random.Unit();
    std::vector<float> expected;
    LinearArgs args = odd.Args(expected);
    args.row_ids = ids.data();
    args.rows = used;
    args.scale = random.Below(2) == 0 ? &scale : nullptr;
    args.bias = random.Below(2) == 0 ? bias.data() : nullptr;
    args.y_stride = n + 3;
    expected.assign(used * args.y_stride, -5.0F);
    args.y = expected.data();
    reference::Linear(args, 0, n);
    const std::size_t cut = random.Below(n + 1);
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> y(expected.size(), -5.0F);
      args.y = y.data();
      std::size_t bytes = cpu::Linear(isa, args, 0, cut, odd.scratch.span());
      bytes += cpu::Linear(isa, args, cut, n, odd.scratch.span());
      EXPECT_EQ(bytes, n * RowBytes(format, k));
      ASSERT_EQ(FirstDifference(y, expected), y.size())
          << format.name << " k " << k << " n " << n << " rows " << used << " " << IsaName(isa);
    }
  }
}

TEST(Linear, IsTheProductOfDecodedWeightsWithinActivationRounding) {
  for (const FormatTraits& format : Formats()) {
    LinearCase any(format, 2048, 9, 4, 3);
    std::vector<float> y;
    cpu::Linear(DetectIsa(), any.Args(y), 0, 9, any.scratch.span());
    const WeightRows weight = {&format, any.weights.data(), RowBytes(format, 2048), 2048};
    double norm = 0.0;
    double error = 0.0;
    for (std::size_t r = 0; r < 4; ++r) {
      for (std::size_t n = 0; n < 9; ++n) {
        const double exact = reference::LinearF64(weight, n, any.x.data() + r * 2048);
        norm += exact * exact;
        error += (exact - y[r * 9 + n]) * (exact - y[r * 9 + n]);
      }
    }
    // Uniform codes of 127 levels: about 0.3 % of the norm; f32 sums: about 1e-7.
    const double bound = format.activation_group == 0 ? 1e-6 : 6e-3;
    EXPECT_LT(std::sqrt(error / norm), bound) << format.name;
  }
}

TEST(Linear, OneRowAndManyReadEachWeightOnce) {
  for (const FormatTraits& format : Formats()) {
    LinearCase any(format, 512, 16, 512, 3);
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> y;
      LinearArgs args = any.Args(y);
      const std::size_t many = cpu::Linear(isa, args, 0, 16, any.scratch.span());
      args.rows = 1;
      EXPECT_EQ(cpu::Linear(isa, args, 0, 16, any.scratch.span()), many);
      args.rows = 0;
      EXPECT_EQ(cpu::Linear(isa, args, 0, 16, any.scratch.span()), 0U);
    }
  }
}

// One block of extreme codes times activations at the clamp, on one and on nine rows: the integer
// sums of the rule's table, worked out by hand.
struct WorstCase {
  const char* what;
  int type;
  void (*fill)(std::byte* block);
  float x;       // all activations: codes are +-127, a = 1
  double value;  // sum of weight * x before rounding: d*I + m*S with a = 1
};

void FillQ4K(std::byte* block) {
  std::fill_n(block, 144, std::byte{0xFF});  // scales and mins 63, codes 15
  PutHalf(block, 1.0F);
  PutHalf(block + 2, 0.0F);
}
void FillQ4KMins(std::byte* block) {
  FillQ4K(block);
  std::fill_n(block + 16, 128, std::byte{0});  // codes 0
  PutHalf(block + 2, 1.0F);
}
void FillQ6KLow(std::byte* block) {
  std::fill_n(block, 192, std::byte{0});  // codes -32
  std::fill_n(block + 192, 16, std::byte{0x80});
  PutHalf(block + 208, 1.0F);
}
void FillQ6KHigh(std::byte* block) {
  std::fill_n(block, 192, std::byte{0xFF});  // codes 31
  std::fill_n(block + 192, 16, std::byte{0x80});
  PutHalf(block + 208, 1.0F);
}
void FillQ8(std::byte* block) {
  std::fill_n(block, 34, std::byte{0x80});  // codes -128
  PutHalf(block, 1.0F);
}

TEST(Linear, WorstCaseBlocksKeepTheExactIntegers) {
  const WorstCase cases[] = {
      {"Q4_K", 12, FillQ4K, 127.0F, 256.0 * 63 * 15 * 127},
      {"Q4_K", 12, FillQ4K, -127.0F, -256.0 * 63 * 15 * 127},
      {"Q4_K mins", 12, FillQ4KMins, 127.0F, -256.0 * 63 * 127},
      {"Q6_K low", 14, FillQ6KLow, 127.0F, 256.0 * 32 * 128 * 127},
      {"Q6_K low", 14, FillQ6KLow, -127.0F, -256.0 * 32 * 128 * 127},
      {"Q6_K high", 14, FillQ6KHigh, 127.0F, -256.0 * 31 * 128 * 127},
      {"Q8_0", 8, FillQ8, 127.0F, -32.0 * 128 * 127},
      {"Q8_0", 8, FillQ8, -127.0F, 32.0 * 128 * 127},
  };
  for (const WorstCase& worst : cases) {
    const FormatTraits& format = *FindFormat(worst.type);
    LinearCase any(format, format.block_values, 3, 9, 1);
    for (std::size_t n = 0; n < 3; ++n) {
      worst.fill(any.weights.data() + n * format.block_bytes);
    }
    std::fill(any.x.begin(), any.x.end(), worst.x);
    for (const Isa isa : AvailableIsas()) {
      cpu::QuantiseRows(isa, any.x.data(), any.k, any.Quantised(), 0, 9);
      for (const std::size_t rows : {1U, 9U}) {
        std::vector<float> y;
        LinearArgs args = any.Args(y);
        args.rows = rows;
        cpu::Linear(isa, args, 0, 3, any.scratch.span());
        for (std::size_t i = 0; i < rows * 3; ++i) {
          EXPECT_EQ(y[i], static_cast<float>(worst.value)) << worst.what << " " << IsaName(isa);
        }
      }
    }
  }
}

// Every product underflows to -0, and lanes a tail does not reach must keep that sign.
TEST(Linear, LanesBeyondATailKeepTheSignOfZero) {
  const FormatTraits& format = *FindFormat(0);
  for (const std::size_t k : {32U, 33U, 45U, 71U}) {
    LinearCase any(format, k, 3, 5, 1);
    const float tiny = 1e-30F;
    for (std::size_t at = 0; at < any.weights.size(); at += 4) {
      std::memcpy(any.weights.data() + at, &tiny, 4);
    }
    std::fill(any.x.begin(), any.x.end(), -1e-30F);
    for (const Isa isa : AvailableIsas()) {
      std::vector<float> y;
      cpu::Linear(isa, any.Args(y), 0, 3, any.scratch.span());
      for (const float value : y) {
        EXPECT_TRUE(value == 0.0F && std::signbit(value)) << k << " " << IsaName(isa);
      }
    }
  }
}

TEST(Linear, NotFiniteActivationsSpoilTheirRowOnly) {
  for (const FormatTraits& format : Formats()) {
    LinearCase any(format, 512, 9, 5, 5);
    any.x[2 * 512 + 300] = INFINITY;
    for (const Isa isa : AvailableIsas()) {
      if (format.activation_group != 0) {
        cpu::QuantiseRows(isa, any.x.data(), 512, any.Quantised(), 0, 5);
      }
      std::vector<float> y;
      cpu::Linear(isa, any.Args(y), 0, 9, any.scratch.span());
      for (std::size_t r = 0; r < 5; ++r) {
        for (std::size_t n = 0; n < 9; ++n) {
          EXPECT_EQ(std::isfinite(y[r * 9 + n]), r != 2) << format.name << " row " << r;
        }
      }
    }
  }
}

}  // namespace
}  // namespace bloomery::kernels
