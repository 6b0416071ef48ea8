// Prompt kernels of F16 and BF16 weights.
#include "kernels-common/linear/cuda/prompt_float.cuh"

namespace bloomery::kernels::cuda {

PromptKernelPointer FindFloatPromptKernel(int ggml_type) {
  constexpr int kF16 = 1;
  constexpr int kBf16 = 30;
  return ggml_type == kF16    ? FloatPromptKernel<true>
         : ggml_type == kBf16 ? FloatPromptKernel<false>
                              : nullptr;
}

}  // namespace bloomery::kernels::cuda
