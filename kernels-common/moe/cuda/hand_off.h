// Where the experts of a bank lie that is split between card and host, and how the launches of few
// rows hand the host's picks over: gate/up leaves what the host needs in memory that both see and
// rings; down waits for the host's sums (N7: integers, so that the bits do not tell where a pick
// was computed) and adds them to its own. A pass without a pick of the host rings "none" and waits
// for nothing.
#pragma once

#include <cstdint>

namespace bloomery::kernels::cuda {

// What a ring says.
inline constexpr std::uint32_t kRingsNoPick = 1;  // nothing for the host in this bank
inline constexpr std::uint32_t kRingsPicks = 2;   // ids, weights and input are there

// Words and arrays of one bank and pass. Host memory mapped for the card, but for `pending`; the
// host clears ring, answer and expired before a pass.
struct HandOff {
  std::uint32_t* ring = nullptr;  // null: no hand-off
  std::int32_t* ids = nullptr;    // rows * top_k
  float* weights = nullptr;       // rows * top_k
  // The rows that gate/up reads: quantised rows one after another, or k floats each.
  std::byte* input = nullptr;
  const std::uint32_t* answer = nullptr;  // not 0: the sums are there, or nobody waits any more
  const std::int64_t* sums = nullptr;     // rows * n of down: sum of Q over the host's picks
  std::uint32_t* pending = nullptr;       // device memory: gate/up tells down whether to wait
  std::uint32_t* expired = nullptr;  // set where down has waited for `deadline_ns`, and went on
  std::uint64_t deadline_ns = 0;
};

}  // namespace bloomery::kernels::cuda
