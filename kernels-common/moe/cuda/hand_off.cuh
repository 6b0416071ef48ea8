// Inside CUDA sources: the card's side of hand_off.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/moe/cuda/hand_off.h"

namespace bloomery::kernels::cuda {

// Values of HandOff::pending.
inline constexpr std::uint32_t kNothingPends = 0;
inline constexpr std::uint32_t kPends = 1;
inline constexpr std::uint32_t kAnswered = 2;
// Between two looks at it, or at the host's answer.
inline constexpr unsigned kLookAgainNs = 32;

__device__ __forceinline__ std::uint64_t NowNs() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Strong accesses without an order of their own: fences stand beside them, where one is enough.
__device__ __forceinline__ std::uint32_t LookAtHost(const std::uint32_t* word) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ __forceinline__ void TellHost(std::uint32_t* word, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ __forceinline__ std::uint32_t LookAtCard(const std::uint32_t* word) {
  std::uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ __forceinline__ void TellCard(std::uint32_t* word, std::uint32_t value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
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
  return hand_off.pending != nullptr && *hand_off.pending != kNothingPends;
}

// By one thread; a barrier then lets the others read sums. One thread of the grid `asks` over the
// link and tells the others on the card: asked by all blocks the answer took some 120 us
// (measured), told by one a few.
__device__ __forceinline__ void WaitForHost(const HandOff& hand_off, bool asks) {
  const std::uint64_t start = NowNs();
  if (asks) {
    while (LookAtHost(hand_off.answer) == 0) {
      if (NowNs() - start > hand_off.deadline_ns) {
        TellHost(hand_off.expired, 1);
        break;
      }
      __nanosleep(kLookAgainNs);
    }
    TellCard(hand_off.pending, kAnswered);
  } else {
    // The one that asks goes on at its deadline, so this ends.
    while (LookAtCard(hand_off.pending) != kAnswered) __nanosleep(kLookAgainNs);
  }
  __threadfence_system();
}

__device__ __forceinline__ long long HostSum(const std::int64_t* sums, std::size_t at) {
  return *reinterpret_cast<const volatile long long*>(sums + at);
}

}  // namespace bloomery::kernels::cuda
