// The quantisers of the format table: how near they come, what they refuse, and that they are the
// same everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::Random;

std::vector<const FormatTraits*> Writable() {
  std::vector<const FormatTraits*> formats;
  for (const FormatTraits& format : Formats()) {
    if (format.quantise_row != nullptr) {
      formats.push_back(&format);
    }
  }
  return formats;
}

std::vector<std::byte> Quantise(const FormatTraits& format, const std::vector<float>& x,
                                const float* importance = nullptr) {
  std::vector<std::byte> row(RowBytes(format, x.size()), std::byte{0xA5});
  EXPECT_EQ(format.quantise_row(x.data(), importance, row.data(), x.size()), x.size());
  return row;
}

std::vector<float> RoundTrip(const FormatTraits& format, const std::vector<float>& x,
                             const float* importance = nullptr) {
  const std::vector<std::byte> row = Quantise(format, x, importance);
  std::vector<float> y(x.size());
  format.decode_row(row.data(), y.data(), y.size());
  return y;
}

// About a normal distribution: the sum of twelve uniform values.
std::vector<float> Gaussian(Random& random, std::size_t count) {
  std::vector<float> x(count);
  for (float& value : x) {
    value = 0.0F;
    for (int i = 0; i < 12; ++i) {
      value += random.Unit() * 0.5F;
    }
  }
  return x;
}

double SquaredError(const float* x, const float* y, std::size_t count) {
  double error = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    const double e = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    error += e * e;
  }
  return error;
}

double RelativeError(const std::vector<float>& x, const std::vector<float>& y) {
  const std::vector<float> zero(x.size(), 0.0F);
  return std::sqrt(SquaredError(x.data(), y.data(), x.size()) /
                   SquaredError(x.data(), zero.data(), x.size()));
}

TEST(Quantise, WritesTheTypesWePromise) {
  std::vector<std::string> names;
  for (const FormatTraits* format : Writable()) {
    names.emplace_back(format->name);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names,
            (std::vector<std::string>{"BF16", "F16", "F32", "IQ4_NL", "MXFP4", "Q4_0", "Q4_1",
                                      "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0"}));
}

// On normal values: bounds a little above what an ideal search gets (Q4_0: the best of all scales;
// the K types, Q4_1 and Q5_1: uniform steps over the range of 32 values).
TEST(Quantise, RelativeErrorOfNormalValuesIsWithinItsBound) {
  const std::pair<const char*, double> bounds[] = {
      {"F32", 0.0},     {"F16", 3e-4},    {"BF16", 2e-3},   {"Q8_0", 6e-3},     {"Q6_K", 2e-2},
      {"Q5_K", 3.7e-2}, {"Q4_K", 7.6e-2}, {"Q4_0", 9.0e-2}, {"IQ4_NL", 8.0e-2}, {"MXFP4", 1.3e-1},
      {"Q4_1", 7.6e-2}, {"Q5_0", 4.6e-2}, {"Q5_1", 3.7e-2}};
  Random random(3);
  const std::vector<float> x = Gaussian(random, 8192);
  for (const auto& [name, bound] : bounds) {
    for (const FormatTraits* format : Writable()) {
      if (format->name == std::string(name)) {
        EXPECT_LE(RelativeError(x, RoundTrip(*format, x)), bound) << name;
      }
    }
  }
}

// Every scale a block of 32 can have, tried one by one with the nearest of its 16 levels.
double BestByForce(const std::vector<float>& x, const std::vector<float>& scales,
                   const std::vector<float>& levels) {
  double best = std::numeric_limits<double>::infinity();
  for (const float d : scales) {
    double error = 0.0;
    for (const float value : x) {
      float nearest = std::numeric_limits<float>::infinity();
      for (const float level : levels) {
        nearest = std::min(nearest, std::fabs(value - d * level));
      }
      error += static_cast<double>(nearest) * static_cast<double>(nearest);
    }
    best = std::min(best, error);
  }
  return best;
}

TEST(Quantise, ScalesOf32AreNearTheBestOfAll) {
  std::vector<float> halves;
  for (std::uint32_t half = 0x2000; half < 0x4000; half += 3) {  // 2^-7 .. 2
    halves.push_back(HalfToFloat(static_cast<std::uint16_t>(half)));
    halves.push_back(-halves.back());
  }
  std::vector<float> powers;
  for (int e = -40; e < 40; ++e) {
    powers.push_back(std::ldexp(1.0F, e));
  }
  std::vector<float> whole;
  for (int q = -8; q < 8; ++q) {
    whole.push_back(static_cast<float>(q));
  }
  std::vector<float> wide;
  for (int q = -16; q < 16; ++q) {
    wide.push_back(static_cast<float>(q));
  }
  std::vector<float> table;
  std::vector<float> fp4;
  for (const int q : {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}) {
    table.push_back(static_cast<float>(q));
  }
  for (const int q : {0, 1, 2, 3, 4, 6, 8, 12}) {
    fp4.push_back(static_cast<float>(q));
    fp4.push_back(static_cast<float>(-q));
  }
  std::vector<float> small = halves;  // IQ4_NL's scales lie 16 times lower
  for (float& d : small) {
    d /= 16.0F;
  }
  Random random(7);
  double ours[4] = {};
  double best[4] = {};
  for (int round = 0; round < 12; ++round) {
    const std::vector<float> x = Gaussian(random, 32);
    const struct {
      int type;
      const std::vector<float>& scales;
      const std::vector<float>& levels;
    } cases[] = {{2, halves, whole}, {20, small, table}, {39, powers, fp4}, {6, halves, wide}};
    for (std::size_t i = 0; i < 4; ++i) {
      const std::vector<float> y = RoundTrip(*FindFormat(cases[i].type), x);
      ours[i] += SquaredError(x.data(), y.data(), 32);
      best[i] += BestByForce(x, cases[i].scales, cases[i].levels);
    }
  }
  EXPECT_LE(ours[0], 1.03 * best[0]) << "Q4_0";
  EXPECT_LE(ours[1], 1.04 * best[1]) << "IQ4_NL";
  EXPECT_LE(ours[3], 1.03 * best[3]) << "Q5_0";
  EXPECT_LE(ours[2], best[2] * (1.0 + 1e-6)) << "MXFP4 tries every exponent that can win";
}

// Against sub-blocks that each had a free f32 scale (and min) from their range: what the format
// rounds of them costs little, and the search gains more than that.
TEST(Quantise, TypesWithMinsBeatPlainRangesWithFreeScales) {
  Random random(11);
  const std::vector<float> x = Gaussian(random, 256 * 16);
  const auto plain = [&](std::size_t sub, float most, bool with_min) {
    double error = 0.0;
    for (std::size_t at = 0; at < x.size(); at += sub) {
      const auto [low, high] = std::minmax_element(x.begin() + at, x.begin() + at + sub);
      const float magnitude = std::max(std::fabs(*low), std::fabs(*high));
      const float d = with_min ? (*high - *low) / most : magnitude / most;
      const float base = with_min ? *low : 0.0F;
      for (std::size_t i = at; i < at + sub; ++i) {
        const float y = base + d * std::rint((x[i] - base) / d);
        error += static_cast<double>(x[i] - y) * static_cast<double>(x[i] - y);
      }
    }
    return error;
  };
  const auto ours = [&](int type) {
    const std::vector<float> y = RoundTrip(*FindFormat(type), x);
    return SquaredError(x.data(), y.data(), x.size());
  };
  EXPECT_LT(ours(12), 0.96 * plain(32, 15.0F, true));
  EXPECT_LT(ours(13), 0.98 * plain(32, 31.0F, true));
  EXPECT_LT(ours(14), 0.96 * plain(16, 31.0F, false));
  EXPECT_LT(ours(3), 0.94 * plain(32, 15.0F, true));
  EXPECT_LT(ours(7), 0.96 * plain(32, 31.0F, true));
}

// Q4_1 and Q5_1 alone can leave zero out of their range: values around 10 keep the steps of their
// own spread.
TEST(Quantise, MinsReachValuesAllOfOneSign) {
  Random random(13);
  for (const float offset : {10.0F, -10.0F}) {
    std::vector<float> x = random.Values(1024);
    for (float& value : x) {
      value += offset;
    }
    const auto root_mean_square = [&](int type) {
      const std::vector<float> y = RoundTrip(*FindFormat(type), x);
      return std::sqrt(SquaredError(x.data(), y.data(), x.size()) / 1024.0);
    };
    // A step over sqrt(12), and the rounding of m to an f16 near 10 (a step of 2^-7).
    EXPECT_LT(root_mean_square(3), 2.0 / 15.0 / std::sqrt(12.0) + 0x1p-9);
    EXPECT_LT(root_mean_square(7), 2.0 / 31.0 / std::sqrt(12.0) + 0x1p-9);
  }
}

// Bytes of every writable type over odd inputs, a hash a type: the same with gcc and clang, at any
// level, anywhere.
TEST(Quantise, BytesAreTheCommittedOnes) {
  const std::map<int, std::uint64_t> committed = {
      {0, 0xD80C22B040CF1F99ULL},   // F32
      {1, 0x58549263F1B2B4CDULL},   // F16
      {2, 0x7144BFA39E75796AULL},   // Q4_0
      {3, 0x19A0EABBF0515FADULL},   // Q4_1
      {6, 0xBA3CFDB7F49FE59EULL},   // Q5_0
      {7, 0xDFA5F80FCF35F140ULL},   // Q5_1
      {8, 0x683F2E7D0EC18545ULL},   // Q8_0
      {12, 0xB8DE96A8AF3B2618ULL},  // Q4_K
      {13, 0x2D0C6F21BD816831ULL},  // Q5_K
      {14, 0xD38215B66545C680ULL},  // Q6_K
      {20, 0x4E63CB253AA18E4CULL},  // IQ4_NL
      {30, 0x47152CEBA6ADDDE5ULL},  // BF16
      {39, 0xF4C1C5913F98D7F5ULL},  // MXFP4
  };
  for (const FormatTraits* format : Writable()) {
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    Random random(17);
    for (const float magnitude : {1.0F, 1e-3F, 1e-7F, 3000.0F}) {
      std::vector<float> x = random.Values(1024, magnitude);
      x[5] = -0.0F;
      x[300] *= 50.0F;
      std::fill(x.begin() + 512, x.begin() + 768, 0.25F * magnitude);
      const std::vector<float> importance = random.Values(1024);
      std::vector<float> weights(1024);
      std::transform(importance.begin(), importance.end(), weights.begin(),
                     [](float v) { return v * v; });
      if (format->ggml_type == 1 && magnitude > 1000.0F) {
        continue;  // 50 times that is no f16
      }
      for (const float* w : std::initializer_list<const float*>{nullptr, weights.data()}) {
        for (const std::byte byte : Quantise(*format, x, w)) {
          hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001B3ULL;
        }
      }
    }
    const auto row = committed.find(format->ggml_type);
    EXPECT_TRUE(row != committed.end() && row->second == hash)
        << "{" << format->ggml_type << ", 0x" << std::hex << std::uppercase << hash << "ULL},  // "
        << format->name;
  }
}

TEST(Quantise, ZerosStayZeroAndTinyBlocksBecomeZero) {
  for (const FormatTraits* format : Writable()) {
    std::vector<float> x(512, 0.0F);
    x[3] = -0.0F;
    for (const float value : RoundTrip(*format, x)) {
      ASSERT_EQ(value, 0.0F) << format->name;
    }
    if (format->ggml_type != 0 && format->ggml_type != 30) {
      std::fill(x.begin(), x.end(), 1e-40F);
      for (const float value : RoundTrip(*format, x)) {
        ASSERT_EQ(value, 0.0F) << format->name;
      }
    }
    // A block of one value comes back to within a step of its scale.
    std::fill(x.begin(), x.end(), -0.75F);
    for (const float value : RoundTrip(*format, x)) {
      ASSERT_NEAR(value, -0.75F, 0.006F) << format->name;
    }
  }
}

TEST(Quantise, TiesGoToTheEvenCodeAndToTheSmallerLevel) {
  std::vector<float> x(32, 0.0F);
  x[0] = 127.0F;  // Q8_0: d = 1
  x[1] = 0.5F;
  x[2] = 1.5F;
  x[3] = -2.5F;
  const std::vector<float> y = RoundTrip(*FindFormat(8), x);
  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 4), (std::vector<float>{127, 0, 2, -2}));
  std::fill(x.begin(), x.end(), 12.0F);  // MXFP4: d = 1
  x[1] = 10.0F;
  x[2] = -7.0F;
  x[3] = 0.5F;
  x[4] = -0.25F;
  const std::vector<float> z = RoundTrip(*FindFormat(39), x);
  EXPECT_EQ(std::vector<float>(z.begin(), z.begin() + 5), (std::vector<float>{12, 8, -6, 0, 0}));
  EXPECT_EQ(FloatToHalf(RoundTrip(*FindFormat(1), {1.0F + 0x1p-11F})[0]), FloatToHalf(1.0F));
  EXPECT_EQ(RoundTrip(*FindFormat(30), {1.0F + 0x1p-8F})[0], 1.0F);
  EXPECT_EQ(RoundTrip(*FindFormat(30), {1.0F + 0x1.8p-7F})[0], 1.0F + 0x1p-6F);
}

TEST(Quantise, ValuesThatAreNotFiniteAreRefusedByIndex) {
  for (const FormatTraits* format : Writable()) {
    std::vector<float> x(512, 1.0F);
    std::vector<std::byte> row(RowBytes(*format, x.size()));
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      x[333] = bad;
      EXPECT_EQ(format->quantise_row(x.data(), nullptr, row.data(), x.size()), 333U)
          << format->name;
    }
  }
}

TEST(Quantise, ValuesTooLargeForAnF16ScaleAreRefusedByIndex) {
  for (const FormatTraits* format : Writable()) {
    std::vector<float> x(512, 1.0F);
    std::vector<std::byte> row(RowBytes(*format, x.size()));
    x[400] = -3e38F;
    const bool wide = format->ggml_type == 0 || format->ggml_type == 30 || format->ggml_type == 39;
    EXPECT_EQ(format->quantise_row(x.data(), nullptr, row.data(), x.size()), wide ? 512U : 400U)
        << format->name;
  }
}

TEST(Quantise, ImportantValuesComeNearer) {
  Random random(19);
  const std::vector<float> x = Gaussian(random, 2048);
  std::vector<float> importance(x.size(), 0.01F);
  for (std::size_t i = 0; i < x.size(); i += 5) {
    importance[i] = 10.0F;
  }
  const std::vector<float> none(x.size(), 0.0F);
  for (const FormatTraits* format : Writable()) {
    if (format->activation_group == 0 || format->ggml_type == 8) {
      continue;  // no search to weigh
    }
    const auto error = [&](const std::vector<float>& y) {
      double sum = 0.0;
      for (std::size_t i = 0; i < x.size(); i += 5) {
        sum += static_cast<double>(x[i] - y[i]) * static_cast<double>(x[i] - y[i]);
      }
      return sum;
    };
    EXPECT_LT(error(RoundTrip(*format, x, importance.data())), 0.995 * error(RoundTrip(*format, x)))
        << format->name;
    EXPECT_LT(RelativeError(x, RoundTrip(*format, x, none.data())), 1.0) << "all weights zero";
  }
}

}  // namespace
}  // namespace bloomery::kernels
