// The merge of a row's windows by the last blocks of its (row, kv head, chunk)
// (rows_attention.cuh).
#pragma once

#include "kernels-common/attention/cuda/rows_attention.cuh"

namespace bloomery::kernels::cuda {

template <KvType kType, int kHeads, int kRounds>
__device__ int RowsBlock<kType, kHeads, kRounds>::CountIn(int* mergers) {
  auto* counter = reinterpret_cast<std::int32_t*>(p_.counters) + 2 * Group();
  const int blocks = min(p_.splits, windows_);
  *mergers = min(min(p_.mergers, blocks), heads_);
  __syncthreads();
  if (threadIdx.x == 0) {
    int before = 0;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;\n"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
    const int merger = before - (blocks - *mergers);
    int arrived = before + 1;
    while (merger >= 0 && arrived < blocks) {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n"
                   : "=r"(arrived)
                   : "l"(counter)
                   : "memory");
    }
    exchange_.merger = merger;
  }
  __syncthreads();
  return exchange_.merger;
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::CountOut(int mergers) const {
  if (threadIdx.x != 0) return;
  auto* counter = reinterpret_cast<std::int32_t*>(p_.counters) + 2 * Group();
  if (mergers == 1 || atomicAdd(counter + 1, 1) == mergers - 1) {
    counter[0] = 0;
    counter[1] = 0;
  }
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::Merge() {
  int mergers = 0;
  const int merger = CountIn(&mergers);
  if (merger < 0) return;
  const int heads = (heads_ - merger + mergers - 1) / mergers;  // merger, merger + mergers, ..
  const int items = heads * p_.attention.value_dim;
  auto* so_far = reinterpret_cast<float2*>(shared_);
  float* values = reinterpret_cast<float*>(so_far + items);
  const int room = p_.stages * p_.stage_bytes / 4 - 2 * items;
  const int group = min(kWarpLanes, room / items);
  float most = -INFINITY;
#pragma unroll 1
  for (int begin = 0; begin < windows_; begin += group) {
    const int count = min(group, windows_ - begin);
    CopyWindows(values, begin, count, heads, merger, mergers);
    MergeFactors(begin, count, merger, mergers, heads, &most);
    WaitForCopies<0>();
    __syncthreads();
#pragma unroll 1
    for (int item = static_cast<int>(threadIdx.x); item < items; item += kRowsThreads) {
      MergeItem(values, so_far, item, begin, count, merger, mergers);
    }
    __syncthreads();
  }
  CountOut(mergers);
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::CopyWindows(float* to, int begin, int count,
                                                               int heads, int merger,
                                                               int mergers) const {
  const int values = count * p_.attention.value_dim;
#pragma unroll 1
  for (int head = 0; head < heads; ++head) {
    const float* from =
        p_.window_values + (WindowPlace(merger + head * mergers) + begin) * p_.attention.value_dim;
#pragma unroll 4
    for (int i = 4 * static_cast<int>(threadIdx.x); i < values; i += 4 * kRowsThreads) {
      CopyAsync<16>(to + head * values + i, from + i);
    }
  }
  CommitCopies();
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::MergeFactors(int begin, int count, int merger,
                                                                int mergers, int heads,
                                                                float* most) {
  if (warp_ >= heads) return;
  const float2* sums = p_.window_sums + WindowPlace(merger + warp_ * mergers) + begin;
  const float2 own = lane_ < count ? __ldcg(sums + lane_) : float2{-INFINITY, 0.0F};
  exchange_.merge[warp_][lane_] = WindowFactors(own, most);
  if (p_.attention.sinks != nullptr && lane_ == 0) {
    exchange_.sinks[warp_] = SinkFactors(first_head_ + merger + warp_ * mergers, *most);
  }
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::MergeItem(const float* values, float2* so_far,
                                                             int item, int begin, int count,
                                                             int merger, int mergers) const {
  const int dim = p_.attention.value_dim;
  const int head = item / dim;
  const float* value = values + head * (count - 1) * dim + item;
  const float4* factors = exchange_.merge[head];
  float total = value[0];
  float sum = factors[0].z;
  if (begin > 0) {
    const float2 before = so_far[item];
    total = before.x * factors[0].x + total * factors[0].y;
    sum = before.y * factors[0].x + sum * factors[0].y;
  }
#pragma unroll 8
  for (int window = 1; window < count; ++window) {
    const float4 factor = factors[window];
    total = total * factor.x + value[window * dim] * factor.y;
    sum = sum * factor.x + factor.z * factor.y;
  }
  if (begin + count < windows_) {
    so_far[item] = {total, sum};
  } else {
    if (p_.attention.sinks != nullptr) {
      const float2 sink = exchange_.sinks[head];
      total *= sink.x;
      sum = sum * sink.x + sink.y;
    }
    Out(merger + head * mergers)[item - head * dim] = total / sum;
  }
}

}  // namespace bloomery::kernels::cuda
