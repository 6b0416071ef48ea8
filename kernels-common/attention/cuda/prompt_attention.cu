#include "kernels-common/attention/cuda/prompt_attention.h"

#include "kernels-common/attention/cuda/rows_attention.h"
#include "kernels-common/attention/cuda/setup.h"

namespace bloomery::kernels::cuda {

cudaError_t PreparePromptAttention(int /*shared_bytes_most*/) { return cudaSuccess; }

cudaError_t PromptAttention(const Launch& launch, const CardAttention& attention) {
  return RowsAttention(launch, attention, nullptr);
}

}  // namespace bloomery::kernels::cuda
