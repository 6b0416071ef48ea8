#include "kernels-common/linear/reference.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

namespace bloomery::kernels::reference {
namespace {

constexpr std::size_t kLanes = 32;

float Tree(float* lanes) {
  for (std::size_t step = kLanes / 2; step > 0; step /= 2) {
    for (std::size_t i = 0; i < step; ++i) {
      lanes[i] += lanes[i + step];
    }
  }
  return lanes[0];
}

// N4 of one activation group: all of a block, or 32 codes of one with pair scales.
float GroupValue(const FormatTraits& format, const IntegerBlock& block, std::size_t first,
                 const std::int8_t* q) {
  std::int64_t products[2] = {};  // of the first and second 16 codes, where pair scales tell them
  std::int64_t sums = 0;
  const std::size_t count = format.activation_group;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t part = (first + i) / kSumValues;
    products[i < kSumValues ? 0 : 1] +=
        static_cast<std::int64_t>(block.scales[part]) * block.codes[first + i] * q[i];
    sums += static_cast<std::int64_t>(block.mins[part]) * q[i];
  }
  const auto exact = [](std::int64_t sum) {
    return static_cast<float>(static_cast<std::int32_t>(sum));
  };
  if (format.form == BlockForm::kPairScales) {
    const float* scales = block.pair_scales + first / kSumValues;
    return std::fma(scales[1], exact(products[1]), scales[0] * exact(products[0]));
  }
  const float product = exact(products[0] + products[1]);
  if (format.form == BlockForm::kScale) {
    return block.d * product;
  }
  return std::fma(block.d, product, block.m * exact(sums));
}

float FloatDot(const WeightRows& weight, std::size_t n, const float* x) {
  std::vector<float> decoded(weight.k);
  weight.format->decode_row(weight.data + n * weight.row_bytes, decoded.data(), weight.k);
  return Dot32(decoded.data(), x, weight.k);
}

}  // namespace

float Dot32(const float* a, const float* b, std::size_t k) {
  float lanes[kLanes] = {};
  for (std::size_t i = 0; i < k; ++i) {
    lanes[i % kLanes] = std::fma(a[i], b[i], lanes[i % kLanes]);
  }
  return Tree(lanes);
}

float Sum32(const float* a, std::size_t k) {
  float lanes[kLanes] = {};
  for (std::size_t i = 0; i < k; ++i) {
    lanes[i % kLanes] += a[i];
  }
  return Tree(lanes);
}

float IntegerDot(const WeightRows& weight, std::size_t n, const QuantisedRows& x, std::size_t row) {
  const FormatTraits& format = *weight.format;
  assert(x.group == format.activation_group && x.k == weight.k);
  const std::byte* source = weight.data + n * weight.row_bytes;
  IntegerBlock block;
  float y = 0.0F;
  for (std::size_t step = 0; step < weight.k; step += kStepValues) {
    float t = 0.0F;
    const std::size_t end = std::min(step + kStepValues, weight.k);
    for (std::size_t start = step; start < end; start += format.block_values) {
      format.unpack_block(source, &block);
      source += format.block_bytes;
      for (std::size_t first = 0; first < format.block_values; first += x.group) {
        const float u = GroupValue(format, block, first, x.codes(row) + start + first);
        t = std::fma(x.scales(row)[(start + first) / x.group], u, t);
      }
    }
    y = y + t;
  }
  return y;
}

void Linear(const LinearArgs& args, std::size_t n_begin, std::size_t n_end) {
  const bool integer = args.weight.format->activation_group != 0;
  for (std::size_t r = 0; r < args.rows; ++r) {
    const auto row = args.row_ids == nullptr ? r : static_cast<std::size_t>(args.row_ids[r]);
    for (std::size_t n = n_begin; n < n_end; ++n) {
      float y = integer ? IntegerDot(args.weight, n, args.quantised, row)
                        : FloatDot(args.weight, n, args.x + row * args.x_stride);
      if (args.scale != nullptr) {
        y *= *args.scale;
      }
      if (args.bias != nullptr) {
        y += args.bias[n];
      }
      args.y[r * args.y_stride + n] = y;
    }
  }
}

double LinearF64(const WeightRows& weight, std::size_t n, const float* x) {
  std::vector<float> decoded(weight.k);
  weight.format->decode_row(weight.data + n * weight.row_bytes, decoded.data(), weight.k);
  double sum = 0.0;
  for (std::size_t i = 0; i < weight.k; ++i) {
    sum += static_cast<double>(decoded[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

}  // namespace bloomery::kernels::reference
