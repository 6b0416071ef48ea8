// Inside CUDA sources: what the kernels of RowsLinear get, and the beginning that they share: the
// live rows, RMS norm, quantisation, side outputs.
#pragma once

#include "kernels-common/linear/cuda/row_codes.cuh"
#include "kernels-common/linear/cuda/rows_linear.h"

namespace bloomery::kernels::cuda {

struct RowsMatrix {
  const std::byte* data;
  std::size_t row_bytes;  // float formats
  const float* scale;
  const float* bias;
  const float* residual;
  std::size_t residual_stride;
  float* y;
  std::size_t y_stride;
  std::int32_t type;
  std::int32_t n;
  std::int32_t first_unit;
  std::int32_t tile_bytes;  // integer formats
};

struct RowsParams {
  const float* x;
  std::size_t x_stride;
  const std::int32_t* row_map;
  const std::int32_t* live;
  const float* norm_weight;
  float eps;
  std::int32_t k;
  std::int32_t groups;     // of 256
  std::int32_t first_row;  // of the pass: where shared memory does not hold all rows at once
  std::int32_t rows;
  std::int32_t count;
  std::int32_t units;
  // Warps of a block: `slots` row tiles at a time, each by `parts` warps that share its groups.
  std::int32_t slots;
  std::int32_t parts;
  // Tiles that a warp has in flight, and the bytes between them.
  std::int32_t stages;
  std::int32_t tile_stride;
  // Dynamic shared memory: row codes first, then these, in bytes.
  std::int32_t tiles_at;
  std::int32_t norm_at;
  std::int32_t stage_at;  // 0: input rows are read from device memory each time
  std::int32_t partial_at;
  RowCodesLayout layout;
  QuantisedView normed;
  float* normed_f32;
  RowsMatrix matrices[kRowsMatricesMax];
};

__device__ __forceinline__ int MatrixOfUnit(const RowsParams& p, int unit) {
  int m = 0;
  while (m + 1 < p.count && unit >= p.matrices[m + 1].first_unit) ++m;
  return m;
}

// Rows of this launch that live; after WaitForInputs.
__device__ __forceinline__ int LiveRows(const RowsParams& p) {
  return p.live == nullptr ? p.rows : max(0, min(p.rows, *p.live - p.first_row));
}

__device__ __forceinline__ const float* InputRow(const RowsParams& p, int row) {
  row += p.first_row;
  const int source = p.row_map == nullptr ? row : p.row_map[row];
  return p.x + static_cast<std::size_t>(source) * p.x_stride;
}

// Stores an output: the sum, then what the file and the residual add.
__device__ __forceinline__ void StoreOutput(const RowsParams& p, const RowsMatrix& m, float y,
                                            int row, int n) {
  const auto at = static_cast<std::size_t>(p.first_row + row);
  if (m.scale != nullptr) y *= *m.scale;
  if (m.bias != nullptr) y += m.bias[n];
  if (m.residual != nullptr) y = m.residual[at * m.residual_stride + n] + y;
  m.y[at * m.y_stride + n] = y;
}

// Norm weights to shared memory, before WaitForInputs.
__device__ __forceinline__ void StageNormWeights(const RowsParams& p, float* weights) {
  if (p.norm_weight == nullptr) return;
  for (int i = static_cast<int>(threadIdx.x); i < p.k / 4; i += static_cast<int>(blockDim.x)) {
    reinterpret_cast<float4*>(weights)[i] = reinterpret_cast<const float4*>(p.norm_weight)[i];
  }
}

// Side outputs of one stretch of a row.
__device__ __forceinline__ void StoreSide(const RowsParams& p, const float (&v)[8], int row,
                                          int start) {
  const int first = start + 8 * static_cast<int>(threadIdx.x % 32);
  row += p.first_row;
  if (p.normed.data != nullptr) {
    QuantiseStretch(v, start, p.normed,
                    p.normed.data + static_cast<std::size_t>(row) * p.normed.row_bytes);
  }
  if (p.normed_f32 != nullptr && first < p.k) {
    float* out = p.normed_f32 + static_cast<std::size_t>(row) * p.k + first;
    *reinterpret_cast<float4*>(out) = make_float4(v[0], v[1], v[2], v[3]);
    *reinterpret_cast<float4*>(out + 4) = make_float4(v[4], v[5], v[6], v[7]);
  }
}

// Norms a lane's eight values of a row, from `first` on.
__device__ __forceinline__ void NormStretch(const RowsParams& p, const float* norm_weights,
                                            float factor, int first, float (&v)[8]) {
  if (p.norm_weight == nullptr) return;
  float w[8];
  LoadStretch(norm_weights, first, p.k, w);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = v[i] * factor * w[i];
}

// Input rows to shared memory, some at a time: their loads are on their way together, where one
// after another each would wait for the one before.
__device__ __forceinline__ void StageRows(const RowsParams& p, float* stage, int rows) {
  constexpr int kSome = 4;
  const int quads = p.k / 4;
  for (int i = static_cast<int>(threadIdx.x); i < quads; i += static_cast<int>(blockDim.x)) {
    for (int first = 0; first < rows; first += kSome) {
      float4 v[kSome];
#pragma unroll
      for (int j = 0; j < kSome; ++j) {
        v[j] = reinterpret_cast<const float4*>(InputRow(p, min(first + j, rows - 1)))[i];
      }
#pragma unroll
      for (int j = 0; j < kSome; ++j) {
        if (first + j < rows) reinterpret_cast<float4*>(stage)[(first + j) * quads + i] = v[j];
      }
    }
  }
}

// All rows, normed and quantised, into shared memory; all threads of the block, after
// WaitForInputs and StageNormWeights. The caller synchronises afterwards. With a norm, rows are
// staged in shared memory where they fit, so that they are read once; each warp norms its part of
// one row, and works out the row's factor for itself.
template <int kGroup>
__device__ __forceinline__ void MakeRowCodes(const RowsParams& p, std::byte* shared, int rows) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  const RowCodes out = {shared, p.layout};
  const auto* norm_weights = reinterpret_cast<const float*>(shared + p.norm_at);
  const bool norm = p.norm_weight != nullptr;
  const bool staged = p.stage_at != 0;
  auto* stage = reinterpret_cast<float*>(shared + p.stage_at);
  if (norm) {
    if (staged) StageRows(p, stage, rows);
    __syncthreads();
  }
  const bool side = blockIdx.x == 0 && (p.normed.data != nullptr || p.normed_f32 != nullptr);
  const int team = max(1, warps / rows);  // warps of a row
  for (int row = warp / team; row < rows; row += max(1, warps / team)) {
    if (warp % team >= p.groups) continue;
    const float* x = norm && staged ? stage + row * p.k : InputRow(p, row);
    const float factor = norm ? NormFactor(x, p.k, p.eps) : 1.0F;
    for (int group = warp % team; group < p.groups; group += team) {
      const int start = 256 * group;
      const int first = start + 8 * static_cast<int>(threadIdx.x % 32);
      float v[8];
      LoadStretch(x, first, p.k, v);
      NormStretch(p, norm_weights, factor, first, v);
      StoreStretch<kGroup>(v, out, row, start);
      if (side) StoreSide(p, v, row, start);
    }
  }
}

// rows_float.cu
cudaError_t PrepareRowsFloat();
cudaError_t RowsFloat(const Launch& launch, RowsParams& params);

}  // namespace bloomery::kernels::cuda
