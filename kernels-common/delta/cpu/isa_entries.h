// The functions each instruction set brings for the delta rule. Internal.
#pragma once

#include <cstddef>

#include "kernels-common/delta/delta.h"

namespace bloomery::kernels::cpu {

// Scratch of the form for prompts: keys twice, queries, two squares, a group of columns.
inline constexpr std::size_t kChunkColumnsMax = 64;
constexpr std::size_t ChunkMemoryFloats(std::size_t key_dim) {
  return kDeltaChunk * (3 * key_dim + 2 * kDeltaChunk + kChunkColumnsMax);
}

using ShortConvFunction = void(const ShortConvArgs& args, std::size_t rows,
                               std::size_t channel_begin, std::size_t channel_end);
using DeltaFunction = void(const DeltaArgs& args, std::size_t rows, std::size_t head);
using DeltaChunksFunction = void(const DeltaArgs& args, std::size_t rows, std::size_t head,
                                 float* memory);

namespace scalar {
ShortConvFunction ShortConv;
DeltaFunction Delta;
DeltaChunksFunction DeltaChunks;
}  // namespace scalar
namespace avx2 {
ShortConvFunction ShortConv;
DeltaFunction Delta;
DeltaChunksFunction DeltaChunks;
}  // namespace avx2
namespace avx512vnni {
DeltaFunction Delta;
DeltaChunksFunction DeltaChunks;
}  // namespace avx512vnni

}  // namespace bloomery::kernels::cpu
