#include "kernels-common/linear/cuda/few_rows_linear.cuh"

#include <algorithm>

#include "kernels-common/cuda/async_copy.cuh"
#include "kernels-common/cuda/cluster.cuh"
#include "kernels-common/linear/cuda/row_codes.cuh"
#include "kernels-common/quant/cuda/card_types.cuh"

namespace bloomery::kernels::cuda {
namespace {

constexpr std::size_t kSharedMax = 216 * 1024;
constexpr std::size_t kOwnShared = 1024;
constexpr std::int32_t kTilesMax = 1024;  // beyond, rows_linear.cu's blocks stay for several

// kGroups groups of 256 in a row. A team of as many warps has a row tile, a warp a group; kSlots
// teams a block. Codes: team s of block r of a cluster of c makes row r + c * s, and so on.
template <int kGroups, int kSlots, bool kNorm>
__global__ void __launch_bounds__(32 * kGroups * kSlots, 1)
    FewRowsLinearKernel(const __grid_constant__ RowsParams p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int kTeam = 32 * kGroups;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ std::uint64_t full[kSlots];
  AllowNext();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int slot = static_cast<int>(threadIdx.x) / kTeam;
  const int thread = static_cast<int>(threadIdx.x) % kTeam;
  const int group = thread / 32;
  const int tile = slot * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  const bool has = tile < p.units;
  const RowsMatrix& m = p.matrices[has ? MatrixOfUnit(p, tile) : 0];
  std::byte* tiles = shared + p.tiles_at + slot * kGroups * p.tile_stride;
  if (thread == 0) {
    InitBarrier(full + slot, 1);
    OrderBarriersBeforeBulk();
    if (has) {
      const auto bytes = static_cast<std::uint32_t>(kGroups * m.tile_bytes);
      ExpectBytes(full + slot, bytes);
      CopyBulk(tiles, m.data + static_cast<std::size_t>(tile - m.first_unit) * bytes, bytes,
               full + slot);
    }
  }
  ClusterArrive();
  const int first = 256 * group + 8 * lane;
  float weights[8];
  if constexpr (kNorm) LoadStretch(p.norm_weight, first, 256 * kGroups, weights);

  WaitForInputs();
  const int rows = LiveRows(p);
  const int n = 16 * (tile - m.first_unit) + thread % 16;
  const bool stores = has && thread < 16 * rows && n < m.n;
  float residual = 0.0F;
  if (stores && m.residual != nullptr) {
    residual = __ldcg(m.residual + thread / 16 * m.residual_stride + n);
  }
  const RowCodes codes = {shared, p.layout};
  const int size = ClusterSize();
  const int start = ClusterRank() + slot * size;
  ClusterWait();
  for (int row = start; row < rows; row += kSlots * size) {
    float v[8];
    LoadStretch(InputRow(p, row), first, 256 * kGroups, v);
    if constexpr (kNorm) {
      float* stage = reinterpret_cast<float*>(shared + p.stage_at) + slot * 256 * kGroups;
      auto* at = reinterpret_cast<float4*>(stage + first);
      if (row != start) MeetTeam<kGroups>(slot);
      at[0] = make_float4(v[0], v[1], v[2], v[3]);
      at[1] = make_float4(v[4], v[5], v[6], v[7]);
      MeetTeam<kGroups>(slot);
      const float factor = NormFactorOf<256 * kGroups>(stage, p.eps);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = v[i] * factor * weights[i];
    }
    StoreStretch<256>(v, codes, row, 256 * group);
    __syncwarp();
    ShareStretch(codes, row, group);
  }
  ClusterArrive();
  ClusterWait();

  if (has) WaitPhase(full + slot, 0);
  if (rows == 0) return;
  const int outputs = 16 * rows;
  float* partial = reinterpret_cast<float*>(shared + p.partial_at) + slot * kGroups * outputs;
  if (has) {
    const LaneColumns columns(rows);
    CommonTypes::Dispatch(m.type, [&](auto type) {
      float t[4];
      TileDotRows<decltype(type)::value>(tiles + group * m.tile_bytes, codes, group, columns, t);
      StoreT<false>(t, partial + group * outputs, rows);
    });
  }
  MeetTeam<kGroups>(slot);
  if (!stores) return;
  float y = SumGroups(partial + thread, kGroups, outputs);
  if (m.scale != nullptr) y *= *m.scale;
  if (m.bias != nullptr) y += m.bias[n];
  if (m.residual != nullptr) y = residual + y;
  m.y[thread / 16 * m.y_stride + n] = y;
#endif
}

// A row's codes, sums and scales side by side. Rows are as far apart as makes reads of eight rows
// at a time meet in no bank: 32 bytes beyond a multiple of 128.
RowCodesLayout LayOutRows(std::int32_t k, std::int32_t rows) {
  RowCodesLayout layout = {};
  const std::int32_t bytes = k + k / 8 + k / 64;
  const std::int32_t stride = (bytes - 32 + 127) / 128 * 128 + 32;
  layout.k_padded = k;
  layout.group = 256;
  layout.code_stride = stride;
  layout.sum_stride = stride;
  layout.scale_stride = stride / 4;
  layout.high = k;
  layout.low = k + k / 16;
  layout.scales = k + k / 8;
  layout.bytes = rows * stride;
  return layout;
}

std::size_t LayOut(RowsParams& p, int slots) {
  p.tile_stride = 0;
  for (std::int32_t i = 0; i < p.count; ++i) {
    p.tile_stride = std::max(p.tile_stride, p.matrices[i].tile_bytes);
  }
  p.layout = LayOutRows(p.k, p.rows);
  p.tiles_at = (p.layout.bytes + 127) / 128 * 128;
  p.stage_at = p.tiles_at + slots * p.groups * p.tile_stride;
  p.partial_at = p.stage_at + (p.norm_weight == nullptr ? 0 : 4 * slots * p.k);
  return p.partial_at + std::size_t{4} * 16 * slots * p.rows * p.groups;
}

// Row tiles a block, of 8 and of 16 groups: fewer blocks make fewer codes. QKV of 8 rows on an
// H200: 6.0 us with three, 9.5 with two, 7.6 with one (docs/measurements/card.md).
constexpr int kSlots8 = 3;
constexpr int kSlots16 = 1;

template <int kGroups, int kSlots, bool kNorm>
cudaError_t StartShape(const Launch& launch, RowsParams& p) {
  const std::size_t bytes = LayOut(p, kSlots);
  const unsigned need = static_cast<unsigned>(p.units + kSlots - 1) / kSlots;
  const unsigned blocks = (need + kClusterMost - 1) / kClusterMost * kClusterMost;
  const dim3 threads(32 * kGroups * kSlots);
  const unsigned cluster =
      ClusterFor(blocks, threads, bytes, FewRowsLinearKernel<kGroups, kSlots, kNorm>);
  return StartClusters(launch, cluster, dim3(blocks), threads, bytes,
                       FewRowsLinearKernel<kGroups, kSlots, kNorm>, p);
}

template <int kGroups, int kSlots>
cudaError_t Allow() {
  const cudaError_t status = AllowShared(FewRowsLinearKernel<kGroups, kSlots, true>, kSharedMax);
  return status == cudaSuccess
             ? AllowShared(FewRowsLinearKernel<kGroups, kSlots, false>, kSharedMax)
             : status;
}

}  // namespace

bool FewRowsFit(const Launch& launch, const RowsParams& params) {
  RowsParams p = params;
  bool fits = launch.dependent && p.rows > 1 && p.normed.data == nullptr &&
              p.normed_f32 == nullptr && (p.k == 2048 || p.k == 4096);
  std::int32_t tiles = 0;
  for (std::int32_t i = 0; i < p.count; ++i) {
    fits = fits && CommonTypes::Has(p.matrices[i].type);
    tiles += (p.matrices[i].n + 15) / 16;
  }
  return fits && tiles <= kTilesMax &&
         LayOut(p, p.k == 2048 ? kSlots8 : kSlots16) <= SharedLimit(launch, kSharedMax, kOwnShared);
}

cudaError_t PrepareFewRows() {
  const cudaError_t status = Allow<8, kSlots8>();
  return status == cudaSuccess ? Allow<16, kSlots16>() : status;
}

cudaError_t StartFewRows(const Launch& launch, RowsParams& p) {
  p.units = 0;
  for (std::int32_t i = 0; i < p.count; ++i) {
    p.matrices[i].first_unit = p.units;
    p.units += (p.matrices[i].n + 15) / 16;
  }
  const bool norm = p.norm_weight != nullptr;
  if (p.k == 2048) {
    return norm ? StartShape<8, kSlots8, true>(launch, p)
                : StartShape<8, kSlots8, false>(launch, p);
  }
  return norm ? StartShape<16, kSlots16, true>(launch, p)
              : StartShape<16, kSlots16, false>(launch, p);
}

}  // namespace bloomery::kernels::cuda
