// Inside CUDA sources: values on their way between the blocks of one kernel, through L2. Each is a
// word of 8 bytes with the tag of the step that it belongs to, or three are a quad of 16 bytes with
// one tag: who writes it only stores, who reads it polls the word itself. That saves the fence, the
// counter and the second trip of a barrier.
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

// Three values and their tag in one access of 16 bytes; 16-byte aligned.
__device__ __forceinline__ void PutQuad(Word* at, const std::uint32_t (&bits)[3],
                                        std::uint32_t tag) {
  asm volatile(
      "{\n"
      ".reg .b128 quad;\n"
      "mov.b128 quad, {%1, %2};\n"
      "st.relaxed.gpu.global.b128 [%0], quad;\n"
      "}" ::"l"(at),
      "l"(static_cast<Word>(bits[1]) << 32 | bits[0]), "l"(Tagged(bits[2], tag))
      : "memory");
}
// Waits for one.
__device__ __forceinline__ void GetQuad(const Word* at, std::uint32_t tag,
                                        std::uint32_t (&bits)[3]) {
  Word first;
  Word second;
  for (unsigned polls = 0;; ++polls) {
    asm volatile(
        "{\n"
        ".reg .b128 quad;\n"
        "ld.relaxed.gpu.global.b128 quad, [%2];\n"
        "mov.b128 {%0, %1}, quad;\n"
        "}"
        : "=l"(first), "=l"(second)
        : "l"(at)
        : "memory");
    if (static_cast<std::uint32_t>(second >> 32) == tag) break;
    if (polls > kPollsMax) __trap();
  }
  bits[0] = static_cast<std::uint32_t>(first);
  bits[1] = static_cast<std::uint32_t>(first >> 32);
  bits[2] = static_cast<std::uint32_t>(second);
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
