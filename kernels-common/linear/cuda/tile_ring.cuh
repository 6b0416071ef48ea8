// Inside CUDA sources: card-form tiles on their way to one warp. A warp owns `stages` places in
// shared memory and copies whole tiles there with cp.async, so that weights in flight take no
// registers and may be asked for before a kernel's inputs are there.
//
// Use: Copy and Close for one tile after another (Close alone keeps the count where there is none),
// at most `stages` ahead of Take; after the last read of what Take gave, Release, then the next.
// Every lane calls all of them alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/async_copy.cuh"
#include "kernels-common/quant/cuda/card_types.cuh"

namespace bloomery::kernels::cuda {

class TileRing {
 public:
  // `memory` of the warp: stages * stride bytes, 16-byte aligned.
  __device__ __forceinline__ TileRing(std::byte* memory, int stages, int stride)
      : memory_(memory), stages_(stages), stride_(stride) {}

  // The copies of a tile from 16-byte aligned memory to `offset` of the place that comes next; then
  // Close. kBytes, or `bytes` where it is 0, is a multiple of 16.
  template <int kBytes>
  __device__ __forceinline__ void Copy(const std::byte* from, int bytes, int offset) {
    const int at = static_cast<int>(threadIdx.x % 32) * 16;
    const std::byte* source = from + at;
    const std::uint32_t to =
        Shared() + static_cast<std::uint32_t>(issue_at_ * stride_ + offset + at);
    if constexpr (kBytes > 0) {
#pragma unroll
      for (int i = 0; i < kBytes; i += 512) {
        if (i + 512 <= kBytes || at < kBytes - i) CopyVector(to + i, source + i);
      }
    } else {
      for (int i = 0; at + i < bytes; i += 512) CopyVector(to + i, source + i);
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
    WaitForCopiesUpTo<kStagesMost - 1>(pending_);
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
  __device__ __forceinline__ std::uint32_t Shared() const { return SharedAddress(memory_); }
  __device__ __forceinline__ static void CopyVector(std::uint32_t to, const std::byte* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
                 : "memory");
  }

  static constexpr int kStagesMost = 4;

  std::byte* memory_;
  int stages_;
  int stride_;
  int pending_ = 0;
  int issue_at_ = 0;
  int take_at_ = 0;
};

// Copies a tile of a type of Set; of few types each has its own copies.
template <class Set>
__device__ __forceinline__ void CopyTile(TileRing& ring, int type, const std::byte* from, int bytes,
                                         int offset) {
  if constexpr (Set::kCount <= 2) {
    Set::Dispatch(type, [&](auto tag) {
      ring.Copy<static_cast<int>(CardTile<decltype(tag)::value>::kBytes)>(from, bytes, offset);
    });
  } else {
    ring.Copy<0>(from, bytes, offset);
  }
}

}  // namespace bloomery::kernels::cuda
