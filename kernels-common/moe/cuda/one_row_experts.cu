// The two expert launches of one row at the shapes where decode is measured: up to 128 or 256
// experts, 8 picks, rows of 2048 values into the experts and 768 or 512 between gate/up and down,
// Q4_K (down also Q6_K). A launch takes as long as one warp takes for its path, so here is one tile
// (or a pair) a warp, in registers, in a straight line; rows_experts.cu does the same for every
// other shape.
#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/linear/cuda/one_row.cuh"
#include "kernels-common/moe/cuda/one_row_route.cuh"
#include "kernels-common/moe/cuda/rows_experts_params.cuh"

namespace bloomery::kernels::cuda {
namespace {

constexpr int kPicks = kOneRowPicks;
constexpr int kInGroups = 2048 / 256;  // of gate and up
constexpr int kFewExperts = kOneRowExperts;
constexpr int kManyExperts = 2 * kOneRowExperts;

// A block: 16 rows of gate and of up of one pick; a warp a group of 256 values. Up to 32 * kSlots
// experts.
template <int kSlots>
__global__ void __launch_bounds__(32 * kInGroups, 3)
    OneRowGateUpKernel(const __grid_constant__ GateUpParams p) {
  __shared__ float partial[2 * kInGroups * 16];
  __shared__ int expert;
  __shared__ bool for_host;  // the writer's: whether a pick is the host's
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int group = static_cast<int>(threadIdx.x / 32);
  const int pick = static_cast<int>(blockIdx.y);
  // The block that knows all ids writes them, and only then lets the next kernel start, which looks
  // at them before it waits.
  const bool writer = pick == kPicks - 1 && blockIdx.x == 0;
  if (!writer) AllowNext();
  WaitForInputs();
  const std::byte* row = p.quantised.data;
  const uint2 own = *reinterpret_cast<const uint2*>(row + 256 * group + 8 * lane);
  const uint2 four_sums =
      *reinterpret_cast<const uint2*>(row + p.quantised.sums_offset + 32 * group + 8 * (lane % 4));
  const float scale = reinterpret_cast<const float*>(row + p.quantised.scales_offset)[group];
  if (group == 0) {
    float logits[kSlots];
#pragma unroll
    for (int j = 0; j < kSlots; ++j) {
      logits[j] = 32 * j + lane < p.experts ? p.router.logits[32 * j + lane] : 0.0F;
    }
    const Routed routed = RouteUpTo(logits, p.experts, pick, [](int, std::int32_t) {});
    if (lane == 0) expert = routed.id;
    if (writer) {
      const float w = routed.Weight(p.router.renormalise, p.router.weight_scale);
      if (lane < kPicks) {
        p.router.ids[lane] = routed.my_id;
        p.router.weights[lane] = w;
      }
      if (lane == 0 && !routed.finite) atomicMin(p.failed_row, 0);
      __threadfence();
      if (p.frame_of != nullptr) {
        const bool far = __any_sync(kAllLanes, lane < kPicks && p.frame_of[routed.my_id] < 0);
        if (lane == 0) for_host = far;
      }
    }
  }
  const OneRowB<kQ4K> b(own, lane);
  const CutSums sums(four_sums);
  __syncthreads();
  if (writer) AllowNext();
  if (writer && group == 0 && p.counts.experts != nullptr && lane < kPicks) {
    atomicAdd(p.counts.experts + p.router.ids[lane], 1U);
  }
  int frame = expert;
  if (p.frame_of != nullptr) {
    if (writer) HandOver(p, 1, for_host);
    frame = p.frame_of[expert];
    if (frame < 0) return;
  }
  const std::size_t at = static_cast<std::size_t>(frame) * p.gate.expert_bytes +
                         (blockIdx.x * kInGroups + group) * CardTile<kQ4K>::kBytes;
  CardTile<kQ4K>::Raw gate;
  CardTile<kQ4K>::Raw up;
  CardTile<kQ4K>::Load(p.gate.data + at, lane, gate);
  CardTile<kQ4K>::Load(p.up.data + at, lane, up);
  const float g = __fmaf_rn(scale, OneRowDot(gate, b, sums), 0.0F);
  const float u = __fmaf_rn(scale, OneRowDot(up, b, sums), 0.0F);
  const int q = lane % 4;
  if (q < 2) {
    float* out = partial + 16 * group + lane / 4 + 8 * q;
    out[0] = g;
    out[16 * kInGroups] = u;
  }
  __syncthreads();
  if (threadIdx.x < 16) {
    float y[2] = {};
#pragma unroll
    for (int i = 0; i < kInGroups; ++i) {
      y[0] += partial[16 * i + threadIdx.x];
      y[1] += partial[16 * (kInGroups + i) + threadIdx.x];
    }
    p.h[static_cast<std::size_t>(pick) * p.h_stride + 16 * blockIdx.x + threadIdx.x] =
        ExactSilu(y[0]) * y[1];
  }
}

// A block: 16 outputs; a warp one of kOutGroups groups of one pick.
template <int kType, int kOutGroups>
__global__ void __launch_bounds__(32 * kPicks * kOutGroups, 1)
    OneRowDownKernel(const __grid_constant__ DownParams p) {
  using Tile = CardTile<kType>;
  constexpr int kDownWarps = kPicks * kOutGroups;
  // Floats from pick to pick of t: the 4 rows x 8 picks of a warp meet in no bank.
  constexpr int kPickStride = 16 * kOutGroups + 4;
  __shared__ __align__(16) std::byte exchange[kDownWarps * OwnCodes::kBytes];
  __shared__ float partial[kPicks * kPickStride];
  AllowNext();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int pick = warp / kOutGroups;
  const int group = warp % kOutGroups;
  const std::size_t place = (blockIdx.x * kOutGroups + group) * Tile::kBytes;
  // Asked for on the word of ids that may not be final (rows_experts.cu), read past L1.
  std::int32_t id = __ldcg(p.ids + pick);
  typename Tile::Raw raw;
  const auto frame_of = [&p](std::int32_t expert) {
    return p.frame_of == nullptr ? expert : p.frame_of[expert];
  };
  std::int32_t frame = id >= 0 && id < p.experts ? frame_of(id) : -1;
  const bool early = frame >= 0;
  if (early) Tile::Load(p.down.data + frame * p.down.expert_bytes + place, lane, raw);
  WaitForInputs();
  const std::int32_t now = __ldcg(p.ids + pick);
  const bool with_host = HasHostPart(p.hand_off);
  float v[8];
  LoadStretch(p.h + static_cast<std::size_t>(pick) * p.h_stride, 256 * group + 8 * lane,
              256 * kOutGroups, v);
  const int output = 16 * static_cast<int>(blockIdx.x) + static_cast<int>(threadIdx.x) / kPicks;
  const int of_pick = static_cast<int>(threadIdx.x) % kPicks;
  const bool sums_up = threadIdx.x < 16 * kPicks;
  const float weight = sums_up ? p.weights[of_pick] : 0.0F;
  const float residual = sums_up && p.residual != nullptr ? p.residual[output] : 0.0F;
  if (!early || now != id) {
    frame = frame_of(now);
    if (frame >= 0) Tile::Load(p.down.data + frame * p.down.expert_bytes + place, lane, raw);
  }
  const LaneCodes codes = QuantiseLane<256>(v);
  // Codes and cut sums change lanes.
  std::byte* mine = exchange + OwnCodes::kBytes * warp;
  OwnCodes::Store(mine, codes.words, codes.sum);
  __syncwarp();
  const int q = lane % 4;
  const CutSums sums(reinterpret_cast<const std::uint32_t*>(mine + OwnCodes::kHigh)[q],
                     reinterpret_cast<const std::uint32_t*>(mine + OwnCodes::kLow)[q]);
  float u;
  if constexpr (kType == kQ4K) {
    u = OneRowDot(raw, OneRowB<kQ4K>(make_uint2(codes.words[0], codes.words[1]), lane), sums);
  } else {
    const auto* words = reinterpret_cast<const std::uint32_t*>(mine);
    const std::uint32_t own[2] = {words[lane], words[32 + lane]};
    u = OneRowDot(raw, own, sums);
  }
  if (q < 2) {
    // What the host computes adds nothing here.
    partial[kPickStride * pick + 16 * group + lane / 4 + 8 * q] =
        frame < 0 ? 0.0F : __fmaf_rn(codes.scale, u, 0.0F);
  }
  if (with_host && threadIdx.x == 0) WaitForHost(p.hand_off, blockIdx.x == 0);
  __syncthreads();
  if (!sums_up) return;
  // Threads r*8 + pick.
  const float* t = partial + kPickStride * of_pick + threadIdx.x / kPicks;
  float y = 0.0F;
#pragma unroll
  for (int i = 0; i < kOutGroups; ++i) y += t[16 * i];
  const long long others =
      with_host && of_pick == 0 ? HostSum(p.hand_off.sums, static_cast<std::size_t>(output)) : 0;
  const float moe = SumOfPicks(weight * y, p.failed_row, others);
  if (of_pick == 0) {
    p.out[output] = p.residual == nullptr ? moe : residual + moe;
  }
}

template <int kType>
cudaError_t StartDown(const Launch& launch, DownParams& p) {
  const bool long_rows = p.k == 768;
  return Start(launch, dim3(p.n / 16), dim3(p.k / 256 * 32 * kPicks), 0,
               long_rows ? OneRowDownKernel<kType, 3> : OneRowDownKernel<kType, 2>, p);
}

template <int kType>
cudaError_t PrepareDown() {
  const cudaError_t status = PreferShared(OneRowDownKernel<kType, 3>);
  return status == cudaSuccess ? PreferShared(OneRowDownKernel<kType, 2>) : status;
}

}  // namespace

bool HasOneRowGateUp(const GateUpParams& p) {
  return p.plain && p.rows == 1 && p.top_k == kPicks && p.experts <= kManyExperts &&
         p.k == 256 * kInGroups && p.n % 16 == 0 && p.gate.type == kQ4K && p.up.type == kQ4K &&
         p.gate.expert_bytes == p.up.expert_bytes;
}

bool HasOneRowDown(const DownParams& p) {
  return p.rows == 1 && p.top_k == kPicks && (p.k == 512 || p.k == 768) && p.n % 16 == 0 &&
         (p.down.type == kQ4K || p.down.type == kQ6K);
}

cudaError_t OneRowGateUp(const Launch& launch, GateUpParams& p) {
  const auto kernel = p.experts <= kFewExperts ? OneRowGateUpKernel<kFewExperts / 32>
                                               : OneRowGateUpKernel<kManyExperts / 32>;
  return Start(launch, dim3(p.n / 16, kPicks), dim3(32 * kInGroups), 0, kernel, p);
}

cudaError_t OneRowDown(const Launch& launch, DownParams& p) {
  return p.down.type == kQ4K ? StartDown<kQ4K>(launch, p) : StartDown<kQ6K>(launch, p);
}

cudaError_t PrepareOneRowExperts() {
  cudaError_t status = PreferShared(OneRowGateUpKernel<kFewExperts / 32>);
  if (status == cudaSuccess) status = PreferShared(OneRowGateUpKernel<kManyExperts / 32>);
  if (status == cudaSuccess) status = PrepareDown<kQ4K>();
  return status == cudaSuccess ? PrepareDown<kQ6K>() : status;
}

}  // namespace bloomery::kernels::cuda
