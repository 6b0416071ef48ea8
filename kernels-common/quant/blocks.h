// What the files of the format table share: readers of block bytes, the scale of formats without
// mins, and the unpack functions they bring. Internal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/quant/quant.h"

namespace bloomery::kernels {

inline std::uint8_t ByteAt(const std::byte* p, std::size_t i) {
  return static_cast<std::uint8_t>(p[i]);
}
inline std::uint16_t WordAt(const std::byte* p) {
  return static_cast<std::uint16_t>(ByteAt(p, 0) | (ByteAt(p, 1) << 8));
}
inline float HalfAt(const std::byte* p) { return HalfToFloat(WordAt(p)); }

// The scale of a format without mins.
inline void NoMins(float d, IntegerBlock* out) {
  out->d = d;
  out->m = 0.0F;
  for (std::int16_t& min : out->mins) {
    min = 0;
  }
}

using UnpackFunction = void(const std::byte* block, IntegerBlock* out);

// blocks_32.cc
UnpackFunction UnpackQ4_0;
UnpackFunction UnpackQ4_1;
UnpackFunction UnpackQ5_0;
UnpackFunction UnpackQ5_1;
UnpackFunction UnpackQ8_0;
UnpackFunction UnpackIq4Nl;
UnpackFunction UnpackMxfp4;
UnpackFunction UnpackNvfp4;
// blocks_256.cc
UnpackFunction UnpackQ2K;
UnpackFunction UnpackQ3K;
UnpackFunction UnpackQ4K;
UnpackFunction UnpackQ5K;
UnpackFunction UnpackQ6K;
UnpackFunction UnpackTq1;
UnpackFunction UnpackTq2;
// blocks_iq.cc
UnpackFunction UnpackIq1S;
UnpackFunction UnpackIq1M;
UnpackFunction UnpackIq2Xxs;
UnpackFunction UnpackIq2Xs;
UnpackFunction UnpackIq2S;
UnpackFunction UnpackIq3Xxs;
UnpackFunction UnpackIq3S;
UnpackFunction UnpackIq4Xs;

}  // namespace bloomery::kernels
