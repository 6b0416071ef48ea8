// The reference is plain C++ already and allocates nothing: it is the scalar kernel.
#include "kernels-common/quant/cpu/isa_entries.h"
#include "kernels-common/quant/reference.h"

namespace bloomery::kernels::cpu::scalar {

void QuantiseRow(const float* x, const QuantisedRows& out, std::size_t row) {
  reference::QuantiseRow(x, out, row);
}

void EncodeKvRow(KvType type, const float* values, std::size_t width, std::byte* row) {
  reference::EncodeKvRow(type, values, width, row);
}

void DecodeKvRow(KvType type, const std::byte* row, std::size_t width, float* values) {
  reference::DecodeKvRow(type, row, width, values);
}

}  // namespace bloomery::kernels::cpu::scalar
