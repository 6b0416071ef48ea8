// Inside CUDA sources: the kernel under prompt_linear.h for Q4_K on Hopper (wgmma, compute
// capability 9.0 alone). Same units, order and bits as prompt_tile.cuh.
//
// A sub-block's scale s = 8 s1 + s0 goes into the weights before the product: codes * s1 and codes
// * s0 are bytes below 106, so two int8 planes sum over all 256 values without a promotion between,
// and I = 8 I1 + I0. S comes of the mins and the sums of activations by mma.sync. A warpgroup makes
// a tile of 16 weight rows a warp by 64 (or 32) columns and 256 values at a time: unpack, 16 wgmma
// with the planes in registers and activations in shared memory, then the float end. What bounds it
// is issue, so three warpgroups share a multiprocessor: 168 registers a thread, hence planes of
// half a step at a time.
//
// Activations lie as panels of 128 values: [column][128 bytes] in the 128-byte swizzle. In each 32
// values, words 2i and 2i + 1 of 4 go to words i and i + 4: lane q of a tile holds values 8q ..
// 8q+7 where the hardware takes 4q .. 4q+3 and 16 + 4q .. from it. Sums of 16 lie as bytes, four of
// their low six bits beside four of the rest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/async_copy.cuh"
#include "kernels-common/linear/cuda/prompt_job.cuh"
#include "kernels-common/linear/cuda/prompt_tile.cuh"
#include "kernels-common/quant/cuda/card_form.cuh"

namespace bloomery::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// d (+)= a . b for 64 rows (16 a warp) by 2 * kRegisters columns and 32 values.
template <bool kAdd>
__device__ __forceinline__ void Wgmma(int (&d)[32], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
      "{%32,%33,%34,%35},%36,p;\n}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
        "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]),
        "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]),
        "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]),
        "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd ? 1 : 0));
}
template <bool kAdd>
__device__ __forceinline__ void Wgmma(int (&d)[16], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},"
      "{%16,%17,%18,%19},%20,p;\n}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
        "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]),
        "+r"(d[14]), "+r"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd ? 1 : 0));
}

__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// A matrix in shared memory, 128-byte swizzle, eight columns 1024 bytes from the next eight.
__device__ __forceinline__ std::uint64_t PanelDescriptor(std::uint32_t address) {
  return (address >> 4) | (std::uint64_t{1} << 16) | (std::uint64_t{64} << 32) |
         (std::uint64_t{1} << 62);
}

// Shared memory of kColumns columns: panels of all steps, scales, bytes of sums, results of all
// warps, row pointers.
template <int kColumns>
struct WgmmaLayout {
  std::byte* panels;
  float* scales;
  uint2* sums;
  float4* results;  // of this lane
  const std::byte** rows;

  __device__ WgmmaLayout(std::byte* shared, std::int32_t steps)
      : panels(shared),
        scales(reinterpret_cast<float*>(shared + steps * 256 * kColumns)),
        sums(reinterpret_cast<uint2*>(scales + steps * kColumns)),
        results(reinterpret_cast<float4*>(sums + steps * 4 * kColumns) +
                static_cast<int>(threadIdx.x / 32) * kColumns * 4 +
                static_cast<int>(threadIdx.x % 32)),
        rows(reinterpret_cast<const std::byte**>(
            reinterpret_cast<std::byte*>(sums + steps * 4 * kColumns) +
            kWgmmaResultBytes * kColumns)) {}
};

// All steps of all columns to shared memory, for the asynchronous proxy of wgmma to see.
template <int kColumns>
__device__ __forceinline__ void CopyPanels(const PromptParameters& p, const PromptUnit& unit,
                                           std::int32_t steps,
                                           const WgmmaLayout<kColumns>& layout) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kColumns) {
    layout.rows[thread] = p.x.data + PromptRow(p, unit, thread) * p.x.row_bytes;
  }
  __syncthreads();
  // A thread has the same word of every sixth column.
  const int word = thread % 64;
  const int s = word / 8;
  const int piece = 2 * (s % 4) + word % 2;
  for (int column = thread / 64; column < kColumns; column += kWgmmaThreads / 64) {
    std::byte* to = layout.panels + (s / 4) * kColumns * 128 + column * 128 +
                    (piece ^ (column % 8)) * 16 + word % 8 / 2 * 4;
    const std::byte* from = layout.rows[column] + 4 * word;
    for (std::int32_t g = 0; g < steps; ++g) {
      CopyAsync<4>(to + g * 256 * kColumns, from + 256 * g);
    }
  }
  if (thread < kColumns) {
    for (std::int32_t g = 0; g < steps; ++g) {
      CopyAsync<4>(layout.scales + g * kColumns + thread,
                   layout.rows[thread] + p.x.scales_offset + 4 * g);
    }
  }
  CommitCopies();
  for (int i = thread; i < steps * 4 * kColumns; i += kWgmmaThreads) {
    const int column = i / 4 % kColumns;
    const uint2 four = *reinterpret_cast<const uint2*>(layout.rows[column] + p.x.sums_offset +
                                                       32 * (i / (4 * kColumns)) + 8 * (i % 4));
    layout.sums[i] = make_uint2(__byte_perm(four.x & 0x003F003FU, four.y & 0x003F003FU, 0x6420),
                                __byte_perm(four.x >> 6, four.y >> 6, 0x6420));
  }
  WaitForCopies<0>();
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
}

template <int kColumns>
struct WgmmaSums {
  int upper[kColumns / 2];
  int lower[kColumns / 2];
};

// The scales of four sub-blocks of a row, kHalf 0 or 1 of a step, as bytes.
template <int kHalf>
__device__ __forceinline__ std::uint32_t FourScales(const std::uint32_t (&w)[4]) {
  return kHalf == 0 ? w[1] & 0x3F3F3F3FU : (w[3] & 0x0F0F0F0FU) | ((w[1] >> 2) & 0x30303030U);
}

// Products of the values 128 kHalf .. of a step with its panel at shared address `panel`. Returns
// when they are there, for their planes' registers are wanted next.
template <int kColumns, int kHalf>
__device__ __forceinline__ void MultiplyHalf(const CardTile<kQ4K>::Raw& raw, std::uint32_t panel,
                                             WgmmaSums<kColumns>& sums) {
  std::uint32_t upper[4][4];
  std::uint32_t lower[4][4];
  const std::uint32_t scales[2] = {FourScales<kHalf>(raw.rows.rows.w[0]),
                                   FourScales<kHalf>(raw.rows.rows.w[1])};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t s1 = (scales[half] >> 3) & 0x07070707U;
    const std::uint32_t s0 = scales[half] & 0x07070707U;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const std::uint32_t by1 = __byte_perm(s1, 0, 0x4440U + static_cast<unsigned>(s));
      const std::uint32_t by0 = __byte_perm(s0, 0, 0x4440U + static_cast<unsigned>(s));
#pragma unroll
      for (int i = half; i < 4; i += 2) {
        const std::uint32_t codes = Nibble32(raw.nibbles, 4 * kHalf + s, i);
        upper[s][i] = codes * by1;
        lower[s][i] = codes * by0;
      }
    }
  }
  WgmmaFence();
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const std::uint64_t b = PanelDescriptor(panel + kHalf * kColumns * 128) + 2U * s;
    if (kHalf == 0 && s == 0) {
      Wgmma<false>(sums.upper, upper[s], b);
      Wgmma<false>(sums.lower, lower[s], b);
    } else {
      Wgmma<true>(sums.upper, upper[s], b);
      Wgmma<true>(sums.lower, lower[s], b);
    }
  }
  WgmmaCommit();
}

// y += t for columns 8n .. 8n + 7 of a tile.
struct Q4KEnd {
  float d[2];
  float min_scale[2];
  std::uint32_t mins[2];

  __device__ explicit Q4KEnd(const CardTile<kQ4K>::Raw& raw) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      d[half] = CardTile<kQ4K>::D(raw, half);
      min_scale[half] = CardTile<kQ4K>::M(raw, half);
      mins[half] = CardTile<kQ4K>::Mins(raw, half, static_cast<int>(threadIdx.x % 4));
      MakeHere(d[half]);
      MakeHere(min_scale[half]);
      MakeHere(mins[half]);
    }
  }

  __device__ __forceinline__ float4 Add(const int* upper, const int* lower, uint2 sums, float2 a,
                                        float4 before) const {
    int high[4] = {};
    Mma16(high, mins, sums.y);
    int low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      low[i] = kMagicBits + 64 * high[i];
    }
    Mma16(low, mins, sums.x);
    float y[4] = {before.x, before.y, before.z, before.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto product = static_cast<float>(8 * upper[i] + lower[i]);
      const float u = ExactFma(d[i / 2], product, min_scale[i / 2] * FromMagic(low[i]));
      y[i] = y[i] + (i % 2 == 0 ? a.x : a.y) * u;
    }
    return make_float4(y[0], y[1], y[2], y[3]);
  }
};

// Where a lane's values of a tile of weight rows from `first` on go: element i of four is weight
// row g + 8 * (i / 2), column 2q + i % 2 of the eight columns that it is at.
struct TileOut {
  float* at;
  std::size_t stride;
  std::int32_t left;  // columns from this lane's first on that exist
  bool there[2];      // whether the weight rows exist

  __device__ TileOut(const PromptUnit& unit, std::int32_t first) {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    const std::int32_t column = lane % 4 * 2;
    const std::int32_t row = first + lane / 4;
    stride = unit.job->y_stride;
    at = unit.job->y + static_cast<std::size_t>(unit.first + column) * stride + row;
    left = unit.count - column;
    there[0] = row < unit.job->n;
    there[1] = row + 8 < unit.job->n;
  }
  __device__ __forceinline__ bool Has(int i) const { return i % 2 < left && there[i / 2]; }
  __device__ __forceinline__ float* Of(int i) const { return at + i % 2 * stride + 8 * (i / 2); }
  __device__ __forceinline__ void Next() {
    at += 8 * stride;
    left -= 8;
  }
  __device__ __forceinline__ void Read(float (&values)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[i] = Has(i) ? *Of(i) : 0.0F;
    }
  }
};

// Writes a warp's results of tile m of a pair. Gate's values wait in the output for up's, which the
// same thread makes.
__device__ __forceinline__ void StoreTile(const PromptUnit& unit, std::int32_t pair, std::int32_t m,
                                          const float4* results) {
  const PromptJob& job = *unit.job;
  const bool gate_up = job.up != nullptr;
  const bool up = gate_up && m == 1;
  const bool plain = gate_up || (job.scale == nullptr && job.bias == nullptr &&
                                 job.residual == nullptr && !job.gated);
  const std::int32_t first = 16 * (gate_up ? pair : 2 * pair + m);
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  TileOut out(unit, first);
  float gate[4] = {};
  if (up) {
    out.Read(gate);
  }
#pragma unroll 1
  for (std::int32_t n = 0; 8 * n < unit.count; ++n) {
    const float4 four = results[32 * n];
    float y[4] = {four.x, four.y, four.z, four.w};
    const TileOut here = out;
    out.Next();
    if (up) {
      float next[4];
      out.Read(next);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        y[i] = ExactSilu(gate[i]) * y[i];
        gate[i] = next[i];
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (here.Has(i)) {
        *here.Of(i) =
            plain ? y[i]
                  : PromptValue(job, false,
                                static_cast<std::size_t>(unit.first + 8 * n + lane % 4 * 2 + i % 2),
                                first + lane / 4 + 8 * (i / 2), y[i]);
      }
    }
  }
}

template <int kColumns>
__device__ __forceinline__ void WgmmaBody(const PromptParameters& p, const PromptUnit& unit,
                                          std::byte* shared) {
  using Tile = CardTile<kQ4K>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto warp = static_cast<std::int32_t>(threadIdx.x / 32);
  const std::int32_t steps = (p.k + 255) / 256;
  const WgmmaLayout<kColumns> layout(shared, steps);
  const std::int32_t end =
      min(PromptPairs(unit.job->n, unit.job->up != nullptr), (unit.block + 1) * p.block_pairs);
  // The four warps of a warpgroup go together: pairs beyond the matrix repeat its last tiles and
  // store nothing.
  std::int32_t quad = unit.block * p.block_pairs + warp / 4 * 4;
  const std::byte* weight[2];
  Tile::Raw raw;
  FindPairTiles<Tile>(unit, steps, quad + warp % 4, weight);
  const std::byte* next = weight[0];
  Tile::Load(next, lane, raw);
  CopyPanels<kColumns>(p, unit, steps, layout);
  const std::uint32_t panels = SharedAddress(shared);
  for (; quad < end; quad += kWgmmaWarps) {
    const std::int32_t pair = quad + warp % 4;
#pragma unroll 1
    for (std::int32_t m = 0; m < 2; ++m) {
#pragma unroll 1
      for (std::int32_t g = 0; g < steps; ++g) {
        WgmmaSums<kColumns> sums;
        const Q4KEnd tile_end(raw);
        const std::uint32_t panel = panels + static_cast<std::uint32_t>(g * 256 * kColumns);
        MultiplyHalf<kColumns, 0>(raw, panel, sums);
        WgmmaWait();
        MultiplyHalf<kColumns, 1>(raw, panel, sums);
        // The next turn's weights: of the next step, the other tile, or the next pair.
        if (g + 1 < steps) {
          next += Tile::kBytes;
          Tile::Load(next, lane, raw);
        } else if (m == 0) {
          next = weight[1];
          Tile::Load(next, lane, raw);
        } else if (quad + kWgmmaWarps < end) {
          FindPairTiles<Tile>(unit, steps, pair + kWgmmaWarps, weight);
          next = weight[0];
          Tile::Load(next, lane, raw);
        }
        uint2 min_sums[kColumns / 8];
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          min_sums[n] = layout.sums[g * 4 * kColumns + 32 * n + lane];
          MakeHere(min_sums[n].x);
          MakeHere(min_sums[n].y);
        }
        WgmmaWait();
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i) {
          MakeHere(sums.upper[i]);
          MakeHere(sums.lower[i]);
        }
        const float* scales = layout.scales + g * kColumns + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          float4* const own = layout.results + 32 * n;
          const float4 before = g > 0 ? *own : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
          *own = tile_end.Add(sums.upper + 4 * n, sums.lower + 4 * n, min_sums[n],
                              *reinterpret_cast<const float2*>(scales + 8 * n), before);
        }
      }
      StoreTile(unit, pair, m, layout.results);
    }
  }
}

#endif

// Where the image is not for 9.0a the kernel is never chosen (prompt_linear.cu asks for its
// version).
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    Q4KWgmmaKernel(const __grid_constant__ PromptParameters p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::byte shared[];
  const PromptUnit unit = FindPromptUnit(p);
  if (unit.count > 32) {
    WgmmaBody<64>(p, unit, shared);
  } else if (unit.count > 0) {
    WgmmaBody<32>(p, unit, shared);
  }
#endif
}

}  // namespace bloomery::kernels::cuda
