#include "kernels-common/moe/cuda/rows_experts.h"

#include <algorithm>

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/linear/cuda/row_codes.cuh"
#include "kernels-common/linear/cuda/rows_linear.h"
#include "kernels-common/linear/cuda/tile_ring.cuh"
#include "kernels-common/moe/cuda/route.cuh"
#include "kernels-common/moe/cuda/rows_experts_params.cuh"
#include "kernels-common/quant/cuda/card_types.cuh"

namespace bloomery::kernels::cuda {
namespace {

constexpr std::size_t kSharedMax = 208 * 1024;
constexpr std::size_t kOwnShared = 8 * 1024;      // at most, of a kernel
constexpr std::size_t kSharedOfAll = 220 * 1024;  // of a multiprocessor, for dynamic parts
// Most warps of a block.
constexpr int kGateUpWarps = 24;
constexpr int kDownWarps = 24;

// A division costs some 25 instructions, which loops over units do without.
struct ExpertUnit {
  int pick;
  int tile;  // in units of an expert
  __device__ __forceinline__ ExpertUnit(int unit, int units_of_expert)
      : pick(unit / units_of_expert), tile(unit % units_of_expert) {}
  __device__ __forceinline__ void Advance(const ExpertUnit& by, int units_of_expert) {
    pick += by.pick;
    tile += by.tile;
    if (tile >= units_of_expert) {
      tile -= units_of_expert;
      ++pick;
    }
  }
};

// i / divisor for i < 4096 and divisors up to 8 (i * (65536 % divisor + divisor) < 65536 *
// divisor).
struct SmallDivision {
  int factor;
  __device__ __forceinline__ explicit SmallDivision(int divisor) : factor(65536 / divisor + 1) {}
  __device__ __forceinline__ int Quotient(int i) const { return i * factor >> 16; }
};

// Gate and up. A block takes units (an expert of the pass, `slots` tiles of 16 rows) one after
// another; its warps share the tile's groups of 256 values.
template <class Set, bool kOne>
__global__ void __launch_bounds__(1024, 1) GateUpKernel(const __grid_constant__ GateUpParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ PassPicks picks;
  // The first block lets the next kernel start once it has written the ids, which that kernel may
  // look at before it waits.
  if (blockIdx.x != 0) AllowNext();
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int slot = warp / p.parts;
  const int part = warp % p.parts;
  const auto step = static_cast<int>(gridDim.x);
  const RowCodes codes = {shared, p.layout};
  auto* partial = reinterpret_cast<float*>(shared + p.partial_at);
  auto* table = reinterpret_cast<unsigned long long*>(shared + p.table_at);
  const int stride = p.gate.tile_bytes + p.up.tile_bytes;
  TileRing ring(shared + p.tiles_at + warp * p.stages * stride, p.stages, stride);
  ClearPicks<kOne>(p.experts, table);
  WaitForInputs();
  const int rows = p.live == nullptr ? p.rows : min(p.rows, *p.live);
  const bool idle = RouteRows<kOne>(p, rows, picks, table);
  if (idle) CopyQuantisedRows(p.quantised, codes, rows, 32 * rows);
  __syncthreads();
  CollectPicks<kOne>(p.experts, p.top_k, rows, p.frame_of, picks, table);
  if (blockIdx.x == 0) {
    AllowNext();
    CountDistinct(p, picks);
    HandOver(p, rows, picks.host > 0);
  }
  if (rows == 0) return;

  const ExpertUnit first(static_cast<int>(blockIdx.x), p.units_of_expert);
  const ExpertUnit by(step, p.units_of_expert);
  ExpertUnit ahead = first;
  int ahead_group = part;
  const auto issue = [&] {
    const int tile = ahead.tile * p.slots + slot;
    if (ahead.pick < picks.count && tile < p.tiles) {
      const auto expert = static_cast<std::size_t>(picks.expert[ahead.pick]);
      const auto index = static_cast<std::size_t>(tile) * p.groups + ahead_group;
      CopyTile<Set>(ring, p.gate.type,
                    p.gate.data + expert * p.gate.expert_bytes + index * p.gate.tile_bytes,
                    p.gate.tile_bytes, 0);
      if (p.matrices == 2) {
        CopyTile<Set>(ring, p.up.type,
                      p.up.data + expert * p.up.expert_bytes + index * p.up.tile_bytes,
                      p.up.tile_bytes, p.gate.tile_bytes);
      }
    }
    ring.Close();
    ahead_group += p.parts;
    if (ahead_group >= p.groups) {
      ahead_group = part;
      ahead.Advance(by, p.units_of_expert);
    }
  };
  for (int stage = 0; stage < p.stages; ++stage) issue();
  if (!idle) {
    CopyQuantisedRows(p.quantised, codes, rows, 0);
    __syncthreads();
  }

  const LaneColumns columns(rows);
  const int outputs = 16 * rows;
  float* mine = partial + slot * 2 * p.groups * outputs;
  const SmallDivision by_rows(rows);
  for (ExpertUnit unit = first; unit.pick < picks.count;) {
    const int pick = unit.pick;
    const int first_tile = unit.tile * p.slots;
    for (int group = part; group < p.groups; group += p.parts) {
      const std::byte* pair = ring.Take();
#pragma unroll 1
      for (int matrix = 0; matrix < p.matrices && first_tile + slot < p.tiles; ++matrix) {
        Set::Dispatch(matrix == 0 ? p.gate.type : p.up.type, [&](auto type) {
          float t[4];
          TileDot<decltype(type)::value, kOne>(pair + matrix * p.gate.tile_bytes, codes, group,
                                               columns, t);
          StoreT<kOne>(t, mine + (matrix * p.groups + group) * outputs, rows);
        });
      }
      ring.Release();
      issue();
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < p.slots * outputs;
         i += static_cast<int>(blockDim.x)) {
      const int of_slot = by_rows.Quotient(i / 16);
      const int row = i / 16 - of_slot * rows;
      const int output = 16 * (first_tile + of_slot) + i % 16;
      const int rank = picks.Rank<kOne>(pick, row);
      if (output >= p.n || rank < 0) continue;
      const float* t = partial + of_slot * 2 * p.groups * outputs + 16 * row + i % 16;
      const float g = SumGroups(t, p.groups, outputs);
      const float u = p.matrices == 2 ? SumGroups(t + p.groups * outputs, p.groups, outputs) : 0.0F;
      StoreGateUp(p, g, u,
                  p.h + static_cast<std::size_t>(row * p.top_k + rank) * p.h_stride + output);
    }
    unit.Advance(by, p.units_of_expert);
    if (unit.pick < picks.count) __syncthreads();
  }
}

// Down. A block makes 16 outputs of all rows: rounds of `slots` experts, whose warps share the
// groups of 256 values and quantise those of h for themselves; the picks' Q (N7) are summed in
// shared memory.
template <class Set, bool kOne>
__global__ void __launch_bounds__(kDownWarps * 32, 1)
    DownKernel(const __grid_constant__ DownParams p) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ PassPicks picks;
  __shared__ unsigned long long sums[16 * kRowsMax];
  __shared__ std::int32_t ids[kPassPicksMax];
  constexpr int kGroup = kGroupOf<Set>;
  AllowNext();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int slot = warp / p.parts;
  const int part = warp % p.parts;
  const RowCodes codes = {shared + warp * p.layout.bytes, p.layout};
  auto* partial = reinterpret_cast<float*>(shared + p.partial_at);
  auto* table = reinterpret_cast<unsigned long long*>(shared + p.table_at);
  TileRing ring(shared + p.tiles_at + warp * p.stages * p.down.tile_bytes, p.stages,
                p.down.tile_bytes);
  const auto first_tile = static_cast<std::size_t>(blockIdx.x) * p.groups;
  int ahead_pick = slot;
  int ahead_group = part;
  const auto issue = [&] {
    if (ahead_pick < picks.count) {
      const auto expert = static_cast<std::size_t>(picks.expert[ahead_pick]);
      CopyTile<Set>(ring, p.down.type,
                    p.down.data + expert * p.down.expert_bytes +
                        (first_tile + ahead_group) * p.down.tile_bytes,
                    p.down.tile_bytes, 0);
    }
    ring.Close();
    ahead_group += p.parts;
    if (ahead_group >= p.groups) {
      ahead_group = part;
      ahead_pick += p.slots;
    }
  };
  for (int i = static_cast<int>(threadIdx.x); i < 16 * p.rows; i += static_cast<int>(blockDim.x)) {
    sums[i] = 0;
  }
  const int rows = TakePicks<kOne>(
      p, ids, picks, table,
      [&] {
        ahead_pick = slot;
        ahead_group = part;
        for (int stage = 0; stage < p.stages; ++stage) issue();
      },
      [&] { ring.Drop(); });
  if (rows == 0) return;

  const LaneColumns columns(rows);
  const int outputs = 16 * rows;
  float* mine = partial + slot * p.groups * outputs;
  const SmallDivision by_rows(rows);
  for (int first = 0; first < picks.count; first += p.slots) {
    const int pick = first + slot;
    for (int group = part; group < p.groups; group += p.parts) {
      if (pick < picks.count) {
        for (int row = 0; row < rows; ++row) {
          const int rank = picks.Rank<kOne>(pick, row);
          if (rank < 0) continue;
          float v[8];
          LoadStretch(p.h + static_cast<std::size_t>(row * p.top_k + rank) * p.h_stride,
                      256 * group + 8 * lane, p.k, v);
          StoreStretch<kGroup>(v, codes, row, 0);
        }
      }
      const std::byte* tile = ring.Take();
      if (pick < picks.count) {
        Set::Dispatch(p.down.type, [&](auto type) {
          float t[4];
          TileDot<decltype(type)::value, kOne>(tile, codes, 0, columns, t);
          StoreT<kOne>(t, mine + group * outputs, rows);
        });
      }
      ring.Release();
      issue();
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < p.slots * outputs;
         i += static_cast<int>(blockDim.x)) {
      const int of_slot = by_rows.Quotient(i / 16);
      const int row = i / 16 - of_slot * rows;
      const int of_pick = first + of_slot;
      const int output = 16 * static_cast<int>(blockIdx.x) + i % 16;
      if (of_pick >= picks.count || output >= p.n) continue;
      const int rank = picks.Rank<kOne>(of_pick, row);
      if (rank < 0) continue;
      const float y =
          SumGroups(partial + i / outputs * p.groups * outputs + i % outputs, p.groups, outputs);
      const float v = p.weights[row * p.top_k + rank] * y;
      if (fabsf(v) < 0x1p26F) {
        const long long q = __double2ll_rn(static_cast<double>(v) * 0x1p32);
        atomicAdd(sums + 16 * row + i % 16, static_cast<unsigned long long>(q));
      } else {
        atomicMin(p.failed_row, row);
      }
    }
    __syncthreads();
  }
  const bool with_host = HasHostPart(p.hand_off);
  if (with_host) {
    if (threadIdx.x == 0) WaitForHost(p.hand_off, blockIdx.x == 0);
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < outputs; i += static_cast<int>(blockDim.x)) {
    const int output = 16 * static_cast<int>(blockIdx.x) + i % 16;
    if (output >= p.n) continue;
    auto sum = static_cast<long long>(sums[i]);
    if (with_host) {
      sum += HostSum(p.hand_off.sums, static_cast<std::size_t>(i / 16) * p.n + output);
    }
    StorePickSum(p, sum, i / 16, output);
  }
}

std::int32_t PassExpertsMax(std::int32_t rows, std::int32_t top_k, std::int32_t experts) {
  return std::min(rows * top_k, experts);
}

template <class Set, bool kOne>
cudaError_t StartGateUp(const Launch& launch, GateUpParams& p) {
  p.layout = LayOutRowCodes(p.k, kGroupOf<Set>, p.rows);
  // A warp a group, in even rounds; as many row tiles at a time as one block a multiprocessor
  // needs, or shared memory holds; then more rounds.
  const std::size_t most = SharedLimit(launch, kSharedMax, kOwnShared);
  const std::size_t of_all = most < kSharedMax ? most : kSharedOfAll;
  const std::int32_t picks = PassExpertsMax(p.rows, p.top_k, p.experts);
  const std::int32_t even = (picks * p.tiles + launch.multiprocessors - 1) / launch.multiprocessors;
  // Two blocks of 16 warps with a pair of tiles a warp, rather than one with two pairs.
  const std::int32_t warps_at_most =
      picks * p.tiles <= 3 * launch.multiprocessors ? kGateUpWarps : 16;
  std::int32_t rounds = (p.groups + kGateUpWarps - 1) / kGateUpWarps;
  for (; rounds <= p.groups; ++rounds) {
    p.parts = (p.groups + rounds - 1) / rounds;
    for (p.slots = std::clamp(warps_at_most / p.parts, 1, even); p.slots > 0; --p.slots) {
      p.units_of_expert = (p.tiles + p.slots - 1) / p.slots;
      const std::int32_t units = picks * p.units_of_expert;
      const std::int32_t warps = p.parts * p.slots;
      p.stages = 1;
      p.tiles_at = p.layout.bytes;
      p.table_at = p.tiles_at + warps * p.stages * (p.gate.tile_bytes + p.up.tile_bytes);
      p.partial_at = p.table_at + (kOne ? 0 : 8 * p.experts);
      const std::size_t bytes =
          p.partial_at + std::size_t{4} * 2 * 16 * p.rows * p.groups * p.slots;
      if (bytes > most) continue;
      const auto blocks = std::min(
          units, launch.multiprocessors * std::min<std::int32_t>(32 / warps, of_all / bytes));
      return Start(launch, dim3(blocks), dim3(32 * warps), bytes, GateUpKernel<Set, kOne>, p);
    }
  }
  return cudaErrorInvalidValue;
}

template <class Set, bool kOne>
cudaError_t StartDown(const Launch& launch, DownParams& p) {
  constexpr std::int32_t kWarps = kDownWarps;
  p.layout = LayOutRowCodes(256, kGroupOf<Set>, p.rows);
  const std::size_t most = SharedLimit(launch, kSharedMax, kOwnShared);
  const std::int32_t picks = PassExpertsMax(p.rows, p.top_k, p.experts);
  for (p.parts = std::clamp(kWarps / picks, 1, p.groups); p.parts > 0; --p.parts) {
    for (p.slots = std::min(kWarps / p.parts, picks); p.slots > 0; --p.slots) {
      // More warps hide more than a second tile a warp would.
      p.stages = 1;
      const std::int32_t warps = p.parts * p.slots;
      p.tiles_at = warps * p.layout.bytes;
      p.table_at = p.tiles_at + warps * p.stages * p.down.tile_bytes;
      p.partial_at = p.table_at + (kOne ? 0 : 8 * p.experts);
      const std::size_t bytes = p.partial_at + std::size_t{4} * 16 * p.rows * p.groups * p.slots;
      if (bytes <= most) {
        return Start(launch, dim3((p.n + 15) / 16), dim3(32 * warps), bytes, DownKernel<Set, kOne>,
                     p);
      }
    }
  }
  return cudaErrorInvalidValue;
}

ExpertBank Lower(const CardWeight& w) {
  return {static_cast<const std::byte*>(w.data), w.row_bytes, w.expert_bytes, w.format->ggml_type,
          static_cast<std::int32_t>(CardTileBytes(w.format->ggml_type))};
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
  const cudaError_t status = AllowShared(GateUpKernel<Set, kOne>, kSharedMax);
  return status == cudaSuccess ? AllowShared(DownKernel<Set, kOne>, kSharedMax) : status;
}

}  // namespace

cudaError_t PrepareRowsExperts() {
  cudaError_t status = PrepareOneRowExperts();
  if (status == cudaSuccess) status = PrepareFewRowsExperts();
  if (status == cudaSuccess) status = AllowSet<CommonTypes, true>();
  if (status == cudaSuccess) status = AllowSet<CommonTypes, false>();
  if (status == cudaSuccess) status = AllowSet<Types256, false>();
  if (status == cudaSuccess) status = AllowSet<Types32, false>();
  return status;
}

cudaError_t ExpertGateUpRows(const Launch& launch, const ExpertGateUpRowsArgs& args) {
  const bool both = args.part == GateUpPart::kBoth;
  const CardWeight& first = args.part == GateUpPart::kUp ? args.up : args.gate;
  const CardWeight& second = both ? args.up : first;
  if (!ValidPass(args.rows, args.top_k, args.experts) || !ValidWeight(first) ||
      !ValidWeight(second) || first.n != second.n || first.k != second.k ||
      first.format->activation_group != second.format->activation_group) {
    return cudaErrorInvalidValue;
  }
  GateUpParams p = {};
  p.rows = args.rows;
  p.live = args.live;
  p.experts = args.experts;
  p.top_k = args.top_k;
  static_cast<RouterScoring&>(p.router) = args.scoring;
  p.plain = IsPlainRouter(args.scoring);
  p.router.renormalise = args.renormalise;
  p.router.weight_scale = args.weight_scale;
  p.router.experts = static_cast<std::size_t>(args.experts);
  p.router.top_k = static_cast<std::size_t>(args.top_k);
  p.router.logits = args.logits;
  p.router.logits_stride = args.logits_stride;
  p.router.ids = args.ids;
  p.router.weights = args.weights;
  p.failed_row = args.failed_row;
  p.counts = args.counts;
  p.frame_of = args.frame_of;
  p.hand_off = args.hand_off;
  p.matrices = both ? 2 : 1;
  p.gated = args.part == GateUpPart::kUp;
  p.quantised = View(args.quantised);
  p.x = args.x;
  p.x_stride = args.x_stride;
  p.gate = Lower(first);
  p.up = Lower(second);
  if (!both) p.up.tile_bytes = 0;
  p.n = static_cast<std::int32_t>(first.n);
  p.k = static_cast<std::int32_t>(first.k);
  p.groups = (p.k + 255) / 256;
  p.tiles = (p.n + 15) / 16;
  p.h = args.h;
  p.h_stride = args.h_stride;
  const std::size_t group = first.format->activation_group;
  p.input_bytes = group == 0 ? first.k * sizeof(float) : args.quantised.row_bytes;
  if (group == 0) return FloatGateUp(launch, p);
  if (args.quantised.k != first.k || args.quantised.group != group) {
    return cudaErrorInvalidValue;
  }
  if (both && HasOneRowGateUp(p)) return OneRowGateUp(launch, p);
  if (HasFewRowsGateUp(launch, p)) return FewRowsGateUp(launch, p);
  if (group == 32) return StartGateUp<Types32, false>(launch, p);
  if (!CommonTypes::Has(p.gate.type) || !CommonTypes::Has(p.up.type)) {
    return StartGateUp<Types256, false>(launch, p);
  }
  const bool one = p.rows == 1 && p.experts <= kOneRowExpertsMax && p.frame_of == nullptr;
  return one ? StartGateUp<CommonTypes, true>(launch, p)
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
  p.frame_of = args.frame_of;
  p.hand_off = args.hand_off;
  const std::size_t group = args.down.format->activation_group;
  if (group == 0) return FloatDown(launch, p);
  if (HasOneRowDown(p)) return OneRowDown(launch, p);
  if (HasFewRowsDown(launch, p)) return FewRowsDown(launch, p);
  if (group == 32) return StartDown<Types32, false>(launch, p);
  if (!CommonTypes::Has(p.down.type)) return StartDown<Types256, false>(launch, p);
  return p.rows == 1 && p.frame_of == nullptr ? StartDown<CommonTypes, true>(launch, p)
                                              : StartDown<CommonTypes, false>(launch, p);
}

}  // namespace bloomery::kernels::cuda
