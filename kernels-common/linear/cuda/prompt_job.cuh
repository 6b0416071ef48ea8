// Inside CUDA sources: what the kernels under prompt_linear.h are told, which part of it is a
// block's, and how a warp stores its results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels-common/cuda/launch.cuh"
#include "kernels-common/cuda/rows.cuh"
#include "kernels-common/exact_math/exact_math.h"
#include "kernels-common/linear/cuda/rows_linear.h"
#include "kernels-common/moe/cuda/prompt_experts.h"
#include "kernels-common/quant/cuda/quantise.cuh"

namespace bloomery::kernels::cuda {

inline constexpr int kPromptColumns = kTilePlaces;  // of a block, at most

// One matrix of a launch, or one bank (gate with up, or down).
struct PromptJob {
  const std::byte* weight;
  const std::byte* up;    // gate/up only
  const std::byte* more;  // CardWeight::more of both, or null
  const std::byte* up_more;
  std::int32_t frames;
  std::size_t row_bytes;  // float formats
  std::size_t up_row_bytes;
  std::size_t expert_bytes;
  std::size_t up_expert_bytes;
  std::int32_t n;
  std::int32_t first_block;  // of blockIdx.x
  const float* scale;
  const float* bias;
  const float* residual;
  std::size_t residual_stride;
  float* y;
  std::size_t y_stride;
  bool gated;  // up alone: y holds gate's values, silu of which the results are multiplied to
};

struct PromptParameters {
  PromptJob jobs[kRowsMatricesMax];
  std::int32_t count;
  std::int32_t k;
  QuantisedView x;      // integer formats
  const float* x_rows;  // float formats
  std::size_t x_stride;
  std::int32_t block_pairs;     // pairs of tiles of a block
  std::int32_t resident_steps;  // in shared memory at a time; all, or a block has a pair a warp
  RowBound rows;                // dense
  std::int32_t columns;         // of a block, at most kPromptColumns; divides by 8
  const ExpertTile* tiles;      // grouped; null: dense
  const std::int32_t* tile_count;
  const std::int32_t* place_rows;  // gate/up: activation row of a place; null: the place itself
};

// The matrix of an expert.
__device__ __forceinline__ const std::byte* ExpertMatrix(const PromptJob& job, bool up,
                                                         std::int32_t expert) {
  const std::byte* base = up ? job.up : job.weight;
  if (job.more != nullptr && expert >= job.frames) {
    base = up ? job.up_more : job.more;
    expert -= job.frames;
  }
  return base + static_cast<std::size_t>(expert) * (up ? job.up_expert_bytes : job.expert_bytes);
}

using PromptKernelPointer = void (*)(PromptParameters);

// The kernel of an integer type: eight warps a block; column_bytes of shared memory for a column
// and step of 256 values, and kPromptColumnBytes for a column.
struct PromptKernels {
  int type;
  PromptKernelPointer kernel;
  std::int32_t column_bytes;
};
inline constexpr int kPromptWarps = 8;
inline constexpr int kPromptThreads = 32 * kPromptWarps;
inline constexpr std::int32_t kPromptColumnBytes = 128 * kPromptWarps;

// The kernel of a float type: four warps a block, a pair each, kPromptColumns columns.
inline constexpr int kFloatWarps = 4;
inline constexpr int kFloatThreads = 32 * kFloatWarps;

// By type; null where a file has none for it (prompt_kernels_*.cu).
const PromptKernels* FindPromptKernelsK(int ggml_type);
const PromptKernels* FindPromptKernels32(int ggml_type);
const PromptKernels* FindPromptKernelsIq(int ggml_type);
PromptKernelPointer FindFloatPromptKernel(int ggml_type);
// The kernel of passes of many rows, where this device has one of the type (prompt_wgmma.cuh).
PromptKernelPointer FindWgmmaKernel(int ggml_type);
inline constexpr int kWgmmaWarps = 12;
inline constexpr int kWgmmaThreads = 32 * kWgmmaWarps;
inline constexpr std::int32_t kWgmmaColumnBytes = 256 + 4 + 32;      // of a column and step
inline constexpr std::int32_t kWgmmaResultBytes = 64 * kWgmmaWarps;  // of a column

// A block's share of the work.
struct PromptUnit {
  const PromptJob* job;
  std::int32_t block;  // of the job's weight rows
  std::int32_t expert;
  std::int32_t first;  // output row of the first column
  std::int32_t count;  // columns
};

// The block's unit; a count of 0 or less: nothing to do. The grid is (blocks of pairs over all
// jobs, column blocks or expert tiles, parts of a tile). Waits for the launch's inputs.
__device__ __forceinline__ PromptUnit FindPromptUnit(const PromptParameters& p) {
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  std::int32_t j = 0;
  while (j + 1 < p.count && block >= p.jobs[j + 1].first_block) {
    ++j;
  }
  PromptUnit unit = {&p.jobs[j], block - p.jobs[j].first_block, 0, 0, 0};
  const auto y = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t part = static_cast<std::int32_t>(blockIdx.z) * p.columns;
  WaitForInputs();
  AllowNext();
  if (p.tiles == nullptr) {
    unit.first = y * p.columns;
    unit.count = min(p.columns, LiveRows(p.rows) - unit.first);
  } else if (y < *p.tile_count) {
    const ExpertTile tile = p.tiles[y];
    unit.expert = tile.expert;
    unit.first = tile.first + part;
    unit.count = min(p.columns, tile.count - part);
  }
  return unit;
}

// A warp makes pairs of tiles of 16 weight rows: neighbours, or (gate/up) the same of both
// matrices.
__host__ __device__ constexpr std::int32_t PromptPairs(std::int32_t n, bool gate_up) {
  return gate_up ? (n + 15) / 16 : (n + 31) / 32;
}

// The activation row of a column; columns that do not exist repeat the last.
__device__ __forceinline__ std::size_t PromptRow(const PromptParameters& p, const PromptUnit& unit,
                                                 std::int32_t column) {
  const std::int32_t place = unit.first + min(column, unit.count - 1);
  return static_cast<std::size_t>(p.place_rows == nullptr ? place : p.place_rows[place]);
}

// What a linear does after its products; plain says that it is nothing.
__device__ __forceinline__ float PromptValue(const PromptJob& job, bool plain, std::size_t row,
                                             std::int32_t n, float value) {
  if (plain) {
    return value;
  }
  if (job.gated) {
    return ExactSilu(job.y[row * job.y_stride + n]) * value;
  }
  if (job.scale != nullptr) {
    value *= *job.scale;
  }
  if (job.bias != nullptr) {
    value += job.bias[n];
  }
  return job.residual == nullptr ? value : job.residual[row * job.residual_stride + n] + value;
}

// Writes a warp's results of a pair for columns 8n .. 8n + 7: element i of tile m is weight row g +
// 8
// * (i / 2), column 8n + 2q + i % 2.
__device__ __forceinline__ void StoreColumns(const PromptUnit& unit, std::int32_t pair,
                                             std::int32_t n, const float (&y)[2][4]) {
  const PromptJob& job = *unit.job;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const bool gate_up = job.up != nullptr;
  const std::int32_t n0 = (gate_up ? 16 : 32) * pair + lane / 4;
  const bool plain =
      job.scale == nullptr && job.bias == nullptr && job.residual == nullptr && !job.gated;
#pragma unroll
  for (int odd = 0; odd < 2; ++odd) {
    const std::int32_t column = 8 * n + 2 * (lane % 4) + odd;
    if (column >= unit.count) {
      continue;
    }
    const auto row = static_cast<std::size_t>(unit.first + column);
    float* out = job.y + row * job.y_stride + n0;
    if (gate_up) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (n0 + 8 * half < job.n) {
          out[8 * half] = ExactSilu(y[0][2 * half + odd]) * y[1][2 * half + odd];
        }
      }
      continue;
    }
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      if (n0 + 8 * part < job.n) {
        out[8 * part] =
            PromptValue(job, plain, row, n0 + 8 * part, y[part / 2][2 * (part % 2) + odd]);
      }
    }
  }
}

}  // namespace bloomery::kernels::cuda
