#include "kernels-common/moe/cuda/rows_experts.h"

#include <algorithm>

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/linear/cuda/row_codes.cuh"
#include "kernels-common/linear/cuda/rows_linear.h"
#include "kernels-common/moe/cuda/route.cuh"
#include "kernels-common/moe/cuda/rows_experts_params.cuh"
#include "kernels-common/quant/cuda/card_types.cuh"

namespace bloomery::kernels::cuda {
namespace {

using CommonTypes = TypeSet<kQ4K, kQ6K>;

template <class Set>
constexpr int kGroupOf = 256;
template <>
constexpr int kGroupOf<Types32> = 32;

constexpr int kGateUpThreads = 256;
constexpr int kDownThreads = 768;

// Stores a tile's t: [row of the activations][row of the tile], 16 * rows floats.
template <bool kOne>
__device__ __forceinline__ void StoreT(const float (&t)[4], float* out, int rows) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int column = lane % 4 * 2;
  out += lane / 4;
  if (column < rows) {
    out[16 * column] = t[0];
    out[16 * column + 8] = t[2];
  }
  if (!kOne && column + 1 < rows) {
    out[16 * column + 16] = t[1];
    out[16 * column + 24] = t[3];
  }
}

// N5: t of ascending groups.
__device__ __forceinline__ float SumGroups(const float* t, int groups, int stride) {
  float y = 0.0F;
#pragma unroll 8
  for (int group = 0; group < groups; ++group) y += t[group * stride];
  return y;
}

// Gate and up. A block takes units (an expert of the pass, `slots` tiles of 16 rows) one after
// another; its warps share the tile's groups of 256 values.
template <class Set, bool kOne>
__global__ void __launch_bounds__(kGateUpThreads, 3)
    GateUpKernel(const __grid_constant__ GateUpParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ PassPicks picks;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int slot = warp / p.parts;
  const int part = warp % p.parts;
  const RowCodes codes = {shared, p.layout};
  auto* partial = reinterpret_cast<float*>(shared + p.partial_at);
  auto* table = reinterpret_cast<unsigned long long*>(shared + p.table_at);
  ClearPicks<kOne>(p.experts, table);
  WaitForInputs();
  const int rows = p.live == nullptr ? p.rows : min(p.rows, *p.live);
  RouteRows<kOne>(p, rows, picks, table);
  AllowNext();
  CopyQuantisedRows(p.quantised, codes, rows);
  __syncthreads();
  CollectPicks<kOne>(p.experts, p.top_k, rows, picks, table);
  if (rows == 0) return;

  const int n = min(lane / 4, rows - 1);
  const int c0 = min(lane % 4 * 2, rows - 1);
  const int c1 = min(lane % 4 * 2 + 1, rows - 1);
  const int outputs = 16 * rows;
  const int units = picks.count * p.units_of_expert;
  float* mine = partial + slot * 2 * p.groups * outputs;
  for (int unit = static_cast<int>(blockIdx.x); unit < units; unit += static_cast<int>(gridDim.x)) {
    const int pick = unit / p.units_of_expert;
    const int first_tile = unit % p.units_of_expert * p.slots;
    const int tile = first_tile + slot;
    const auto expert = static_cast<std::size_t>(picks.expert[pick]);
    const std::byte* gate = p.gate.data + expert * p.gate.expert_bytes;
    const std::byte* up = p.up.data + expert * p.up.expert_bytes;
    for (int group = part; group < p.groups && tile < p.tiles; group += p.parts) {
      const auto index = static_cast<std::size_t>(tile) * p.groups + group;
      float t[4];
      if (p.gate.type == p.up.type) {
        Set::Dispatch(p.gate.type, [&](auto type) {
          constexpr int kType = decltype(type)::value;
          using Tile = CardTile<kType>;
          typename Tile::Raw raw;
          typename Tile::Raw raw_up;
          Tile::Load(gate + index * Tile::kBytes, lane, raw);
          Tile::Load(up + index * Tile::kBytes, lane, raw_up);
          TileDot<kType, kOne>(raw, codes, group, n, c0, c1, t);
          StoreT<kOne>(t, mine + group * outputs, rows);
          TileDot<kType, kOne>(raw_up, codes, group, n, c0, c1, t);
          StoreT<kOne>(t, mine + (p.groups + group) * outputs, rows);
        });
      } else {
        for (int matrix = 0; matrix < 2; ++matrix) {
          Set::Dispatch(matrix == 0 ? p.gate.type : p.up.type, [&](auto type) {
            constexpr int kType = decltype(type)::value;
            using Tile = CardTile<kType>;
            typename Tile::Raw raw;
            Tile::Load((matrix == 0 ? gate : up) + index * Tile::kBytes, lane, raw);
            TileDot<kType, kOne>(raw, codes, group, n, c0, c1, t);
            StoreT<kOne>(t, mine + (matrix * p.groups + group) * outputs, rows);
          });
        }
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < p.slots * outputs;
         i += static_cast<int>(blockDim.x)) {
      const int row = i % outputs / 16;
      const int output = 16 * (first_tile + i / outputs) + i % 16;
      const int rank = picks.Rank<kOne>(pick, row);
      if (output >= p.n || rank < 0) continue;
      const float* t = partial + i / outputs * 2 * p.groups * outputs + i % outputs;
      const float g = SumGroups(t, p.groups, outputs);
      const float u = SumGroups(t + p.groups * outputs, p.groups, outputs);
      p.h[static_cast<std::size_t>(row * p.top_k + rank) * p.h_stride + output] = ExactSilu(g) * u;
    }
    if (unit + static_cast<int>(gridDim.x) < units) __syncthreads();
  }
}

// Down. A block makes `16` outputs of all rows: rounds of `slots` experts, whose warps share the
// groups of 256 values and quantise those of h for themselves; the picks' Q (N7) are summed in
// shared memory.
template <class Set, bool kOne>
__global__ void __launch_bounds__(kDownThreads, 1)
    DownKernel(const __grid_constant__ DownParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ PassPicks picks;
  __shared__ unsigned long long sums[16 * kRowsMax];
  __shared__ float weights[kRowsMax * kMaxPicks];
  constexpr int kGroup = kGroupOf<Set>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int slot = warp / p.parts;
  const int part = warp % p.parts;
  const RowCodes codes = {shared + warp * p.layout.bytes, p.layout};
  auto* partial = reinterpret_cast<float*>(shared + p.partial_at);
  auto* table = reinterpret_cast<unsigned long long*>(shared + p.table_at);
  ClearPicks<kOne>(p.experts, table);
  AllowNext();
  WaitForInputs();
  const int rows = p.live == nullptr ? p.rows : min(p.rows, *p.live);
  for (int i = static_cast<int>(threadIdx.x); i < rows * p.top_k;
       i += static_cast<int>(blockDim.x)) {
    AddPick<kOne>(p.ids[i], i / p.top_k, i % p.top_k, picks, table);
    weights[i] = p.weights[i];
  }
  for (int i = static_cast<int>(threadIdx.x); i < 16 * rows; i += static_cast<int>(blockDim.x)) {
    sums[i] = 0;
  }
  __syncthreads();
  CollectPicks<kOne>(p.experts, p.top_k, rows, picks, table);
  if (rows == 0) return;

  const int n = min(lane / 4, rows - 1);
  const int c0 = min(lane % 4 * 2, rows - 1);
  const int c1 = min(lane % 4 * 2 + 1, rows - 1);
  const int outputs = 16 * rows;
  float* mine = partial + slot * p.groups * outputs;
  const auto tile = static_cast<std::size_t>(blockIdx.x);
  const auto body = [&](auto type) {
    using Tile = CardTile<decltype(type)::value>;
    typename Tile::Raw raw;
    const auto load = [&](int pick, int group) {
      if (pick >= picks.count) return;
      const auto expert = static_cast<std::size_t>(picks.expert[pick]);
      Tile::Load(
          p.down.data + expert * p.down.expert_bytes + (tile * p.groups + group) * Tile::kBytes,
          lane, raw);
    };
    load(slot, part);
    for (int first = 0; first < picks.count; first += p.slots) {
      const int pick = first + slot;
      for (int group = part; group < p.groups && pick < picks.count; group += p.parts) {
        if (group != part) load(pick, group);
        for (int row = 0; row < rows; ++row) {
          const int rank = picks.Rank<kOne>(pick, row);
          if (rank < 0) continue;
          float v[8];
          LoadStretch(p.h + static_cast<std::size_t>(row * p.top_k + rank) * p.h_stride,
                      256 * group + 8 * lane, p.k, v);
          StoreStretch<kGroup>(v, codes, row, 0);
        }
        __syncwarp();
        float t[4];
        TileDot<decltype(type)::value, kOne>(raw, codes, 0, n, c0, c1, t);
        StoreT<kOne>(t, mine + group * outputs, rows);
        __syncwarp();
      }
      if (first + p.slots < picks.count) load(pick + p.slots, part);
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < p.slots * outputs;
           i += static_cast<int>(blockDim.x)) {
        const int row = i % outputs / 16;
        const int of_pick = first + i / outputs;
        if (of_pick >= picks.count) continue;
        const int rank = picks.Rank<kOne>(of_pick, row);
        if (rank < 0) continue;
        const float y =
            SumGroups(partial + i / outputs * p.groups * outputs + i % outputs, p.groups, outputs);
        const float v = weights[row * p.top_k + rank] * y;
        if (fabsf(v) < 0x1p26F) {
          const long long q = __double2ll_rn(static_cast<double>(v) * 0x1p32);
          atomicAdd(sums + i % outputs, static_cast<unsigned long long>(q));
        } else if (16 * static_cast<int>(blockIdx.x) + i % 16 < p.n) {
          atomicMin(p.failed_row, row);
        }
      }
      __syncthreads();
    }
  };
  if (!Set::Dispatch(p.down.type, body)) return;
  for (int i = static_cast<int>(threadIdx.x); i < outputs; i += static_cast<int>(blockDim.x)) {
    const int row = i / 16;
    const int output = 16 * static_cast<int>(blockIdx.x) + i % 16;
    if (output >= p.n) continue;
    StorePickSum(p, static_cast<long long>(sums[i]), row, output);
  }
}

std::int32_t PassExpertsMax(std::int32_t rows, std::int32_t top_k, std::int32_t experts) {
  return std::min(rows * top_k, experts);
}

template <class Set, bool kOne>
cudaError_t StartGateUp(const Launch& launch, GateUpParams& p) {
  constexpr std::int32_t kWarps = kGateUpThreads / 32;
  p.layout = LayOutRowCodes(p.k, kGroupOf<Set>, p.rows);
  const std::int32_t rounds = (p.groups + kWarps - 1) / kWarps;
  p.parts = (p.groups + rounds - 1) / rounds;
  p.slots = kWarps / p.parts;
  p.units_of_expert = (p.tiles + p.slots - 1) / p.slots;
  p.table_at = p.layout.bytes;
  p.partial_at = p.table_at + (kOne ? 0 : 8 * p.experts);
  const std::size_t bytes = p.partial_at + std::size_t{4} * 2 * 16 * p.rows * p.groups * p.slots;
  const std::int32_t units = PassExpertsMax(p.rows, p.top_k, p.experts) * p.units_of_expert;
  return Start(launch, dim3(std::min(units, 3 * launch.multiprocessors)),
               dim3(32 * p.parts * p.slots), bytes, GateUpKernel<Set, kOne>, p);
}

template <class Set, bool kOne>
cudaError_t StartDown(const Launch& launch, DownParams& p) {
  constexpr std::int32_t kWarps = kDownThreads / 32;
  p.layout = LayOutRowCodes(256, kGroupOf<Set>, p.rows);
  const std::int32_t rounds = (p.groups + kWarps - 1) / kWarps;
  p.parts = (p.groups + rounds - 1) / rounds;
  p.slots = std::min(kWarps / p.parts, PassExpertsMax(p.rows, p.top_k, p.experts));
  const std::int32_t warps = p.parts * p.slots;
  p.table_at = warps * p.layout.bytes;
  p.partial_at = p.table_at + (kOne ? 0 : 8 * p.experts);
  const std::size_t bytes = p.partial_at + std::size_t{4} * 16 * p.rows * p.groups * p.slots;
  return Start(launch, dim3((p.n + 15) / 16), dim3(32 * warps), bytes, DownKernel<Set, kOne>, p);
}

ExpertBank Lower(const CardWeight& w) {
  return {static_cast<const std::byte*>(w.data), w.row_bytes, w.expert_bytes, w.format->ggml_type};
}

bool ValidWeight(const CardWeight& w) {
  return w.format != nullptr && w.n > 0 && w.k > 0 && w.k % 32 == 0 &&
         w.k % w.format->block_values == 0 &&
         (w.format->activation_group == 0 || HasCardForm(w.format->ggml_type));
}

bool ValidPass(std::int32_t rows, std::int32_t top_k, std::int32_t experts) {
  return rows >= 1 && rows <= kRowsMax && top_k >= 1 && top_k <= experts &&
         top_k <= static_cast<std::int32_t>(kMaxPicks) &&
         experts <= static_cast<std::int32_t>(kMaxExperts);
}

template <class Set, bool kOne>
cudaError_t AllowSet() {
  constexpr std::size_t kBytes = 200 * 1024;
  const cudaError_t status = AllowShared(GateUpKernel<Set, kOne>, kBytes);
  return status == cudaSuccess ? AllowShared(DownKernel<Set, kOne>, kBytes) : status;
}

}  // namespace

cudaError_t PrepareRowsExperts() {
  cudaError_t status = AllowSet<CommonTypes, true>();
  if (status == cudaSuccess) status = AllowSet<CommonTypes, false>();
  if (status == cudaSuccess) status = AllowSet<Types256, false>();
  if (status == cudaSuccess) status = AllowSet<Types32, false>();
  return status;
}

cudaError_t ExpertGateUpRows(const Launch& launch, const ExpertGateUpRowsArgs& args) {
  if (!ValidPass(args.rows, args.top_k, args.experts) || !ValidWeight(args.gate) ||
      !ValidWeight(args.up) || args.gate.n != args.up.n || args.gate.k != args.up.k ||
      args.gate.format->activation_group != args.up.format->activation_group) {
    return cudaErrorInvalidValue;
  }
  GateUpParams p = {};
  p.rows = args.rows;
  p.live = args.live;
  p.experts = args.experts;
  p.top_k = args.top_k;
  p.router.renormalise = args.renormalise;
  p.router.weight_scale = args.weight_scale;
  p.router.experts = static_cast<std::size_t>(args.experts);
  p.router.top_k = static_cast<std::size_t>(args.top_k);
  p.router.logits = args.logits;
  p.router.logits_stride = args.logits_stride;
  p.router.ids = args.ids;
  p.router.weights = args.weights;
  p.failed_row = args.failed_row;
  p.quantised = View(args.quantised);
  p.x = args.x;
  p.x_stride = args.x_stride;
  p.gate = Lower(args.gate);
  p.up = Lower(args.up);
  p.n = static_cast<std::int32_t>(args.gate.n);
  p.k = static_cast<std::int32_t>(args.gate.k);
  p.groups = (p.k + 255) / 256;
  p.tiles = (p.n + 15) / 16;
  p.h = args.h;
  p.h_stride = args.h_stride;
  const std::size_t group = args.gate.format->activation_group;
  if (group == 0) return FloatGateUp(launch, p);
  if (args.quantised.k != args.gate.k || args.quantised.group != group) {
    return cudaErrorInvalidValue;
  }
  if (group == 32) return StartGateUp<Types32, false>(launch, p);
  if (!CommonTypes::Has(p.gate.type) || !CommonTypes::Has(p.up.type)) {
    return StartGateUp<Types256, false>(launch, p);
  }
  return p.rows == 1 ? StartGateUp<CommonTypes, true>(launch, p)
                     : StartGateUp<CommonTypes, false>(launch, p);
}

cudaError_t ExpertDownRows(const Launch& launch, const ExpertDownRowsArgs& args) {
  if (!ValidPass(args.rows, args.top_k, args.experts) || !ValidWeight(args.down) ||
      args.h_stride % 4 != 0) {
    return cudaErrorInvalidValue;
  }
  DownParams p = {};
  p.rows = args.rows;
  p.live = args.live;
  p.experts = args.experts;
  p.top_k = args.top_k;
  p.ids = args.ids;
  p.weights = args.weights;
  p.h = args.h;
  p.h_stride = args.h_stride;
  p.down = Lower(args.down);
  p.n = static_cast<std::int32_t>(args.down.n);
  p.k = static_cast<std::int32_t>(args.down.k);
  p.groups = (p.k + 255) / 256;
  p.residual = args.residual;
  p.residual_stride = args.residual_stride;
  p.out = args.out;
  p.out_stride = args.out_stride;
  p.failed_row = args.failed_row;
  const std::size_t group = args.down.format->activation_group;
  if (group == 0) return FloatDown(launch, p);
  if (group == 32) return StartDown<Types32, false>(launch, p);
  if (!CommonTypes::Has(p.down.type)) return StartDown<Types256, false>(launch, p);
  return p.rows == 1 ? StartDown<CommonTypes, true>(launch, p)
                     : StartDown<CommonTypes, false>(launch, p);
}

}  // namespace bloomery::kernels::cuda
