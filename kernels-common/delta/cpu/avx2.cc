#include "kernels-common/cpu/lanes_avx2.h"
#include "kernels-common/delta/cpu/chunks_impl.h"
#include "kernels-common/delta/cpu/impl.h"
#include "kernels-common/delta/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::avx2 {

void ShortConv(const ShortConvArgs& args, std::size_t rows, std::size_t channel_begin,
               std::size_t channel_end) {
  ShortConvLanes<Avx2Lanes>(args, rows, channel_begin, channel_end);
}

void Delta(const DeltaArgs& args, std::size_t rows, std::size_t head) {
  DeltaLanes<Avx2Lanes>(args, rows, head);
}

void DeltaChunks(const DeltaArgs& args, std::size_t rows, std::size_t head, float* memory) {
  DeltaChunkLanes<Avx2Lanes>(args, rows, head, memory);
}

}  // namespace bloomery::kernels::cpu::avx2
