// Inside CUDA sources: card-form tiles on their way to one warp. A warp owns `stages` places in
// shared memory and copies whole tiles there with cp.async, so that weights in flight take no
// registers and may be asked for before a kernel's inputs are there.
//
// Use: Issue one tile after another, at most `stages` ahead of Take; after the last read of what
// Take gave, Release, then the next Issue. Every lane calls all of them alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/async_copy.cuh"

namespace bloomery::kernels::cuda {

class TileRing {
 public:
  // `memory` of the warp: stages * stride bytes, 16-byte aligned.
  __device__ __forceinline__ TileRing(std::byte* memory, int stages, int stride)
      : memory_(memory), stages_(stages), stride_(stride) {}

  // The copies of one tile (a multiple of 16 bytes, from 16-byte aligned memory); null: none, which
  // keeps the count. Those of a tile of two parts: Copy twice, then Close.
  __device__ __forceinline__ void Issue(const std::byte* from, int bytes) {
    Copy(from, bytes, 0);
    Close();
  }
  __device__ __forceinline__ void Copy(const std::byte* from, int bytes, int offset) {
    if (from == nullptr) return;
    std::byte* to = memory_ + issue_at_ * stride_ + offset;
    for (int i = static_cast<int>(threadIdx.x % 32) * 16; i < bytes; i += 512) {
      CopyAsync<16>(to + i, from + i);
    }
  }
  __device__ __forceinline__ void Close() {
    CommitCopies();
    ++pending_;
    issue_at_ = issue_at_ + 1 == stages_ ? 0 : issue_at_ + 1;
  }

  // Waits for the oldest tile that was issued and not taken.
  __device__ __forceinline__ const std::byte* Take() {
    --pending_;
    switch (pending_) {
      case 0:
        WaitForCopies<0>();
        break;
      case 1:
        WaitForCopies<1>();
        break;
      case 2:
        WaitForCopies<2>();
        break;
      default:
        WaitForCopies<3>();
        break;
    }
    __syncwarp();
    const std::byte* tile = memory_ + take_at_ * stride_;
    take_at_ = take_at_ + 1 == stages_ ? 0 : take_at_ + 1;
    return tile;
  }
  __device__ __forceinline__ void Release() { __syncwarp(); }

  // Forgets what was issued, once it has arrived.
  __device__ __forceinline__ void Drop() {
    WaitForCopies<0>();
    __syncwarp();
    pending_ = issue_at_ = take_at_ = 0;
  }

 private:
  std::byte* memory_;
  int stages_;
  int stride_;
  int pending_ = 0;
  int issue_at_ = 0;
  int take_at_ = 0;
};

inline constexpr int kRingStagesMax = 4;

}  // namespace bloomery::kernels::cuda
