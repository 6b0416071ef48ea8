// The gated delta rule, rows one after another with the state in registers.
//
// A block has 32 columns (values) of one head of one stretch. Four warps hold the state: eight
// lanes share two columns, lane t the keys t mod 8, which is delta.h's order of sums; two columns a
// lane halve what is read from shared memory, which is the narrow place. Four more warps bring the
// rows: they read q and k, norm them, work out decay and strength, and leave a chunk of rows in
// shared memory while the others work on the chunk before. The read of one row and the correction
// towards the next walk over the state together, so that chains of fma overlap.
#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/delta/cuda/delta.h"
#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/exact_math/trig.h"

namespace bloomery::kernels::cuda {

cudaError_t PrepareShortConv();

namespace {

constexpr int kSums = static_cast<int>(kDeltaSums);
constexpr int kColumns = 32;
constexpr int kPair = 2;  // columns of a lane
constexpr int kStateThreads = kColumns / kPair * kSums;
constexpr int kRowWarps = 4;  // that bring rows
constexpr int kThreads = kStateThreads + 32 * kRowWarps;

// kKeys: keys of a lane.
template <int kKeys>
struct Chunk {
  static constexpr int kRows = kKeys <= 16 ? 16 : 8;
  // A lane's keys lie together; the pad keeps the eight lanes of a column in banks of their own.
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

// The vectors of q and k that one of the warps brings of a chunk: all of them are asked for before
// the first is looked at, and their chains of fma, shuffles and roots run side by side.
template <int kKeys>
struct Brought {
  static constexpr int kOwn = Chunk<kKeys>::kRows / kRowWarps;  // rows of a warp
  static constexpr int kLoads = kKeys * kSums / 32;
  float value[kOwn][kLoads];

  // Row `first` and every kRowWarps-th after it, below `end`.
  __device__ __forceinline__ void Load(const DeltaHeads& heads, std::int32_t first,
                                       std::int32_t end, std::int32_t head, std::int32_t dim) {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      const std::int32_t row = first + r * kRowWarps;
      const float* x = heads.x + static_cast<std::size_t>(row) * heads.stride +
                       static_cast<std::size_t>(head) * dim;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        value[r][i] = row < end && lane + 32 * i < dim ? x[lane + 32 * i] : 0.0F;
      }
    }
  }

  __device__ __forceinline__ void Norm(const DeltaHeads& heads, std::int32_t dim) {
    if (!(heads.eps > 0.0F)) {
      return;
    }
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    float sum[kOwn] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (lane + 32 * i >= dim) continue;
#pragma unroll
      for (int r = 0; r < kOwn; ++r) {
        sum[r] = ExactFma(value[r][i], value[r][i], sum[r]);
      }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
#pragma unroll
      for (int r = 0; r < kOwn; ++r) {
        sum[r] += __shfl_xor_sync(0xFFFFFFFFU, sum[r], step);
      }
    }
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      const float scale = heads.scale * ExactInverseSqrt(sum[r] + heads.eps);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        value[r][i] = value[r][i] * scale;
      }
    }
  }

  // To rows `warp` and every kRowWarps-th after it of `to`.
  __device__ __forceinline__ void Store(float (*to)[kSums * Chunk<kKeys>::kLaneStride],
                                        std::int32_t warp) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const std::int32_t key = lane + 32 * i;
        to[warp + r * kRowWarps][key % kSums * Chunk<kKeys>::kLaneStride + key / kSums] =
            value[r][i];
      }
    }
  }
};

// By the warps that bring rows: rows [first, first + count) of the pass.
template <int kKeys>
__device__ void BringRows(const DeltaRowsArgs& p, std::int32_t head, std::int32_t key_head,
                          std::int32_t column, std::int32_t first, std::int32_t count,
                          Chunk<kKeys>& chunk) {
  const auto thread = static_cast<std::int32_t>(threadIdx.x) - kStateThreads;
  const std::int32_t warp = thread / 32;
  const std::int32_t lane = thread % 32;
  Brought<kKeys> k;
  Brought<kKeys> q;
  float v[Brought<kKeys>::kOwn];
  const std::int32_t end = first + count;
  k.Load(p.k, first + warp, end, key_head, p.key_dim);
  q.Load(p.q, first + warp, end, key_head, p.key_dim);
  const std::int32_t j = column + lane;
#pragma unroll
  for (int r = 0; r < Brought<kKeys>::kOwn; ++r) {
    const std::int32_t row = first + warp + r * kRowWarps;
    v[r] = row < end && j < p.value_dim ? p.v[static_cast<std::size_t>(row) * p.v_stride +
                                              static_cast<std::size_t>(head) * p.value_dim + j]
                                        : 0.0F;
  }
  // A row of each warp's four quarters of the chunk: a lane a row.
  const std::int32_t own = warp + lane * kRowWarps;
  if (own < count) {
    const std::size_t at = static_cast<std::size_t>(first + own) * p.value_heads + head;
    chunk.decay[own] = ExactExp(p.decay[head] * ExactSoftplus(p.a[at] + p.dt_bias[head]));
    chunk.strength[own] = ExactSigmoid(p.b[at]);
    chunk.lane_out[own] = p.states.lane_out[first + own];
  }
  k.Norm(p.k, p.key_dim);
  q.Norm(p.q, p.key_dim);
  k.Store(chunk.k, warp);
  q.Store(chunk.q, warp);
#pragma unroll
  for (int r = 0; r < Brought<kKeys>::kOwn; ++r) {
    chunk.v[warp + r * kRowWarps][lane] = v[r];
  }
}

// The tree 4, 2, 1 over the lanes of a column; each of them gets the sum.
__device__ __forceinline__ float2 Joined(float2 sum) {
#pragma unroll
  for (int step = kSums / 2; step > 0; step /= 2) {
    sum.x += __shfl_xor_sync(0xFFFFFFFFU, sum.x, step);
    sum.y += __shfl_xor_sync(0xFFFFFFFFU, sum.y, step);
  }
  return sum;
}

// A lane's part of one row's vector in shared memory.
template <int kKeys>
__device__ __forceinline__ void LoadKeys(const float* from, float (&keys)[kKeys]) {
#pragma unroll
  for (int i = 0; i < kKeys; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    keys[i] = four.x;
    keys[i + 1] = four.y;
    keys[i + 2] = four.z;
    keys[i + 3] = four.w;
  }
}

// What a lane holds of its two columns.
template <int kKeys, bool kWhole>
struct Columns {
  float2 s[kKeys];
  float k[kKeys];     // of the row that comes next
  std::int32_t lane;  // of the columns: its keys are lane mod 8
  std::int32_t dim;   // key_dim
  std::size_t step;   // floats between its keys in a lane of the plane

  __device__ __forceinline__ bool Has(int i) const { return kWhole || kSums * i + lane < dim; }

  // `at` null: zeros.
  __device__ __forceinline__ void Load(const float* at) {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      s[i] = at != nullptr && Has(i)
                 ? *reinterpret_cast<const float2*>(at + static_cast<std::size_t>(i) * step)
                 : make_float2(0.0F, 0.0F);
    }
  }

  // S = d S, and the lane's part of S^T k.
  __device__ __forceinline__ float2 Decay(float decay, const float* key) {
    LoadKeys(key, k);
    float2 m = make_float2(0.0F, 0.0F);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      s[i].x = decay * s[i].x;
      s[i].y = decay * s[i].y;
      if (!Has(i)) continue;
      m.x = ExactFma(s[i].x, k[i], m.x);
      m.y = ExactFma(s[i].y, k[i], m.y);
    }
    return m;
  }

  // S = S + k u, kept at `keep` where that is not null; the lane's part of S^T q. kNext: then
  // Decay of the next row, whose part goes to *m.
  template <bool kNext>
  __device__ __forceinline__ float2 Correct(float2 u, const float* query, float* keep, float decay,
                                            const float* next_key, float2* m) {
    float q[kKeys];
    float after[kKeys];
    LoadKeys(query, q);
    if constexpr (kNext) LoadKeys(next_key, after);
    float2 out = make_float2(0.0F, 0.0F);
    float2 next = make_float2(0.0F, 0.0F);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      if (!Has(i)) continue;
      s[i].x = ExactFma(k[i], u.x, s[i].x);
      s[i].y = ExactFma(k[i], u.y, s[i].y);
      out.x = ExactFma(s[i].x, q[i], out.x);
      out.y = ExactFma(s[i].y, q[i], out.y);
      if (keep != nullptr) {
        *reinterpret_cast<float2*>(keep + static_cast<std::size_t>(i) * step) = s[i];
      }
      if constexpr (kNext) {
        s[i].x = decay * s[i].x;
        s[i].y = decay * s[i].y;
        next.x = ExactFma(s[i].x, after[i], next.x);
        next.y = ExactFma(s[i].y, after[i], next.y);
      }
    }
    if constexpr (kNext) {
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        k[i] = after[i];
      }
      *m = next;
    }
    return out;
  }
};

// Where a lane's columns lie.
struct Place {
  std::int32_t head;
  std::int32_t j;         // the first column
  std::int32_t of_block;  // the same, of the block
  std::size_t in_lane;    // of the state's first value in a lane of the plane
  bool inside;            // columns that are there
};

// By the warps that hold the state: `count` rows of a chunk, the first of them row `first`.
template <int kKeys, bool kWhole>
__device__ void RunRows(const DeltaRowsArgs& p, const Chunk<kKeys>& chunk, std::int32_t slot,
                        std::int32_t first, std::int32_t count, const Place& place,
                        Columns<kKeys, kWhole>& columns) {
  const int at = columns.lane * Chunk<kKeys>::kLaneStride;
  float2 m = columns.Decay(chunk.decay[0], chunk.k[0] + at);
  for (std::int32_t i = 0; i < count; ++i) {
    m = Joined(m);
    const float2 v = *reinterpret_cast<const float2*>(&chunk.v[i][place.of_block]);
    const float2 u = make_float2(chunk.strength[i] * (v.x - m.x), chunk.strength[i] * (v.y - m.y));
    const std::int32_t lane_out = chunk.lane_out[i];
    float* const keep =
        lane_out < 0 || !place.inside ? nullptr : LaneOf(p.state, slot, lane_out) + place.in_lane;
    float2 out;
    if (i + 1 < count) {
      out = columns.template Correct<true>(u, chunk.q[i] + at, keep, chunk.decay[i + 1],
                                           chunk.k[i + 1] + at, &m);
    } else {
      out = columns.template Correct<false>(u, chunk.q[i] + at, keep, 0.0F, nullptr, nullptr);
    }
    out = Joined(out);
    if (place.inside && columns.lane == 0) {
      const std::size_t row = static_cast<std::size_t>(first + i) * p.value_heads + place.head;
      *reinterpret_cast<float2*>(p.out + row * p.value_dim + place.j) = out;
    }
  }
}

// Block (columns of a head, stretch). kWhole: heads have 8 * kKeys keys.
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
  Columns<kKeys, kWhole> mine;
  mine.lane = thread % kSums;
  mine.dim = p.key_dim;
  mine.step = static_cast<std::size_t>(kSums) * p.value_dim;
  Place place;
  place.head = head;
  place.of_block = thread / kSums * kPair;
  place.j = column + place.of_block;
  place.in_lane = (static_cast<std::size_t>(head) * p.key_dim + mine.lane) * p.value_dim + place.j;
  place.inside = holds && place.j < p.value_dim;
  if (holds) {
    // The state is of an earlier pass: it is asked for before the wait.
    const std::int32_t lane_in = p.states.lane_in[stretch.first];
    mine.Load(lane_in >= 0 && place.inside ? LaneOf(p.state, stretch.slot, lane_in) + place.in_lane
                                           : nullptr);
  }
  WaitForInputs();
  AllowNext();
  const auto count = [&](std::int32_t done) { return min(kRows, stretch.rows - done); };
  if (!holds) BringRows(p, head, key_head, column, stretch.first, count(0), chunks[0]);
  __syncthreads();
  for (std::int32_t done = 0, turn = 0; done < stretch.rows; done += kRows, turn ^= 1) {
    if (holds) {
      RunRows(p, chunks[turn], stretch.slot, stretch.first + done, count(done), place, mine);
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
  if (status == cudaSuccess) status = Prepare<4>();
  if (status == cudaSuccess) status = Prepare<16>();
  return status == cudaSuccess ? Prepare<32>() : status;
}

cudaError_t DeltaRows(const Launch& launch, const DeltaRowsArgs& args) {
  if (args.key_dim < 1 || args.key_dim > kDeltaRowsKeysMax || args.value_dim < kPair ||
      args.value_dim % kPair != 0 || args.key_heads < 1 || args.value_heads % args.key_heads != 0) {
    return cudaErrorInvalidValue;
  }
  if (args.key_dim <= kSums * 4) return LaunchDelta<4>(launch, args);
  if (args.key_dim <= kSums * 16) return LaunchDelta<16>(launch, args);
  return LaunchDelta<32>(launch, args);
}

}  // namespace bloomery::kernels::cuda
