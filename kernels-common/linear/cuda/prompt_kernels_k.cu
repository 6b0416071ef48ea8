// Prompt kernels of the K types.
#include "kernels-common/linear/cuda/prompt_tile.cuh"
#include "kernels-common/linear/cuda/prompt_wgmma.cuh"

namespace bloomery::kernels::cuda {

const PromptKernels* FindPromptKernelsK(int ggml_type) {
  return FindPromptKernelsOf<kQ2K, kQ3K, kQ4K, kQ5K, kQ6K>(ggml_type);
}

PromptKernelPointer FindWgmmaKernel(int ggml_type) {
  if (ggml_type != kQ4K) {
    return nullptr;
  }
  // Only an image made for 9.0a has the instructions; in any other the kernel is empty, which its
  // registers tell.
  constexpr int kRegistersOfNothing = 64;
  cudaFuncAttributes attributes = {};
  const bool known = cudaFuncGetAttributes(&attributes, Q4KWgmmaKernel) == cudaSuccess;
  return known && attributes.numRegs > kRegistersOfNothing ? Q4KWgmmaKernel : nullptr;
}

}  // namespace bloomery::kernels::cuda
