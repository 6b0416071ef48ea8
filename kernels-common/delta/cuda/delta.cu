// The gated delta rule, rows one after another with the state in registers.
//
// A block has 32 columns (values) of one head of one stretch. Four warps hold the state: four lanes
// share a column, lane t the keys t mod 4, which is delta.h's order of sums. Four more bring the
// rows: they read q and k, norm them, work out decay and strength, and leave a chunk of rows in
// shared memory while the others work on the chunk before. The read of one row and the correction
// towards the next walk over the state together, so that two chains of fma overlap.
#include <algorithm>

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/delta/cuda/delta.h"
#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/exact_math/trig.h"

namespace bloomery::kernels::cuda {

cudaError_t PrepareShortConv();

namespace {

constexpr int kSums = static_cast<int>(kDeltaSums);
constexpr int kColumns = 32;
constexpr int kStateThreads = kColumns * kSums;
constexpr int kRowWarps = 4;  // that bring rows
constexpr int kThreads = kStateThreads + 32 * kRowWarps;

// kKeys: keys of a lane.
template <int kKeys>
struct Chunk {
  static constexpr int kRows = kKeys <= 32 ? 16 : 8;
  // A lane's keys lie together; the pad keeps the four lanes of a column in banks of their own.
  static constexpr int kLaneStride = kKeys + 4;
  float q[kRows][kSums * kLaneStride];
  float k[kRows][kSums * kLaneStride];
  float v[kRows][kColumns];
  float decay[kRows];
  float strength[kRows];
  std::int32_t lane_out[kRows];
};

// The stretch that a block works on.
struct Stretch {
  std::int32_t first;
  std::int32_t rows;
  std::int32_t slot;
};

__device__ __forceinline__ Stretch StretchOf(const DeltaRowsArgs& p, std::int32_t segment,
                                             std::int32_t segments) {
  const std::int32_t first = p.states.first_row[segment];
  const std::int32_t end = segment + 1 < segments ? p.states.first_row[segment + 1] : *p.rows.live;
  return {first, end - first, p.rows.slot[first]};
}

__device__ __forceinline__ float* LaneOf(const StatePlane& plane, std::int32_t slot,
                                         std::int32_t lane) {
  return plane.base + static_cast<std::size_t>(slot) * plane.slot_floats +
         static_cast<std::size_t>(lane) * plane.lane_floats;
}

// By one warp: a head's vector, normed where wanted, to its places in shared memory.
template <int kKeys>
__device__ __forceinline__ void BringVector(const DeltaHeads& heads, std::size_t row,
                                            std::int32_t head, std::int32_t dim, float* to) {
  constexpr int kLoads = kKeys * kSums / 32;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const float* x = heads.x + row * heads.stride + static_cast<std::size_t>(head) * dim;
  float value[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    value[i] = lane + 32 * i < dim ? x[lane + 32 * i] : 0.0F;
  }
  if (heads.eps > 0.0F) {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (lane + 32 * i < dim) sum = ExactFma(value[i], value[i], sum);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
    }
    const float r = heads.scale * ExactInverseSqrt(sum + heads.eps);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      value[i] = value[i] * r;
    }
  }
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const std::int32_t key = lane + 32 * i;
    to[key % kSums * Chunk<kKeys>::kLaneStride + key / kSums] = value[i];
  }
}

// By the warps that bring rows: rows [first, first + count) of the pass.
template <int kKeys>
__device__ void BringRows(const DeltaRowsArgs& p, std::int32_t head, std::int32_t key_head,
                          std::int32_t column, std::int32_t first, std::int32_t count,
                          Chunk<kKeys>& chunk) {
  const auto thread = static_cast<std::int32_t>(threadIdx.x) - kStateThreads;
  const std::int32_t warp = thread / 32;
  const std::int32_t lane = thread % 32;
  if (warp == kRowWarps - 1 && lane < count) {
    const std::size_t at = static_cast<std::size_t>(first + lane) * p.value_heads + head;
    chunk.decay[lane] = ExactExp(p.decay[head] * ExactSoftplus(p.a[at] + p.dt_bias[head]));
    chunk.strength[lane] = ExactSigmoid(p.b[at]);
    chunk.lane_out[lane] = p.states.lane_out[first + lane];
  }
  for (std::int32_t i = warp; i < count; i += kRowWarps) {
    const auto row = static_cast<std::size_t>(first + i);
    BringVector<kKeys>(p.k, row, key_head, p.key_dim, chunk.k[i]);
    BringVector<kKeys>(p.q, row, key_head, p.key_dim, chunk.q[i]);
    const std::int32_t j = column + lane;
    chunk.v[i][lane] =
        j < p.value_dim ? p.v[row * p.v_stride + static_cast<std::size_t>(head) * p.value_dim + j]
                        : 0.0F;
  }
}

// (P_0 + P_2) + (P_1 + P_3); every lane of the column gets it.
__device__ __forceinline__ float Joined(float sum) {
  sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
  return sum + __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
}

// What a lane holds of its column.
template <int kKeys, bool kWhole>
struct Column {
  float s[kKeys];
  std::int32_t lane;  // of the column: its keys are lane mod 4
  std::int32_t dim;   // key_dim
  std::size_t step;   // floats between its keys in a lane of the plane

  __device__ __forceinline__ bool Has(int i) const { return kWhole || kSums * i + lane < dim; }

  // `at` null: zeros.
  __device__ __forceinline__ void Load(const float* at) {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      s[i] = at != nullptr && Has(i) ? at[static_cast<std::size_t>(i) * step] : 0.0F;
    }
  }

  // S = d S, and the lane's part of S^T k.
  __device__ __forceinline__ float Decay(float decay, const float* k) {
    float m = 0.0F;
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
      const float4 key = *reinterpret_cast<const float4*>(k + i);
      const float keys[4] = {key.x, key.y, key.z, key.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[i + j] = decay * s[i + j];
        if (Has(i + j)) m = ExactFma(s[i + j], keys[j], m);
      }
    }
    return m;
  }

  // S = S + k u, kept at `keep` where that is not null; the lane's part of S^T q. kNext: then
  // Decay of the next row, whose part goes to *m.
  template <bool kNext>
  __device__ __forceinline__ float Correct(float u, const float* k, const float* q, float* keep,
                                           float decay, const float* next_k, float* m) {
    float out = 0.0F;
    float next = 0.0F;
#pragma unroll
    for (int i = 0; i < kKeys; i += 4) {
      const float4 key = *reinterpret_cast<const float4*>(k + i);
      const float4 query = *reinterpret_cast<const float4*>(q + i);
      const float4 after = kNext ? *reinterpret_cast<const float4*>(next_k + i) : key;
      const float keys[4] = {key.x, key.y, key.z, key.w};
      const float queries[4] = {query.x, query.y, query.z, query.w};
      const float afters[4] = {after.x, after.y, after.z, after.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (!Has(i + j)) continue;
        float& value = s[i + j];
        value = ExactFma(keys[j], u, value);
        out = ExactFma(value, queries[j], out);
        if (keep != nullptr) keep[static_cast<std::size_t>(i + j) * step] = value;
        if constexpr (kNext) {
          value = decay * value;
          next = ExactFma(value, afters[j], next);
        }
      }
    }
    if constexpr (kNext) *m = next;
    return out;
  }
};

// By the warps that hold the state: `count` rows of a chunk, the first of them row `first`.
template <int kKeys, bool kWhole>
__device__ void RunRows(const DeltaRowsArgs& p, const Chunk<kKeys>& chunk, std::int32_t slot,
                        std::int32_t first, std::int32_t count, std::size_t in_lane,
                        std::int32_t head, std::int32_t j, Column<kKeys, kWhole>& column) {
  const int column_of_block = static_cast<int>(threadIdx.x) / kSums;
  const int at = column.lane * Chunk<kKeys>::kLaneStride;
  const bool inside = j < p.value_dim;
  float m = column.Decay(chunk.decay[0], chunk.k[0] + at);
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t row = first + i;
    const float u = chunk.strength[i] * (chunk.v[i][column_of_block] - Joined(m));
    const std::int32_t lane_out = chunk.lane_out[i];
    float* const keep =
        lane_out < 0 || !inside ? nullptr : LaneOf(p.state, slot, lane_out) + in_lane;
    float out = 0.0F;
    if (i + 1 < count) {
      out = column.template Correct<true>(u, chunk.k[i] + at, chunk.q[i] + at, keep,
                                          chunk.decay[i + 1], chunk.k[i + 1] + at, &m);
    } else {
      out = column.template Correct<false>(u, chunk.k[i] + at, chunk.q[i] + at, keep, 0.0F, nullptr,
                                           nullptr);
    }
    out = Joined(out);
    if (inside && column.lane == 0) {
      p.out[(static_cast<std::size_t>(row) * p.value_heads + head) * p.value_dim + j] = out;
    }
  }
}

// Block (columns of a head, stretch). kWhole: heads have 4 * kKeys keys.
template <int kKeys, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    DeltaKernel(const DeltaRowsArgs p, std::int32_t column_blocks) {
  constexpr int kRows = Chunk<kKeys>::kRows;
  __shared__ __align__(16) Chunk<kKeys> chunks[2];
  const std::int32_t segments = *p.states.segments;
  const auto segment = static_cast<std::int32_t>(blockIdx.y);
  if (segment >= segments) {
    return;
  }
  const Stretch stretch = StretchOf(p, segment, segments);
  const std::int32_t head = static_cast<std::int32_t>(blockIdx.x) / column_blocks;
  const std::int32_t column = static_cast<std::int32_t>(blockIdx.x) % column_blocks * kColumns;
  const std::int32_t key_head = p.tiled ? head % p.key_heads : head / (p.value_heads / p.key_heads);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const bool holds = thread < kStateThreads;
  const std::int32_t j = column + thread / kSums;
  Column<kKeys, kWhole> mine;
  mine.lane = thread % kSums;
  mine.dim = p.key_dim;
  mine.step = static_cast<std::size_t>(kSums) * p.value_dim;
  const std::size_t in_lane =
      (static_cast<std::size_t>(head) * p.key_dim + mine.lane) * p.value_dim + j;
  if (holds) {
    // The state is of an earlier pass: it is asked for before the wait.
    const std::int32_t lane_in = p.states.lane_in[stretch.first];
    const bool there = lane_in >= 0 && j < p.value_dim;
    mine.Load(there ? LaneOf(p.state, stretch.slot, lane_in) + in_lane : nullptr);
  }
  WaitForInputs();
  AllowNext();
  const auto count = [&](std::int32_t done) { return min(kRows, stretch.rows - done); };
  if (!holds) BringRows(p, head, key_head, column, stretch.first, count(0), chunks[0]);
  __syncthreads();
  for (std::int32_t done = 0, turn = 0; done < stretch.rows; done += kRows, turn ^= 1) {
    if (holds) {
      RunRows(p, chunks[turn], stretch.slot, stretch.first + done, count(done), in_lane, head, j,
              mine);
    } else if (done + kRows < stretch.rows) {
      BringRows(p, head, key_head, column, stretch.first + done + kRows, count(done + kRows),
                chunks[turn ^ 1]);
    }
    __syncthreads();
  }
}

template <int kKeys>
cudaError_t Prepare() {
  const cudaError_t status = PreferShared(DeltaKernel<kKeys, true>);
  return status == cudaSuccess ? PreferShared(DeltaKernel<kKeys, false>) : status;
}

template <int kKeys>
cudaError_t LaunchDelta(const Launch& launch, const DeltaRowsArgs& args) {
  const std::int32_t column_blocks = (args.value_dim + kColumns - 1) / kColumns;
  const dim3 grid(static_cast<unsigned>(args.value_heads * column_blocks),
                  static_cast<unsigned>(args.states.most));
  const auto kernel =
      args.key_dim == kSums * kKeys ? DeltaKernel<kKeys, true> : DeltaKernel<kKeys, false>;
  return Start(launch, grid, dim3(kThreads), 0, kernel, args, column_blocks);
}

}  // namespace

cudaError_t PrepareDelta() {
  cudaError_t status = PrepareShortConv();
  if (status == cudaSuccess) status = Prepare<8>();
  if (status == cudaSuccess) status = Prepare<32>();
  return status == cudaSuccess ? Prepare<64>() : status;
}

cudaError_t DeltaRows(const Launch& launch, const DeltaRowsArgs& args) {
  if (args.key_dim < 1 || args.key_dim > kDeltaRowsKeysMax || args.value_dim < 1 ||
      args.key_heads < 1 || args.value_heads % args.key_heads != 0) {
    return cudaErrorInvalidValue;
  }
  if (args.key_dim <= kSums * 8) return LaunchDelta<8>(launch, args);
  if (args.key_dim <= kSums * 32) return LaunchDelta<32>(launch, args);
  return LaunchDelta<64>(launch, args);
}

}  // namespace bloomery::kernels::cuda
