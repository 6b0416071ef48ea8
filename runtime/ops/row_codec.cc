#include "runtime/ops/row_codec.h"

#include "kernels-common/quant/quant.h"

namespace bloomery::ops {

RowCodec RowCodecOf(uint32_t ggml_type) {
  const kernels::FormatTraits* traits = kernels::FindFormat(static_cast<int>(ggml_type));
  if (traits == nullptr) return {};
  return {.decode = traits->decode_row, .encode = traits->quantise_row};
}

}  // namespace bloomery::ops
