// Inside CUDA sources: RowsLinear for one row of 2,048 or 4,096 values and matrices of Q4_K and
// Q6_K, the launches that decode speed depends on. Such a launch takes as long as one warp needs
// for its path: its code is cold each time and nearly each instruction waits for the one before. So
// the path is short and straight: a warp has one tile of one group, quantises that group itself,
// and meets the others once (twice with a norm). Bits as in rows_linear.h.
#pragma once

#include "kernels-common/linear/cuda/rows_params.cuh"

namespace bloomery::kernels::cuda {

// Whether `p`, lowered for integer formats of 256, is one of those.
bool OneRowFits(const RowsParams& p);
cudaError_t PrepareOneRow();
cudaError_t StartOneRow(const Launch& launch, const RowsParams& p);

}  // namespace bloomery::kernels::cuda
