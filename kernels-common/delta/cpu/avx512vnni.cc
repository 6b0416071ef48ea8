#include "kernels-common/cpu/lanes_avx512.h"
#include "kernels-common/delta/cpu/chunks_impl.h"
#include "kernels-common/delta/cpu/impl.h"
#include "kernels-common/delta/cpu/isa_entries.h"

namespace bloomery::kernels::cpu::avx512vnni {

void Delta(const DeltaArgs& args, std::size_t rows, std::size_t head) {
  DeltaLanes<Avx512Lanes>(args, rows, head);
}

void DeltaChunks(const DeltaArgs& args, std::size_t rows, std::size_t head, float* memory) {
  DeltaChunkLanes<Avx512Lanes>(args, rows, head, memory);
}

}  // namespace bloomery::kernels::cpu::avx512vnni
