// The AMX kernels on emulated tiles: packing, planes and orders are tested on any machine with
// AVX-512, whatever its tiles. The tests of linear_test.cc run the real ones where there are any.
#include <gtest/gtest.h>

#include "kernels-common/linear/reference.h"
#include "tests/unit/kernels-common/amx_emulated.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::EmulatedTileKernel;
using testing::FirstDifference;
using testing::LinearCase;
using testing::PutHalf;
using testing::Random;

bool CanRun() { return DetectIsa() >= Isa::kAvx512Vnni; }

TEST(AmxLinear, EmulatedTilesGiveTheBitsOfTheReferenceForEveryShape) {
  if (!CanRun()) GTEST_SKIP() << "this machine has no AVX-512 VNNI";
  std::size_t kernels = 0;
  for (const FormatTraits& format : Formats()) {
    cpu::LinearFunction* const run = EmulatedTileKernel(format);
    if (run == nullptr) continue;
    ++kernels;
    for (const std::size_t k : {256U, 768U, 1280U}) {
      for (const std::size_t n : {1U, 16U, 37U}) {
        LinearCase any(format, k, n, 300, 5 * k + n);
        for (const std::size_t rows : {1U, 2U, 7U, 15U, 16U, 17U, 33U, 48U, 255U, 257U, 300U}) {
          if (rows > 48 && (n != 37 || k != 768)) continue;
          const float scale = 0.75F;
          Random random(rows);
          const std::vector<float> bias = random.Values(n);
          std::vector<float> expected;
          LinearArgs args = any.Args(expected);
          args.rows = rows;
          args.scale = &scale;
          args.bias = bias.data();
          expected.assign(rows * n, -5.0F);
          args.y = expected.data();
          reference::Linear(args, 0, n);
          std::vector<float> y(rows * n, -5.0F);
          args.y = y.data();
          run(args, 0, n / 3, any.scratch.data());
          run(args, n / 3, n, any.scratch.data());
          ASSERT_EQ(FirstDifference(y, expected), y.size())
              << format.name << " k " << k << " n " << n << " rows " << rows;
        }
      }
    }
  }
  EXPECT_EQ(kernels, 13U);
}

// Every scale, min and code at the ends of their ranges, and activations at theirs: the planes of
// Q6_K must hold -32 * -128 = 4096 and the sums 256 * 4096 * 127, the parts of a sum of mins 32 *
// 127.
TEST(AmxLinear, PlanesHoldTheWorstProducts) {
  if (!CanRun()) GTEST_SKIP() << "this machine has no AVX-512 VNNI";
  struct Worst {
    const char* what;
    int type;
    std::uint8_t fill;          // of all bytes, before d
    std::size_t scales, bytes;  // where other bytes lie
    std::uint8_t scale_fill;
    std::size_t d;
    double product;  // of a code and its scale, or less a min
    bool min = false;
  };
  const Worst cases[] = {
      {"Q2_K", 10, 0xFF, 0, 16, 0x0F, 80, 3.0 * 15},
      {"Q2_K min", 10, 0xFF, 0, 16, 0xF0, 80, -15.0, true},
      {"Q3_K", 11, 0x00, 96, 12, 0x00, 108, 4.0 * 32},
      {"Q3_K other sign", 11, 0x00, 96, 12, 0xFF, 108, -4.0 * 31},
      {"Q4_K", 12, 0xFF, 4, 12, 0xFF, 0, 15.0 * 63},
      {"Q4_K min", 12, 0xFF, 4, 12, 0xFF, 0, -63.0, true},
      {"Q5_K", 13, 0xFF, 4, 12, 0xFF, 0, 31.0 * 63},
      {"Q5_K min", 13, 0xFF, 4, 12, 0xFF, 0, -63.0, true},
      {"Q6_K low low", 14, 0x00, 192, 16, 0x80, 208, 32.0 * 128},
      {"Q6_K low high", 14, 0x00, 192, 16, 0x7F, 208, -32.0 * 127},
      {"Q6_K high low", 14, 0xFF, 192, 16, 0x80, 208, -31.0 * 128},
      {"Q6_K high high", 14, 0xFF, 192, 16, 0x7F, 208, 31.0 * 127},
      {"IQ4_XS", 23, 0x00, 2, 6, 0x00, 0, 127.0 * 32},
      {"IQ4_XS other sign", 23, 0xFF, 2, 6, 0x00, 0, -113.0 * 32},
  };
  for (const Worst& worst : cases) {
    const FormatTraits& format = *FindFormat(worst.type);
    LinearCase any(format, 256, 16, 16, 1);
    for (std::size_t at = 0; at < any.weights.size(); at += format.block_bytes) {
      std::byte* block = any.weights.data() + at;
      std::fill_n(block, format.block_bytes, static_cast<std::byte>(worst.fill));
      std::fill_n(block + worst.scales, worst.bytes, static_cast<std::byte>(worst.scale_fill));
      PutHalf(block + worst.d, worst.min ? 0.0F : 1.0F);
      if (worst.type == 10 || worst.type == 12 || worst.type == 13) {
        PutHalf(block + worst.d + 2, worst.min ? 1.0F : 0.0F);  // dmin
      }
    }
    for (const float x : {127.0F, -127.0F}) {
      std::fill(any.x.begin(), any.x.end(), x);
      cpu::QuantiseRows(Isa::kScalar, any.x.data(), 256, any.Quantised(), 0, 16);
      std::vector<float> y;
      EmulatedTileKernel(format)(any.Args(y), 0, 16, any.scratch.data());
      for (const float value : y) {
        ASSERT_EQ(value, static_cast<float>(256.0 * worst.product * x)) << worst.what << " " << x;
      }
    }
  }
}

}  // namespace
}  // namespace bloomery::kernels
