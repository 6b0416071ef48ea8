// q, and the keys and values of the rows of this pass (rows_attention.cuh).
#pragma once

#include "kernels-common/attention/cuda/rows_attention.cuh"

namespace bloomery::kernels::cuda {

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::LoadEarly(bool in) {
  const HeadInputs& inputs = p_.inputs;
  const int thread = static_cast<int>(threadIdx.x);
  const int half = inputs.n_rot / 2;
  const int dim = p_.attention.key_dim;
  early_position_ = in ? p_.attention.rows.position[lane_] : 0;
  early_frequency_ = half == 0       ? 0.0
                     : thread < half ? inputs.frequencies[thread]
                                     : inputs.frequencies[thread % half];
  early_q_norm_ = inputs.q_norm != nullptr && thread < dim ? inputs.q_norm[thread] : 1.0F;
  early_k_norm_ = inputs.k_norm != nullptr && thread < dim ? inputs.k_norm[thread] : 1.0F;
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::PrepareConstants() {
  const HeadInputs& in = p_.inputs;
  const int half = in.n_rot / 2;
  auto* turns = reinterpret_cast<float2*>(shared_ + p_.turn_at);
  const int fresh = row_ - first_fresh_ + 1;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int first = 0; first < fresh * half; first += kRowsThreads) {
    const int item = first + thread;
    const int row = item < half ? 0 : item / half;
    const int position = __shfl_sync(0xFFFFFFFFU, early_position_, first_fresh_ + row);
    if (item < fresh * half) {
      const double frequency = first == 0 ? early_frequency_ : in.frequencies[item % half];
      turns[item] = RopeTurn(position, frequency, in.magnitude);
    }
  }
  float* norms = Floats(p_.norm_at);
  const int dim = p_.attention.key_dim;
#pragma unroll 1
  for (int i = thread; i < dim; i += kRowsThreads) {
    norms[i] = i == thread ? early_q_norm_ : in.q_norm == nullptr ? 1.0F : in.q_norm[i];
    norms[dim + i] = i == thread ? early_k_norm_ : in.k_norm == nullptr ? 1.0F : in.k_norm[i];
  }
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::FusedHeads() {
  const int fresh = row_ - first_fresh_ + 1;
  PrepareConstants();
  if (p_.attention.key_dim == kQuickDim && p_.attention.value_dim == kQuickDim &&
      p_.inputs.n_rot == kQuickDim && p_.attention.window == 0 &&
      heads_ + 2 * fresh <= 2 * kRowsWarps) {
    __syncthreads();
    QuickHeads(fresh);
    return;
  }
  WaitForInputs();
  LoadHeads();
  FinishHeads();
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::LoadHeads() {
  const CardAttention& a = p_.attention;
  const float* q = a.q + row_ * a.q_stride + first_head_ * a.key_dim;
  CopyFloats(Query(), q, heads_ * a.key_dim);
  if (Fused()) {
    const HeadInputs& in = p_.inputs;
    for (int row = first_fresh_; row <= row_; ++row) {
      CopyFloats(FreshKey(row), in.k + row * in.k_stride + kv_head_ * a.key_dim, a.key_dim);
      CopyFloats(FreshValue(row), in.v + row * in.v_stride + kv_head_ * a.value_dim, a.value_dim);
    }
  }
  __syncthreads();
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::QuickHeads(int fresh) {
  // Where the first window is two slices, they are complete at the barrier that ends this.
  const bool direct = kType != KvType::kQ8_0 && p_.slices == 2 && p_.stages > 2;
  constexpr int kParts = kQuickDim / kWarpLanes;
  const CardAttention& a = p_.attention;
  const HeadInputs& in = p_.inputs;
  int row[2];
  bool query[2];
  bool value[2];
  const float* source[2];
  float weight[2][kParts];
  float2 turn[2][kParts / 2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int task = warp_ + i * kRowsWarps;
    query[i] = task < heads_;
    value[i] = task >= heads_ + fresh;
    row[i] = query[i] ? row_ : min(first_fresh_ + (task - heads_) % fresh, row_);
    source[i] = query[i]   ? a.q + row_ * a.q_stride + (first_head_ + task) * kQuickDim
                : value[i] ? in.v + row[i] * in.v_stride + kv_head_ * kQuickDim
                           : in.k + row[i] * in.k_stride + kv_head_ * kQuickDim;
    const float* norms = Floats(p_.norm_at) + (query[i] ? 0 : kQuickDim);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      weight[i][part] = norms[part * kWarpLanes + lane_];
    }
    const auto* turns = reinterpret_cast<const float2*>(shared_ + p_.turn_at) +
                        (row[i] - first_fresh_) * (kQuickDim / 2);
#pragma unroll
    for (int part = 0; part < kParts / 2; ++part) {
      turn[i][part] = turns[part * kWarpLanes + lane_];
    }
  }
  WaitForInputs();
  float x[2][kParts];
#pragma unroll
  for (int i = 0; i < 2 * kParts; ++i) {
    x[i / kParts][i % kParts] = __ldcg(source[i / kParts] + i % kParts * kWarpLanes + lane_);
  }
  float r[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    r[i] = SquaresOfParts(x[i]);
  }
#pragma unroll
  for (int step = kWarpLanes / 2; step > 0; step /= 2) {
    r[0] += __shfl_xor_sync(0xFFFFFFFFU, r[0], step);
    r[1] += __shfl_xor_sync(0xFFFFFFFFU, r[1], step);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    r[i] =
        ExactInverseSqrt(r[i] / static_cast<float>(kQuickDim) + (query[i] ? in.q_eps : in.k_eps));
    const int task = warp_ + i * kRowsWarps;
    if (task >= heads_ + 2 * fresh) continue;
    const int key = index_ - (row_ - row[i]) - split_ * kWindow;
    const bool placed = direct && key >= 0 && key < kWindow;
    if (value[i]) {
#pragma unroll
      for (float& each : x[i]) {
        each *= in.v_scale;
      }
      EncodeParts(x[i], FreshValueRow(row[i]));
      if (placed) {
        EncodeParts(x[i], Stage(1) + key * ValueRowBytes());
      }
      continue;
    }
    if ((query[i] ? in.q_norm : in.k_norm) != nullptr) {
      NormParts(x[i], r[i], weight[i]);
    }
    TurnParts(x[i], turn[i]);
    if (query[i]) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        Query()[task * kQuickDim + part * kWarpLanes + lane_] = x[i][part];
      }
    } else {
      EncodeParts(x[i], FreshKeyRow(row[i]));
      if (placed) {
        EncodeParts(x[i], Stage(0) + key * kStageKey);
      }
    }
  }
  if (direct) {
    WaitForCopiesUpTo<6>(p_.stages - 3);
    ready_ = 2;
  }
  __syncthreads();
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::FinishHeads() {
  const CardAttention& a = p_.attention;
  const HeadInputs& in = p_.inputs;
  const float* norms = Floats(p_.norm_at);
  const auto* turns = reinterpret_cast<const float2*>(shared_ + p_.turn_at);
  const int fresh = row_ - first_fresh_ + 1;
#pragma unroll 1
  for (int task = warp_; task < heads_ + 2 * fresh; task += kRowsWarps) {
    const int row = first_fresh_ + (task - heads_) % fresh;
    if (task >= heads_ + fresh) {
      if (in.v_scale != 1.0F) {
        for (int i = lane_; i < a.value_dim; i += kWarpLanes) {
          FreshValue(row)[i] *= in.v_scale;
        }
      }
      WarpEncode<kType>(FreshValue(row), a.value_dim, FreshValueRow(row), lane_);
      continue;
    }
    const bool query = task < heads_;
    float* head = query ? Query() + task * a.key_dim : FreshKey(row);
    if ((query ? in.q_norm : in.k_norm) != nullptr) {
      WarpHeadNorm(head, a.key_dim, query ? norms : norms + a.key_dim, query ? in.q_eps : in.k_eps,
                   lane_);
    }
    __syncwarp();
    WarpRope(head, in.n_rot, turns + (query ? fresh - 1 : row - first_fresh_) * (in.n_rot / 2),
             lane_);
    __syncwarp();
    if (!query) {
      WarpEncode<kType>(head, a.key_dim, FreshKeyRow(row), lane_);
    }
  }
  __syncthreads();
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::WriteRow() const {
  const int thread = static_cast<int>(threadIdx.x) - kRowsThreads / 2;
  if (chunk_ != 0 || thread < 0) return;
  const CardAttention& a = p_.attention;
  PutRow(a.keys, PlaneBytes<kType>(a.key_dim), FreshKeyRow(row_), thread);
  PutRow(a.values, ValueRowBytes(), FreshValueRow(row_), thread);
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::PutRow(const CardPlane& plane, int bytes,
                                                          const std::byte* row, int thread) const {
  std::byte* to = PlaneRow(plane, slot_, index_) + kv_head_ * bytes;
#pragma unroll 1
  for (int i = thread; i < bytes / 2; i += kRowsThreads / 2) {
    reinterpret_cast<std::uint16_t*>(to)[i] = reinterpret_cast<const std::uint16_t*>(row)[i];
  }
}

}  // namespace bloomery::kernels::cuda
