#include "kernels-common/linear/cuda/one_row_linear.cuh"

#include <climits>

#include "kernels-common/cuda/async_copy.cuh"
#include "kernels-common/linear/cuda/one_row.cuh"
#include "kernels-common/linear/cuda/row_codes.cuh"
#include "kernels-common/quant/cuda/card_types.cuh"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kChunkQ4K = 144;  // of 16 bytes, in a tile
constexpr int kChunkQ5K = 176;
constexpr int kChunkQ6K = 210;
// A warp's shared memory: a tile, 256 codes, their sums of 16 cut in two.
constexpr int kTileRoom = kChunkQ6K * 16;
constexpr int kWarpBytes = kTileRoom + OwnCodes::kBytes;

struct OneRowJob {
  const std::byte* data;
  const float* scale;
  const float* bias;
  const float* residual;
  float* y;
  std::int32_t type;
  std::int32_t n;
  std::int32_t first_tile;  // INT_MAX: no such job
};

struct OneRowParams {
  const float* x;
  const float* norm_weight;
  const std::int32_t* live;
  float eps;
  std::int32_t tiles;
  OneRowJob jobs[kRowsMatricesMax];
};

__device__ __forceinline__ int JobOf(const OneRowParams& p, int tile) {
  int job = 0;
#pragma unroll
  for (int i = 1; i < kRowsMatricesMax; ++i) job += tile >= p.jobs[i].first_tile ? 1 : 0;
  return job;
}

__device__ __forceinline__ void LoadEight(const float* from, float (&v)[8]) {
  const float4 a = __ldcg(reinterpret_cast<const float4*>(from));
  const float4 b = __ldcg(reinterpret_cast<const float4*>(from) + 1);
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
  v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

// kGroups groups of 256 in a row, a warp for each; a block makes one row tile. Small blocks: 320 of
// 8 warps take 4.9 us for QKV where 107 of three tiles each took 6.1.
// kFive: some matrix is Q5_K, which takes registers of its own.
template <int kGroups, bool kNorm, bool kFive>
__global__ void __launch_bounds__(32 * kGroups, (kGroups == 8 ? 6 : 3) - (kFive ? 1 : 0))
    OneRowKernel(const __grid_constant__ OneRowParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  AllowNext();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);  // its group
  const int tile = static_cast<int>(blockIdx.x);
  const OneRowJob& job = p.jobs[JobOf(p, tile)];
  const bool q6k = job.type == kQ6K;
  std::byte* mine = shared + warp * kWarpBytes;
  const bool five = kFive && job.type == kQ5K;
  const int chunks = q6k ? kChunkQ6K : five ? kChunkQ5K : kChunkQ4K;
  const auto index = static_cast<unsigned>((tile - job.first_tile) * kGroups + warp);
  const std::byte* from = job.data + static_cast<std::size_t>(index) * chunks * 16 + lane * 16;
#pragma unroll
  for (int i = 0; i < (kChunkQ6K + 31) / 32; ++i) {
    if (lane + 32 * i < chunks) CopyAsync<16>(mine + (lane + 32 * i) * 16, from + 512 * i);
  }
  CommitCopies();
  float* values = reinterpret_cast<float*>(shared + kGroups * kWarpBytes);
  float* partial = values + (kNorm ? 256 * kGroups : 0);
  float* factor_at = partial + 16 * kGroups;
  const int first = 256 * warp + 8 * lane;
  float weights[8];
  if constexpr (kNorm) LoadEight(p.norm_weight + first, weights);
  const int n = 16 * (tile - job.first_tile) + static_cast<int>(threadIdx.x);
  const bool stores = threadIdx.x < 16 && n < job.n;

  WaitForInputs();
  float v[8];
  LoadEight(p.x + first, v);
  float residual = 0.0F;
  if (stores && job.residual != nullptr) residual = __ldcg(job.residual + n);
  const bool lives = p.live == nullptr || __ldcg(p.live) > 0;
  if constexpr (kNorm) {
    auto* at = reinterpret_cast<float4*>(values + first);
    at[0] = make_float4(v[0], v[1], v[2], v[3]);
    at[1] = make_float4(v[4], v[5], v[6], v[7]);
    __syncthreads();
    if (warp == 0) {
      const float factor = NormFactorOf<256 * kGroups>(values, p.eps);
      if (lane == 0) *factor_at = factor;
    }
    __syncthreads();
    const float factor = *factor_at;
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = v[i] * factor * weights[i];
  }
  const LaneCodes codes = QuantiseLane<256>(v);
  std::byte* own = mine + kTileRoom;
  OwnCodes::Store(own, codes.words, codes.sum);
  WaitForCopies<0>();
  __syncwarp();
  float u = 0.0F;
  if (kFive && five) {
    if constexpr (kFive) {
      u = OneRowValue<kQ5K>(mine, own, own + OwnCodes::kHigh, own + OwnCodes::kLow);
    }
  } else {
    u = q6k ? OneRowValue<kQ6K>(mine, own, own + OwnCodes::kHigh, own + OwnCodes::kLow)
            : OneRowValue<kQ4K>(mine, own, own + OwnCodes::kHigh, own + OwnCodes::kLow);
  }
  if (lane % 4 < 2) {
    partial[warp * 16 + lane / 4 + 8 * (lane % 4)] = __fmaf_rn(codes.scale, u, 0.0F);
  }
  __syncthreads();
  if (!stores || !lives) return;
  const float* t = partial + threadIdx.x;
  float y = 0.0F;
#pragma unroll
  for (int i = 0; i < kGroups; ++i) y += t[16 * i];
  if (job.scale != nullptr) y *= *job.scale;
  if (job.bias != nullptr) y += job.bias[n];
  if (job.residual != nullptr) y = residual + y;
  job.y[n] = y;
}

template <int kGroups, bool kNorm>
constexpr std::size_t SharedBytes() {
  return kGroups * kWarpBytes + sizeof(float) * ((kNorm ? 256 * kGroups : 0) + 16 * kGroups + 4);
}

// What a block has on every card of compute capability 8.0 and up (launch.h).
static_assert(SharedBytes<8, true>() <= 99 * 1024 && SharedBytes<16, true>() <= 99 * 1024);

template <int kGroups, bool kNorm>
cudaError_t StartShape(const Launch& launch, const OneRowParams& p, bool five) {
  return Start(launch, dim3(static_cast<unsigned>(p.tiles)), dim3(32 * kGroups),
               SharedBytes<kGroups, kNorm>(),
               five ? OneRowKernel<kGroups, kNorm, true> : OneRowKernel<kGroups, kNorm, false>, p);
}

template <int kGroups, bool kNorm>
cudaError_t AllowShape() {
  constexpr std::size_t kBytes = SharedBytes<kGroups, kNorm>();
  const cudaError_t status = AllowShared(OneRowKernel<kGroups, kNorm, true>, kBytes);
  return status == cudaSuccess ? AllowShared(OneRowKernel<kGroups, kNorm, false>, kBytes) : status;
}

template <int kGroups>
cudaError_t Allow() {
  const cudaError_t status = AllowShape<kGroups, true>();
  return status == cudaSuccess ? AllowShape<kGroups, false>() : status;
}

// Row tiles up to which a block for each is what the card takes at a time.
constexpr std::int32_t kTilesMax = 1024;

std::int32_t Tiles(const RowsParams& p) {
  std::int32_t tiles = 0;
  for (std::int32_t i = 0; i < p.count; ++i) tiles += (p.matrices[i].n + 15) / 16;
  return tiles;
}

}  // namespace

bool OneRowFits(const RowsParams& p) {
  bool fits = p.rows == 1 && p.row_map == nullptr && p.normed.data == nullptr &&
              p.normed_f32 == nullptr && (p.k == 2048 || p.k == 4096) && Tiles(p) <= kTilesMax;
  for (std::int32_t i = 0; i < p.count; ++i) {
    fits = fits &&
           (p.matrices[i].type == kQ4K || p.matrices[i].type == kQ5K || p.matrices[i].type == kQ6K);
  }
  return fits;
}

cudaError_t PrepareOneRow() {
  const cudaError_t status = Allow<8>();
  return status == cudaSuccess ? Allow<16>() : status;
}

cudaError_t StartOneRow(const Launch& launch, const RowsParams& from) {
  OneRowParams p = {};
  p.x = from.x;
  p.norm_weight = from.norm_weight;
  p.live = from.live;
  p.eps = from.eps;
  bool five = false;
  for (std::int32_t i = 0; i < kRowsMatricesMax; ++i) {
    OneRowJob& job = p.jobs[i];
    job.first_tile = INT_MAX;
    if (i >= from.count) continue;
    const RowsMatrix& m = from.matrices[i];
    job = {m.data, m.scale, m.bias, m.residual, m.y, m.type, m.n, p.tiles};
    p.tiles += (m.n + 15) / 16;
    five = five || m.type == kQ5K;
  }
  const bool norm = p.norm_weight != nullptr;
  if (from.k == 2048)
    return norm ? StartShape<8, true>(launch, p, five) : StartShape<8, false>(launch, p, five);
  return norm ? StartShape<16, true>(launch, p, five) : StartShape<16, false>(launch, p, five);
}

}  // namespace bloomery::kernels::cuda
