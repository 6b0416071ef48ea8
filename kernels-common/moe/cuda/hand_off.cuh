// Inside CUDA sources: the card's side of hand_off.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/moe/cuda/hand_off.h"

namespace bloomery::kernels::cuda {

// Between two looks at the host's answer: blocks by the hundred ask over one link.
inline constexpr unsigned kAskAgainNs = 100;

__device__ __forceinline__ std::uint64_t NowNs() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ __forceinline__ std::uint32_t AcquireFromHost(const std::uint32_t* word) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

__device__ __forceinline__ void ReleaseToHost(std::uint32_t* word, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

// `bytes`, a multiple of 16, by all threads of the block.
__device__ __forceinline__ void CopyByBlock(std::byte* to, const std::byte* from,
                                            std::size_t bytes) {
  for (std::size_t i = 16 * threadIdx.x; i < bytes; i += std::size_t{16} * blockDim.x) {
    *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from + i);
  }
}

// After down's own sums: whether the host has a part in the pass.
__device__ __forceinline__ bool HasHostPart(const HandOff& hand_off) {
  return hand_off.pending != nullptr && *hand_off.pending != 0;
}

// By one thread; a barrier then lets the others read sums.
__device__ __forceinline__ void WaitForHost(const HandOff& hand_off) {
  const std::uint64_t start = NowNs();
  while (AcquireFromHost(hand_off.answer) == 0) {
    if (NowNs() - start > hand_off.deadline_ns) {
      ReleaseToHost(hand_off.expired, 1);
      return;
    }
    __nanosleep(kAskAgainNs);
  }
}

__device__ __forceinline__ long long HostSum(const std::int64_t* sums, std::size_t at) {
  return *reinterpret_cast<const volatile long long*>(sums + at);
}

}  // namespace bloomery::kernels::cuda
