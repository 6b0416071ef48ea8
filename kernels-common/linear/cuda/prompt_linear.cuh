// Inside CUDA sources: the kernel under prompt_linear.h for one integer format.
//
// A warp makes pairs of tiles of 16 weight rows (neighbours, or the same of gate and up) for all of
// the block's columns: up to 64 activation rows. It steps by 256 values: weights come in card form
// straight from global memory to registers, one step ahead; activation rows come to shared memory
// by asynchronous copies.
//
// Order (N3-N5): integer sums of a step by mma.sync, exact in any order; then one float end a step,
// steps ascending. Nothing is split over k, so any count of rows gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/async_copy.cuh"
#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/cuda/rows.cuh"
#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/linear/cuda/prompt_job.cuh"
#include "kernels-common/quant/cuda/card_form.cuh"
#include "kernels-common/quant/cuda/quantise.cuh"

namespace bloomery::kernels::cuda {

// What a step of 256 values needs of the block's columns, at most 8 kMax.
template <class Tile, int kMax>
struct PromptStage {
  static constexpr int kColumns = 8 * kMax;
  static constexpr bool kMins = Tile::kForm == BlockForm::kScaleMin;
  // A warp reads 8 bytes (spans of 32) or 4 (of 16) from each of 8 columns at once: these strides
  // put them into different banks.
  static constexpr int kCodeStride = Tile::kSpan == 32 ? 288 : 272;
  // Scales of a column: one, or eight and a gap for the banks' sake.
  static constexpr int kScales = Tile::kGroup == 256 ? 1 : 12;
  alignas(16) std::byte codes[kColumns * kCodeStride];
  alignas(16) float scales[kColumns * kScales];
  alignas(16) std::int16_t sums[kMins ? kColumns * 16 : 8];
};

// Starts the copies of step g for the columns whose rows begin at rows[]. kN: columns / 8. For
// blocks of 128 threads and more.
template <class Tile, int kN, class Stage>
__device__ __forceinline__ void CopyPromptStage(const QuantisedView& x,
                                                const std::byte* const* rows, std::int32_t g,
                                                Stage& stage) {
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const std::int32_t k = 256 * g + 16 * (thread % 16);
#pragma unroll 4
  for (int column = thread / 16; column < 8 * kN; column += threads / 16) {
    CopyAsync<16>(stage.codes + column * Stage::kCodeStride + 16 * (thread % 16), rows[column] + k,
                  k < x.k ? 16 : 0);
  }
  const int column = thread / 2;  // halves of what is 32 bytes a column
  const int half = thread % 2;
  if constexpr (Tile::kGroup == 256) {
    if (thread < 8 * kN) {
      CopyAsync<4>(stage.scales + thread, rows[thread] + x.scales_offset + 4 * g);
    }
  } else if (thread < 16 * kN) {
    const std::int32_t left = x.k / 32 - 8 * g - 4 * half;  // scales that exist
    CopyAsync<16>(stage.scales + column * Stage::kScales + 4 * half,
                  rows[column] + x.scales_offset + 32 * g + 16 * half, 4 * min(max(left, 0), 4));
  }
  if constexpr (Stage::kMins) {
    if (thread < 16 * kN) {
      CopyAsync<16>(stage.sums + column * 16 + 8 * half,
                    rows[column] + x.sums_offset + 32 * g + 16 * half);
    }
  }
}

// 1.5 * 2^23: an int32 below 2^22 in magnitude added to its bits is the float kMagic + the int.
inline constexpr int kMagicBits = 0x4B400000;
__device__ __forceinline__ float FromMagic(int bits) { return __int_as_float(bits) - 12582912.0F; }

// c = product + `from` in all four.
__device__ __forceinline__ void MmaFrom(int (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                        std::uint32_t b1, int from) {
  c[0] = c[1] = c[2] = c[3] = from;
  Mma32(c, a, b0, b1);
}
__device__ __forceinline__ void MmaFrom(int (&c)[4], const std::uint32_t (&a)[2], std::uint32_t b,
                                        int from) {
  c[0] = c[1] = c[2] = c[3] = from;
  Mma16(c, a, b);
}

// The product of sub-block s for the columns from 8n: integers plus `from`.
template <class Tile>
struct PromptCodes {
  static constexpr int kWords = Tile::kSpan / 8;
  std::uint32_t a[2][kWords];
};

template <class Tile>
__device__ __forceinline__ void SubBlockProducts(const PromptCodes<Tile>& codes,
                                                 const std::byte* column, int s, int from,
                                                 int (&c)[2][4]) {
  if constexpr (Tile::kSpan == 32) {
    const uint2 b = *reinterpret_cast<const uint2*>(column + 32 * s);
    MmaFrom(c[0], codes.a[0], b.x, b.y, from);
    MmaFrom(c[1], codes.a[1], b.x, b.y, from);
  } else {
    const std::uint32_t b = *reinterpret_cast<const std::uint32_t*>(column + 16 * s);
    MmaFrom(c[0], codes.a[0], b, from);
    MmaFrom(c[1], codes.a[1], b, from);
  }
}

// Where lane (g, q) reads the codes of the columns from 8n: column g, byte q * span / 4.
template <class Tile, class Stage>
__device__ __forceinline__ const std::byte* LaneCodes(const Stage& stage, int n) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return stage.codes + (8 * n + lane / 4) * Stage::kCodeStride + lane % 4 * (Tile::kSpan / 4);
}

// S of N3 as floats for the columns from 8n: mins times the sums of 16 codes, whose low six bits
// and the rest go through the tensor cores as bytes.
template <class Stage>
__device__ __forceinline__ void MinSums(const std::uint32_t (&mins)[2][2], const Stage& stage,
                                        int n, float (&s)[2][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const uint2 sums = *reinterpret_cast<const uint2*>(
      reinterpret_cast<const std::byte*>(stage.sums) + (8 * n + lane / 4) * 32 + lane % 4 * 8);
  const std::uint32_t low = __byte_perm(sums.x & 0x003F003FU, sums.y & 0x003F003FU, 0x6420);
  const std::uint32_t high = __byte_perm(sums.x >> 6, sums.y >> 6, 0x6420);
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    int c_low[4];
    int c_high[4];
    MmaFrom(c_low, mins[m], low, kMagicBits);
    MmaFrom(c_high, mins[m], high, 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[m][i] = FromMagic(c_low[i] + 64 * c_high[i]);
    }
  }
}

// One step of a format whose activation groups have 256 values: y += a * u. `ahead` starts the
// loads of the next step's weights, where most of this one's are used up.
template <class Tile, int kN, class Stage, class Ahead>
__device__ __forceinline__ void PromptStep256(const typename Tile::Raw (&raw)[2],
                                              const Stage& stage, float (&y)[2][kN][4],
                                              Ahead&& ahead) {
  constexpr int kSubBlocks = 256 / Tile::kSpan;
  const int q = static_cast<int>(threadIdx.x % 4);
  int sum[2][kN][4];
#pragma unroll
  for (int s = 0; s < kSubBlocks; ++s) {
    if (s == kSubBlocks * 3 / 4) {
      ahead();
    }
    PromptCodes<Tile> codes;
    int scale[2][2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      Tile::Codes(raw[m], s, codes.a[m]);
      scale[m][0] = Tile::Scale(raw[m], s, 0);
      scale[m][1] = Tile::Scale(raw[m], s, 1);
    }
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      int c[2][4];
      SubBlockProducts<Tile>(codes, LaneCodes<Tile>(stage, n), s, 0, c);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int part = scale[m][i / 2] * c[m][i];
          sum[m][n][i] = s == 0 ? part : sum[m][n][i] + part;
        }
      }
    }
  }
  float d[2][2];
  float min_scale[2][2];
  std::uint32_t mins[2][2];
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      d[m][half] = Tile::D(raw[m], half);
      if constexpr (Stage::kMins) {
        min_scale[m][half] = Tile::M(raw[m], half);
        mins[m][half] = Tile::Mins(raw[m], half, q);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    const float2 a = *reinterpret_cast<const float2*>(stage.scales + 8 * n + 2 * q);
    float s[2][4];
    if constexpr (Stage::kMins) {
      MinSums(mins, stage, n, s);
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float product = static_cast<float>(sum[m][n][i]);
        float u;
        if constexpr (Stage::kMins) {
          u = ExactFma(d[m][i / 2], product, min_scale[m][i / 2] * s[m][i]);
        } else {
          u = d[m][i / 2] * product;
        }
        // N5's fma(a, u, +0) differs from a * u in the sign of a zero only, which y + t drops: y is
        // never -0.
        y[m][n][i] = y[m][n][i] + (i % 2 == 0 ? a.x : a.y) * u;
      }
    }
  }
}

// One step of a format whose activation groups have 32 values: eight groups to t, then y += t.
// Their integers stay below 2^22 (Q8_0: 520 K).
template <class Tile, int kN, class Stage, class Ahead>
__device__ __forceinline__ void PromptStep32(const typename Tile::Raw (&raw)[2], const Stage& stage,
                                             float (&y)[2][kN][4], Ahead&& ahead) {
  constexpr bool kPairs = Tile::kForm == BlockForm::kPairScales;
  // Where registers for the next step's weights come free: Q8_0 keeps twice the others' bytes.
  constexpr int kAhead = sizeof(typename Tile::Raw) > 128 ? 8 : 6;
  const int q = static_cast<int>(threadIdx.x % 4);
  float t[2][kN][4] = {};
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    if (block == kAhead) {
      ahead();
    }
    PromptCodes<Tile> codes[kPairs ? 2 : 1];
    float d[2][2][kPairs ? 2 : 1];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int part = 0; part < (kPairs ? 2 : 1); ++part) {
        const int s = kPairs ? 2 * block + part : block;
        Tile::Codes(raw[m], s, codes[part].a[m]);
        d[m][0][part] = Tile::D(raw[m], s, 0);
        d[m][1][part] = Tile::D(raw[m], s, 1);
      }
    }
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const float* scales = stage.scales + (8 * n + 2 * q) * Stage::kScales + block;
      const float a[2] = {scales[0], scales[Stage::kScales]};
      int c[2][4];
      [[maybe_unused]] int second[2][4];
      SubBlockProducts<Tile>(codes[0], LaneCodes<Tile>(stage, n), kPairs ? 2 * block : block,
                             kMagicBits, c);
      if constexpr (kPairs) {
        SubBlockProducts<Tile>(codes[1], LaneCodes<Tile>(stage, n), 2 * block + 1, kMagicBits,
                               second);
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float u = d[m][i / 2][0] * FromMagic(c[m][i]);
          if constexpr (kPairs) {
            u = ExactFma(d[m][i / 2][1], FromMagic(second[m][i]), u);
          }
          t[m][n][i] = ExactFma(a[i % 2], u, t[m][n][i]);
        }
      }
    }
  }
  if (kAhead == 8) {
    ahead();
  }
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        y[m][n][i] = y[m][n][i] + t[m][n][i];
      }
    }
  }
}

template <class Tile, int kN, class Stage, class Ahead>
__device__ __forceinline__ void PromptStep(const typename Tile::Raw (&raw)[2], const Stage& stage,
                                           float (&y)[2][kN][4], Ahead&& ahead) {
  if constexpr (Tile::kGroup == 256) {
    PromptStep256<Tile, kN>(raw, stage, y, ahead);
  } else {
    PromptStep32<Tile, kN>(raw, stage, y, ahead);
  }
}

// Asks for a tile to come into L2.
template <class Tile>
__device__ __forceinline__ void PrefetchTile(const std::byte* tile) {
  constexpr int kLines = static_cast<int>((Tile::kBytes + 127) / 128);
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int line = 0; line < kLines; line += 32) {
    if (line + lane < kLines) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(tile + 128 * (line + lane)));
    }
  }
}

// The two tiles of a pair at step 0; tiles beyond the matrix repeat its last.
template <class Tile>
__device__ __forceinline__ void FindPairTiles(const PromptUnit& unit, std::int32_t steps,
                                              std::int32_t pair, const std::byte* (&weight)[2]) {
  const PromptJob& job = *unit.job;
  const bool gate_up = job.up != nullptr;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const bool up = gate_up && m == 1;
    const std::int32_t tile = min(gate_up ? pair : 2 * pair + m, (job.n + 15) / 16 - 1);
    weight[m] =
        (up ? job.up : job.weight) +
        static_cast<std::size_t>(unit.expert) * (up ? job.up_expert_bytes : job.expert_bytes) +
        static_cast<std::size_t>(tile) * steps * Tile::kBytes;
  }
}

// Where the columns' activation rows begin, for all threads.
template <int kN>
__device__ __forceinline__ void FindColumns(const PromptParameters& p, const PromptUnit& unit,
                                            const std::byte** rows) {
  if (threadIdx.x < 8 * kN) {
    rows[threadIdx.x] =
        p.x.data + PromptRow(p, unit, static_cast<std::int32_t>(threadIdx.x)) * p.x.row_bytes;
  }
  __syncthreads();
}

// The streaming form, for any k: one pair a warp, activations in two stages of shared memory. kN:
// columns / 8, rounded up to a form there is.
template <class Tile, int kN, class Stage>
__device__ __forceinline__ void StreamBody(const PromptParameters& p, const PromptUnit& unit,
                                           Stage (&stages)[2], const std::byte** rows) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  FindColumns<kN>(p, unit, rows);
  const std::int32_t steps = (p.k + 255) / 256;
  const std::int32_t pair = unit.block * kPromptWarps + static_cast<std::int32_t>(threadIdx.x / 32);
  const bool active = pair < PromptPairs(unit.job->n, unit.job->up != nullptr);
  const std::byte* weight[2];
  FindPairTiles<Tile>(unit, steps, pair, weight);
  typename Tile::Raw raw[2];
  CopyPromptStage<Tile, kN>(p.x, rows, 0, stages[0]);
  CommitCopies();
  Tile::Load(weight[0], lane, raw[0]);
  Tile::Load(weight[1], lane, raw[1]);
  float y[2][kN][4] = {};
  for (std::int32_t g = 0; g < steps; ++g) {
    WaitForCopies<0>();
    __syncthreads();
    if (g + 1 < steps) {
      CopyPromptStage<Tile, kN>(p.x, rows, g + 1, stages[(g + 1) % 2]);
    }
    CommitCopies();
    if (!active) {
      continue;
    }
    typename Tile::Raw next[2];
    const std::size_t offset = static_cast<std::size_t>(min(g + 1, steps - 1)) * Tile::kBytes;
    const auto ahead = [&] {
      Tile::Load(weight[0] + offset, lane, next[0]);
      Tile::Load(weight[1] + offset, lane, next[1]);
      if (g + 2 < steps) {
        PrefetchTile<Tile>(weight[0] + offset + Tile::kBytes);
        PrefetchTile<Tile>(weight[1] + offset + Tile::kBytes);
      }
    };
    PromptStep<Tile, kN>(raw, stages[g % 2], y, ahead);
    raw[0] = next[0];
    raw[1] = next[1];
  }
  if (active) {
    StorePrompt<kN>(unit, pair, y);
  }
}

// The resident form: all of the columns' activations lie in shared memory (a stage a step), and
// each warp goes through its pairs of the block's on its own, weights always one step ahead. ready:
// one barrier a step, complete when the step's copies are.
template <class Tile, int kN>
__device__ __forceinline__ void ResidentBody(const PromptParameters& p, const PromptUnit& unit,
                                             std::byte* shared, std::uint64_t* ready,
                                             const std::byte** rows) {
  using Stage = PromptStage<Tile, kN>;
  auto* stages = reinterpret_cast<Stage*>(shared);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto warps = static_cast<std::int32_t>(blockDim.x / 32);
  const std::int32_t steps = (p.k + 255) / 256;
  if (static_cast<std::int32_t>(threadIdx.x) < steps) {
    InitBarrier(ready + threadIdx.x, blockDim.x);
  }
  FindColumns<kN>(p, unit, rows);
  const std::int32_t pairs =
      min(PromptPairs(unit.job->n, unit.job->up != nullptr) - unit.block * p.block_pairs,
          p.block_pairs);
  std::int32_t at = static_cast<std::int32_t>(threadIdx.x / 32);
  const std::byte* weight[2];
  typename Tile::Raw raw[2];
  if (at < pairs) {
    FindPairTiles<Tile>(unit, steps, unit.block * p.block_pairs + at, weight);
    Tile::Load(weight[0], lane, raw[0]);
    Tile::Load(weight[1], lane, raw[1]);
  }
  for (std::int32_t g = 0; g < steps; ++g) {
    CopyPromptStage<Tile, kN>(p.x, rows, g, stages[g]);
    ArriveAfterCopies(ready + g);
  }
  for (bool first = true; at < pairs; at += warps, first = false) {
    const std::int32_t pair = unit.block * p.block_pairs + at;
    float y[2][kN][4] = {};
    for (std::int32_t g = 0; g < steps; ++g) {
      if (first) {
        WaitBarrier(ready + g);
      }
      typename Tile::Raw next[2];
      const auto ahead = [&] {
        if (g + 1 < steps) {
          weight[0] += Tile::kBytes;
          weight[1] += Tile::kBytes;
        } else if (at + warps < pairs) {
          FindPairTiles<Tile>(unit, steps, pair + warps, weight);
        }
        Tile::Load(weight[0], lane, next[0]);
        Tile::Load(weight[1], lane, next[1]);
        const std::byte* later[2] = {weight[0] + Tile::kBytes, weight[1] + Tile::kBytes};
        if (g + 2 == steps && at + warps < pairs) {
          FindPairTiles<Tile>(unit, steps, pair + warps, later);
        }
        if (g + 2 < steps || at + warps < pairs) {
          PrefetchTile<Tile>(later[0]);
          PrefetchTile<Tile>(later[1]);
        }
      };
      PromptStep<Tile, kN>(raw, stages[g], y, ahead);
      raw[0] = next[0];
      raw[1] = next[1];
    }
    StorePrompt<kN>(unit, pair, y);
  }
}

template <int kType>
__global__ void __launch_bounds__(kPromptThreads, 2)
    StreamKernel(const __grid_constant__ PromptParameters p) {
  using Tile = CardTile<kType>;
  __shared__ PromptStage<Tile, 8> stages[2];
  __shared__ const std::byte* rows[kPromptColumns];
  const PromptUnit unit = FindPromptUnit(p);
  if (unit.count <= 0) {
    return;
  }
  if (unit.count <= 32) {
    StreamBody<Tile, 4>(p, unit, stages, rows);
  } else {
    StreamBody<Tile, 8>(p, unit, stages, rows);
  }
}

// kMax: columns / 8 of the largest unit. 8: eight warps on a multiprocessor; 4: twelve, in a block
// or two.
template <int kType, int kMax>
__global__ void __launch_bounds__(kMax > 4 ? 256 : 384, 1)
    ResidentKernel(const __grid_constant__ PromptParameters p) {
  using Tile = CardTile<kType>;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ std::uint64_t ready[kPromptStepsMax];
  __shared__ const std::byte* rows[8 * kMax];
  const PromptUnit unit = FindPromptUnit(p);
  if (unit.count <= 0) {
    return;
  }
  if (unit.count <= 16) {
    ResidentBody<Tile, 2>(p, unit, shared, ready, rows);
  } else if (kMax == 4 || unit.count <= 32) {
    ResidentBody<Tile, 4>(p, unit, shared, ready, rows);
  } else if constexpr (kMax > 4) {
    ResidentBody<Tile, kMax>(p, unit, shared, ready, rows);
  }
}

template <int... types>
const PromptKernels* FindPromptKernelsOf(int ggml_type) {
  static constexpr PromptKernels kKernels[] = {
      {types,
       StreamKernel<types>,
       {ResidentKernel<types, 4>, ResidentKernel<types, 8>},
       {sizeof(PromptStage<CardTile<types>, 4>), sizeof(PromptStage<CardTile<types>, 8>)}}...};
  for (const PromptKernels& kernels : kKernels) {
    if (kernels.type == ggml_type) {
      return &kernels;
    }
  }
  return nullptr;
}

}  // namespace bloomery::kernels::cuda
