// Prompt kernels of the IQ types of 256.
#include "kernels-common/linear/cuda/prompt_tile.cuh"

namespace bloomery::kernels::cuda {

const PromptKernels* FindPromptKernelsIq(int ggml_type) {
  return FindPromptKernelsOf<kIq2Xxs, kIq2Xs, kIq3Xxs, kIq3S, kIq4Xs>(ggml_type);
}

}  // namespace bloomery::kernels::cuda
