// Plain kernels of Linear: a weight row is unpacked once, then meets every activation row.
#include <algorithm>
#include <cmath>

#include "kernels-common/cpu/lanes_scalar.h"
#include "kernels-common/linear/cpu/float_impl.h"
#include "kernels-common/linear/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::scalar {
namespace {

std::int32_t Dot16(const std::int8_t* codes, const std::int8_t* q) {
  std::int32_t dot = 0;
  for (std::size_t i = 0; i < kSumValues; ++i) {
    dot += codes[i] * q[i];
  }
  return dot;
}

// N4 of 32 codes from code `first` of a block with pair scales.
float PairValue(const IntegerBlock& block, std::size_t first, const std::int8_t* q) {
  const float* scales = block.pair_scales + first / kSumValues;
  const auto d0 = static_cast<float>(Dot16(block.codes + first, q));
  const auto d1 = static_cast<float>(Dot16(block.codes + first + kSumValues, q + kSumValues));
  return std::fma(scales[1], d1, scales[0] * d0);
}

// N3 and N4 of one block; |I| and |S| stay below 2^31 for every format of the rule.
float BlockValue(const FormatTraits& format, const IntegerBlock& block, const std::int8_t* q,
                 const std::int16_t* sums) {
  std::int32_t products = 0;
  std::int32_t mins = 0;
  for (std::size_t part = 0; part < format.block_values / kSumValues; ++part) {
    products += block.scales[part] * Dot16(block.codes + part * kSumValues, q + part * kSumValues);
    mins += block.mins[part] * sums[part];
  }
  if (format.form == BlockForm::kScale) {
    return block.d * static_cast<float>(products);
  }
  return std::fma(block.d, static_cast<float>(products), block.m * static_cast<float>(mins));
}

float RowDot(const LinearArgs& args, const IntegerBlock* blocks, std::size_t row) {
  const FormatTraits& format = *args.weight.format;
  const std::size_t group = format.activation_group;
  const std::int8_t* codes = args.quantised.codes(row);
  const std::int16_t* sums = args.quantised.sums(row);
  const float* scales = args.quantised.scales(row);
  float y = 0.0F;
  for (std::size_t step = 0; step < args.weight.k; step += kStepValues) {
    const std::size_t end = std::min(step + kStepValues, args.weight.k);
    float t = 0.0F;
    for (std::size_t at = step; at < end; at += group) {
      const IntegerBlock& block = blocks[at / format.block_values];
      const float u = format.form == BlockForm::kPairScales
                          ? PairValue(block, at % format.block_values, codes + at)
                          : BlockValue(format, block, codes + at, sums + at / kSumValues);
      t = std::fma(scales[at / group], u, t);
    }
    y += t;
  }
  return y;
}

}  // namespace

void FloatLinear(const LinearArgs& args, std::size_t n_begin, std::size_t n_end,
                 std::byte* scratch) {
  FloatLinearRange<ScalarLanes>(args, n_begin, n_end, scratch);
}

void IntegerLinear(const LinearArgs& args, std::size_t n_begin, std::size_t n_end,
                   std::byte* scratch) {
  const FormatTraits& format = *args.weight.format;
  auto* blocks = reinterpret_cast<IntegerBlock*>(scratch);
  for (std::size_t n = n_begin; n < n_end; ++n) {
    const std::byte* source = args.weight.data + n * args.weight.row_bytes;
    for (std::size_t i = 0; i < args.weight.k / format.block_values; ++i) {
      format.unpack_block(source + i * format.block_bytes, blocks + i);
    }
    for (std::size_t r = 0; r < args.rows; ++r) {
      StoreOutput(args, r, n, RowDot(args, blocks, SourceRow(args, r)));
    }
  }
}

}  // namespace bloomery::kernels::cpu::scalar
