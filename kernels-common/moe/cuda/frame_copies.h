// Copies of experts that are on the card already, from the places of a prompt to frames. Copies by
// the driver would wait behind those that come over the link (docs/measurements/split.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.h"

namespace bloomery::kernels::cuda {

// The `i`-th expert of a bank goes from place[i] to frame[i], all of its three matrices.
struct FrameCopies {
  static constexpr int kMost = 64;

  const std::byte* from[3] = {};  // of place 0
  std::byte* to[3] = {};          // of frame 0
  std::uint64_t bytes[3] = {};    // of a place and a frame
  std::int32_t count = 0;
  std::int16_t place[kMost] = {};
  std::int16_t frame[kMost] = {};
};

// Frames that are written must be none that anything enqueued with them reads.
cudaError_t CopyFrames(const Launch& launch, const FrameCopies& copies);

}  // namespace bloomery::kernels::cuda
