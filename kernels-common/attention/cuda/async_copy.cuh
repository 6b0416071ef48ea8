// cp.async: copies from global to shared memory that run behind the thread's back. A thread waits
// for its own copies; a barrier makes them the block's.
#pragma once

#include <cstdint>

namespace bloomery::kernels::cuda {

__device__ __forceinline__ std::uint32_t SharedAddress(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

__device__ __forceinline__ void CopyAsync16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(SharedAddress(shared)),
               "l"(global)
               : "memory");
}

// Zeros instead of the source where `take` is false (the source is then not read).
__device__ __forceinline__ void CopyAsync16OrZero(void* shared, const void* global, bool take) {
  const int bytes = take ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void CopyAsync8(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;\n" ::"r"(SharedAddress(shared)),
               "l"(global)
               : "memory");
}

__device__ __forceinline__ void CopyAsync4(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(SharedAddress(shared)),
               "l"(global)
               : "memory");
}

__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Waits until at most kPending of the thread's newest groups are on their way.
template <int kPending>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void WaitForCopies(int pending) {
  switch (pending) {
    case 0:
      WaitForCopies<0>();
      break;
    case 1:
      WaitForCopies<1>();
      break;
    case 2:
      WaitForCopies<2>();
      break;
    case 3:
      WaitForCopies<3>();
      break;
    case 4:
      WaitForCopies<4>();
      break;
    case 5:
      WaitForCopies<5>();
      break;
    default:
      WaitForCopies<6>();
      break;
  }
}

}  // namespace bloomery::kernels::cuda
