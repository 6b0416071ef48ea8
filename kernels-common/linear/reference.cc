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

// N4 of one block and the codes it meets.
float BlockValue(const FormatTraits& format, const IntegerBlock& block, const std::int8_t* q) {
  std::int64_t products = 0;
  std::int64_t sums = 0;
  for (std::size_t i = 0; i < format.block_values; ++i) {
    products += static_cast<std::int64_t>(block.scales[i / kSumValues]) * block.codes[i] * q[i];
    sums += static_cast<std::int64_t>(block.mins[i / kSumValues]) * q[i];
  }
  const auto product = static_cast<float>(static_cast<std::int32_t>(products));
  if (!format.has_mins) {
    return block.d * product;
  }
  return std::fma(block.d, product, block.m * static_cast<float>(static_cast<std::int32_t>(sums)));
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
      const float u = BlockValue(format, block, x.codes(row) + start);
      t = std::fma(x.scales(row)[start / x.group], u, t);
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
