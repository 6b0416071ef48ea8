// Attention of prompt passes on tensor cores. Planes hold this pass's rows already and q is ready
// (HeadNormRopeAppend). f16 operands, f32 sums and softmax; with f32 planes every operand is split
// in two halves (three products), so that about 21 bits of each count. A row's bits depend on its
// own keys only, but differ from the exact order's (class "band"; the tests hold the tolerance).
// Shapes without a tensor-core form are given to RowsAttention and have its bits.
#pragma once

#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/cuda/launch.h"

namespace bloomery::kernels::cuda {

// PrepareAttention() of rows_attention.h sets this up too.
cudaError_t PromptAttention(const Launch& launch, const CardAttention& attention);

}  // namespace bloomery::kernels::cuda
