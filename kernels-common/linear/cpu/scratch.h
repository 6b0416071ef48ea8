// What the kernels take in scratch: for 256 weights of a tile, and for a call. Internal.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels-common/linear/linear.h"

namespace bloomery::kernels::cpu {

// Weight rows that avx2.cc unpacks together.
inline constexpr std::size_t kTileRows = 8;
// One unpacked step of one weight row in an AVX2 tile: codes, factors and scales.
inline constexpr std::size_t kTileStepBytes = 384;

// One unpacked step of the 32 weight rows of an AVX-512 tile.
inline constexpr std::size_t kLanesStepBytes = 11520;

// amx_impl.h: what a call takes whatever its k.
inline constexpr std::size_t kAmxScratchBytes = 114688;

inline constexpr std::size_t kScratchStepBytes =
    std::max({kLanesStepBytes, kTileRows* kTileStepBytes,  // avx2.cc: eight unpacked rows
              kStepValues / 32 * sizeof(IntegerBlock),     // scalar.cc: one row in blocks of 32
              4 * kStepValues * sizeof(float)});           // float_impl.h: four decoded rows

}  // namespace bloomery::kernels::cpu
