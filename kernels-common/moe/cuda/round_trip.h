// How long a card and the host take to answer each other through memory that both see: the least
// that a hand-off inside a pass costs.
#pragma once

#include <cstdint>

#include "kernels-common/cuda/launch.h"

namespace bloomery::kernels::cuda {

// One thread of the card asks `rounds` times: it writes 1, 2, … into `asked` and goes on when it
// reads the same in `answered`. Both are host memory mapped for the card. Without an answer it ends
// `deadline_ns` after it began.
cudaError_t AskHost(const Launch& launch, std::uint32_t* asked, const std::uint32_t* answered,
                    std::uint32_t rounds, std::uint64_t deadline_ns);

}  // namespace bloomery::kernels::cuda
