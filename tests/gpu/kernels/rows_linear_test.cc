// Linears of decode passes against the references: bits, at every number of rows.
#include "kernels-common/linear/cuda/rows_linear.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels-common/linear/reference.h"
#include "kernels-common/norm/reference.h"
#include "kernels-common/quant/reference.h"
#include "tests/gpu/kernels/card_bank.h"
#include "tests/gpu/kernels/device.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::AlignedBytes;
using testing::CardBank;
using testing::CardFormats;
using testing::DeviceArray;
using testing::Finish;
using testing::Random;
using testing::SameBits;
using testing::TestLaunch;

constexpr float kEps = 1e-6F;
// Rows of a matrix of which two row tiles a warp are more than any card here has warps.
constexpr std::size_t kStreams = 102000;

// A matrix on the card and in the file's form.
class Matrix {
 public:
  Matrix(int type, std::size_t n, std::size_t k, Random& random)
      : format_(*FindFormat(type)),
        rows_(testing::RandomWeights(format_, k, n, random)),
        bias_(random.Values(n)),
        device_bias_(bias_) {
    weight_.format = &format_;
    weight_.n = n;
    weight_.k = k;
    if (format_.activation_group != 0) {
      bank_.emplace(format_, rows_, n, k, 1);
      weight_.data = bank_->weight().data;
    } else {
      floats_.emplace(rows_);
      weight_.data = floats_->data();
      weight_.row_bytes = RowBytes(format_, k);
    }
  }
  const cuda::CardWeight& weight() const { return weight_; }
  const float* bias() const { return device_bias_.data(); }

  // What the reference makes of f32 rows.
  std::vector<float> Expected(const std::vector<float>& x, std::size_t rows, bool bias) const {
    const std::size_t k = weight_.k;
    std::vector<float> y(rows * weight_.n);
    LinearArgs args;
    args.weight = {&format_, rows_.data(), RowBytes(format_, k), k};
    args.x = x.data();
    args.x_stride = k;
    AlignedBytes bytes(
        format_.activation_group == 0 ? 0 : QuantisedRowBytes(k, format_.activation_group) * rows);
    if (format_.activation_group != 0) {
      args.quantised = MakeQuantisedRows(bytes.data(), k, format_.activation_group);
      for (std::size_t row = 0; row < rows; ++row) {
        reference::QuantiseRow(x.data() + row * k, args.quantised, row);
      }
    }
    args.rows = rows;
    args.bias = bias ? bias_.data() : nullptr;
    args.y = y.data();
    args.y_stride = weight_.n;
    reference::Linear(args, 0, weight_.n);
    return y;
  }

 private:
  const FormatTraits& format_;
  std::vector<std::byte> rows_;
  std::vector<float> bias_;
  DeviceArray<float> device_bias_;
  std::optional<CardBank> bank_;
  std::optional<DeviceArray<std::byte>> floats_;
  cuda::CardWeight weight_;
};

std::vector<float> Normed(const std::vector<float>& x, std::size_t rows, std::size_t k,
                          const std::vector<float>& weight) {
  std::vector<float> y(x.size());
  RmsNormArgs args;
  args.x = x.data();
  args.x_stride = k;
  args.y = y.data();
  args.y_stride = k;
  args.dim = k;
  args.weight = weight.data();
  args.eps = kEps;
  reference::RmsNorm(args, 0, rows);
  return y;
}

void Prepare() { testing::Check(cuda::PrepareRowsLinear()); }

// One matrix, with or without a norm in front.
void ExpectReferenceBits(int type, std::size_t n, std::size_t k, std::size_t rows, bool norm) {
  Random random(n * 31 + k + rows);
  const Matrix matrix(type, n, k, random);
  const std::vector<float> x = random.Values(rows * k, 3.0F);
  const std::vector<float> weight = random.Values(k, 2.0F);
  const DeviceArray<float> device_x(x);
  const DeviceArray<float> device_weight(weight);
  const DeviceArray<float> y(rows * n, 0xFF);
  cuda::RowsLinearArgs args;
  args.x = device_x.data();
  args.x_stride = k;
  args.norm_weight = norm ? device_weight.data() : nullptr;
  args.eps = kEps;
  args.k = k;
  args.rows = static_cast<std::int32_t>(rows);
  args.count = 1;
  args.matrices[0].weight = matrix.weight();
  args.matrices[0].y = y.data();
  args.matrices[0].y_stride = n;
  Finish(cuda::RowsLinear(TestLaunch(), args));
  const std::vector<float> input = norm ? Normed(x, rows, k, weight) : x;
  EXPECT_TRUE(SameBits(y.Read(), matrix.Expected(input, rows, false)))
      << FindFormat(type)->name << " n " << n << " k " << k << " rows " << rows << " norm " << norm;
}

TEST(CardRowsLinear, EveryFormatHasTheReferencesBitsAtEveryRowCount) {
  Prepare();
  for (const FormatTraits* format : CardFormats()) {
    for (const std::size_t rows : {1, 2, 3, 7, 8}) {
      for (const std::size_t k : {64, 256, 640, 768, 2048}) {
        if (k % format->block_values != 0) continue;
        ExpectReferenceBits(format->ggml_type, 37, k, rows, rows % 2 == 1);
      }
    }
  }
}

TEST(CardRowsLinear, LongRowsAndManyGroups) {
  Prepare();
  for (const int type : {12, 13, 14, 8, 40, 10}) {
    for (const std::size_t k : {2304, 4096, 5120, 9472}) {
      ExpectReferenceBits(type, 40, k, 1, true);
      ExpectReferenceBits(type, 40, k, 5, false);
    }
  }
}

TEST(CardRowsLinear, MatricesThatStreamHaveTheSameBits) {
  Prepare();
  for (const int type : {12, 14, 13, 8}) {
    for (const std::size_t rows : {1, 2, 8}) {
      ExpectReferenceBits(type, kStreams + 9, 256, rows, true);
    }
  }
  ExpectReferenceBits(14, kStreams, 768, 1, false);
  ExpectReferenceBits(12, kStreams, 2048, 1, true);
}

TEST(CardRowsLinear, ACardOfLessSharedMemoryMakesTheSameBits) {
  const testing::LessSharedMemory less;
  Prepare();
  for (const std::size_t rows : {1, 8}) {
    for (const int type : {8, 12, 14, 40}) {
      ExpectReferenceBits(type, 96, 4096, rows, true);
      ExpectReferenceBits(type, 96, 8192, rows, false);
    }
    ExpectReferenceBits(12, kStreams, 256, rows, true);
    ExpectReferenceBits(1, 96, 2048, rows, true);
  }
}

TEST(CardRowsLinear, FloatFormatsFollowN8) {
  Prepare();
  for (const int type : {0, 1, 30}) {
    for (const std::size_t rows : {1, 3, 8}) {
      for (const std::size_t k : {32, 96, 2048, 2080, 4096}) {
        ExpectReferenceBits(type, 33, k, rows, rows != 3);
      }
    }
    ExpectReferenceBits(type, 9000, 96, 2, true);
  }
}

// Query, key and value of different formats, groups and sizes, with what a graph asks for beside:
// mapped rows, fewer live ones, scale, bias, residual in place, side outputs.
void ExpectMatricesAndSideOutputs(std::size_t k, const std::array<int, 4>& types) {
  const std::size_t source_rows = 11;
  const std::size_t n[4] = {400, 64, 33, 128};
  for (const std::size_t rows : {1, 4, 8}) {
    for (const std::size_t group : {32, 256}) {
      Random random(rows);
      const std::size_t live = rows == 1 ? 1 : rows - 1;
      const std::vector<float> source = random.Values(source_rows * k, 3.0F);
      std::vector<std::int32_t> map(rows);
      std::vector<float> x;
      for (std::size_t row = 0; row < rows; ++row) {
        map[row] = static_cast<std::int32_t>((row * 7 + 3) % source_rows);
        const float* from = source.data() + static_cast<std::size_t>(map[row]) * k;
        if (row < live) x.insert(x.end(), from, from + k);
      }
      const std::vector<float> weight = random.Values(k, 2.0F);
      const std::vector<float> normed = Normed(x, live, k, weight);
      const float scale = 0.37F;
      const DeviceArray<float> device_source(source);
      const DeviceArray<float> device_weight(weight);
      const DeviceArray<float> device_scale(std::vector<float>{scale});
      const DeviceArray<std::int32_t> device_map(map);
      const DeviceArray<std::int32_t> device_live(
          std::vector<std::int32_t>{static_cast<std::int32_t>(live)});
      std::vector<Matrix> matrices;
      std::vector<DeviceArray<float>> outputs;
      std::vector<std::vector<float>> before;
      matrices.reserve(4);
      for (int i = 0; i < 4; ++i) {
        matrices.emplace_back(types[static_cast<std::size_t>(i)], n[i], k, random);
        before.push_back(random.Values(rows * n[i]));
        outputs.emplace_back(before.back());
      }
      const DeviceArray<std::byte> side(rows * QuantisedRowBytes(k, group), 0xEE);
      const DeviceArray<float> side_f32(rows * k, 0xFF);
      cuda::RowsLinearArgs args;
      args.x = device_source.data();
      args.x_stride = k;
      args.norm_weight = device_weight.data();
      args.eps = kEps;
      args.k = k;
      args.rows = static_cast<std::int32_t>(rows);
      args.live = device_live.data();
      args.row_map = device_map.data();
      args.count = 4;
      for (std::size_t i = 0; i < 4; ++i) {
        args.matrices[i].weight = matrices[i].weight();
        args.matrices[i].y = outputs[i].data();
        args.matrices[i].y_stride = n[i];
        args.matrices[i].bias = i % 2 == 0 ? matrices[i].bias() : nullptr;
        args.matrices[i].scale = i == 1 ? device_scale.data() : nullptr;
        args.matrices[i].residual = i != 2 ? outputs[i].data() : nullptr;
        args.matrices[i].residual_stride = n[i];
      }
      args.normed = MakeQuantisedRows(side.data(), k, group);
      args.normed_f32 = side_f32.data();
      Finish(cuda::RowsLinear(TestLaunch(), args));
      for (std::size_t i = 0; i < 4; ++i) {
        std::vector<float> expected = matrices[i].Expected(normed, live, i % 2 == 0);
        for (std::size_t at = 0; at < expected.size(); ++at) {
          const float value = i == 1 ? expected[at] * scale : expected[at];
          expected[at] = i != 2 ? before[i][at] + value : value;
        }
        expected.insert(expected.end(), before[i].begin() + static_cast<long>(live * n[i]),
                        before[i].end());
        EXPECT_TRUE(SameBits(outputs[i].Read(), expected)) << "matrix " << i << " rows " << rows;
      }
      const std::vector<float> got_f32 = side_f32.Read();
      EXPECT_TRUE(SameBits(std::span(got_f32).first(live * k), normed));
      AlignedBytes expected_side(live * QuantisedRowBytes(k, group));
      const QuantisedRows quantised = MakeQuantisedRows(expected_side.data(), k, group);
      std::vector<std::byte> got = side.Read();
      const QuantisedRows on_card = MakeQuantisedRows(got.data(), k, group);
      for (std::size_t row = 0; row < live; ++row) {
        reference::QuantiseRow(normed.data() + row * k, quantised, row);
        EXPECT_EQ(std::memcmp(quantised.codes(row), on_card.codes(row), k), 0);
        EXPECT_EQ(std::memcmp(quantised.scales(row), on_card.scales(row), k / group * 4), 0);
        EXPECT_EQ(std::memcmp(quantised.sums(row), on_card.sums(row), k / 16 * 2), 0);
      }
    }
  }
}

TEST(CardRowsLinear, MatricesOfOneInputAndSideOutputs) {
  Prepare();
  ExpectMatricesAndSideOutputs(1024, {12, 14, 8, 0});
  for (const std::size_t k : {1024, 2304, 4096}) ExpectMatricesAndSideOutputs(k, {0, 30, 0, 1});
}

// The shapes whose few rows have kernels of their own, alone and beside rows that do not live.
TEST(CardRowsLinear, FewRowsAtTheShapesWhereDecodeIsMeasured) {
  Prepare();
  const std::size_t source_rows = 9;
  const int types[3] = {12, 14, 12};
  const std::size_t n[3] = {400, 64, 37};
  for (const std::size_t rows : {2, 3, 5, 8}) {
    for (const std::size_t k : {2048, 4096}) {
      for (const std::size_t live : {rows, rows - 1, std::size_t{0}}) {
        SCOPED_TRACE(::testing::Message() << "rows " << rows << " k " << k << " live " << live);
        Random random(rows + k);
        const bool norm = (k == 2048) == (rows != 3);
        const std::vector<float> source = random.Values(source_rows * k, 3.0F);
        const std::vector<float> weight = random.Values(k, 2.0F);
        std::vector<std::int32_t> map(rows);
        std::vector<float> x;
        for (std::size_t row = 0; row < rows; ++row) {
          map[row] = static_cast<std::int32_t>((row * 7 + 3) % source_rows);
          const float* from = source.data() + static_cast<std::size_t>(map[row]) * k;
          if (row < live) x.insert(x.end(), from, from + k);
        }
        const std::vector<float> input = norm ? Normed(x, live, k, weight) : x;
        const float scale = 0.37F;
        const DeviceArray<float> device_source(source);
        const DeviceArray<float> device_weight(weight);
        const DeviceArray<float> device_scale(std::vector<float>{scale});
        const DeviceArray<std::int32_t> device_map(map);
        const DeviceArray<std::int32_t> device_live(
            std::vector<std::int32_t>{static_cast<std::int32_t>(live)});
        std::vector<Matrix> matrices;
        std::vector<DeviceArray<float>> outputs;
        std::vector<std::vector<float>> before;
        matrices.reserve(3);
        cuda::RowsLinearArgs args;
        args.x = device_source.data();
        args.x_stride = k;
        args.norm_weight = norm ? device_weight.data() : nullptr;
        args.eps = kEps;
        args.k = k;
        args.rows = static_cast<std::int32_t>(rows);
        args.live = device_live.data();
        args.row_map = device_map.data();
        args.count = 3;
        for (std::size_t i = 0; i < 3; ++i) {
          matrices.emplace_back(types[i], n[i], k, random);
          before.push_back(random.Values(rows * n[i]));
          outputs.emplace_back(before.back());
          args.matrices[i].weight = matrices[i].weight();
          args.matrices[i].y = outputs[i].data();
          args.matrices[i].y_stride = n[i];
          args.matrices[i].bias = i == 0 ? matrices[i].bias() : nullptr;
          args.matrices[i].scale = i == 1 ? device_scale.data() : nullptr;
          args.matrices[i].residual = i != 2 ? outputs[i].data() : nullptr;
          args.matrices[i].residual_stride = n[i];
        }
        Finish(cuda::RowsLinear(TestLaunch(), args));
        for (std::size_t i = 0; i < 3; ++i) {
          std::vector<float> expected = matrices[i].Expected(input, live, i == 0);
          for (std::size_t at = 0; at < expected.size(); ++at) {
            const float value = i == 1 ? expected[at] * scale : expected[at];
            expected[at] = i != 2 ? before[i][at] + value : value;
          }
          expected.insert(expected.end(), before[i].begin() + static_cast<long>(live * n[i]),
                          before[i].end());
          EXPECT_TRUE(SameBits(outputs[i].Read(), expected)) << "matrix " << i;
        }
      }
    }
  }
}

// Ties, tiny groups, infinities: N2's corners in front of a matrix.
TEST(CardRowsLinear, OddActivationsAreQuantisedAsTheReferenceDoes) {
  Prepare();
  const std::size_t k = 1024;
  const std::size_t n = 32;
  for (const int type : {12, 8}) {
    Random random(3);
    const Matrix matrix(type, n, k, random);
    const std::size_t rows = 5;
    std::vector<float> x = random.Values(rows * k);
    for (std::size_t i = 0; i < k; ++i) {
      x[i] = static_cast<float>(i % 255) - 127.0F + (i % 3 == 0 ? 0.5F : 0.0F);
      x[k + i] *= 1e-33F;
      x[2 * k + i] = i < 256 ? 0.0F : x[2 * k + i];
    }
    x[3 * k + 300] = std::numeric_limits<float>::infinity();
    x[4 * k + 900] = std::numeric_limits<float>::quiet_NaN();
    const DeviceArray<float> device_x(x);
    const DeviceArray<float> y(rows * n, 0);
    cuda::RowsLinearArgs args;
    args.x = device_x.data();
    args.x_stride = k;
    args.k = k;
    args.rows = static_cast<std::int32_t>(rows);
    args.count = 1;
    args.matrices[0].weight = matrix.weight();
    args.matrices[0].y = y.data();
    args.matrices[0].y_stride = n;
    Finish(cuda::RowsLinear(TestLaunch(), args));
    EXPECT_TRUE(SameBits(y.Read(), matrix.Expected(x, rows, false)));
  }
}

TEST(CardRowsLinear, WhatItCannotDoIsRefused) {
  Prepare();
  Random random(1);
  const Matrix matrix(12, 16, 256, random);
  cuda::RowsLinearArgs args;
  args.k = 256;
  args.rows = 1;
  args.count = 1;
  args.matrices[0].weight = matrix.weight();
  for (const std::int32_t rows : {0, 9}) {
    args.rows = rows;
    EXPECT_EQ(cuda::RowsLinear(TestLaunch(), args), cudaErrorInvalidValue);
  }
  args.rows = 1;
  args.k = 512;
  EXPECT_EQ(cuda::RowsLinear(TestLaunch(), args), cudaErrorInvalidValue);
  args.k = 256;
  args.matrices[0].weight.format = FindFormat(34);  // no card form
  EXPECT_EQ(cuda::RowsLinear(TestLaunch(), args), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace bloomery::kernels
