// Inside CUDA sources: the kernel under prompt_linear.h for one integer format.
//
// A block of eight warps keeps up to 64 activation rows ("columns") in shared memory. Each warp
// goes on its own through pairs of tiles of 16 weight rows (neighbours, or the same of gate and up)
// in steps of 256 values: it unpacks the step's weights to registers, asks for the next step's, and
// goes through the columns eight at a time. Running results lie in shared memory, so that the loop
// over columns stays rolled: unrolled, the code is several times what a multiprocessor's first
// instruction cache holds, and runs at a third of the speed.
//
// Order (N3-N5): integer sums of a step by mma.sync, exact in any order; then one float end a step,
// steps ascending. Nothing is split over k, so any count of rows gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/async_copy.cuh"
#include "kernels-common/linear/cuda/prompt_job.cuh"
#include "kernels-common/quant/cuda/card_form.cuh"

namespace bloomery::kernels::cuda {

// What a step of 256 values keeps of the block's columns in shared memory: codes (256 bytes a
// column), sums of 16 (32, where the format has mins), scales (one float, or eight and four
// unused). Pieces of a column's codes change places by the column, for the banks' sake: a warp
// reads 8 bytes (spans of 32) or 4 (of 16) of each of 8 columns at once.
template <class Tile>
struct StageLayout {
  static constexpr bool kMins = Tile::kForm == BlockForm::kScaleMin;
  static constexpr int kScales = Tile::kGroup == 256 ? 1 : 12;
  static constexpr int kColumnBytes = 256 + (kMins ? 32 : 0) + 4 * kScales;

  std::byte* codes;
  std::int16_t* sums;
  float* scales;

  __device__ StageLayout(std::byte* shared, std::int32_t columns, std::int32_t step)
      : codes(shared + step * columns * kColumnBytes),
        sums(reinterpret_cast<std::int16_t*>(codes + columns * 256)),
        scales(reinterpret_cast<float*>(codes + columns * (256 + (kMins ? 32 : 0)))) {}
};

// Where 16 bytes of a column lie among its 256.
template <class Tile>
__device__ __forceinline__ int SwappedPiece(int piece, int column) {
  return Tile::kSpan == 32 ? piece ^ (2 * (column % 4)) : piece ^ (column % 8);
}

// Starts the copies of step g of `count` columns (a multiple of 8), whose rows begin at rows[].
template <class Tile>
__device__ __forceinline__ void CopyStage(const QuantisedView& x, const std::byte* const* rows,
                                          std::int32_t g, std::int32_t count,
                                          const StageLayout<Tile>& stage) {
  using Layout = StageLayout<Tile>;
  const int thread = static_cast<int>(threadIdx.x);
  const int piece = thread % 16;
  for (int column = thread / 16; column < count; column += kPromptThreads / 16) {
    const std::int32_t k = 256 * g + 16 * piece;
    CopyAsync<16>(stage.codes + 256 * column + 16 * SwappedPiece<Tile>(piece, column),
                  rows[column] + k, k < x.k ? 16 : 0);
  }
  const int column = thread / 2;  // halves of what is 32 bytes a column
  const int half = thread % 2;
  if constexpr (Tile::kGroup == 256) {
    if (thread < count) {
      CopyAsync<4>(stage.scales + thread, rows[thread] + x.scales_offset + 4 * g);
    }
  } else if (column < count) {
    const std::int32_t left = x.k / 32 - 8 * g - 4 * half;  // scales that exist
    CopyAsync<16>(stage.scales + column * Layout::kScales + 4 * half,
                  rows[column] + x.scales_offset + 32 * g + 16 * half, 4 * min(max(left, 0), 4));
  }
  if constexpr (Layout::kMins) {
    if (column < count) {
      CopyAsync<16>(stage.sums + column * 16 + 8 * half,
                    rows[column] + x.sums_offset + 32 * g + 16 * half);
    }
  }
}

// 1.5 * 2^23: an int32 below 2^22 in magnitude added to its bits is the float kMagic + the int.
inline constexpr int kMagicBits = 0x4B400000;
__device__ __forceinline__ float FromMagic(int bits) { return __int_as_float(bits) - 12582912.0F; }

// A warp's pair of tiles at one step, unpacked. Scales of spans of 16 are kept two in a word (rows
// g and g + 8): as ints they would not fit.
template <class Tile>
struct PairCodes {
  static constexpr int kSubBlocks = 256 / Tile::kSpan;
  static constexpr int kWords = Tile::kSpan / 8;
  std::uint32_t a[2][kSubBlocks][kWords];
};

// Fixes where a value is made. The compiler otherwise moves the unpacking, whose values are used in
// the loop over columns alone, into that loop.
__device__ __forceinline__ void MakeHere(std::uint32_t& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void MakeHere(int& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void MakeHere(float& value) { asm volatile("" : "+f"(value)); }

template <class Tile>
__device__ __forceinline__ void UnpackCodes(const typename Tile::Raw (&raw)[2],
                                            PairCodes<Tile>& codes) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int s = 0; s < PairCodes<Tile>::kSubBlocks; ++s) {
      Tile::Codes(raw[m], s, codes.a[m][s]);
#pragma unroll
      for (std::uint32_t& word : codes.a[m][s]) {
        MakeHere(word);
      }
    }
  }
}

// Where a lane (g, q) finds codes of column g among eight: sub-block s at offset[s % kOffsets] +
// 128
// * (s / kOffsets).
template <class Tile>
struct LaneOffsets {
  static constexpr int kOffsets = Tile::kSpan == 32 ? 4 : 8;
  int offset[kOffsets];

  __device__ LaneOffsets() {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int s = 0; s < kOffsets; ++s) {
      offset[s] = 256 * (lane / 4) + Tile::kSpan * (s ^ (lane / 4 % kOffsets)) +
                  lane % 4 * (Tile::kSpan / 4);
    }
  }
};

// The products of sub-block s with eight columns, plus `from`, for both tiles.
template <class Tile>
__device__ __forceinline__ void SubBlockProducts(const PairCodes<Tile>& codes,
                                                 const LaneOffsets<Tile>& lane,
                                                 const std::byte* columns, int s, int from,
                                                 int (&c)[2][4]) {
  constexpr int kOffsets = LaneOffsets<Tile>::kOffsets;
  const std::byte* at = columns + lane.offset[s % kOffsets] + 128 * (s / kOffsets);
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    c[m][0] = c[m][1] = c[m][2] = c[m][3] = from;
  }
  if constexpr (Tile::kSpan == 32) {
    const uint2 b = *reinterpret_cast<const uint2*>(at);
    Mma32(c[0], codes.a[0][s], b.x, b.y);
    Mma32(c[1], codes.a[1][s], b.x, b.y);
  } else {
    const std::uint32_t b = *reinterpret_cast<const std::uint32_t*>(at);
    Mma16(c[0], codes.a[0][s], b);
    Mma16(c[1], codes.a[1][s], b);
  }
}

// Integer scales of a pair: rows g and g + 8 of sub-block s.
template <class Tile>
struct PairScales {
  static constexpr int kSubBlocks = 256 / Tile::kSpan;
  static constexpr bool kPacked = Tile::kSpan == 16;
  int value[2][kSubBlocks][kPacked ? 1 : 2];

  __device__ explicit PairScales(const typename Tile::Raw (&raw)[2]) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int s = 0; s < kSubBlocks; ++s) {
        const int first = Tile::Scale(raw[m], s, 0);
        const int second = Tile::Scale(raw[m], s, 1);
        if constexpr (kPacked) {
          value[m][s][0] = static_cast<int>(
              __byte_perm(static_cast<unsigned>(first), static_cast<unsigned>(second), 0x5410));
        } else {
          value[m][s][0] = first;
          value[m][s][1] = second;
          MakeHere(value[m][s][1]);
        }
        MakeHere(value[m][s][0]);
      }
    }
  }

  // Volatile where packed, or the compiler takes them all out of the loop over columns.
  __device__ __forceinline__ void Get(int m, int s, int (&scale)[2]) const {
    if constexpr (kPacked) {
      asm volatile("bfe.s32 %0, %1, 0, 16;" : "=r"(scale[0]) : "r"(value[m][s][0]));
      asm volatile("shr.s32 %0, %1, 16;" : "=r"(scale[1]) : "r"(value[m][s][0]));
    } else {
      scale[0] = value[m][s][0];
      scale[1] = value[m][s][1];
    }
  }
};

// A step of a format whose activation groups have 256 values.
template <class Tile>
struct Pair256 {
  using Layout = StageLayout<Tile>;
  PairCodes<Tile> codes;
  PairScales<Tile> scales;
  float d[2][2];
  float min_scale[2][2];
  std::uint32_t mins[2][2];

  __device__ explicit Pair256(const typename Tile::Raw (&raw)[2]) : scales(raw) {
    UnpackCodes<Tile>(raw, codes);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        d[m][half] = Tile::D(raw[m], half);
        MakeHere(d[m][half]);
        if constexpr (Layout::kMins) {
          min_scale[m][half] = Tile::M(raw[m], half);
          mins[m][half] = Tile::Mins(raw[m], half, static_cast<int>(threadIdx.x % 4));
          MakeHere(min_scale[m][half]);
          MakeHere(mins[m][half]);
        }
      }
    }
  }

  // S of N3 as floats for columns 8n ..: mins times the sums of 16 codes, whose low six bits and
  // the rest go through the tensor cores as bytes.
  __device__ __forceinline__ void MinSums(const Layout& stage, std::int32_t n,
                                          float (&s)[2][4]) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const uint2 sums =
        *reinterpret_cast<const uint2*>(stage.sums + 16 * (8 * n + lane / 4) + lane % 4 * 4);
    const std::uint32_t low = __byte_perm(sums.x & 0x003F003FU, sums.y & 0x003F003FU, 0x6420);
    const std::uint32_t high = __byte_perm(sums.x >> 6, sums.y >> 6, 0x6420);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      int c_low[4] = {kMagicBits, kMagicBits, kMagicBits, kMagicBits};
      int c_high[4] = {};
      Mma16(c_low, mins[m], low);
      Mma16(c_high, mins[m], high);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[m][i] = FromMagic(c_low[i] + 64 * c_high[i]);
      }
    }
  }

  // y += t for columns 8n .. 8n + 7.
  __device__ __forceinline__ void Add(const Layout& stage, const LaneOffsets<Tile>& lane,
                                      std::int32_t n, float (&y)[2][4]) const {
    int sum[2][4];
#pragma unroll
    for (int s = 0; s < PairCodes<Tile>::kSubBlocks; ++s) {
      int c[2][4];
      SubBlockProducts<Tile>(codes, lane, stage.codes + 2048 * n, s, 0, c);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        int scale[2];
        scales.Get(m, s, scale);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int part = scale[i / 2] * c[m][i];
          sum[m][i] = s == 0 ? part : sum[m][i] + part;
        }
      }
    }
    const float2 a = *reinterpret_cast<const float2*>(stage.scales + 8 * n + threadIdx.x % 4 * 2);
    [[maybe_unused]] float s[2][4];
    if constexpr (Layout::kMins) {
      MinSums(stage, n, s);
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float product = static_cast<float>(sum[m][i]);
        float u = 0.0F;
        if constexpr (Layout::kMins) {
          u = ExactFma(d[m][i / 2], product, min_scale[m][i / 2] * s[m][i]);
        } else {
          u = d[m][i / 2] * product;
        }
        // N5's fma(a, u, +0) differs from a * u in the sign of a zero only, which y + t drops: y is
        // never -0.
        y[m][i] = y[m][i] + (i % 2 == 0 ? a.x : a.y) * u;
      }
    }
  }
};

// A step of a format whose activation groups have 32 values: eight groups to t, then y += t. Their
// integers stay below 2^22 (Q8_0: 520 K).
template <class Tile>
struct Pair32 {
  using Layout = StageLayout<Tile>;
  static constexpr bool kPairs = Tile::kForm == BlockForm::kPairScales;
  static constexpr int kSubBlocks = 256 / Tile::kSpan;
  PairCodes<Tile> codes;
  float d[2][kSubBlocks][2];

  __device__ explicit Pair32(const typename Tile::Raw (&raw)[2]) {
    UnpackCodes<Tile>(raw, codes);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int s = 0; s < kSubBlocks; ++s) {
        d[m][s][0] = Tile::D(raw[m], s, 0);
        d[m][s][1] = Tile::D(raw[m], s, 1);
        MakeHere(d[m][s][0]);
        MakeHere(d[m][s][1]);
      }
    }
  }

  __device__ __forceinline__ void Add(const Layout& stage, const LaneOffsets<Tile>& lane,
                                      std::int32_t n, float (&y)[2][4]) const {
    const float* scales = stage.scales + (8 * n + threadIdx.x % 4 * 2) * Layout::kScales;
    float t[2][4] = {};
#pragma unroll
    for (int block = 0; block < 8; ++block) {
      const float a[2] = {scales[block], scales[Layout::kScales + block]};
      const int s = kPairs ? 2 * block : block;
      int c[2][4];
      [[maybe_unused]] int second[2][4];
      SubBlockProducts<Tile>(codes, lane, stage.codes + 2048 * n, s, kMagicBits, c);
      if constexpr (kPairs) {
        SubBlockProducts<Tile>(codes, lane, stage.codes + 2048 * n, s + 1, kMagicBits, second);
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float u = d[m][s][i / 2] * FromMagic(c[m][i]);
          if constexpr (kPairs) {
            u = ExactFma(d[m][s + 1][i / 2], FromMagic(second[m][i]), u);
          }
          t[m][i] = ExactFma(a[i % 2], u, t[m][i]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        y[m][i] = y[m][i] + t[m][i];
      }
    }
  }
};

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
        ExpertMatrix(job, up, unit.expert) + static_cast<std::size_t>(tile) * steps * Tile::kBytes;
  }
}

// A lane's running results of one pair: [column group][tile] of four floats, lanes side by side.
struct RunningResults {
  float4* lane;

  __device__ __forceinline__ void Load(std::int32_t n, float (&y)[2][4]) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const float4 v = lane[(2 * n + m) * 32];
      y[m][0] = v.x, y[m][1] = v.y, y[m][2] = v.z, y[m][3] = v.w;
    }
  }
  __device__ __forceinline__ void Store(std::int32_t n, const float (&y)[2][4]) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      lane[(2 * n + m) * 32] = make_float4(y[m][0], y[m][1], y[m][2], y[m][3]);
    }
  }
};

// Shared memory: a stage a resident step, results of 8 warps (128 bytes a column each), a barrier a
// step. Where not all steps are resident, a warp has one pair, and the block goes on from stretch
// to stretch of steps together.
template <class Tile>
__device__ __forceinline__ void PromptBody(const PromptParameters& p, const PromptUnit& unit,
                                           std::byte* shared, const std::byte** rows) {
  using Layout = StageLayout<Tile>;
  using Pair = std::conditional_t<Tile::kGroup == 256, Pair256<Tile>, Pair32<Tile>>;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const std::int32_t steps = (p.k + 255) / 256;
  std::byte* after = shared + p.resident_steps * p.columns * Layout::kColumnBytes;
  const RunningResults results = {reinterpret_cast<float4*>(after + thread / 32 * p.columns * 128) +
                                  lane};
  auto* ready = reinterpret_cast<std::uint64_t*>(after + kPromptWarps * p.columns * 128);
  for (std::int32_t g = thread; g < steps; g += kPromptThreads) {
    InitBarrier(ready + g, kPromptThreads);
  }
  if (thread < p.columns) {
    rows[thread] = p.x.data + PromptRow(p, unit, thread) * p.x.row_bytes;
  }
  __syncthreads();
  const std::int32_t groups = (unit.count + 7) / 8;
  const std::int32_t end =
      min(PromptPairs(unit.job->n, unit.job->up != nullptr), (unit.block + 1) * p.block_pairs);
  const std::int32_t first_pair = unit.block * p.block_pairs + thread / 32;
  const std::byte* weight[2];
  typename Tile::Raw raw[2];
  if (first_pair < end) {
    FindPairTiles<Tile>(unit, steps, first_pair, weight);
    Tile::Load(weight[0], lane, raw[0]);
    Tile::Load(weight[1], lane, raw[1]);
  }
  const LaneOffsets<Tile> offsets;
  for (std::int32_t begin = 0; begin < steps; begin += p.resident_steps) {
    const std::int32_t stop = min(begin + p.resident_steps, steps);
    if (begin > 0) {
      __syncthreads();  // all are done with the last stretch
    }
    for (std::int32_t g = begin; g < stop; ++g) {
      CopyStage<Tile>(p.x, rows, g, 8 * groups, Layout(shared, p.columns, g - begin));
      ArriveAfterCopies(ready + g);
    }
    for (std::int32_t pair = first_pair; pair < end; pair += kPromptWarps) {
      for (std::int32_t g = begin; g < stop; ++g) {
        const Pair weights(raw);
        const bool more = g + 1 < steps || pair + kPromptWarps < end;
        if (g + 1 < steps) {
          weight[0] += Tile::kBytes;
          weight[1] += Tile::kBytes;
        } else if (more) {
          FindPairTiles<Tile>(unit, steps, pair + kPromptWarps, weight);
        }
        if (more) {
          Tile::Load(weight[0], lane, raw[0]);
          Tile::Load(weight[1], lane, raw[1]);
        }
        if (g + 2 < steps) {
          PrefetchTile<Tile>(weight[0] + Tile::kBytes);
          PrefetchTile<Tile>(weight[1] + Tile::kBytes);
        }
        if (pair == first_pair) {
          WaitBarrier(ready + g);
        }
        const Layout stage(shared, p.columns, g - begin);
#pragma unroll 1
        for (std::int32_t n = 0; n < groups; ++n) {
          float y[2][4] = {};
          if (g > 0) {
            results.Load(n, y);
          }
          weights.Add(stage, offsets, n, y);
          if (g + 1 < steps) {
            results.Store(n, y);
          } else {
            StoreColumns(unit, pair, n, y);
          }
        }
      }
    }
  }
}

// Grid: (blocks of pairs over all jobs, column blocks or expert tiles, parts of a tile).
template <int kType>
__global__ void __launch_bounds__(kPromptThreads, 1)
    PromptKernel(const __grid_constant__ PromptParameters p) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ const std::byte* rows[kPromptColumns];
  const PromptUnit unit = FindPromptUnit(p);
  if (unit.count > 0) {
    PromptBody<CardTile<kType>>(p, unit, shared, rows);
  }
}

template <int... types>
const PromptKernels* FindPromptKernelsOf(int ggml_type) {
  static constexpr PromptKernels kKernels[] = {
      {types, PromptKernel<types>, StageLayout<CardTile<types>>::kColumnBytes}...};
  for (const PromptKernels& kernels : kKernels) {
    if (kernels.type == ggml_type) {
      return &kernels;
    }
  }
  return nullptr;
}

}  // namespace bloomery::kernels::cuda
