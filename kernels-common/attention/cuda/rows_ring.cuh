// Keys and values on their way through the stages of a block (rows_attention.cuh).
#pragma once

#include "kernels-common/attention/cuda/rows_attention.cuh"

namespace bloomery::kernels::cuda {

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::Issue() {
  if (issue_window_ < windows_) {
    std::byte* stage = Stage(issue_stage_);
    if (issue_slice_ < p_.key_slices) {
      IssueKeys((first_window_ + issue_window_) * kWindow, issue_slice_, stage);
    } else {
      IssueValues((first_window_ + issue_window_) * kWindow +
                      (issue_slice_ - p_.key_slices) * p_.value_keys,
                  stage);
    }
    issue_stage_ = issue_stage_ + 1 == p_.stages ? 0 : issue_stage_ + 1;
    if (++issue_slice_ == p_.slices) {
      issue_slice_ = 0;
      issue_window_ += p_.splits;
    }
  }
  CommitCopies();
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::IssueKeys(int begin, int slice,
                                                             std::byte* stage) const {
  const CardPlane& plane = p_.attention.keys;
  const int keys = min(kWindow, old_keys_ - begin);
  const int dims = min(kSliceDims, p_.attention.key_dim - slice * kSliceDims);
  const std::byte* source = PlaneRow(plane, slot_, begin) +
                            kv_head_ * PlaneBytes<kType>(p_.attention.key_dim) +
                            slice * PlaneBytes<kType>(kSliceDims);
  const int bytes = PlaneBytes<kType>(dims);
  if constexpr (kType != KvType::kQ8_0) {
    constexpr int kParts = PlaneBytes<kType>(kSliceDims) / 16;
    constexpr int kStep = kRowsThreads / kParts;
    const int first = static_cast<int>(threadIdx.x) / kParts;
    const int at = static_cast<int>(threadIdx.x) % kParts * 16;
    CopyColumn<kWindow / kStep>(stage + first * kStageKey + at, kStep * kStageKey,
                                source + first * plane.row_bytes + at, kStep * plane.row_bytes,
                                at < bytes ? keys - first : 0, kStep);
  } else {
    CopyQ8(stage, kStageKey, source, plane.row_bytes, 0, keys, bytes);
  }
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::IssueValues(int begin, std::byte* stage) const {
  const CardPlane& plane = p_.attention.values;
  const int keys = min(p_.value_keys, old_keys_ - begin);
  const int bytes = ValueRowBytes();
  const int unseen = first_seen_ - begin;
  const std::byte* source = PlaneRow(plane, slot_, begin) + kv_head_ * bytes;
  if constexpr (kType != KvType::kQ8_0) {
    if (p_.value_step > 0) {
      const int thread = static_cast<int>(threadIdx.x);
      const int step = p_.value_step;
      const int first = thread * step / kRowsThreads;
      const int at = 16 * thread - first * bytes;
      std::byte* to = stage + first * bytes + at;
      const std::byte* from = source + first * plane.row_bytes + at;
#pragma unroll 4
      for (int key = first; key < keys; key += step) {
        CopyAsync<16>(to, from, key < unseen ? 0 : 16);
        to += step * bytes;
        from += step * plane.row_bytes;
      }
      return;
    }
    const int parts = bytes / 16;
#pragma unroll 2
    for (int item = static_cast<int>(threadIdx.x); item < keys * parts; item += kRowsThreads) {
      const int key = item / parts;
      const int at = (item - key * parts) * 16;
      CopyAsync<16>(stage + key * bytes + at, source + key * plane.row_bytes + at,
                    key < unseen ? 0 : 16);
    }
  } else {
    CopyQ8(stage, bytes, source, plane.row_bytes, unseen, keys, bytes);
  }
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::CopyQ8(std::byte* stage, int stride,
                                                          const std::byte* source,
                                                          std::size_t row_bytes, int unseen,
                                                          int keys, int bytes) const {
  const int parts = bytes / p_.copy_unit;
#pragma unroll 2
  for (int item = static_cast<int>(threadIdx.x); item < keys * parts; item += kRowsThreads) {
    const int key = item / parts;
    const int at = (item - key * parts) * p_.copy_unit;
    std::byte* to = stage + key * stride + at;
    const std::byte* from = source + key * row_bytes + at;
    if (p_.copy_unit == 4) {
      CopyAsync<4>(to, from, key < unseen ? 0 : 4);
    } else {
      *reinterpret_cast<std::uint16_t*>(to) =
          key < unseen ? 0 : __ldcg(reinterpret_cast<const unsigned short*>(from));
    }
  }
}

template <KvType kType, int kHeads, int kRounds>
__device__ void RowsBlock<kType, kHeads, kRounds>::Patch(std::byte* stage,
                                                         const Slice& slice) const {
  const int fresh = row_ - first_fresh_ + 1;
  const std::byte* rows =
      shared_ + (slice.is_keys ? p_.fresh_key_row_at : p_.fresh_value_row_at) + slice.from;
  const int row_bytes = slice.is_keys ? PlaneBytes<kType>(p_.attention.key_dim) : ValueRowBytes();
#pragma unroll 1
  for (int i = warp_; i < fresh; i += kRowsWarps) {
    const int key = index_ - fresh + 1 + i - slice.begin;
    if (key < 0 || key >= slice.keys) continue;
    const bool seen = slice.begin + key >= first_seen_;
    const auto* source = reinterpret_cast<const std::uint16_t*>(rows + i * row_bytes);
    auto* to = reinterpret_cast<std::uint16_t*>(stage + key * slice.stride);
#pragma unroll 4
    for (int word = lane_; word < slice.row_bytes / 2; word += kWarpLanes) {
      to[word] = seen ? source[word] : std::uint16_t{0};
    }
  }
}

template <KvType kType, int kHeads, int kRounds>
__device__ const std::byte* RowsBlock<kType, kHeads, kRounds>::Decode(const std::byte* stage,
                                                                      const Slice& slice) const {
  const int blocks = slice.values / kQ8Values;
  const int stride = slice.is_keys ? kScoreKey : slice.values * 4;
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < slice.keys * blocks; item += kRowsThreads) {
    const int key = item / blocks;
    const int block = item - key * blocks;
    DecodeQ8(stage + key * slice.stride + block * kQ8Bytes,
             reinterpret_cast<float*>(shared_ + p_.work_at + key * stride) + block * kQ8Values);
  }
  __syncthreads();
  return shared_ + p_.work_at;
}

template <KvType kType, int kHeads, int kRounds>
__device__ const std::byte* RowsBlock<kType, kHeads, kRounds>::Arrive(const Slice& slice) {
  std::byte* stage = Stage(read_stage_);
  read_stage_ = read_stage_ + 1 == p_.stages ? 0 : read_stage_ + 1;
  if (ready_ > 0) {
    --ready_;
    if (!slice.is_keys) {
      __syncthreads();  // for the weights
    }
  } else {
    WaitForCopiesUpTo<6>(p_.stages - 2);
    if (Fused() && slice.begin + slice.keys > old_keys_) {
      Patch(stage, slice);
    }
    __syncthreads();
  }
  Issue();
  if constexpr (kType == KvType::kQ8_0) {
    return Decode(stage, slice);
  } else {
    return stage;
  }
}

}  // namespace bloomery::kernels::cuda
