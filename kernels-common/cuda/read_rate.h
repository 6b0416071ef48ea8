// How fast the card reads its memory: the bound that kernels are held against.
#pragma once

#include <cstddef>

#include "kernels-common/cuda/launch.h"

namespace bloomery::kernels::cuda {

// Reads every byte of [data, data + bytes) once with all multiprocessors, 16 bytes a thread and
// load; bytes divides by 16.
cudaError_t ReadAll(const Launch& launch, const void* data, std::size_t bytes);

}  // namespace bloomery::kernels::cuda
