#include "kernels-common/quant/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace bloomery::kernels::reference {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The largest magnitude, or NaN where a value is not finite.
float Magnitude(const float* x, std::size_t count) {
  float most = 0.0F;
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) {
      return kNan;
    }
    most = std::max(most, std::fabs(x[i]));
  }
  return most;
}

float QuantiseGroup(const float* x, std::size_t count, std::int8_t* codes) {
  std::fill_n(codes, count, std::int8_t{0});
  const float most = Magnitude(x, count);
  if (most != most) {
    return kNan;
  }
  if (most < 0x1p-100F) {
    return 0.0F;
  }
  const float r = 127.0F / most;
  for (std::size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::int8_t>(std::clamp(std::rint(x[i] * r), -127.0F, 127.0F));
  }
  return most / 127.0F;
}

void StoreHalf(std::byte* p, std::uint16_t half) { std::memcpy(p, &half, 2); }

std::uint16_t LoadHalf(const std::byte* p) {
  std::uint16_t half = 0;
  std::memcpy(&half, p, 2);
  return half;
}

void EncodeQ8Block(const float* x, std::byte* block) {
  std::int8_t codes[32] = {};
  const float most = Magnitude(x, 32);
  std::uint16_t half = 0x7E00;
  if (most == most) {
    half = FloatToHalf(std::min(most / 127.0F, 65504.0F));
    const float d = HalfToFloat(half);
    const float r = 1.0F / d;
    for (std::size_t i = 0; i < 32 && d > 0.0F; ++i) {
      codes[i] = static_cast<std::int8_t>(std::clamp(std::rint(x[i] * r), -127.0F, 127.0F));
    }
  }
  StoreHalf(block, half);
  std::memcpy(block + 2, codes, 32);
}

}  // namespace

void QuantiseRow(const float* x, const QuantisedRows& out, std::size_t row) {
  std::int8_t* codes = out.codes(row);
  for (std::size_t start = 0; start < out.k; start += out.group) {
    const std::size_t count = std::min(out.group, out.k - start);
    out.scales(row)[start / out.group] = QuantiseGroup(x + start, count, codes + start);
  }
  for (std::size_t i = 0; i < out.k / kSumValues; ++i) {
    int sum = 0;
    for (std::size_t j = 0; j < kSumValues; ++j) {
      sum += codes[i * kSumValues + j];
    }
    out.sums(row)[i] = static_cast<std::int16_t>(sum);
  }
}

void EncodeKvRow(KvType type, const float* values, std::size_t width, std::byte* row) {
  switch (type) {
    case KvType::kF32:
      std::memcpy(row, values, width * sizeof(float));
      break;
    case KvType::kF16:
      for (std::size_t i = 0; i < width; ++i) {
        StoreHalf(row + 2 * i, FloatToHalf(values[i]));
      }
      break;
    case KvType::kQ8_0:
      for (std::size_t i = 0; i < width / 32; ++i) {
        EncodeQ8Block(values + 32 * i, row + 34 * i);
      }
      break;
  }
}

void DecodeKvRow(KvType type, const std::byte* row, std::size_t width, float* values) {
  switch (type) {
    case KvType::kF32:
      std::memcpy(values, row, width * sizeof(float));
      break;
    case KvType::kF16:
      for (std::size_t i = 0; i < width; ++i) {
        values[i] = HalfToFloat(LoadHalf(row + 2 * i));
      }
      break;
    case KvType::kQ8_0:
      for (std::size_t i = 0; i < width; ++i) {
        const std::byte* block = row + i / 32 * 34;
        const auto code = static_cast<std::int8_t>(block[2 + i % 32]);
        values[i] = static_cast<float>(code) * HalfToFloat(LoadHalf(block));
      }
      break;
  }
}

}  // namespace bloomery::kernels::reference
