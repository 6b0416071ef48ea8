// Inside CUDA sources: N2 for one stretch of 256 values by one warp, and where QuantisedRows keeps
// its parts.
#pragma once

#include <cstdint>

#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/quant/quant.h"

namespace bloomery::kernels::cuda {

// QuantisedRows with its offsets worked out on the host.
struct QuantisedView {
  std::byte* data;
  std::size_t row_bytes;
  std::uint32_t scales_offset;
  std::uint32_t sums_offset;
  std::int32_t k;
  std::int32_t group;
};

inline QuantisedView View(const QuantisedRows& rows) {
  if (rows.data == nullptr) {
    return {};
  }
  return {rows.data,
          rows.row_bytes,
          static_cast<std::uint32_t>(rows.ScalesOffset()),
          static_cast<std::uint32_t>(rows.SumsOffset()),
          static_cast<std::int32_t>(rows.k),
          static_cast<std::int32_t>(rows.group)};
}

// Lane l of the warp holds values [start + 8l, + 8) of a row, zeros beyond k; start divides by 256.
// Order: none, a maximum and exact integer sums. Writes codes, scales and sums of the stretch.
__device__ __forceinline__ void QuantiseStretch(const float (&v)[8], std::int32_t start,
                                                const QuantisedView& out, std::byte* row) {
  const unsigned lane = threadIdx.x % 32;
  // Magnitudes order as their bits do; what is not finite lies at 0x7F800000 and above.
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    most = max(most, __float_as_uint(v[i]) & 0x7FFFFFFFU);
  }
  most = max(most, __shfl_xor_sync(0xFFFFFFFFU, most, 1));
  most = max(most, __shfl_xor_sync(0xFFFFFFFFU, most, 2));
  if (out.group == 256) {
    most = max(most, __shfl_xor_sync(0xFFFFFFFFU, most, 4));
    most = max(most, __shfl_xor_sync(0xFFFFFFFFU, most, 8));
    most = max(most, __shfl_xor_sync(0xFFFFFFFFU, most, 16));
  }
  const float magnitude = __uint_as_float(most);
  const bool finite = most < 0x7F800000U;
  const bool coded = finite && magnitude >= 0x1p-100F;
  const float r = coded ? 127.0F / magnitude : 0.0F;
  const float scale = coded ? magnitude / 127.0F : finite ? 0.0F : __uint_as_float(0x7FC00000U);
  std::int32_t sum = 0;
  std::uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    // |v * r| <= 127 * (1 + 2^-23): it rounds to 127 at most, so N2's clamp never acts.
    const std::int32_t code = coded ? __float2int_rn(v[i] * r) : 0;
    sum += code;
    words[i / 4] |= static_cast<std::uint32_t>(code & 255) << (8 * (i % 4));
  }
  sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
  const std::int32_t first = start + 8 * static_cast<std::int32_t>(lane);
  if (first >= out.k) {
    return;
  }
  *reinterpret_cast<uint2*>(row + first) = make_uint2(words[0], words[1]);
  if (lane % 2 == 0) {
    reinterpret_cast<std::int16_t*>(row + out.sums_offset)[first / 16] =
        static_cast<std::int16_t>(sum);
  }
  if (first % out.group == 0) {
    reinterpret_cast<float*>(row + out.scales_offset)[first / out.group] = scale;
  }
}

}  // namespace bloomery::kernels::cuda
