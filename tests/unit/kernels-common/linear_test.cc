#include "kernels-common/linear/cpu/linear.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "kernels-common/linear/reference.h"
#include "kernels-common/quant/iq_tables.h"
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

// The bits of y for every length and instruction set, a hash a format. The same with gcc and clang,
// -O0 and -O3, on every machine; a change of one changes the answers of every model of that type.
struct CommittedHash {
  int ggml_type;
  std::uint64_t hash;
};
constexpr CommittedHash kCommittedHashes[] = {
    {0, 0xAC4FBA5BB930A80BULL},   // F32
    {1, 0xCAD4D4AB31BC5FF9ULL},   // F16
    {2, 0x1D16359F458FA20AULL},   // Q4_0
    {3, 0xED98EDA7359EF066ULL},   // Q4_1
    {6, 0xD03682FBF3C0F69CULL},   // Q5_0
    {7, 0x3B3A28D9ADC20601ULL},   // Q5_1
    {8, 0x9841F46B394B2193ULL},   // Q8_0
    {10, 0xEB454F55C2C08493ULL},  // Q2_K
    {11, 0x7CB765F5C6CE6BC7ULL},  // Q3_K
    {12, 0x174CDC3C5DB0EB54ULL},  // Q4_K
    {13, 0xA9ABC3FF6A0393DFULL},  // Q5_K
    {14, 0x5C446261ABD97841ULL},  // Q6_K
    {16, 0xE83166404519CFF8ULL},  // IQ2_XXS
    {17, 0x1DCAA27C2C6690D6ULL},  // IQ2_XS
    {18, 0x46310E32C1E2D973ULL},  // IQ3_XXS
    {19, 0x212BFC49DEEA4961ULL},  // IQ1_S
    {20, 0xF83BEA6843D883DEULL},  // IQ4_NL
    {21, 0x3CF43E1FD39E061EULL},  // IQ3_S
    {22, 0x23646FD6EF04A512ULL},  // IQ2_S
    {23, 0x13C060344F2935D9ULL},  // IQ4_XS
    {29, 0xC5B86BCFFBC94530ULL},  // IQ1_M
    {30, 0xCA9284E1F7DD4129ULL},  // BF16
    {34, 0x24D7A3ADF27594FEULL},  // TQ1_0
    {35, 0xE6E72C2B55A575EEULL},  // TQ2_0
    {39, 0x2C7C3E5EAE5D53C3ULL},  // MXFP4
    {40, 0x5C814E520252A039ULL},  // NVFP4
};

TEST(Linear, BitsAreTheCommittedOnesForEveryLengthRowCountAndIsa) {
  ASSERT_EQ(std::size(kCommittedHashes), Formats().size());
  for (const FormatTraits& format : Formats()) {
    std::uint64_t hash = HashBits({});
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
    const auto* committed =
        std::find_if(std::begin(kCommittedHashes), std::end(kCommittedHashes),
                     [&](const CommittedHash& row) { return row.ggml_type == format.ggml_type; });
    ASSERT_NE(committed, std::end(kCommittedHashes)) << format.name;
    EXPECT_EQ(hash, committed->hash)
        << format.name << ": {" << format.ggml_type << ", 0x" << std::hex << hash << "ULL},";
  }
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

// A block of extreme codes times activations at the clamp, on few and on many rows: the largest
// integers of the rule's table, worked out by hand.
struct WorstCase {
  const char* what;
  int type;
  void (*fill)(std::byte* block);
  float x;       // all activations: codes are +-127, a = 1
  double value;  // sum of weight * x before rounding: d*I + m*S with a = 1
};

// All bytes alike, then the scale (and what lies after it) at `d_at`; where it has one, the min.
template <std::size_t kBytes, unsigned kByte, std::size_t kScaleAt, int kMin = -1, int kMinAt = -1>
void Fill(std::byte* block) {
  std::fill_n(block, kBytes, static_cast<std::byte>(kByte));
  PutHalf(block + kScaleAt, 1.0F);
  if (kMinAt >= 0) {
    PutHalf(block + kMinAt, static_cast<float>(kMin));
  }
}
void FillQ4KMins(std::byte* block) {
  Fill<144, 0xFF, 0, 1, 2>(block);             // scales and mins 63
  std::fill_n(block + 16, 128, std::byte{0});  // codes 0
}
void FillQ2KMins(std::byte* block) {
  Fill<84, 0, 80, 1, 82>(block);
  std::fill_n(block, 16, std::byte{0xF0});  // scales 0, mins 15
}
void FillQ3K(std::byte* block) {
  Fill<110, 0, 108>(block);  // codes -4, scales -32
}
void FillQ6K(std::byte* block, unsigned codes) {
  std::fill_n(block, 192, static_cast<std::byte>(codes));
  std::fill_n(block + 192, 16, std::byte{0x80});  // scales -128
  PutHalf(block + 208, 1.0F);
}
void FillQ6KLow(std::byte* block) { FillQ6K(block, 0); }      // codes -32
void FillQ6KHigh(std::byte* block) { FillQ6K(block, 0xFF); }  // codes 31
void FillIq4Xs(std::byte* block) { Fill<136, 0, 0>(block); }  // codes -127, scales -32
void FillIq2Signs(std::byte* block, std::size_t signs, std::size_t scales) {
  // The entry with all values 43, every sign set, scales 31 (of d/8).
  std::fill_n(block + signs, 32, std::byte{0xFF});
  std::fill_n(block + scales, 8, std::byte{0xFF});
  PutHalf(block, 8.0F);
}
std::size_t EntryOfAll(std::span<const std::uint64_t> grid, std::uint64_t byte) {
  const auto* const at =
      std::find(grid.data(), grid.data() + grid.size(), byte * 0x0101010101010101);
  return static_cast<std::size_t>(at - grid.data());
}
void FillIq2S(std::byte* block) {
  const std::size_t entry = EntryOfAll(kIq2SGrid, 43);
  ASSERT_LT(entry, kIq2SGrid.size());
  std::fill_n(block + 2, 32, static_cast<std::byte>(entry & 255U));
  std::fill_n(block + 66, 8, static_cast<std::byte>((entry >> 8U) * 0x55U));
  FillIq2Signs(block, 34, 74);
}
void FillMxfp4(std::byte* block) {
  std::fill_n(block, 17, std::byte{0xFF});  // codes -12
  block[0] = std::byte{128};                // d = 1
}
void FillNvfp4(std::byte* block) {
  std::fill_n(block, 36, std::byte{0x77});  // codes 12
  std::fill_n(block, 4, std::byte{0x7E});   // 448/2
}

TEST(Linear, WorstCaseBlocksKeepTheExactIntegers) {
  const WorstCase cases[] = {
      {"Q4_0", 2, Fill<18, 0, 0>, 127.0F, -32.0 * 8 * 127},
      {"Q4_1", 3, Fill<20, 0xFF, 0, 2, 2>, 127.0F, 32.0 * (15 + 2) * 127},
      {"Q5_0", 6, Fill<22, 0, 0>, 127.0F, -32.0 * 16 * 127},
      {"Q5_1", 7, Fill<24, 0xFF, 0, 2, 2>, -127.0F, -32.0 * (31 + 2) * 127},
      {"Q8_0", 8, Fill<34, 0x80, 0>, 127.0F, -32.0 * 128 * 127},
      {"Q8_0", 8, Fill<34, 0x80, 0>, -127.0F, 32.0 * 128 * 127},
      {"Q2_K", 10, Fill<84, 0xFF, 80, 0, 82>, 127.0F, 256.0 * 15 * 3 * 127},
      {"Q2_K mins", 10, FillQ2KMins, 127.0F, -256.0 * 15 * 127},
      {"Q3_K", 11, FillQ3K, 127.0F, 256.0 * 32 * 4 * 127},
      {"Q3_K", 11, FillQ3K, -127.0F, -256.0 * 32 * 4 * 127},
      {"Q4_K", 12, Fill<144, 0xFF, 0, 0, 2>, 127.0F, 256.0 * 63 * 15 * 127},
      {"Q4_K", 12, Fill<144, 0xFF, 0, 0, 2>, -127.0F, -256.0 * 63 * 15 * 127},
      {"Q4_K mins", 12, FillQ4KMins, 127.0F, -256.0 * 63 * 127},
      {"Q5_K", 13, Fill<176, 0xFF, 0, 0, 2>, 127.0F, 256.0 * 63 * 31 * 127},
      {"Q5_K", 13, Fill<176, 0xFF, 0, 0, 2>, -127.0F, -256.0 * 63 * 31 * 127},
      {"Q6_K low", 14, FillQ6KLow, 127.0F, 256.0 * 32 * 128 * 127},
      {"Q6_K low", 14, FillQ6KLow, -127.0F, -256.0 * 32 * 128 * 127},
      {"Q6_K high", 14, FillQ6KHigh, 127.0F, -256.0 * 31 * 128 * 127},
      {"IQ4_NL", 20, Fill<18, 0, 0>, 127.0F, -32.0 * 127 * 127},
      {"IQ4_XS", 23, FillIq4Xs, 127.0F, 256.0 * 32 * 127 * 127},
      {"IQ4_XS", 23, FillIq4Xs, -127.0F, -256.0 * 32 * 127 * 127},
      {"IQ2_S", 22, FillIq2S, 127.0F, -256.0 * 31 * 43 * 127},
      {"IQ2_S", 22, FillIq2S, -127.0F, 256.0 * 31 * 43 * 127},
      {"MXFP4", 39, FillMxfp4, 127.0F, -32.0 * 12 * 127},
      {"NVFP4", 40, FillNvfp4, 127.0F, 64.0 * 224 * 12 * 127},
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

// Random blocks of every format: where all scales are powers of two, y is I exactly, and I is what
// int64 makes of the decoded integers.
TEST(Linear, RandomBlocksGiveTheIntegersOfInt64) {
  testing::Random random(23);
  for (const FormatTraits& format : Formats()) {
    if (format.unpack_block == nullptr || format.form != BlockForm::kScale) {
      continue;
    }
    const std::size_t group = format.activation_group;
    LinearCase any(format, group, 16, 5, random.Next());
    IntegerBlock block;
    for (const Isa isa : AvailableIsas()) {
      for (const std::size_t rows : {1U, 5U}) {
        std::vector<float> y;
        LinearArgs args = any.Args(y);
        args.rows = rows;
        cpu::Linear(isa, args, 0, 16, any.scratch.span());
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t n = 0; n < 16; ++n) {
            format.unpack_block(any.weights.data() + n * format.block_bytes, &block);
            std::int64_t sum = 0;
            for (std::size_t i = 0; i < group; ++i) {
              sum += static_cast<std::int64_t>(block.scales[i / kSumValues]) * block.codes[i] *
                     any.Quantised().codes(r)[i];
            }
            const float u = block.d * static_cast<float>(sum);
            EXPECT_EQ(y[r * 16 + n], any.Quantised().scales(r)[0] * u)
                << format.name << " " << IsaName(isa);
          }
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

// Bytes before a page that nobody may touch: weights may be the last bytes of a mapped file.
class FencedBytes {
 public:
  explicit FencedBytes(std::span<const std::byte> bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t pages = (bytes.size() + page - 1) / page * page;
    mapped_ = pages + page;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) {
      std::abort();
    }
    auto* end = static_cast<std::byte*>(base_) + pages;
    mprotect(end, page, PROT_NONE);
    data_ = end - bytes.size();
    std::copy(bytes.begin(), bytes.end(), data_);
  }
  ~FencedBytes() { munmap(base_, mapped_); }
  FencedBytes(const FencedBytes&) = delete;
  FencedBytes& operator=(const FencedBytes&) = delete;

  const std::byte* data() const { return data_; }

 private:
  void* base_;
  std::size_t mapped_;
  std::byte* data_;
};

// Also every number of rows that has a kernel of its own.
TEST(Linear, NothingIsReadPastTheLastWeight) {
  for (const FormatTraits& format : Formats()) {
    for (const std::size_t k : {std::size_t{format.block_values}, std::size_t{768}}) {
      if (k % format.block_values != 0) {
        continue;
      }
      for (const std::size_t n : {1U, 3U, 16U, 35U}) {
        LinearCase any(format, k, n, 13, k + n);
        const FencedBytes weights(any.weights);
        for (const std::size_t rows : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 12U, 13U}) {
          any.rows = rows;
          std::vector<float> expected;
          reference::Linear(any.Args(expected), 0, n);
          for (const Isa isa : AvailableIsas()) {
            std::vector<float> y;
            LinearArgs args = any.Args(y);
            args.weight.data = weights.data();
            cpu::Linear(isa, args, 0, n, any.scratch.span());
            ASSERT_EQ(FirstDifference(y, expected), y.size())
                << format.name << " k " << k << " n " << n << " rows " << rows << " "
                << IsaName(isa);
          }
        }
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
