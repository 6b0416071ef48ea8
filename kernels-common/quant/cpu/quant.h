// CPU kernels of quant: activation rows by N2 and KV rows. Bits equal the reference on every Isa.
// Each call works on a range of rows the caller owns; nothing is shared, nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cpu/isa.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cpu {

// out row r = N2(x + r*x_stride) for r in [row_begin, row_end); x_stride in floats.
void QuantiseRows(Isa isa, const float* x, std::size_t x_stride, const QuantisedRows& out,
                  std::size_t row_begin, std::size_t row_end);

// One plane row of `type` from / to `width` floats.
void EncodeKvRow(Isa isa, KvType type, const float* values, std::size_t width, std::byte* row);
void DecodeKvRow(Isa isa, KvType type, const std::byte* row, std::size_t width, float* values);

}  // namespace bloomery::kernels::cpu
