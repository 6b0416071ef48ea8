// The plain definition of activation quantisation (N2) and of the KV row formats.
#pragma once

#include <cstddef>

#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::reference {

// Quantises row `row` of `out` from x[0, out.k).
void QuantiseRow(const float* x, const QuantisedRows& out, std::size_t row);

// Encodes `width` values to a plane row of `type`, and decodes them back.
void EncodeKvRow(KvType type, const float* values, std::size_t width, std::byte* row);
void DecodeKvRow(KvType type, const std::byte* row, std::size_t width, float* values);

}  // namespace bloomery::kernels::reference
