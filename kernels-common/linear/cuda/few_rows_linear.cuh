// Inside CUDA sources: RowsLinear for 2 to 8 rows of 2,048 or 4,096 values and matrices of Q4_K and
// Q6_K, on compute capability 9.0. Where each block of rows_linear.cu makes codes of all rows, here
// the blocks of a cluster share that: each makes those of its rows and stores them to the shared
// memory of all. Bits as in rows_linear.h.
#pragma once

#include "kernels-common/linear/cuda/rows_params.cuh"

namespace bloomery::kernels::cuda {

// Whether `p`, lowered for integer formats of 256, is one of those.
bool FewRowsFit(const Launch& launch, const RowsParams& p);
cudaError_t PrepareFewRows();
cudaError_t StartFewRows(const Launch& launch, RowsParams& p);

}  // namespace bloomery::kernels::cuda
