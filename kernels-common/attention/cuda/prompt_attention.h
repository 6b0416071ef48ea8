// Attention of prompt passes on tensor cores. Planes hold this pass's rows already and q is ready
// (HeadNormRopeAppend). f16 operands, f32 sums and softmax; with f32 planes every operand is split
// in two halves (three products), so that about 21 bits of each count. A row's bits depend on its
// own keys only, but differ from the exact order's (class "band"; the tests hold the tolerance).
// Passes of few rows, and shapes without a tensor-core form, are given to RowsAttention and have
// its bits.
#pragma once

#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/cuda/launch.h"

namespace bloomery::kernels::cuda {

// Passes (buckets) of up to so many rows are exact. Tensor cores take 16 rows of a kv head at a
// time and walk the slots among them one after the other, which rows of many slots pay for.
inline constexpr std::int32_t kExactPromptRows = 32;

// PrepareAttention() of rows_attention.h sets this up too.
cudaError_t PromptAttention(const Launch& launch, const CardAttention& attention);

}  // namespace bloomery::kernels::cuda
