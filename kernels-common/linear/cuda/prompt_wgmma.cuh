// Inside CUDA sources: the kernel under prompt_linear.h for Q4_K on Hopper (wgmma, compute
// capability 9.0 alone). Same units, order and bits as prompt_tile.cuh.
//
// A sub-block's scale s = 8 s1 + s0 goes into the weights before the product: codes * s1 and codes
// * s0 are bytes below 106, so two int8 planes sum over all 256 values without a promotion between,
// and I = 8 I1 + I0. A third plane, the min of each sub-block in all of its 32 values, makes S. A
// warpgroup makes a tile of 16 weight rows a warp by 64 (or 32) columns at a time: unpack, 24 wgmma
// with the planes in registers and activations in shared memory, then the float end.
//
// Activations lie as panels of 128 values: [column][128 bytes] in the 128-byte swizzle. In each 32
// values, words 2i and 2i + 1 of 4 go to words i and i + 4: lane q of a tile holds values 8q ..
// 8q+7 where the hardware takes 4q .. 4q+3 and 16 + 4q .. from it.
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
__device__ __forceinline__ std::uint64_t PanelDescriptor(const std::byte* panel) {
  return (static_cast<std::uint64_t>(SharedAddress(panel) & 0x3FFFFU) >> 4) |
         (std::uint64_t{1} << 16) | (std::uint64_t{64} << 32) | (std::uint64_t{1} << 62);
}

// The three planes of a tile at one step, and its float scales.
struct Q4KPlanes {
  std::uint32_t upper[8][4];  // codes * s1
  std::uint32_t lower[8][4];  // codes * s0
  std::uint32_t mins[8][2];   // rows g and g + 8
  float d[2];
  float m[2];

  __device__ explicit Q4KPlanes(const CardTile<kQ4K>::Raw& raw) {
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      std::uint32_t codes[4];
      CardTile<kQ4K>::Codes(raw, s, codes);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto scale = static_cast<std::uint32_t>(CardTile<kQ4K>::Scale(raw, s, half));
        // Mins gives a lane those of sums of 16 from 4q on: the words of q = 0 and 2 together hold
        // every sub-block's.
        const std::uint32_t four = CardTile<kQ4K>::Mins(raw, half, s / 2);
        mins[s][half] = __byte_perm(four, 0, s % 2 == 0 ? 0x0000 : 0x2222);
        upper[s][half] = codes[half] * (scale >> 3);
        upper[s][half + 2] = codes[half + 2] * (scale >> 3);
        lower[s][half] = codes[half] * (scale & 7U);
        lower[s][half + 2] = codes[half + 2] * (scale & 7U);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      d[half] = CardTile<kQ4K>::D(raw, half);
      m[half] = CardTile<kQ4K>::M(raw, half);
    }
  }
};

// Shared memory of kColumns columns: panels of all steps, scales, results of 8 warps, row pointers.
template <int kColumns>
struct WgmmaLayout {
  std::byte* panels;
  float* scales;
  float4* results;  // of this lane
  const std::byte** rows;

  __device__ WgmmaLayout(std::byte* shared, std::int32_t steps)
      : panels(shared),
        scales(reinterpret_cast<float*>(shared + steps * 256 * kColumns)),
        results(reinterpret_cast<float4*>(scales + steps * kColumns) +
                static_cast<int>(threadIdx.x / 32) * kColumns * 8 +
                static_cast<int>(threadIdx.x % 32)),
        rows(reinterpret_cast<const std::byte**>(
            reinterpret_cast<std::byte*>(scales + steps * kColumns) +
            kPromptColumnBytes * kColumns)) {}
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
  // A thread has the same word of every fourth column.
  const int word = thread % 64;
  const int s = word / 8;
  const int piece = 2 * (s % 4) + word % 2;
  for (int column = thread / 64; column < kColumns; column += kPromptThreads / 64) {
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
  WaitForCopies<0>();
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
}

template <int kColumns>
struct WgmmaSums {
  int upper[kColumns / 2];
  int lower[kColumns / 2];
  int mins[kColumns / 2];
};

// The planes' products with a step's panels.
template <int kColumns>
__device__ __forceinline__ void MultiplyPlanes(const Q4KPlanes& planes, const std::byte* panels,
                                               WgmmaSums<kColumns>& sums) {
  WgmmaFence();
#pragma unroll
  for (int s = 0; s < 8; ++s) {
    const std::uint64_t b =
        PanelDescriptor(panels + (s / 4) * kColumns * 128) + 2 * static_cast<unsigned>(s % 4);
    const std::uint32_t mins[4] = {planes.mins[s][0], planes.mins[s][1], planes.mins[s][0],
                                   planes.mins[s][1]};
    if (s == 0) {
      Wgmma<false>(sums.upper, planes.upper[s], b);
      Wgmma<false>(sums.lower, planes.lower[s], b);
      Wgmma<false>(sums.mins, mins, b);
    } else {
      Wgmma<true>(sums.upper, planes.upper[s], b);
      Wgmma<true>(sums.lower, planes.lower[s], b);
      Wgmma<true>(sums.mins, mins, b);
    }
  }
  WgmmaCommit();
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
  Tile::Load(weight[0], lane, raw);
  CopyPanels<kColumns>(p, unit, steps, layout);
  for (; quad < end; quad += kPromptWarps) {
    const std::int32_t pair = quad + warp % 4;
#pragma unroll 1
    for (std::int32_t turn = 0; turn < 2 * steps; ++turn) {
      const std::int32_t m = turn % 2;
      const std::int32_t g = turn / 2;
      const Q4KPlanes planes(raw);
      WgmmaSums<kColumns> sums;
      MultiplyPlanes<kColumns>(planes, layout.panels + g * 256 * kColumns, sums);
      const float d[2] = {planes.d[0], planes.d[1]};
      const float min_scale[2] = {planes.m[0], planes.m[1]};
      // The next turn's weights: the other tile of this step, the first of the next step, or of the
      // next pair.
      if (m == 0) {
        Tile::Load(weight[1], lane, raw);
      } else if (g + 1 < steps) {
        weight[0] += Tile::kBytes;
        weight[1] += Tile::kBytes;
        Tile::Load(weight[0], lane, raw);
        PrefetchTile<Tile>(weight[1]);
      } else if (quad + kPromptWarps < end) {
        FindPairTiles<Tile>(unit, steps, pair + kPromptWarps, weight);
        Tile::Load(weight[0], lane, raw);
        PrefetchTile<Tile>(weight[1]);
      }
      WgmmaWait();
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) {
        MakeHere(sums.upper[i]);
        MakeHere(sums.lower[i]);
        MakeHere(sums.mins[i]);
      }
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        float4* const own = layout.results + (2 * n + m) * 32;
        const float4 before = g > 0 ? *own : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        const float2 a =
            *reinterpret_cast<const float2*>(layout.scales + g * kColumns + 8 * n + lane % 4 * 2);
        float y[4] = {before.x, before.y, before.z, before.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const auto product =
              static_cast<float>(8 * sums.upper[4 * n + i] + sums.lower[4 * n + i]);
          const auto min_sum = static_cast<float>(sums.mins[4 * n + i]);
          const float u = ExactFma(d[i / 2], product, min_scale[i / 2] * min_sum);
          y[i] = y[i] + (i % 2 == 0 ? a.x : a.y) * u;
        }
        *own = make_float4(y[0], y[1], y[2], y[3]);
      }
    }
    for (std::int32_t n = 0; 8 * n < unit.count; ++n) {
      const RunningResults results = {layout.results};
      float y[2][4];
      results.Load(n, y);
      StoreColumns(unit, pair, n, y);
    }
  }
}

#endif

// Where the image is not for 9.0a the kernel is never chosen (prompt_linear.cu asks for its
// version).
__global__ void __launch_bounds__(kPromptThreads, 1)
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
