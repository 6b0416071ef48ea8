// Integer formats. A block of the split form takes row tiles (16 weight rows) one after another;
// its warps share the tile's groups of 256 values and exchange t of N5 through shared memory,
// summed by ascending group. In the stream form, for many row tiles, a warp takes a row tile alone
// and keeps y in registers. Either way the first tiles are on their way before the inputs are
// there.
#include "kernels-common/linear/cuda/rows_linear.h"

#include <algorithm>

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/linear/cuda/few_rows_linear.cuh"
#include "kernels-common/linear/cuda/one_row_linear.cuh"
#include "kernels-common/linear/cuda/rows_params.cuh"
#include "kernels-common/linear/cuda/tile_ring.cuh"
#include "kernels-common/quant/cuda/card_types.cuh"

namespace bloomery::kernels::cuda {
namespace {

// Of blocks that stream; how many share a multiprocessor.
constexpr int kStreamThreads = 256;
constexpr int kStreamBlocks = 3;
// Warps of a block that splits tiles: a bound of 1024 threads leaves each 64 registers.
constexpr int kSplitWarps = 24;
constexpr int kSplitThreads = 1024;
constexpr std::size_t kSharedMax = 216 * 1024;
constexpr std::size_t kOwnShared = 4 * 1024;  // at most, of a kernel

// A place in a warp's sequence of tiles: units of a block, groups of a warp.
struct TilePlace {
  int unit;
  int group;
  __device__ __forceinline__ void Advance(const RowsParams& p, int part, int step) {
    group += p.parts;
    if (group >= p.groups) {
      group = part;
      unit += step;
    }
  }
};

template <class Set, bool kOne>
__global__ void __launch_bounds__(kSplitThreads, 1)
    RowsSplitKernel(const __grid_constant__ RowsParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  AllowNext();
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int slot = warp / p.parts;
  const int part = warp % p.parts;
  const auto step = static_cast<int>(gridDim.x);
  const RowCodes codes = {shared, p.layout};
  auto* partial = reinterpret_cast<float*>(shared + p.partial_at);
  TileRing ring(shared + p.tiles_at + warp * p.stages * p.tile_stride, p.stages, p.tile_stride);
  int unit = static_cast<int>(blockIdx.x);
  int rows = 0;
  bool ready = false;
  while (unit < p.units) {
    const RowsMatrix& m = p.matrices[MatrixOfUnit(p, unit)];
    const int tiles = (m.n + 15) / 16;
    const int last_unit = m.first_unit + (tiles + p.slots - 1) / p.slots;
    TilePlace ahead = {unit, part};
    const auto issue = [&] {
      const int tile = (ahead.unit - m.first_unit) * p.slots + slot;
      const auto index = static_cast<std::size_t>(tile) * p.groups + ahead.group;
      if (ahead.unit < last_unit && tile < tiles) {
        CopyTile<Set>(ring, m.type, m.data + index * m.tile_bytes, m.tile_bytes, 0);
      }
      ring.Close();
      ahead.Advance(p, part, step);
    };
    for (int stage = 0; stage < p.stages; ++stage) issue();
    if (!ready) {
      ready = true;
      StageNormWeights(p, reinterpret_cast<float*>(shared + p.norm_at));
      WaitForInputs();
      rows = LiveRows(p);
      if (rows == 0) return;
      MakeRowCodes<kGroupOf<Set>>(p, shared, rows);
      __syncthreads();
    }
    const LaneColumns columns(rows);
    const int outputs = 16 * rows;
    // Each slot's t: [group][row of the activations][row of the tile].
    float* mine = partial + slot * p.groups * outputs;
    for (; unit < last_unit; unit += step) {
      const int first_tile = (unit - m.first_unit) * p.slots;
      for (int group = part; group < p.groups; group += p.parts) {
        const std::byte* tile = ring.Take();
        if (first_tile + slot < tiles) {
          Set::Dispatch(m.type, [&](auto type) {
            float t[4];
            TileDot<decltype(type)::value, kOne>(tile, codes, group, columns, t);
            StoreT<kOne>(t, mine + group * outputs, rows);
          });
        }
        ring.Release();
        issue();
      }
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < p.slots * outputs;
           i += static_cast<int>(blockDim.x)) {
        const int row = i % outputs / 16;
        const int n = 16 * (first_tile + i / outputs) + i % 16;
        if (n >= m.n) continue;
        const float y =
            SumGroups(partial + i / outputs * p.groups * outputs + i % outputs, p.groups, outputs);
        StoreOutput(p, m, y, row, n);
      }
      if (unit + step < p.units) __syncthreads();
    }
    ring.Drop();
  }
  if (!ready) WaitForInputs();
}

template <class Set, bool kOne>
__global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    RowsStreamKernel(const __grid_constant__ RowsParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  AllowNext();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const RowCodes codes = {shared, p.layout};
  const auto step = static_cast<int>(gridDim.x * (kStreamThreads / 32));
  int unit = static_cast<int>(blockIdx.x * (kStreamThreads / 32)) + warp;
  TileRing ring(shared + p.tiles_at + warp * p.stages * p.tile_stride, p.stages, p.tile_stride);
  // One sequence of tiles over all matrices.
  TilePlace ahead = {unit, 0};
  const auto issue = [&] {
    if (ahead.unit < p.units) {
      const RowsMatrix& m = p.matrices[MatrixOfUnit(p, ahead.unit)];
      const auto index =
          static_cast<std::size_t>(ahead.unit - m.first_unit) * p.groups + ahead.group;
      CopyTile<Set>(ring, m.type, m.data + index * m.tile_bytes, m.tile_bytes, 0);
      ahead.Advance(p, 0, step);
    }
    ring.Close();
  };
  for (int stage = 0; stage < p.stages; ++stage) issue();
  StageNormWeights(p, reinterpret_cast<float*>(shared + p.norm_at));
  WaitForInputs();
  const int rows = LiveRows(p);
  if (rows == 0) return;
  MakeRowCodes<kGroupOf<Set>>(p, shared, rows);
  __syncthreads();
  const LaneColumns columns(rows);
  for (; unit < p.units; unit += step) {
    const RowsMatrix& m = p.matrices[MatrixOfUnit(p, unit)];
    float y[4] = {};
    for (int group = 0; group < p.groups; ++group) {
      const std::byte* tile = ring.Take();
      Set::Dispatch(m.type, [&](auto type) {
        float t[4];
        TileDot<decltype(type)::value, kOne>(tile, codes, group, columns, t);
#pragma unroll
        for (int i = 0; i < (kOne ? 1 : 4); ++i) y[i] += t[i];
      });
      ring.Release();
      issue();
    }
#pragma unroll
    for (int i = 0; i < (kOne ? 1 : 4); ++i) {
      // kOne: lanes q < 2 have the row's outputs g + 8*q.
      const int row = kOne ? lane % 4 / 2 : lane % 4 * 2 + i % 2;
      const int n = 16 * (unit - m.first_unit) + lane / 4 + 8 * (kOne ? lane % 4 % 2 : i / 2);
      if (row >= rows || n >= m.n) continue;
      StoreOutput(p, m, y[i], row, n);
    }
  }
}

// As RowsStreamKernel, for formats of CommonTypes on compute capability 9.0: a team of warps has a
// row tile, a warp a group, and bulk copies bring whole row tiles.
struct StreamTeams {
  static constexpr int kTeams = 3;
  static constexpr int kWarps = 8;
  static constexpr int kStages = 2;
  static constexpr int kThreads = 32 * kTeams * kWarps;
};

__global__ void __launch_bounds__(StreamTeams::kThreads, 1)
    RowsTeamsKernel(const __grid_constant__ RowsParams p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using T = StreamTeams;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ std::uint64_t barriers[T::kTeams * T::kStages];
  AllowNext();
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int team = warp / T::kWarps;
  const int group = warp % T::kWarps;
  const int thread = static_cast<int>(threadIdx.x) % (32 * T::kWarps);
  const RowCodes codes = {shared, p.layout};
  const int place = p.groups * p.tile_stride;
  std::byte* tiles = shared + p.tiles_at + team * T::kStages * place;
  std::uint64_t* full = barriers + team * T::kStages;
  const int step = T::kTeams * static_cast<int>(gridDim.x);
  int unit = static_cast<int>(blockIdx.x) + team * static_cast<int>(gridDim.x);
  const auto ask = [&](int of, int stage) {
    if (of >= p.units) return;
    const RowsMatrix& m = p.matrices[MatrixOfUnit(p, of)];
    const auto bytes = static_cast<std::uint32_t>(p.groups * m.tile_bytes);
    ExpectBytes(full + stage, bytes);
    CopyBulkOnce(tiles + stage * place,
                 m.data + static_cast<std::size_t>(of - m.first_unit) * bytes, bytes, full + stage);
  };
  if (thread == 0) {
    for (int i = 0; i < T::kStages; ++i) InitBarrier(full + i, 1);
    OrderBarriersBeforeBulk();
    for (int i = 0; i < T::kStages; ++i) ask(unit + i * step, i);
  }
  StageNormWeights(p, reinterpret_cast<float*>(shared + p.norm_at));
  WaitForInputs();
  const int rows = LiveRows(p);
  __syncthreads();  // barriers are there
  if (rows == 0) {  // nothing may come to shared memory after its block
    for (int i = 0; i < T::kStages && unit + i * step < p.units; ++i) WaitPhase(full + i, 0);
    return;
  }
  MakeRowCodes<256>(p, shared, rows);
  __syncthreads();
  const LaneColumns columns(rows);
  const int outputs = 16 * rows;
  auto* partial =
      reinterpret_cast<float*>(shared + p.partial_at) + team * 2 * T::kWarps * 16 * p.rows;
  for (int round = 0; unit < p.units; unit += step, ++round) {
    const int stage = round % T::kStages;
    const RowsMatrix& m = p.matrices[MatrixOfUnit(p, unit)];
    float* mine = partial + round % 2 * T::kWarps * 16 * p.rows;
    WaitPhase(full + stage, static_cast<std::uint32_t>(round / T::kStages) & 1U);
    if (group < p.groups) {
      CommonTypes::Dispatch(m.type, [&](auto type) {
        float t[4];
        TileDotRows<decltype(type)::value>(tiles + stage * place + group * m.tile_bytes, codes,
                                           group, columns, t);
        StoreT<false>(t, mine + group * outputs, rows);
      });
    }
    MeetTeam<T::kWarps>(team);
    if (thread == 0) ask(unit + T::kStages * step, stage);
    const int n = 16 * (unit - m.first_unit) + thread % 16;
    if (thread < outputs && n < m.n) {
      StoreOutput(p, m, SumGroups(mine + thread, p.groups, outputs), thread / 16, n);
    }
  }
#endif
}

// Row tiles from which on warps take whole ones: enough for two a warp.
std::int64_t StreamTiles(const Launch& launch) {
  return std::int64_t{launch.multiprocessors} * kStreamBlocks * (kStreamThreads / 32) * 2;
}

// Sets what lies behind the codes in shared memory; its bytes in all. `stage`: whether input rows
// may be staged where `most` bytes have room.
std::size_t LayOut(RowsParams& p, std::int32_t warps, std::int32_t slots, bool stage,
                   std::size_t most) {
  const bool norm = p.norm_weight != nullptr;
  p.norm_at = p.layout.bytes;
  p.stage_at = norm ? p.norm_at + p.k * 4 : 0;
  p.tiles_at = norm ? p.stage_at + p.rows * p.k * 4 : p.norm_at;
  const std::size_t tiles = static_cast<std::size_t>(warps) * p.stages * p.tile_stride;
  const std::size_t partial = std::size_t{4} * 16 * p.rows * p.groups * slots;
  if (norm && (!stage || p.tiles_at + tiles + partial > most)) {
    p.tiles_at = p.stage_at;
    p.stage_at = 0;
  }
  p.partial_at = p.tiles_at + static_cast<std::int32_t>(tiles);
  return p.partial_at + partial;
}

cudaError_t StartTeams(const Launch& launch, RowsParams& p) {
  using T = StreamTeams;
  const std::size_t most = SharedLimit(launch, kSharedMax, kOwnShared);
  const bool norm = p.norm_weight != nullptr;
  p.norm_at = p.layout.bytes;
  p.stage_at = 0;
  p.tiles_at = (p.norm_at + (norm ? p.k * 4 : 0) + 127) / 128 * 128;
  p.partial_at = p.tiles_at + T::kTeams * T::kStages * p.groups * p.tile_stride;
  const std::size_t shared =
      p.partial_at + std::size_t{4} * T::kTeams * 2 * T::kWarps * 16 * p.rows;
  if (!launch.dependent || p.groups > T::kWarps || shared > most) {
    return cudaErrorInvalidValue;
  }
  return Start(launch, dim3(static_cast<unsigned>(launch.multiprocessors)), dim3(T::kThreads),
               shared, RowsTeamsKernel, p);
}

template <class Set, bool kOne>
cudaError_t StartStream(const Launch& launch, RowsParams& p) {
  if constexpr (Set::kCount == CommonTypes::kCount) {
    if (StartTeams(launch, p) == cudaSuccess) return cudaSuccess;
  }
  constexpr int kWarps = kStreamThreads / 32;
  p.parts = 1;
  p.stages = 2;
  const std::size_t most = SharedLimit(launch, kSharedMax, kOwnShared);
  const std::size_t shared = LayOut(p, kWarps, 0, p.rows == 1, most);
  if (shared > most) return cudaErrorInvalidValue;
  const auto blocks = static_cast<unsigned>(kStreamBlocks * launch.multiprocessors);
  return Start(launch, dim3(blocks), dim3(kStreamThreads), shared, RowsStreamKernel<Set, kOne>, p);
}

template <class Set, bool kOne>
cudaError_t StartSplit(const Launch& launch, RowsParams& p, std::int64_t tiles) {
  // A warp a group, in even rounds where there are more groups than warps; then as many row tiles
  // at a time as one block a multiprocessor needs, or shared memory holds; then more rounds.
  const std::size_t most = SharedLimit(launch, kSharedMax, kOwnShared);
  const std::int64_t even = (tiles + launch.multiprocessors - 1) / launch.multiprocessors;
  std::int32_t rounds = (p.groups + kSplitWarps - 1) / kSplitWarps;
  for (; rounds <= p.groups; ++rounds) {
    p.parts = (p.groups + rounds - 1) / rounds;
    p.slots = static_cast<std::int32_t>(std::min<std::int64_t>(kSplitWarps / p.parts, even));
    for (; p.slots > 0; --p.slots) {
      p.units = 0;
      for (std::int32_t i = 0; i < p.count; ++i) {
        p.matrices[i].first_unit = p.units;
        p.units += ((p.matrices[i].n + 15) / 16 + p.slots - 1) / p.slots;
      }
      const std::int32_t warps = p.parts * p.slots;
      p.stages = p.units <= launch.multiprocessors && p.parts == p.groups ? 1 : 2;
      std::size_t shared = LayOut(p, warps, p.slots, true, most);
      if (shared > most && p.stages > 1) {
        p.stages = 1;
        shared = LayOut(p, warps, p.slots, true, most);
      }
      if (shared > most) continue;
      const auto blocks = std::min(
          p.units, launch.multiprocessors * std::min<std::int32_t>(32 / warps, most / shared));
      return Start(launch, dim3(blocks), dim3(32 * warps), shared, RowsSplitKernel<Set, kOne>, p);
    }
  }
  return cudaErrorInvalidValue;
}

template <class Set, bool kOne>
cudaError_t StartIntegers(const Launch& launch, RowsParams& p, std::int64_t tiles) {
  if (tiles >= StreamTiles(launch)) {
    const cudaError_t status = StartStream<Set, kOne>(launch, p);
    if (status != cudaErrorInvalidValue) return status;
  }
  return StartSplit<Set, kOne>(launch, p, tiles);
}

// A launch for the matrices of one activation group, or one for each part of the rows.
template <int kGroup>
cudaError_t RowsIntegers(const Launch& launch, RowsParams& p) {
  if constexpr (kGroup == 256) {
    if (OneRowFits(p)) return StartOneRow(launch, p);
    if (FewRowsFit(launch, p)) return StartFewRows(launch, p);
  }
  std::int64_t tiles = 0;
  bool common = true;
  p.tile_stride = 0;
  for (std::int32_t i = 0; i < p.count; ++i) {
    tiles += (p.matrices[i].n + 15) / 16;
    common = common && CommonTypes::Has(p.matrices[i].type);
    p.tile_stride = std::max(p.tile_stride, p.matrices[i].tile_bytes);
  }
  const std::int32_t all = p.rows;
  std::int32_t at_once = all;
  cudaError_t status = cudaSuccess;
  for (p.first_row = 0; p.first_row < all;) {
    p.rows = std::min(at_once, all - p.first_row);
    p.layout = LayOutRowCodes(p.k, kGroup, p.rows);
    p.units = 0;
    for (std::int32_t i = 0; i < p.count; ++i) {
      p.matrices[i].first_unit = p.units;
      p.units += (p.matrices[i].n + 15) / 16;
    }
    if constexpr (kGroup == 32) {
      status = StartIntegers<Types32, false>(launch, p, tiles);
    } else if (!common) {
      status = StartIntegers<Types256, false>(launch, p, tiles);
    } else {
      status = p.rows == 1 ? StartIntegers<CommonTypes, true>(launch, p, tiles)
                           : StartIntegers<CommonTypes, false>(launch, p, tiles);
    }
    if (status == cudaSuccess) {
      p.first_row += p.rows;
    } else if (status == cudaErrorInvalidValue && p.rows > 1) {  // too long for shared memory
      at_once = (p.rows + 1) / 2;
    } else {
      break;
    }
  }
  p.first_row = 0;
  p.rows = all;
  return status;
}

RowsMatrix Lower(const CardMatrix& m) {
  return {static_cast<const std::byte*>(m.weight.data),
          m.weight.row_bytes,
          m.scale,
          m.bias,
          m.residual,
          m.residual_stride,
          m.y,
          m.y_stride,
          m.weight.format->ggml_type,
          static_cast<std::int32_t>(m.weight.n),
          0,
          static_cast<std::int32_t>(CardTileBytes(m.weight.format->ggml_type))};
}

bool Valid(const RowsLinearArgs& args) {
  bool valid = args.rows >= 1 && args.rows <= kRowsMax && args.count >= 1 &&
               args.count <= kRowsMatricesMax && args.k > 0 && args.k % 32 == 0 &&
               args.x_stride % 4 == 0;
  for (std::int32_t i = 0; valid && i < args.count; ++i) {
    const CardWeight& w = args.matrices[i].weight;
    valid = w.format != nullptr && w.k == args.k && w.n > 0 &&
            args.k % w.format->block_values == 0 &&
            (w.format->activation_group == 0 || HasCardForm(w.format->ggml_type));
  }
  return valid;
}

template <class Set, bool kOne>
cudaError_t AllowSet() {
  cudaError_t status = AllowShared(RowsStreamKernel<Set, kOne>, kSharedMax);
  if constexpr (Set::kCount == CommonTypes::kCount) {
    if (status == cudaSuccess) status = AllowShared(RowsTeamsKernel, kSharedMax);
  }
  return status == cudaSuccess ? AllowShared(RowsSplitKernel<Set, kOne>, kSharedMax) : status;
}

}  // namespace

cudaError_t PrepareRowsLinear() {
  cudaError_t status = AllowSet<CommonTypes, true>();
  if (status == cudaSuccess) status = AllowSet<CommonTypes, false>();
  if (status == cudaSuccess) status = AllowSet<Types256, false>();
  if (status == cudaSuccess) status = AllowSet<Types32, false>();
  if (status == cudaSuccess) status = PrepareRowsFloat();
  if (status == cudaSuccess) status = PrepareOneRow();
  if (status == cudaSuccess) status = PrepareFewRows();
  return status;
}

cudaError_t RowsLinear(const Launch& launch, const RowsLinearArgs& args) {
  if (!Valid(args)) return cudaErrorInvalidValue;
  RowsParams p = {};
  p.x = args.x;
  p.x_stride = args.x_stride;
  p.row_map = args.row_map;
  p.live = args.live;
  p.norm_weight = args.norm_weight;
  p.eps = args.eps;
  p.k = static_cast<std::int32_t>(args.k);
  p.groups = (p.k + 255) / 256;
  p.rows = args.rows;
  p.normed = View(args.normed);
  p.normed_f32 = args.normed_f32;
  for (const std::size_t group : {std::size_t{256}, std::size_t{32}, std::size_t{0}}) {
    p.count = 0;
    for (std::int32_t i = 0; i < args.count; ++i) {
      if (args.matrices[i].weight.format->activation_group == group) {
        p.matrices[p.count++] = Lower(args.matrices[i]);
      }
    }
    if (p.count == 0) continue;
    const cudaError_t status = group == 256  ? RowsIntegers<256>(launch, p)
                               : group == 32 ? RowsIntegers<32>(launch, p)
                                             : RowsFloat(launch, p);
    if (status != cudaSuccess) return status;
    p.normed = {};  // side outputs once
    p.normed_f32 = nullptr;
  }
  return cudaSuccess;
}

}  // namespace bloomery::kernels::cuda
