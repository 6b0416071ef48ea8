// Plain kernels of Linear: a weight row is unpacked once, then meets every activation row.
#include <algorithm>
#include <cmath>

#include "kernels-common/cpu/lanes_scalar.h"
#include "kernels-common/linear/cpu/float_impl.h"
#include "kernels-common/linear/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::scalar {
namespace {

// N3 and N4 of one block; |I| and |S| stay below 2^31 for every format of the rule.
float BlockValue(const FormatTraits& format, const IntegerBlock& block, const std::int8_t* q,
                 const std::int16_t* sums) {
  std::int32_t products = 0;
  std::int32_t mins = 0;
  for (std::size_t part = 0; part < format.block_values / kSumValues; ++part) {
    std::int32_t dot = 0;
    for (std::size_t i = 0; i < kSumValues; ++i) {
      dot += block.codes[part * kSumValues + i] * q[part * kSumValues + i];
    }
    products += block.scales[part] * dot;
    mins += block.mins[part] * sums[part];
  }
  if (!format.has_mins) {
    return block.d * static_cast<float>(products);
  }
  return std::fma(block.d, static_cast<float>(products), block.m * static_cast<float>(mins));
}

float RowDot(const LinearArgs& args, const IntegerBlock* blocks, std::size_t row) {
  const FormatTraits& format = *args.weight.format;
  const std::int8_t* codes = args.quantised.codes(row);
  const std::int16_t* sums = args.quantised.sums(row);
  const float* scales = args.quantised.scales(row);
  float y = 0.0F;
  for (std::size_t step = 0; step < args.weight.k; step += kStepValues) {
    const std::size_t end = std::min(step + kStepValues, args.weight.k);
    float t = 0.0F;
    for (std::size_t at = step; at < end; at += format.block_values) {
      const float u =
          BlockValue(format, blocks[at / format.block_values], codes + at, sums + at / kSumValues);
      t = std::fma(scales[at / format.activation_group], u, t);
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
