// Inside CUDA sources: the live count of a RowBound. Call after WaitForInputs.
#pragma once

#include "kernels-common/cuda/rows.h"

namespace bloomery::kernels::cuda {

__device__ __forceinline__ std::int32_t LiveRows(const RowBound& bound) {
  return bound.live == nullptr ? bound.max : min(bound.max, *bound.live * bound.each);
}

}  // namespace bloomery::kernels::cuda
