// Inside CUDA sources: weight rows of the float formats as N8 reads them.
#pragma once

#include <cstdint>

#include "kernels-common/quant/cuda/card_form.cuh"

namespace bloomery::kernels::cuda {

// GGUF's type ids; what is neither is BF16.
inline constexpr int kF32 = 0;
inline constexpr int kF16 = 1;

// Values l + 32*(first + i), i < kCount, of a row of `type`; 0 from `steps` on.
template <int kCount>
__device__ __forceinline__ void LoadWeights(const std::byte* row, int type, int first, int steps,
                                            float (&w)[kCount]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (type == kF32) {
    const float* at = reinterpret_cast<const float*>(row) + 32 * first + lane;
#pragma unroll
    for (int i = 0; i < kCount; ++i) w[i] = first + i < steps ? __ldg(at + 32 * i) : 0.0F;
  } else {
    const auto* at = reinterpret_cast<const unsigned short*>(row) + 32 * first + lane;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const unsigned bits = first + i < steps ? __ldg(at + 32 * i) : 0U;
      w[i] = type == kF16 ? HalfBits(bits) : __uint_as_float(bits << 16);
    }
  }
}

}  // namespace bloomery::kernels::cuda
