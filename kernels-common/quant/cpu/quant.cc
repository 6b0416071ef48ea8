#include "kernels-common/quant/cpu/quant.h"

#include <cassert>

#include "kernels-common/cpu/dispatch.h"
#include "kernels-common/quant/cpu/isa_entries.h"

namespace bloomery::kernels::cpu {

void QuantiseRows(Isa isa, const float* x, std::size_t x_stride, const QuantisedRows& out,
                  std::size_t row_begin, std::size_t row_end) {
  assert(out.k % kSumValues == 0);
  const auto quantise = BLOOMERY_KERNEL(isa, QuantiseRow);
  for (std::size_t row = row_begin; row < row_end; ++row) {
    quantise(x + row * x_stride, out, row);
  }
}

void EncodeKvRow(Isa isa, KvType type, const float* values, std::size_t width, std::byte* row) {
  BLOOMERY_KERNEL(isa, EncodeKvRow)(type, values, width, row);
}

void DecodeKvRow(Isa isa, KvType type, const std::byte* row, std::size_t width, float* values) {
  BLOOMERY_KERNEL(isa, DecodeKvRow)(type, row, width, values);
}

}  // namespace bloomery::kernels::cpu
