#include "kernels-common/delta/cpu/delta.h"

#include "kernels-common/cpu/dispatch.h"
#include "kernels-common/delta/cpu/isa_entries.h"

namespace bloomery::kernels::cpu {

void ShortConv(Isa isa, const ShortConvArgs& args, std::size_t rows, std::size_t channel_begin,
               std::size_t channel_end) {
  BLOOMERY_KERNEL(isa, ShortConv)(args, rows, channel_begin, channel_end);
}

void Delta(Isa isa, const DeltaArgs& args, std::size_t rows, std::size_t head) {
  BLOOMERY_KERNEL_512(isa, Delta)(args, rows, head);
}

std::size_t DeltaChunksScratchBytes(const DeltaArgs& args) {
  return ChunkMemoryFloats(args.key_dim) * sizeof(float);
}

void DeltaChunks(Isa isa, const DeltaArgs& args, std::size_t rows, std::size_t head,
                 std::span<std::byte> scratch) {
  auto* memory = reinterpret_cast<float*>(scratch.data());
  BLOOMERY_KERNEL_512(isa, DeltaChunks)(args, rows, head, memory);
}

}  // namespace bloomery::kernels::cpu
