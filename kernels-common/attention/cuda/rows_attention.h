// Attention of the card in the exact order of attention.h: the bits of reference::Attention for any
// number of rows. HeadAttentionRows is the one launch between the QKV linear and the output linear
// of a decode pass: head norms, rope, the append to the planes and attention. RowsAttention is
// attention alone. Windows of 128 keys are spread over blocks; their parts go to a workspace and
// the last blocks of a (row, kv head) to finish merge them, ascending. No set-up but
// PrepareAttention(), once a device.
#pragma once

#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/cuda/launch.h"

namespace bloomery::kernels::cuda {

// More rows than this go without a workspace: a block takes all windows of its row.
inline constexpr std::int32_t kMaxHeadRows = 8;

cudaError_t PrepareAttention();

// Whether the shape is one these kernels take: both planes of one type; dims divide by 8 (q8_0: by
// 32) and are at most 768; heads divides by kv_heads; rings are read through a window.
bool RowsAttentionFits(const CardAttention& attention);

// Bytes of workspace for this shape, capacity of planes and rows.rows (8 where more). Set to zero
// once; launches leave it ready for the next, of any shape and number of rows. Launches that may
// overlap must not share one.
std::size_t RowsAttentionWorkspaceBytes(const CardAttention& attention);

// For at most kMaxHeadRows rows (the bucket). Also writes plane row index[r] of keys and values for
// every live row. `attention.q` holds q as the linear left it; it is not changed.
cudaError_t HeadAttentionRows(const Launch& launch, const CardAttention& attention,
                              const HeadInputs& inputs, std::byte* workspace);

// Any number of rows; the planes hold this pass's rows already and q is ready. The workspace is
// used for up to kMaxHeadRows rows and may be null for more.
cudaError_t RowsAttention(const Launch& launch, const CardAttention& attention,
                          std::byte* workspace);

}  // namespace bloomery::kernels::cuda
