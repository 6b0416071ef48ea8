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

// The tree 4, 2, 1 over the lanes of a column, of both sums at once; each lane gets them.
__device__ __forceinline__ void Join(float2* a, float2* b) {
#pragma unroll
  for (int step = kSums / 2; step > 0; step /= 2) {
    a->x += __shfl_xor_sync(0xFFFFFFFFU, a->x, step);
    a->y += __shfl_xor_sync(0xFFFFFFFFU, a->y, step);
    b->x += __shfl_xor_sync(0xFFFFFFFFU, b->x, step);
    b->y += __shfl_xor_sync(0xFFFFFFFFU, b->y, step);
  }
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
  __device__ __forceinline__ float2 Decay(float decay, const float (&k)[kKeys]) {
    float2 m = make_float2(0.0F, 0.0F);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      if (!Has(i)) continue;
      s[i].x = decay * s[i].x;
      s[i].y = decay * s[i].y;
      m.x = ExactFma(s[i].x, k[i], m.x);
      m.y = ExactFma(s[i].y, k[i], m.y);
    }
    return m;
  }

  // S = S + k u, kKeep: kept at `keep`; the lane's part of S^T q. kNext: then Decay of the next
  // row, of key `next`, whose part goes to *m.
  template <bool kNext, bool kKeep>
  __device__ __forceinline__ float2 Correct(float2 u, const float (&k)[kKeys],
                                            const float (&q)[kKeys], float* keep, float decay,
                                            const float (&next)[kKeys], float2* m) {
    float2 out = make_float2(0.0F, 0.0F);
    float2 after = make_float2(0.0F, 0.0F);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      if (!Has(i)) continue;
      s[i].x = ExactFma(k[i], u.x, s[i].x);
      s[i].y = ExactFma(k[i], u.y, s[i].y);
      out.x = ExactFma(s[i].x, q[i], out.x);
      out.y = ExactFma(s[i].y, q[i], out.y);
      if constexpr (kKeep) {
        *reinterpret_cast<float2*>(keep + static_cast<std::size_t>(i) * step) = s[i];
      }
      if constexpr (kNext) {
        s[i].x = decay * s[i].x;
        s[i].y = decay * s[i].y;
        after.x = ExactFma(s[i].x, next[i], after.x);
        after.y = ExactFma(s[i].y, next[i], after.y);
      }
    }
    if constexpr (kNext) *m = after;
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

// By the warps that hold the state: the rows of a chunk, one after another. The read of a row is
// joined together with the correction towards the next, and stored then.
template <int kKeys, bool kWhole>
struct RowsOfChunk {
  const DeltaRowsArgs& p;
  const Chunk<kKeys>& chunk;
  const Place& place;
  std::int32_t slot;
  std::int32_t count;
  Columns<kKeys, kWhole>& columns;
  int at = 0;            // of the lane's keys in a row of the chunk
  float* out = nullptr;  // of the row whose read is under way
  float2 read = {0.0F, 0.0F};
  float2 m = {0.0F, 0.0F};

  __device__ __forceinline__ void Run(std::int32_t first) {
    float even[kKeys];  // keys of even rows
    float odd[kKeys];
    at = columns.lane * Chunk<kKeys>::kLaneStride;
    out = p.out + (static_cast<std::size_t>(first) * p.value_heads + place.head) * p.value_dim +
          place.j;
    LoadKeys(chunk.k[0] + at, even);
    m = columns.Decay(chunk.decay[0], even);
    for (std::int32_t i = 0; i < count; i += 2) {
      Row(i, even, odd);
      if (i + 1 < count) Row(i + 1, odd, even);
    }
    Join(&read, &m);
    Store();
  }

  // Row i of key k; that of the row behind it goes to `next`.
  __device__ __forceinline__ void Row(std::int32_t i, const float (&k)[kKeys],
                                      float (&next)[kKeys]) {
    float q[kKeys];
    const bool more = i + 1 < count;
    LoadKeys(chunk.q[i] + at, q);
    LoadKeys(chunk.k[more ? i + 1 : i] + at, next);
    const float2 v = *reinterpret_cast<const float2*>(&chunk.v[i][place.of_block]);
    const float strength = chunk.strength[i];
    const float decay = chunk.decay[more ? i + 1 : i];
    const std::int32_t lane_out = chunk.lane_out[i];
    Join(&read, &m);
    if (i > 0) Store();
    const float2 u = make_float2(strength * (v.x - m.x), strength * (v.y - m.y));
    if (lane_out < 0 || !place.inside) {
      read = more ? columns.template Correct<true, false>(u, k, q, nullptr, decay, next, &m)
                  : columns.template Correct<false, false>(u, k, q, nullptr, decay, next, &m);
    } else {
      float* const keep = LaneOf(p.state, slot, lane_out) + place.in_lane;
      read = more ? columns.template Correct<true, true>(u, k, q, keep, decay, next, &m)
                  : columns.template Correct<false, true>(u, k, q, keep, decay, next, &m);
    }
  }

  __device__ __forceinline__ void Store() {
    if (place.inside && columns.lane == 0) *reinterpret_cast<float2*>(out) = read;
    out += static_cast<std::size_t>(p.value_heads) * p.value_dim;
  }
};

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
      RowsOfChunk<kKeys, kWhole> rows = {p, chunks[turn], place, stretch.slot, count(done), mine};
      rows.Run(stretch.first + done);
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
