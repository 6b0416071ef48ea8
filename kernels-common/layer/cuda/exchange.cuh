// Inside CUDA sources: values on their way between the blocks of one kernel, through L2. Each is a
// word of 8 bytes with the tag of the step that it belongs to: who writes it only stores, who reads
// it polls the word itself. That saves the fence, the counter and the second trip of a barrier.
//
// A word is written again only when no block can still wait for its old value; users show that by
// what the writer itself has waited for. Stores and loads are relaxed: a word carries all it says.
#pragma once

#include <cstdint>

namespace bloomery::kernels::cuda {

using Word = unsigned long long;

// Polls before a wait is taken for an error (seconds): a trap ends the kernel, where a hang
// would not.
inline constexpr unsigned kPollsMax = 1U << 22;

__device__ __forceinline__ Word Tagged(std::uint32_t bits, std::uint32_t tag) {
  return static_cast<Word>(tag) << 32 | bits;
}
__device__ __forceinline__ void PutWord(Word* at, std::uint32_t bits, std::uint32_t tag) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(Tagged(bits, tag)) : "memory");
}
__device__ __forceinline__ void PutWord(Word* at, float value, std::uint32_t tag) {
  PutWord(at, __float_as_uint(value), tag);
}
// Two at once; 16-byte aligned.
__device__ __forceinline__ void PutPair(Word* at, std::uint32_t first, std::uint32_t second,
                                        std::uint32_t tag) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(Tagged(first, tag)),
               "l"(Tagged(second, tag))
               : "memory");
}

// Waits for kCount words, `step` apart.
template <int kCount>
__device__ __forceinline__ void GetWords(const Word* at, int step, std::uint32_t tag,
                                         std::uint32_t (&bits)[kCount]) {
  for (unsigned polls = 0;; ++polls) {
    bool all = true;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      Word word;
      asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
                   : "=l"(word)
                   : "l"(at + i * step)
                   : "memory");
      bits[i] = static_cast<std::uint32_t>(word);
      all = all && static_cast<std::uint32_t>(word >> 32) == tag;
    }
    if (all) return;
    if (polls > kPollsMax) __trap();
  }
}

// Waits for `count` pairs, but at most kPairs, `step` words apart, 16-byte aligned.
template <int kPairs>
__device__ __forceinline__ void GetSomePairs(const Word* at, int step, int count, std::uint32_t tag,
                                             std::uint32_t (&bits)[2 * kPairs]) {
  for (unsigned polls = 0;; ++polls) {
    bool all = true;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (i >= count) break;
      Word first;
      Word second;
      asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                   : "=l"(first), "=l"(second)
                   : "l"(at + i * step)
                   : "memory");
      bits[2 * i] = static_cast<std::uint32_t>(first);
      bits[2 * i + 1] = static_cast<std::uint32_t>(second);
      all = all && static_cast<std::uint32_t>(first >> 32) == tag &&
            static_cast<std::uint32_t>(second >> 32) == tag;
    }
    if (all) return;
    if (polls > kPollsMax) __trap();
  }
}
template <int kPairs>
__device__ __forceinline__ void GetPairs(const Word* at, int step, std::uint32_t tag,
                                         std::uint32_t (&bits)[2 * kPairs]) {
  GetSomePairs<kPairs>(at, step, kPairs, tag, bits);
}

}  // namespace bloomery::kernels::cuda
