// Prompt kernels of the K types.
#include "kernels-common/linear/cuda/prompt_tile.cuh"

namespace bloomery::kernels::cuda {

const PromptKernels* FindPromptKernelsK(int ggml_type) {
  return FindPromptKernelsOf<kQ2K, kQ3K, kQ4K, kQ5K, kQ6K>(ggml_type);
}

}  // namespace bloomery::kernels::cuda
