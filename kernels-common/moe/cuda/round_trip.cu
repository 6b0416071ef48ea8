#include "kernels-common/moe/cuda/round_trip.h"

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/moe/cuda/hand_off.cuh"

namespace bloomery::kernels::cuda {
namespace {

// One thread; overwrites `asked`. The order of its accesses is that of a hand-off: a fence before
// asking and one behind the answer.
__global__ void AskKernel(std::uint32_t* asked, const std::uint32_t* answered, std::uint32_t rounds,
                          std::uint64_t deadline_ns) {
  const std::uint64_t start = NowNs();
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    __threadfence_system();
    TellHost(asked, round);
    while (LookAtHost(answered) < round) {
      if (NowNs() - start > deadline_ns) return;
      __nanosleep(kLookAgainNs);
    }
    __threadfence_system();
  }
}

}  // namespace

cudaError_t AskHost(const Launch& launch, std::uint32_t* asked, const std::uint32_t* answered,
                    std::uint32_t rounds, std::uint64_t deadline_ns) {
  return Start(launch, dim3(1), dim3(1), 0, AskKernel, asked, answered, rounds, deadline_ns);
}

}  // namespace bloomery::kernels::cuda
