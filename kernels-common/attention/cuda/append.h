// Rows into planes on the card, with the bits of the CPU's: HeadNormRopeAppend is the one launch
// between the QKV linear and the attention of a prompt pass; Append is the plain one.
#pragma once

#include "kernels-common/attention/cuda/card_attention.h"
#include "kernels-common/cuda/launch.h"

namespace bloomery::kernels::cuda {

struct HeadAppendArgs {
  PassRowsView rows;
  HeadInputs inputs;
  const float* q = nullptr;  // row r: heads * key_dim values
  std::size_t q_stride = 0;
  float* q_out = nullptr;  // overwritten; may be q
  std::size_t q_out_stride = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t key_dim = 0;
  std::int32_t value_dim = 0;
  CardPlane keys;
  CardPlane values;
};

// q_out = rope(norm(q)); plane rows index[r] of keys = rope(norm(k)) and of values = v * v_scale.
cudaError_t HeadNormRopeAppend(const Launch& launch, const HeadAppendArgs& args);

// Plane row index[r] of slot[r] = x[r] (plane.width values) for every live row with index >= 0.
cudaError_t Append(const Launch& launch, const PassRowsView& rows, const float* x,
                   std::size_t x_stride, const CardPlane& plane);

}  // namespace bloomery::kernels::cuda
