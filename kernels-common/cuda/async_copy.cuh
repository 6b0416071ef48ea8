// Inside CUDA sources: asynchronous copies from global to shared memory (cp.async), by groups.
#pragma once

#include <cstdint>

namespace bloomery::kernels::cuda {

__device__ __forceinline__ std::uint32_t SharedAddress(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

// Copies `bytes` of kBytes (4, 8 or 16; both addresses aligned to them) and makes the rest zero;
// what is not copied is not read. 16-byte copies pass by L1.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(void* shared, const void* global, int bytes = kBytes) {
  const std::uint32_t to = SharedAddress(shared);
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

// The same for a count known when it runs, above kMost as kMost: a comparison a step down, none
// but the first where as many are open as may be.
template <int kMost>
__device__ __forceinline__ void WaitForCopiesUpTo(int pending) {
  if constexpr (kMost > 0) {
    if (pending < kMost) {
      WaitForCopiesUpTo<kMost - 1>(pending);
      return;
    }
  }
  WaitForCopies<kMost>();
}

// Barriers in shared memory that complete once, when `arrivals` threads' copies have.
__device__ __forceinline__ void InitBarrier(std::uint64_t* barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(arrivals)
               : "memory");
}

// Barriers that this thread has made come before bulk copies that complete them.
__device__ __forceinline__ void OrderBarriersBeforeBulk() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// This thread arrives when all its copies so far are done.
__device__ __forceinline__ void ArriveAfterCopies(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(SharedAddress(barrier))
               : "memory");
}

// Compute capability 9.0: one thread asks for `bytes` (both addresses and the count divide by 16),
// and a barrier of one arrival completes a phase when they are there.
__device__ __forceinline__ void ExpectBytes(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void CopyBulk(void* shared, const void* global, std::uint32_t bytes,
                                         std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}
// The one arrival of such a phase without a copy: what this thread wrote is there for who waits.
__device__ __forceinline__ void ArriveAtBarrier(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}
// The same for bytes that are read once: what else lies in L2 stays there before them.
__device__ __forceinline__ void CopyBulkOnce(void* shared, const void* global, std::uint32_t bytes,
                                             std::uint64_t* barrier) {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], "
      "%2, [%3], %4;" ::"r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(barrier)), "l"(policy)
      : "memory");
}
// Asks for bytes to come to L2.
__device__ __forceinline__ void FetchBulk(const void* global, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}
// What this thread wrote to shared memory comes before bulk copies into the same place.
__device__ __forceinline__ void OrderBeforeBulk() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void WaitPhase(std::uint64_t* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred complete;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.shared.b64 complete, [%0], %1;\n"
      "@!complete bra WAIT;\n"
      "}" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

// Waits for the barrier's first completion; what was copied is then there for this thread.
__device__ __forceinline__ void WaitBarrier(std::uint64_t* barrier) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.test_wait.parity.shared.b64 complete, [%1], 0;\n"
        "selp.u32 %0, 1, 0, complete;\n"
        "}"
        : "=r"(done)
        : "r"(SharedAddress(barrier))
        : "memory");
  }
}

}  // namespace bloomery::kernels::cuda
