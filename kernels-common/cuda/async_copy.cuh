// Inside CUDA sources: asynchronous copies from global to shared memory (cp.async), by groups.
#pragma once

#include <cstdint>

namespace bloomery::kernels::cuda {

// Copies `bytes` of kBytes (4, 8 or 16; both addresses aligned to them) and makes the rest zero;
// what is not copied is not read. 16-byte copies pass by L1.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(void* shared, const void* global, int bytes = kBytes) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global),
                 "n"(kBytes), "r"(bytes)
                 : "memory");
  }
}

// Closes the group of this thread's copies since the last close.
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending groups of this thread are open; a barrier then shows them to others.
template <int kPending>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace bloomery::kernels::cuda
