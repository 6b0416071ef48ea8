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

// What a lane makes of its eight values of a stretch: their codes, the sum of 16 codes (its own and
// its neighbour's; both have it) and the scale of its group.
struct LaneCodes {
  std::uint32_t words[2];
  std::int32_t sum;
  float scale;
};

// LaneCodes::sum.
__device__ __forceinline__ std::int32_t SumOfCodes(const std::uint32_t (&words)[2]) {
  const int sum = __dp4a(static_cast<int>(words[0]), 0x01010101,
                         __dp4a(static_cast<int>(words[1]), 0x01010101, 0));
  return sum + __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
}

// Lane l of the warp holds values 8l .. 8l+7 of a stretch of 256, zeros beyond the row. kGroup: 256
// or 32. Order: none, a maximum and exact integer sums.
template <int kGroup>
__device__ __forceinline__ LaneCodes QuantiseLane(const float (&v)[8]) {
  // Magnitudes order as their bits do; what is not finite lies at 0x7F800000 and above.
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    most = max(most, __float_as_uint(v[i]) & 0x7FFFFFFFU);
  }
  if constexpr (kGroup == 256) {
    most = __reduce_max_sync(0xFFFFFFFFU, most);
  } else {
    most = max(most, __shfl_xor_sync(0xFFFFFFFFU, most, 1));
    most = max(most, __shfl_xor_sync(0xFFFFFFFFU, most, 2));
  }
  const float magnitude = __uint_as_float(most);
  const bool finite = most < 0x7F800000U;
  const bool coded = finite && magnitude >= 0x1p-100F;
  const float r = coded ? 127.0F / magnitude : 0.0F;
  LaneCodes out;
  out.scale = coded ? magnitude / 127.0F : finite ? 0.0F : __uint_as_float(0x7FC00000U);
  // |v * r| <= 127 * (1 + 2^-23): it rounds to 127 at most, so N2's clamp never acts. Adding 1.5 *
  // 2^23 rounds to an integer, ties to even, and leaves it in the low byte.
  std::uint32_t code[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    code[i] = coded ? __float_as_uint(v[i] * r + 0x1.8p23F) : 0U;
  }
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    out.words[w] = __byte_perm(__byte_perm(code[4 * w], code[4 * w + 1], 0x0040),
                               __byte_perm(code[4 * w + 2], code[4 * w + 3], 0x0040), 0x5410);
  }
  out.sum = SumOfCodes(out.words);
  return out;
}

// Writes codes, scales and sums of the stretch [start, start + 256) of a row, whose lane l holds
// values start + 8l and on; start divides by 256.
__device__ __forceinline__ void QuantiseStretch(const float (&v)[8], std::int32_t start,
                                                const QuantisedView& out, std::byte* row) {
  const unsigned lane = threadIdx.x % 32;
  const LaneCodes codes = out.group == 256 ? QuantiseLane<256>(v) : QuantiseLane<32>(v);
  const std::int32_t first = start + 8 * static_cast<std::int32_t>(lane);
  if (first >= out.k) {
    return;
  }
  *reinterpret_cast<uint2*>(row + first) = make_uint2(codes.words[0], codes.words[1]);
  if (lane % 2 == 0) {
    reinterpret_cast<std::int16_t*>(row + out.sums_offset)[first / 16] =
        static_cast<std::int16_t>(codes.sum);
  }
  if (first % out.group == 0) {
    reinterpret_cast<float*>(row + out.scales_offset)[first / out.group] = codes.scale;
  }
}

}  // namespace bloomery::kernels::cuda
