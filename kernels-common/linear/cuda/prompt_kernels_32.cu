// Prompt kernels of the types with activation groups of 32.
#include "kernels-common/linear/cuda/prompt_tile.cuh"

namespace bloomery::kernels::cuda {

const PromptKernels* FindPromptKernels32(int ggml_type) {
  return FindPromptKernelsOf<kQ4_0, kQ8_0, kIq4Nl, kMxfp4, kNvfp4>(ggml_type);
}

}  // namespace bloomery::kernels::cuda
