// Set-up that the sources of this folder share. Internal.
#pragma once

#include <cuda_runtime_api.h>

namespace bloomery::kernels::cuda {

// Most shared memory a block of the current device may have.
cudaError_t SharedBytesMost(int* bytes);

// prompt_attention.cu's part of PrepareAttention().
cudaError_t PreparePromptAttention(int shared_bytes_most);

}  // namespace bloomery::kernels::cuda
