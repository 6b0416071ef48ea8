#include "kernels-common/quant/cuda/quantise.h"

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/cuda/rows.cuh"
#include "kernels-common/quant/cuda/quantise.cuh"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kWarps = 4;

// Warp w of the grid makes stretch w % stretches of row w / stretches.
__global__ void __launch_bounds__(32 * kWarps)
    QuantiseRowsKernel(const float* x, std::size_t x_stride, QuantisedView out,
                       std::int32_t stretches, RowBound rows) {
  WaitForInputs();
  AllowNext();
  const std::int32_t unit = static_cast<std::int32_t>(blockIdx.x * kWarps + threadIdx.x / 32);
  const std::int32_t row = unit / stretches;
  if (row >= LiveRows(rows)) {
    return;
  }
  const std::int32_t start = unit % stretches * 256;
  const std::int32_t first = start + 8 * static_cast<std::int32_t>(threadIdx.x % 32);
  float v[8] = {};
  if (first < out.k) {
    const auto* source =
        reinterpret_cast<const float4*>(x + static_cast<std::size_t>(row) * x_stride + first);
    const float4 a = source[0];
    const float4 b = source[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  }
  QuantiseStretch(v, start, out, out.data + static_cast<std::size_t>(row) * out.row_bytes);
}

}  // namespace

cudaError_t QuantiseRows(const Launch& launch, const QuantiseRowsArgs& args) {
  const auto stretches = static_cast<std::int32_t>((args.out.k + 255) / 256);
  const std::int64_t units = static_cast<std::int64_t>(stretches) * args.rows.max;
  if (units == 0) {
    return cudaSuccess;
  }
  return Start(launch, dim3(static_cast<unsigned>((units + kWarps - 1) / kWarps)),
               dim3(32 * kWarps), 0, QuantiseRowsKernel, args.x, args.x_stride, View(args.out),
               stretches, args.rows);
}

}  // namespace bloomery::kernels::cuda
