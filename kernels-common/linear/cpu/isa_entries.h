// The functions each instruction set brings for linear. Internal.
#pragma once

#include <cstddef>

#include "kernels-common/linear/linear.h"

namespace bloomery::kernels::cpu {

using LinearFunction = void(const LinearArgs& args, std::size_t n_begin, std::size_t n_end,
                            std::byte* scratch);

namespace scalar {
LinearFunction FloatLinear;
LinearFunction IntegerLinear;
}  // namespace scalar
namespace avx2 {
LinearFunction FloatLinear;
LinearFunction IntegerLinear;
}  // namespace avx2
namespace avx512vnni {
LinearFunction FloatLinear;
LinearFunction IntegerLinear;
}  // namespace avx512vnni
namespace amx {
LinearFunction IntegerLinear;
// Whether IntegerLinear takes its tiles for `rows` rows that lie one after another. Rows that
// row_ids scatters take the kernels below: gather them first where many calls share them.
bool TakesTiles(const FormatTraits& format, std::size_t rows);
}  // namespace amx

// The activation row that output row r reads.
inline std::size_t SourceRow(const LinearArgs& args, std::size_t r) {
  return args.row_ids == nullptr ? r : static_cast<std::size_t>(args.row_ids[r]);
}

// N5's end: y * scale, then + bias, where there are any.
inline void StoreOutput(const LinearArgs& args, std::size_t r, std::size_t n, float y) {
  if (args.scale != nullptr) {
    y *= *args.scale;
  }
  if (args.bias != nullptr) {
    y += args.bias[n];
  }
  args.y[r * args.y_stride + n] = y;
}

}  // namespace bloomery::kernels::cpu
