#include "kernels-common/cpu/lanes_scalar.h"
#include "kernels-common/delta/cpu/chunks_impl.h"
#include "kernels-common/delta/cpu/impl.h"
#include "kernels-common/delta/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::scalar {

void ShortConv(const ShortConvArgs& args, std::size_t rows, std::size_t channel_begin,
               std::size_t channel_end) {
  ShortConvLanes<ScalarLanes>(args, rows, channel_begin, channel_end);
}

void Delta(const DeltaArgs& args, std::size_t rows, std::size_t head) {
  DeltaLanes<ScalarLanes>(args, rows, head);
}

void DeltaChunks(const DeltaArgs& args, std::size_t rows, std::size_t head, float* memory) {
  DeltaChunkLanes<ScalarLanes>(args, rows, head, memory);
}

}  // namespace bloomery::kernels::cpu::scalar
