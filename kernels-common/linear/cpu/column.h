// One quantised activation row as the integer kernels read it. Internal.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels-common/linear/cpu/isa_entries.h"

namespace bloomery::kernels::cpu {

struct Column {
  const std::int8_t* codes;
  const std::int16_t* sums;
  const float* scales;
};

// The activations of output row r; past the last row, those of the last one.
inline Column ColumnOf(const LinearArgs& args, std::size_t r) {
  const std::size_t row = SourceRow(args, std::min(r, args.rows - 1));
  return {args.quantised.codes(row), args.quantised.sums(row), args.quantised.scales(row)};
}

}  // namespace bloomery::kernels::cpu
