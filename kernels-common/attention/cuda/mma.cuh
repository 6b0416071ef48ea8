// Tensor-core steps of 16 x 8 x 16 with f16 operands and f32 sums, and the loads of their operands
// from swizzled tiles in shared memory.
//
// Lane l holds, with g = l / 4 and q = l % 4: of A (16 x 16) the pairs of columns 2q at rows g and
// g + 8, then columns 2q + 8 at rows g and g + 8; of B (16 x 8) the pairs of rows 2q and 2q + 8 at
// column g; of C (16 x 8) the pairs of columns 2q at rows g and g + 8.
//
// A tile has rows of kWidth halves (a multiple of 64) in chunks of 8; chunk c of row r lies at
// place c ^ (r & 7), so that the eight rows of a load meet all banks.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels-common/cuda/async_copy.cuh"

namespace bloomery::kernels::cuda {

template <int kWidth>
__device__ __forceinline__ int TileAt(int row, int chunk) {
  static_assert(kWidth % 64 == 0);
  return row * kWidth * 2 + (chunk ^ (row & 7)) * 16;
}

__device__ __forceinline__ void LoadMatrices(std::uint32_t (&out)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void LoadMatricesTransposed(std::uint32_t (&out)[4],
                                                       std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

// c += a * b.
__device__ __forceinline__ void MultiplyAdd(float (&c)[4], const std::uint32_t (&a)[4],
                                            std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The address of this lane for A at rows [row, row + 16) and halves [16 * step, +16).
template <int kWidth>
__device__ __forceinline__ std::uint32_t RowsAddress(std::uint32_t tile, int row, int step,
                                                     int lane) {
  return tile + TileAt<kWidth>(row + lane % 16, 2 * step + lane / 16);
}

// For B of two column groups whose columns are the tile's rows [row, row + 16): (b0, b1) of the
// first eight, then of the second.
template <int kWidth>
__device__ __forceinline__ std::uint32_t ColumnsAddress(std::uint32_t tile, int row, int step,
                                                        int lane) {
  return tile + TileAt<kWidth>(row + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2);
}

// For the transposed load of B whose rows are the tile's rows [row, row + 16) and whose columns are
// halves [16 * group, +16): (b0, b1) of the first eight columns, then of the second.
template <int kWidth>
__device__ __forceinline__ std::uint32_t TransposedAddress(std::uint32_t tile, int row, int group,
                                                           int lane) {
  return tile + TileAt<kWidth>(row + lane / 8 % 2 * 8 + lane % 8, 2 * group + lane / 16);
}

__device__ __forceinline__ std::uint32_t PackHalves(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// What PackHalves left out of each.
__device__ __forceinline__ std::uint32_t PackRests(float low, float high, std::uint32_t packed) {
  const float2 taken = __half22float2(*reinterpret_cast<const __half2*>(&packed));
  return PackHalves(low - taken.x, high - taken.y);
}

__device__ __forceinline__ float FastExp2(float x) {
  float y = 0.0F;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace bloomery::kernels::cuda
